"""CIFAR-10 in both its distributions, and pickles of which nothing is run."""

import functools
import os
import pickle

import numpy as np
import pytest

from harness.core.errors import DataSetError
from harness.workloads.data.cifar10 import CIFAR10, Cifar10Samples


def make_batch(count=4, seed=0):
    """Planes of the Python distribution: count x 3072, red first."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 3072)).astype(np.uint8), random.integers(0, 10, count).tolist()


def write_binary(directory, batches):
    directory.mkdir(parents=True, exist_ok=True)
    for number, (pixels, labels) in enumerate(batches, 1):
        records = np.hstack([np.array(labels, np.uint8)[:, np.newaxis], pixels])
        (directory / f"data_batch_{number}.bin").write_bytes(records.tobytes())


def write_pickled(directory, batches, protocol=2):
    directory.mkdir(parents=True, exist_ok=True)
    for number, (pixels, labels) in enumerate(batches, 1):
        content = {b"batch_label": b"batch", b"labels": labels, b"data": pixels, b"filenames": [b"a.png"] * len(labels)}
        (directory / f"data_batch_{number}").write_bytes(pickle.dumps(content, protocol))


def as_python_2_wrote_it(pixels, labels):
    """A batch in the very opcodes of the published files: protocol 2 with byte strings as Python 2 strings."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\x00\x85" + text(b"b") + b"\x87R"
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R" + b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ"
    kind += b"\xff\xff\xff\xffK\x00tb"
    shape = b"K" + bytes([len(pixels)]) + b"M" + (3072).to_bytes(2, "little") + b"\x86"
    content = b"T" + pixels.size.to_bytes(4, "little") + pixels.tobytes()
    state = b"(K\x01" + shape + kind + b"\x89" + content + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + state + text(b"labels") + numbers + b"u."


def write_as_python_2(directory, batches):
    for number, batch in enumerate(batches, 1):
        (directory / f"data_batch_{number}").write_bytes(as_python_2_wrote_it(*batch))


def in_fortran_order(directory, batches):
    write_pickled(directory, [(np.asfortranarray(pixels), labels) for pixels, labels in batches])


@pytest.mark.parametrize(
    "write", [write_binary, write_as_python_2, in_fortran_order, functools.partial(write_pickled, protocol=4)]
)
def test_both_distributions_give_the_same_pictures_in_height_width_colour_order(tmp_path, write):
    batches = [make_batch(4, seed=0), make_batch(3, seed=1)]
    write(tmp_path, batches)
    samples = Cifar10Samples(tmp_path)
    assert len(samples) == 7
    for index, (pixels, label) in enumerate((p, n) for batch in batches for p, n in zip(*batch)):
        picture, read_label = samples[index]
        assert read_label == label
        assert picture.shape == (32, 32, 3)
        assert picture[5, 9].tolist() == [pixels[plane * 1024 + 5 * 32 + 9] for plane in range(3)]
    assert len(samples.files([0])) == 2


class Malicious:
    """Runs a command where it is unpickled in the usual way."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_malicious_pickle_runs_nothing(tmp_path):
    content = pickle.dumps({b"data": Malicious(tmp_path / "pwned"), b"labels": []}, 2)
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(DataSetError, match=r"data_batch_1 is no CIFAR-10 batch"):
        Cifar10Samples(tmp_path)
    assert not (tmp_path / "pwned").exists()
    pickle.loads(content)
    assert (tmp_path / "pwned").exists(), "the same pickle does run it where nothing prevents that"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02}",
        pickle.dumps({b"data": "no array", b"labels": [1]}),
        pickle.dumps([1, 2, 3]),
        pickle.dumps({b"data": np.zeros((2, 3072), np.int8), b"labels": [1, 2]}),
        pickle.dumps({b"data": np.zeros((2, 100), np.uint8), b"labels": [1, 2]}),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["cat"]}),
    ],
)
def test_a_pickle_that_is_no_batch_is_named(tmp_path, content):
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(DataSetError, match=str(tmp_path / "data_batch_1")):
        Cifar10Samples(tmp_path)


def test_a_label_that_cannot_be_is_named_when_it_is_read_and_a_batch_that_is_cut_off_before(tmp_path):
    pixels, _ = make_batch(2)
    write_binary(tmp_path, [(pixels, [3, 11])])
    samples = Cifar10Samples(tmp_path)
    assert samples[0][1] == 3
    with pytest.raises(DataSetError, match="label 11 at picture 1"):
        samples[1]
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataSetError, match=r"data_batch_1\.bin has 6145 bytes"):
        Cifar10Samples(tmp_path)


@pytest.mark.parametrize("place", ["cifar10", "cifar-10-batches-bin", "cifar-10-batches-py"])
def test_real_files_are_found_where_the_archives_unpack(tmp_path, place):
    assert CIFAR10.find_real(tmp_path) is None
    write_pickled(tmp_path / place, [make_batch()])
    assert CIFAR10.find_real(tmp_path) == tmp_path / place


def test_the_written_set_is_binary_batches_whose_colours_tell_the_class_and_the_seed_decides(prepare_samples):
    prepared = prepare_samples(CIFAR10, 200)
    assert [path.name for path in prepared.files] == ["data_batch_1.bin"]
    samples, other = (CIFAR10.open(one.directory) for one in (prepared, prepare_samples(CIFAR10, 200, seed=1)))
    labels = np.array([samples[index][1] for index in range(200)])
    assert any(labels[index] != other[index][1] for index in range(200))
    patches = np.stack([samples[index][0].reshape(4, 8, 4, 8, 3).mean((1, 3)).ravel() for index in range(200)])
    centres = np.stack([patches[:100][labels[:100] == number].mean(0) for number in range(10)])
    nearest = np.linalg.norm(patches[100:, np.newaxis] - centres, axis=2).argmin(1)
    assert (nearest == labels[100:]).mean() > 0.9

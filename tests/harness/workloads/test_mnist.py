"""idx files and MNIST: what is written is read back; damage is named."""

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import DataSetError
from harness.workloads.data.mnist import IMAGES, LABELS, MNIST, MnistSamples, read_idx, write_idx

PROJECT = Path(__file__).resolve().parents[3]

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@given(shapes, st.integers(0, 2**32 - 1), st.booleans())
def test_an_idx_file_reads_back_as_it_was_written(tmp_path_factory, shape, seed, zipped):
    array = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    path = tmp_path_factory.mktemp("idx") / "file"
    write_idx(path, array)
    if zipped:
        path = path.rename(path.with_suffix(".gz"))
        path.write_bytes(gzip.compress(path.read_bytes()))
    rows = read_idx(path)
    assert len(rows) == shape[0]
    np.testing.assert_array_equal(np.stack([rows[index] for index in range(len(rows))]), array)


def test_the_header_is_big_endian_as_in_the_format(tmp_path):
    write_idx(tmp_path / "file", np.zeros((2, 3), np.uint8))
    assert (tmp_path / "file").read_bytes() == bytes.fromhex("00000802 00000002 00000003") + bytes(6)


WHOLE = bytes.fromhex("00000802 000000c8 00000005") + bytes(1000)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("file", b"", id="empty"),
        pytest.param("file", b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", id="cut-header"),
        pytest.param("file", b"text, no idx", id="text"),
        pytest.param("file", WHOLE[:-3], id="cut-rows"),
        pytest.param("cut.gz", gzip.compress(WHOLE[:-3]), id="gzip-of-cut-rows"),
        pytest.param("cut.gz", gzip.compress(WHOLE)[:-9], id="cut-gzip"),
    ],
)
def test_a_file_that_is_no_idx_file_or_cut_off_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataSetError, match=str(tmp_path / name)):
        read_idx(tmp_path / name)


def test_mapped_rows_travel_to_a_worker_as_their_path(tmp_path):
    write_idx(tmp_path / "file", np.arange(250, dtype=np.uint8).repeat(1000).reshape(250, 1000))
    rows = read_idx(tmp_path / "file")
    assert rows[3][0] == 3
    copy = pickle.dumps(rows)
    assert len(copy) < 1000
    assert pickle.loads(copy)[249][0] == 249


def write_mnist(directory, images=3, labels=3):
    directory.mkdir(parents=True)
    write_idx(directory / IMAGES, np.zeros((images, 28, 28), np.uint8))
    write_idx(directory / LABELS, np.arange(labels, dtype=np.uint8))


@pytest.mark.parametrize("place", ["mnist", "MNIST/raw"])
def test_real_files_are_found_where_users_keep_them(tmp_path, place):
    assert MNIST.find_real(tmp_path) is None
    write_mnist(tmp_path / place)
    samples = MnistSamples(MNIST.find_real(tmp_path))
    assert [label for _, label in (samples[index] for index in range(len(samples)))] == [0, 1, 2]
    assert sorted(path.name for path in samples.files([0])) == [IMAGES, LABELS]


def test_labels_that_do_not_match_the_pictures_and_labels_that_are_missing_are_an_error(tmp_path):
    write_mnist(tmp_path / "mnist", images=3, labels=4)
    with pytest.raises(DataSetError, match="4 labels for 3 pictures"):
        MnistSamples(tmp_path / "mnist")
    (tmp_path / "mnist" / LABELS).unlink()
    (tmp_path / "mnist" / LABELS).mkdir()  # as archives that unpack into a folder leave it
    with pytest.raises(DataSetError, match=LABELS):
        MnistSamples(tmp_path / "mnist")


@pytest.fixture(scope="module")
def digits(prepare_samples):
    pytest.importorskip("PIL")
    pytest.importorskip("sklearn")
    return prepare_samples(MNIST, 2_000)


def test_the_packaged_digits_are_all_there_and_look_like_mnist(digits):
    from sklearn.datasets import load_digits

    samples = MNIST.open(digits.directory)
    labels = [samples[index][1] for index in range(1_797)]
    assert labels == load_digits().target.tolist()
    pictures = np.stack([samples[index][0] for index in range(1_797)])
    assert pictures.shape == (1_797, 28, 28)
    assert pictures[:, :4].max() == 0, "MNIST leaves a frame of 4 pixels"
    assert pictures.max() == 255
    # The picture is that of its label: shrunk again, it is nearly the digit it came from.
    small = pictures[:, 4:24, 4:24].reshape(-1, 4, 5, 4, 5).mean((2, 4))
    original = load_digits().images.reshape(-1, 4, 2, 4, 2).mean((2, 4)) * 255 / 16
    assert np.corrcoef(small.ravel(), original.ravel())[0, 1] > 0.98


def test_who_writes_the_digits_does_not_keep_what_loads_them(tmp_path):
    """Else the first run of a machine has another peak of memory than all later ones.

    A module of the working folder is not taken for what loads them.
    """
    for package in ("PIL", "sklearn"):
        pytest.importorskip(package)
    writes = "import sys; from pathlib import Path; from harness.workloads.data import mnist; "
    writes += "mnist.write(Path(sys.argv[1]), 10, 0, print); print(sorted({'sklearn', 'scipy'} & set(sys.modules)))"
    (tmp_path / "sklearn.py").write_text("raise SystemExit(5)")
    done = subprocess.run(
        [sys.executable, "-c", writes, tmp_path],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT)}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_more_than_the_packaged_digits_are_shifted_repeats_and_the_source_says_so(digits, prepare_samples):
    assert digits.source == "packaged: scikit-learn digits, repeated with shifts"
    assert prepare_samples(MNIST, 100).source == "packaged: scikit-learn digits"
    samples = MNIST.open(digits.directory)
    shifted = 0
    for index in range(1_797, 2_000):
        picture, label = samples[index]
        original, same_label = samples[index - 1_797]
        assert label == same_label
        assert picture.sum(dtype=int) == original.sum(dtype=int), "nothing is cut off"
        shifted += not np.array_equal(picture, original)
    assert shifted > 150

"""Preparing a data set: the real one where it is held, else a written one; all, a share, or more than there is."""

import dataclasses
import functools
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import DataSetError, InvalidValueError
from harness.workloads.data import data_set
from harness.workloads.data.cifar10 import CIFAR10
from harness.workloads.data.data_set import choose
from harness.workloads.data.photographs import IMAGENET_VAL

prepare = functools.partial(data_set.prepare, report=lambda line: None)


@pytest.fixture
def data_root(tmp_path, prepare_samples):
    """A user's directory with a `real` CIFAR-10 of 40 pictures."""
    shutil.copytree(prepare_samples(CIFAR10, 40, seed=7).directory, tmp_path / "root" / "cifar-10-batches-bin")
    return tmp_path / "root"


def read_all(prepared, seed=0):
    raw = CIFAR10.open(prepared.directory)
    return [raw[index] for index in choose(len(raw), prepared.samples, seed)]


def test_a_written_data_set_has_its_default_size_unless_a_scale_is_asked_for(tmp_path):
    small = dataclasses.replace(CIFAR10, default_samples=12)
    prepared = prepare(small, tmp_path, None, None, 0)
    assert (prepared.source, prepared.samples, prepared.bytes) == ("written", 12, 12 * 3073)
    assert prepared.scale == 12 / 50_000
    assert prepare(small, tmp_path, None, 0.001, 0).samples == 50


def test_the_real_data_set_is_used_where_it_is_held_all_of_it_or_all_of_it_repeated(tmp_path, data_root):
    held, more = (prepare(CIFAR10, tmp_path / "storage", data_root, scale, 0) for scale in (None, 100 / 50_000))
    assert (held.source, held.samples) == ("real", 40)
    assert held.directory == data_root / "cifar-10-batches-bin"
    assert held.bytes == sum(path.stat().st_size for path in held.files) == 40 * 3073
    assert not (tmp_path / "storage").exists()
    assert (more.source, more.samples, more.bytes) == ("real, repeated", 100, 40 * 3073)
    labels = [label for _, label in read_all(more)]
    assert labels[:40] == labels[40:80]


def test_a_share_of_a_real_data_set_is_a_choice_by_the_seed(tmp_path, data_root):
    some = prepare(CIFAR10, tmp_path, data_root, 10 / 50_000, 0)
    assert (some.source, some.samples) == ("real", 10)
    first, again, other = ([picture.tobytes() for picture, _ in read_all(some, seed=seed)] for seed in (0, 0, 1))
    assert len(set(first)) == 10
    assert first == again != other


def test_a_root_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match="nowhere"):
        prepare(CIFAR10, tmp_path, tmp_path / "nowhere", None, 0)


def test_a_sample_does_not_depend_on_how_many_are_written(prepare_samples):
    few, many = prepare_samples(CIFAR10, 5), prepare_samples(CIFAR10, 30)
    for (picture, label), (same_picture, same_label) in zip(read_all(few), read_all(many)):
        np.testing.assert_array_equal(picture, same_picture)
        assert label == same_label


@given(st.integers(1, 60), st.integers(1, 200), st.integers(0, 2**32))
def test_a_choice_has_the_size_asked_for_and_repeats_nothing_before_all_were_used(held, wanted, seed):
    indices = list(choose(held, wanted, seed))
    assert len(indices) == wanted
    assert set(indices) <= set(range(held))
    assert len(set(indices)) == min(held, wanted)
    assert indices == list(choose(held, wanted, seed))


def test_a_root_without_this_data_set_is_reported_and_one_without_samples_is_an_error(tmp_path):
    lines, root = [], tmp_path / "root"
    (root / "imagenet-val" / "n01440764").mkdir(parents=True)
    prepared = prepare(CIFAR10, tmp_path / "storage", root, 4 / 50_000, 0, report=lines.append)
    assert prepared.source == "written"
    assert "does not hold cifar10" in lines[0]
    with pytest.raises(DataSetError, match=r"imagenet-val holds no sample"):
        prepare(IMAGENET_VAL, tmp_path, root, None, 0)

"""Made-up photographs: their sizes, their determinism, and what happens to damaged ones."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import DataSetError
from harness.workloads.data.photographs import draw_size, fit_size, make_jpeg, read_picture

Image = pytest.importorskip("PIL.Image")
HUE = np.zeros((2, 6, 8))


def make(seed, size, file_bytes, quality):
    return make_jpeg(np.random.default_rng(seed), size, file_bytes, quality, HUE)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.floats(50_000, 270_000), st.sampled_from([90, 96]))
def test_a_picture_has_about_the_file_size_asked_for(seed, file_bytes, quality):
    content = make(seed, fit_size((640, 480), file_bytes, quality), file_bytes, quality)
    assert len(content) == pytest.approx(file_bytes, rel=0.06)


def test_only_files_too_large_for_the_usual_size_are_larger_pictures():
    assert fit_size((640, 480), 150_000, 96) == (640, 480)
    width, height = fit_size((640, 480), 600_000, 96)
    assert width > 640
    assert width / height == pytest.approx(4 / 3, rel=0.01)


def test_drawn_sizes_spread_around_their_mean_as_those_of_photographs_do():
    random = np.random.default_rng(0)
    sizes = np.array([draw_size(random, 122_487) for _ in range(20_000)])
    assert sizes.mean() == pytest.approx(122_487, rel=0.01)
    assert np.log(sizes).std() == pytest.approx(0.4, abs=0.03)
    assert sizes.max() / sizes.min() < 5.1, "cut off at two sigmas each way"


def test_a_picture_is_decoded_to_colours(tmp_path):
    Image.new("L", (20, 10), 128).save(tmp_path / "grey.png")
    picture = read_picture(tmp_path / "grey.png")
    assert (picture.mode, picture.size) == ("RGB", (20, 10))


@pytest.mark.parametrize("damage", ["cut off", "no picture", "missing"])
def test_a_damaged_picture_is_named(tmp_path, damage):
    path = tmp_path / "picture.jpg"
    if damage == "cut off":
        file = io.BytesIO()
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3)).astype(np.uint8)).save(file, "JPEG")
        path.write_bytes(file.getvalue()[:2000])
    elif damage == "no picture":
        path.write_text("no picture")
    with pytest.raises(DataSetError, match=str(path)):
        read_picture(path)

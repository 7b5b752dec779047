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


def test_a_picture_is_decoded_to_colours_and_named_where_it_is_damaged(tmp_path):
    grey = tmp_path / "grey.png"
    Image.new("L", (20, 10), 128).save(grey)
    picture = read_picture(grey)
    assert (picture.mode, picture.size) == ("RGB", (20, 10))
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3)).astype(np.uint8)).save(file, "JPEG")
    for content in (file.getvalue()[:2000], b"no picture"):
        grey.write_bytes(content)
        with pytest.raises(DataSetError, match=str(grey)):
            read_picture(grey)
    with pytest.raises(DataSetError, match="missing"):
        read_picture(tmp_path / "missing.png")


def test_a_damaged_picture_is_named_where_another_package_looks_for_a_decoder(tmp_path, monkeypatch):
    """As ultralytics does once it was imported."""

    def open_with_decoder(path):
        raise ModuleNotFoundError("No module named 'pi_heif'")

    monkeypatch.setattr(Image, "open", open_with_decoder)
    with pytest.raises(DataSetError, match="damaged"):
        read_picture(tmp_path / "damaged.png")

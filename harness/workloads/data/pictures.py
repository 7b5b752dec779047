"""JPEG files: reading them, and writing made-up ones that take as long to fetch and decode as photographs do."""

from __future__ import annotations

import functools
import io
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterable, Tuple

import numpy as np

from harness.core.errors import DataSetError
from harness.workloads.data.written_folder import WriteProgress
from harness.workloads.optional_packages import require

_TEXTURE_SIDE = 1_536
_CONTRASTS = (1.0, 3.0, 6.0, 12.0, 20.0, 32.0, 48.0, 64.0)
_SPREAD, _REACH = 0.4, 2.0
_HUE_JITTER = 6.0
_TOLERANCE = 0.03  # a file size further off than this is tried once more


def read_picture(path: Path) -> Any:
    """Read and decode a picture file to a PIL picture in RGB.

    Raises:
        DataSetError: it is missing, cut off or no picture.
    """
    try:
        with require("PIL.Image").open(path) as picture:
            return picture.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises SyntaxError on broken headers
        raise DataSetError(f"cannot read picture {path}: {error}", "fetch or write the data set again") from error


def draw_size(random: np.random.Generator, mean_bytes: float) -> float:
    """A file size in bytes: log-normal with a sigma of 0.4, cut off at two sigmas each way, with the mean asked for."""
    z = float(np.clip(random.standard_normal(), -_REACH, _REACH))
    return mean_bytes * math.exp(_SPREAD * z) / _mean_of_spread()


@functools.lru_cache(maxsize=None)
def _mean_of_spread() -> float:
    """Mean of exp(s * z) for a standard normal z that is clipped to [-k, k]."""
    s, k = _SPREAD, _REACH

    def below(x: float) -> float:
        return 0.5 * (1 + math.erf(x / math.sqrt(2)))

    middle = math.exp(s * s / 2) * (below(k - s) - below(-k - s))
    return middle + (math.exp(s * k) + math.exp(-s * k)) * below(-k)


def fit_size(size: Tuple[int, int], file_bytes: float, quality: int) -> Tuple[int, int]:
    """Width and height of a picture whose file may have `file_bytes` bytes: `size`, or larger in the same shape.

    As among photographs, files that are larger than a picture of the usual size can be are larger pictures.
    """
    most = _calibration(quality)[0][-1]
    growth = max(1.0, math.sqrt(file_bytes / (size[0] * size[1] * most)))
    return round(size[0] * growth), round(size[1] * growth)


def make_jpeg(
    random: np.random.Generator, size: Tuple[int, int], file_bytes: float, quality: int, hue: np.ndarray
) -> bytes:
    """A JPEG file of about `file_bytes` bytes: a cut of a natural-looking texture in the colours of `hue`.

    Args:
        random: what the picture is drawn from.
        size: width and height in pixels, from `fit_size`.
        file_bytes: size wanted; the contrast of the texture is chosen to meet it to a few per cent.
        quality: JPEG quality, 1 to 96 or so.
        hue: coarse colours, shape (2, rows, columns), around 0: what tells one class from another.
    """
    colours = hue + random.normal(0, _HUE_JITTER, hue.shape)
    cut = _cut_texture(random, *size)

    def encode_for(aim: float) -> bytes:
        contrast = float(np.interp(aim / (size[0] * size[1]), *_calibration(quality)))
        return _encode(cut, contrast, quality, colours)

    content = encode_for(file_bytes)
    if abs(len(content) / file_bytes - 1) > _TOLERANCE:
        content = encode_for(file_bytes**2 / len(content))
    return content


def _cut_texture(random: np.random.Generator, width: int, height: int) -> np.ndarray:
    """A window of the texture at a random place, perhaps mirrored."""
    texture = _texture()
    top, left = random.integers(_TEXTURE_SIDE - height + 1), random.integers(_TEXTURE_SIDE - width + 1)
    cut = texture[top : top + height, left : left + width]
    return cut[:, ::-1] if random.integers(2) else cut


@functools.lru_cache(maxsize=None)
def _texture() -> np.ndarray:
    """Noise whose amplitude falls with 1/frequency, as in natural scenes (Field 1987); mean 0, deviation 1."""
    spectrum = np.fft.rfft2(np.random.default_rng(0).standard_normal((_TEXTURE_SIDE, _TEXTURE_SIDE)))
    frequency = np.hypot(np.fft.fftfreq(_TEXTURE_SIDE)[:, np.newaxis], np.fft.rfftfreq(_TEXTURE_SIDE))
    frequency[0, 0] = np.inf
    # Frequencies below 1/64 per pixel would make some cuts bright and some dark as a whole: level them.
    texture = np.fft.irfft2(spectrum / np.maximum(frequency, 1 / 64), s=(_TEXTURE_SIDE, _TEXTURE_SIDE))
    return (texture / texture.std()).astype(np.float32)


def _encode(texture: np.ndarray, contrast: float, quality: int, hue: np.ndarray) -> bytes:
    pillow = require("PIL.Image")
    brightness = np.clip(texture * np.float32(contrast) + np.float32(128), 0, 255).astype(np.uint8)
    size = (texture.shape[1], texture.shape[0])
    colours = [
        pillow.fromarray(np.clip(plane + 128, 0, 255).astype(np.uint8)).resize(size, pillow.BILINEAR) for plane in hue
    ]
    file = io.BytesIO()
    pillow.merge("YCbCr", [pillow.fromarray(brightness), *colours]).save(file, "JPEG", quality=quality)
    return file.getvalue()


@functools.lru_cache(maxsize=None)
def _calibration(quality: int) -> Tuple[np.ndarray, np.ndarray]:
    """Bytes per pixel that each contrast leads to, found by trying: encoders differ from one libjpeg to the next."""
    random, side = np.random.default_rng(0), 512
    cut, colours = _cut_texture(random, side, side), random.normal(0, 4 * _HUE_JITTER, (2, 6, 8))
    sizes = [len(_encode(cut, contrast, quality, colours)) / side**2 for contrast in _CONTRASTS]
    return np.array(sizes), np.array(_CONTRASTS)


def write_files(files: Iterable[Tuple[Path, Callable[[], bytes]]], progress: WriteProgress) -> None:
    """Write files whose content is made by functions, several at a time: encoding leaves Python's lock to others."""

    def write(file: Tuple[Path, Callable[[], bytes]]) -> None:
        path, make = file
        path.write_bytes(make())

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(write, files):
            progress.advance()

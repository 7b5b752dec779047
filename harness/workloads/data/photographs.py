"""JPEG photographs with labels: GLD-23k and ImageNet, and made-up ones that take as long to fetch and decode."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np

from harness.core.device import Report
from harness.core.environment import usable_cpus
from harness.core.errors import DataSetError
from harness.workloads.data.data_set import first_of, known_data_set
from harness.workloads.data.written_folder import reported
from harness.workloads.optional_packages import require

_TEXTURE_SIDE = 1_536
_CONTRASTS = (1.0, 3.0, 6.0, 12.0, 20.0, 32.0, 48.0, 64.0)
_SPREAD, _REACH = 0.4, 2.0
_MEAN_OF_SPREAD = 1.0758970620062462  # of exp(0.4 z) for a standard normal z that is clipped to [-2, 2]
_HUE_JITTER = 6.0
_TOLERANCE = 0.03  # a file size further off than this is tried once more


def read_picture(path: Path) -> Any:
    pillow = require("PIL.Image")
    bomb = pillow.DecompressionBombError  # more than 179 million pixels
    try:
        with pillow.open(path) as picture:
            return picture.convert("RGB")
    # Pillow raises SyntaxError on broken headers; ultralytics makes it look for a decoder that may not be installed.
    except (OSError, SyntaxError, ValueError, ImportError, bomb) as error:
        raise DataSetError(f"cannot read picture {path}: {error}", "fetch or write the data set again") from error


def draw_size(random: np.random.Generator, mean_bytes: float) -> float:
    """A file size in bytes: log-normal with a sigma of 0.4, cut off at two sigmas each way, with the mean asked for."""
    z = float(np.clip(random.standard_normal(), -_REACH, _REACH))
    return mean_bytes * math.exp(_SPREAD * z) / _MEAN_OF_SPREAD


def fit_size(size: Tuple[int, int], file_bytes: float, quality: int) -> Tuple[int, int]:
    """Width and height of a picture whose file has so many bytes: `size`, or larger in the same shape."""
    most = _calibration(quality)[0][-1]
    growth = max(1.0, math.sqrt(file_bytes / (size[0] * size[1] * most)))
    return round(size[0] * growth), round(size[1] * growth)


def make_jpeg(
    random: np.random.Generator, size: Tuple[int, int], file_bytes: float, quality: int, hue: np.ndarray
) -> bytes:
    """A JPEG file of about `file_bytes` bytes: a cut of a natural-looking texture in the colours of `hue`.

    `hue` has coarse colours around 0, shape (2, rows, columns): what distinguishes the classes. The contrast of the
    texture is chosen to meet `file_bytes` to a few per cent.
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
    """Bytes per pixel for each contrast, measured here: encoders differ from one libjpeg to the next."""
    random, side = np.random.default_rng(0), 512
    cut, colours = _cut_texture(random, side, side), random.normal(0, 4 * _HUE_JITTER, (2, 6, 8))
    sizes = [len(_encode(cut, contrast, quality, colours)) / side**2 for contrast in _CONTRASTS]
    return np.array(sizes), np.array(_CONTRASTS)


def write_files(files: Sequence[Tuple[Path, Callable[[], bytes]]], name: str, report: Report) -> None:
    """Write files whose content is made by functions, several at a time: encoding leaves Python's lock to others."""

    def write(file: Tuple[Path, Callable[[], bytes]]) -> None:
        path, make = file
        path.write_bytes(make())

    with ThreadPoolExecutor(usable_cpus()) as pool:
        for _ in reported(pool.map(write, files), name, len(files), "images", report):
            pass


@dataclasses.dataclass
class LabelledPictures:
    """Pictures (PIL, RGB) and their labels; a picture is read and decoded when asked for."""

    folder: Path
    rows: Sequence[Tuple[str, int]]  # path of each picture in the folder, and its label
    index_files: Sequence[Path] = ()
    in_memory = False

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tuple[Any, int]:
        name, label = self.rows[index]
        return read_picture(self.folder / name), label

    def files(self, indices: Sequence[int]) -> List[Path]:
        names = dict.fromkeys(self.rows[index][0] for index in indices)
        return [*self.index_files, *(self.folder / name for name in names)]


def draw_labelled_picture(
    seed: int, index: int, classes: int, mean_bytes: float, size: Tuple[int, int], quality: int
) -> Tuple[int, Callable[[], bytes]]:
    """The label of a made-up picture, and what makes its JPEG file: its colours tell the class."""
    random = np.random.default_rng([seed, index])
    label = int(random.integers(classes))

    def make() -> bytes:
        hue = np.random.default_rng([seed, classes, label]).normal(0, 25, (2, 6, 8))
        file_bytes = draw_size(random, mean_bytes)
        return make_jpeg(random, fit_size(size, file_bytes, quality), file_bytes, quality, hue)

    return label, make


_GLD23K_SIZE = (800, 600)  # students' paper on AGX and NX storage, sec. II.C
_LISTS = ("data_user_dict/gld23k_user_dict_train.csv", "gld23k_user_dict_train.csv", "federated_train.csv")
_USERS = 233


def open_gld23k(directory: Path) -> LabelledPictures:
    path = first_of(directory, _LISTS)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [(f"{row['image_id']}.jpg", int(row["class"])) for row in csv.DictReader(file)]
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataSetError(f"{path} is damaged: {error!r}; expected the columns image_id and class") from error
    return LabelledPictures(directory / "images", rows, [path])


def write_gld23k(directory: Path, samples: int, seed: int, report: Report) -> str:
    (directory / "images").mkdir()
    (directory / _LISTS[0]).parent.mkdir()
    files = []
    with open(directory / _LISTS[0], "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("user_id", "image_id", "class"))
        for index in range(samples):
            label, make = draw_labelled_picture(seed, index, 203, GLD23K.bytes_per_sample, _GLD23K_SIZE, 90)
            table.writerow([index % _USERS, f"{index:016x}", label])
            files.append((directory / "images" / f"{index:016x}.jpg", make))
    write_files(files, "gld23k", report)
    return "written"


GLD23K = known_data_set("gld23k", write_gld23k, open_gld23k, _LISTS)


_SUFFIXES = (".jpg", ".jpeg", ".png")
_IMAGENET_SIZE = (500, 375)  # the most frequent size of ImageNet's pictures


def open_image_folder(directory: Path) -> LabelledPictures:
    """All pictures below the class folders; labels count the folders in the order of their names."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    pictures = [
        (f"{folder.name}/{path.name}", label)
        for label, folder in enumerate(folders)
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _SUFFIXES
    ]
    return LabelledPictures(directory, pictures)


def write_imagenet(directory: Path, samples: int, seed: int, report: Report) -> str:
    files = []
    for index in range(samples):
        label, make = draw_labelled_picture(seed, index, 1_000, IMAGENET_VAL.bytes_per_sample, _IMAGENET_SIZE, 96)
        folder = directory / f"n{label:08d}"
        folder.mkdir(exist_ok=True)
        files.append((folder / f"ILSVRC2012_val_{index + 1:08d}.JPEG", make))
    write_files(files, "imagenet-val", report)
    return "written"


IMAGENET_VAL = known_data_set("imagenet-val", write_imagenet, open_image_folder, ("*",))  # a folder per class

"""MNIST: 28 x 28 handwritten digits in idx files; if it is not held, scikit-learn's digits in the same format."""

from __future__ import annotations

import functools
import gzip
import math
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import List, Sequence, Tuple, Union

import numpy as np

from harness.core.device import Report
from harness.core.environment import import_path
from harness.core.errors import DataSetError
from harness.core.files import MOST_BYTES
from harness.workloads.data.data_set import FileRows, first_of, known_data_set
from harness.workloads.data.written_folder import reported
from harness.workloads.optional_packages import require

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
SIDE = 28
_BOX = 20  # MNIST's digits fill a box of 20 x 20 in the middle of the picture
_MAX_SHIFT = 3  # pixels; leaves the digit inside its frame of (28 - 20) / 2
_PACKAGED_SIDE = 8  # of scikit-learn's digits, whose values are 0 to 16
_PRINT_DIGITS = """
import sys
from sklearn.datasets import load_digits
pictures, labels = load_digits(return_X_y=True)
sys.stdout.buffer.write(labels.astype("uint8").tobytes() + pictures.astype("uint8").tobytes())
"""


class MnistSamples:
    def __init__(self, directory: Path) -> None:
        self._files = [first_of(directory, (name, f"{name}.gz")) for name in (IMAGES, LABELS)]
        self._images, labels = (read_idx(path) for path in self._files)
        if [len(read.shape) for read in (self._images, labels)] != [3, 1]:
            raise DataSetError(f"{self._files[0]} holds no pictures, or {self._files[1]} no labels", "fetch them again")
        if len(labels) != len(self._images):
            raise DataSetError(
                f"{self._files[1]} has {len(labels)} labels for {len(self._images)} pictures of {self._files[0]}"
            )
        self._labels = [int(labels[index]) for index in range(len(labels))]
        self.in_memory = isinstance(self._images, np.ndarray)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Tuple[np.ndarray, int]:
        return np.array(self._images[index]), self._labels[index]

    def files(self, indices: Sequence[int]) -> List[Path]:
        return list(self._files)


def write(directory: Path, samples: int, seed: int, report: Report) -> str:
    """Write scikit-learn's digits as idx files; past the 1,797 it has, again and shifted by up to 3 pixels each way."""
    packaged, labels = _packaged_digits()
    pictures = np.stack([_to_mnist_shape(picture) for picture in packaged])
    images = np.zeros((samples, SIDE, SIDE), dtype=np.uint8)
    for index in reported(range(samples), "mnist", samples, "pictures", report):
        picture = pictures[index % len(pictures)]
        if index >= len(pictures):
            shift = np.random.default_rng([seed, index]).integers(-_MAX_SHIFT, _MAX_SHIFT, size=2, endpoint=True)
            picture = np.roll(picture, shift, axis=(0, 1))  # the frame is black: nothing comes in at the other side
        images[index] = picture
    write_idx(directory / IMAGES, images)
    write_idx(directory / LABELS, np.resize(labels, samples))
    return "packaged: scikit-learn digits" + (", repeated with shifts" if samples > len(pictures) else "")


@functools.lru_cache(maxsize=None)
def _packaged_digits() -> Tuple[np.ndarray, np.ndarray]:
    """scikit-learn's pictures, (n, 8, 8) with values 0 to 16, and labels, (n,).

    Another process loads them: scikit-learn and SciPy take 140 MB, which this one would keep, so that the run that
    writes the data set would have another peak of memory than all later ones.
    """
    # Elsewhere than in the working folder, whose `sklearn.py` or `numpy.py` is not meant.
    done = subprocess.run([sys.executable, "-c", _PRINT_DIGITS], cwd=import_path(), capture_output=True, check=False)
    if done.returncode:
        require("sklearn.datasets")
        last_line = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise DataSetError(f"scikit-learn's digits cannot be loaded: {last_line}")
    read = np.frombuffer(done.stdout, np.uint8)
    count = len(read) // (1 + _PACKAGED_SIDE**2)
    return read[count:].reshape(count, _PACKAGED_SIDE, _PACKAGED_SIDE), read[:count]


def _to_mnist_shape(image: np.ndarray) -> np.ndarray:
    """8 x 8 with values 0 to 16 to 28 x 28 with values 0 to 255, the digit in the middle."""
    pillow = require("PIL.Image")
    small = pillow.fromarray(np.round(image * (255 / 16)).astype(np.uint8))
    frame = np.zeros((SIDE, SIDE), dtype=np.uint8)
    margin = (SIDE - _BOX) // 2
    frame[margin : margin + _BOX, margin : margin + _BOX] = np.asarray(small.resize((_BOX, _BOX), pillow.BICUBIC))
    return frame


MNIST = known_data_set("mnist", write, MnistSamples, (IMAGES, f"{IMAGES}.gz"))


_LONGEST_HEADER = 4 + 4 * 4
_UNSIGNED_BYTE = 8  # third byte of the magic number; MNIST has no other type


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(">BBBB", 0, 0, _UNSIGNED_BYTE, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.tobytes())


def read_idx(path: Path) -> Union[FileRows, np.ndarray]:
    """Open an idx file of bytes: read row by row where it is plain, in memory where its name ends in `.gz`."""
    if path.suffix != ".gz":
        with open(path, "rb") as file:
            offset, shape = _parse_header(path, file.read(_LONGEST_HEADER))
        return FileRows(path, offset, shape)
    try:
        with gzip.open(path) as file:
            content = file.read(_LONGEST_HEADER)
            offset, shape = _parse_header(path, content)
            expected = offset + math.prod(shape)
            if expected > MOST_BYTES:  # before it is unpacked: a thousandth of that may be on the medium
                raise DataSetError(f"{path} would unpack to {expected:,} bytes, expected at most {MOST_BYTES:,}")
            content += file.read(max(0, expected - len(content)) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataSetError(f"{path} is damaged: {error}", "fetch it again") from error
    if len(content) != expected:
        more = "more" if len(content) > expected else f"{len(content)} bytes"
        raise DataSetError(f"{path} unpacks to {more} instead of {expected} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=offset).reshape(shape)


def _parse_header(path: Path, start: bytes) -> Tuple[int, Tuple[int, ...]]:
    dimensions = start[3] if len(start) >= 4 else 0
    offset = 4 + 4 * dimensions
    if start[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or not 1 <= dimensions <= 4 or len(start) < offset:
        raise DataSetError(
            f"{path} is no idx file of bytes: it starts with {start[:4].hex()}, expected 000008 and 01-04"
        )
    shape: Tuple[int, ...] = struct.unpack(f">{dimensions}I", start[4:offset])
    if 0 in shape:  # of no bytes there can be any number
        raise DataSetError(f"{path} holds {' x '.join(map(str, shape))} bytes, expected some")
    return offset, shape

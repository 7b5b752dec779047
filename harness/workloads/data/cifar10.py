"""CIFAR-10: 32 x 32 colour pictures in binary or pickled batches; nothing is unpickled."""

from __future__ import annotations

import itertools
import pickletools
from pathlib import Path
from typing import List, Literal, Sequence, Tuple, Union

import numpy as np

from harness.core.device import Report
from harness.core.errors import DataSetError
from harness.core.files import read_bounded
from harness.workloads.data.data_set import FileRows, known_data_set
from harness.workloads.data.written_folder import reported

SIDE, CHANNELS, CLASSES = 32, 3, 10
_PIXELS = SIDE * SIDE * CHANNELS
_RECORD = 1 + _PIXELS  # binary distribution: a label, then the red, the green and the blue plane, row by row
_BATCH = 10_000


class Cifar10Samples:
    """Pictures (32 x 32 x 3, uint8) and their labels, from all training batches of a directory."""

    def __init__(self, directory: Path) -> None:
        self._paths = _batch_paths(directory)
        self._batches = [_open_batch(path) for path in self._paths]
        self._ends = np.cumsum([len(batch) for batch in self._batches])
        self.in_memory = any(isinstance(batch, np.ndarray) for batch in self._batches)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Tuple[np.ndarray, int]:
        batch = int(np.searchsorted(self._ends, index, side="right"))
        start = 0 if batch == 0 else int(self._ends[batch - 1])
        record = self._batches[batch][index - start]
        label = int(record[0])
        if label >= CLASSES:
            raise DataSetError(f"{self._paths[batch]} has label {label} at picture {index - start}, expected 0 to 9")
        return np.ascontiguousarray(record[1:].reshape(CHANNELS, SIDE, SIDE).transpose(1, 2, 0)), label

    def files(self, indices: Sequence[int]) -> List[Path]:
        return list(self._paths)


def _batch_paths(directory: Path) -> List[Path]:
    """`data_batch_1.bin` and so on, else `data_batch_1` and so on, in the order of their numbers."""
    for suffix in (".bin", ""):
        numbered = [
            (int(path.stem.rpartition("_")[2]), path)
            for path in directory.glob(f"data_batch_*{suffix}")
            if path.suffix == suffix and path.stem.rpartition("_")[2].isdigit()
        ]
        if numbered:
            return [path for _, path in sorted(numbered)]
    raise DataSetError(f"{directory} has no data_batch_1.bin and no data_batch_1")


def _open_batch(path: Path) -> Union[FileRows, np.ndarray]:
    if path.suffix == ".bin":
        size = path.stat().st_size
        if size == 0 or size % _RECORD:
            raise DataSetError(f"{path} has {size} bytes, no multiple of {_RECORD}: it is cut off or no CIFAR-10 batch")
        return FileRows(path, 0, (size // _RECORD, _RECORD))
    return _read_pickled(path)


_KEYS = ("batch_label", "labels", "data", "filenames")
_SMALL_NUMBERS = ("BININT1", "BININT2", "BININT")
_FEWEST_OPERATIONS, _BYTES_PER_OPERATION = 10_000, 64  # a picture of 3,072 bytes takes some six


def _read_pickled(path: Path) -> np.ndarray:
    """The records of a pickled batch: `labels`, a list of numbers, and `data`, an array of bytes.

    The pickle's operations are read and none of them is done, so nothing that it names is run. Of protocols 2 to 4;
    Python 3 writes the bytes of an array as text in protocol 2.
    """
    key, labels, pixels, is_of_bytes = "", [], b"", False
    order: Literal["C", "F"] = "C"
    try:
        content = read_bounded(path)
        for count, (operation, value, _) in enumerate(pickletools.genops(content)):
            if count > _FEWEST_OPERATIONS + len(content) / _BYTES_PER_OPERATION:
                raise ValueError("it has more operations than pictures can need")
            if operation.name in ("NEWTRUE", "NEWFALSE"):  # of an array's state, before its bytes
                order = "F" if operation.name == "NEWTRUE" else "C"
            elif key == "labels" and operation.name in _SMALL_NUMBERS:
                labels.append(value)
            elif isinstance(value, (str, bytes)):
                raw = value if isinstance(value, bytes) else value.encode("latin1")
                key = next((name for name in _KEYS if raw == name.encode()), key)
                is_of_bytes |= raw == b"u1"
                pixels = raw if key == "data" and len(raw) > len(pixels) else pixels
        if not labels or not is_of_bytes or len(pixels) != len(labels) * _PIXELS:
            raise ValueError(f"expected {_PIXELS} pixels of a byte for each of a list of labels")
        records = np.frombuffer(pixels, np.uint8).reshape((len(labels), _PIXELS), order=order)
        return np.column_stack([np.array(labels, np.uint8), records])
    except (ValueError, OverflowError) as error:
        raise DataSetError(f"{path} is no CIFAR-10 batch: {error}", "fetch it again") from error


def write(directory: Path, samples: int, seed: int, report: Report) -> str:
    """Write binary batches of coloured noise whose colours tell the class."""
    palette = np.random.default_rng([seed]).integers(40, 216, size=(CLASSES, CHANNELS, 4, 4))
    indices = reported(range(samples), "cifar10", samples, "pictures", report)
    for start in range(0, samples, _BATCH):
        records = []
        for index in itertools.islice(indices, _BATCH):
            random = np.random.default_rng([seed, index])
            label = int(random.integers(CLASSES))
            noise = random.integers(-32, 32, size=(CHANNELS, SIDE, SIDE))
            pixels = np.clip(palette[label].repeat(8, axis=1).repeat(8, axis=2) + noise, 0, 255)
            records.append(bytes([label]) + pixels.astype(np.uint8).tobytes())
        (directory / f"data_batch_{start // _BATCH + 1}.bin").write_bytes(b"".join(records))
    return "written"


CIFAR10 = known_data_set("cifar10", write, Cifar10Samples, ("data_batch_1*",))

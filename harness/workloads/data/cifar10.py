"""CIFAR-10: 32 x 32 colour pictures in binary or pickled batches; no code that a pickle names is run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import numpy as np

from harness.core.errors import DataSetError
from harness.workloads.data.data_set import DataSet, FileRows
from harness.workloads.data.written_folder import Report, WriteProgress

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


def _open_batch(path: Path) -> Sequence[np.ndarray]:
    """The records of a batch: a label and 3,072 pixels each."""
    if path.suffix == ".bin":
        size = path.stat().st_size
        if size == 0 or size % _RECORD:
            raise DataSetError(f"{path} has {size} bytes, no multiple of {_RECORD}: it is cut off or no CIFAR-10 batch")
        return FileRows(path, 0, (size // _RECORD, _RECORD))
    content = read_plain_pickle(path)
    try:
        pixels, labels = content[b"data"], np.asarray(content[b"labels"], dtype=np.uint8)
        records = np.concatenate([labels[:, np.newaxis], pixels.reshape(len(labels), _PIXELS)], axis=1)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataSetError(f"{path} is no CIFAR-10 batch: {error!r}", "fetch it again") from error
    if records.dtype != np.uint8:
        raise DataSetError(f"{path} holds {pixels.dtype} pixels, expected uint8")
    return records


def write(directory: Path, samples: int, seed: int, report: Report) -> str:
    """Write binary batches of coloured noise whose colours tell the class."""
    palette = np.random.default_rng([seed]).integers(40, 216, size=(CLASSES, CHANNELS, 4, 4))
    progress = WriteProgress("cifar10", samples, "pictures", report)
    for start in range(0, samples, _BATCH):
        indices = range(start, min(start + _BATCH, samples))
        records = np.empty((len(indices), _RECORD), dtype=np.uint8)
        for row, index in enumerate(indices):
            random = np.random.default_rng([seed, index])
            label = int(random.integers(CLASSES))
            noise = random.integers(-32, 32, size=(CHANNELS, SIDE, SIDE))
            records[row, 0] = label
            records[row, 1:] = np.clip(palette[label].repeat(8, axis=1).repeat(8, axis=2) + noise, 0, 255).ravel()
            progress.advance()
        (directory / f"data_batch_{start // _BATCH + 1}.bin").write_bytes(records.tobytes())
    return "written"


# 50,000 samples, 150 MB: SIGMETRICS 2023 table 2 (F848, F849).
CIFAR10 = DataSet(
    name="cifar10",
    real_samples=50_000,
    real_bytes=150_000_000,
    default_samples=1_024,
    places=("cifar10", "cifar-10-batches-bin", "cifar-10-batches-py"),
    signs=("data_batch_1*",),
    write=write,
    open=Cifar10Samples,
)


def _byte_type(code: Any, *_: Any) -> np.dtype:
    """Stands for numpy's dtype."""
    if code not in (b"u1", "u1"):
        raise pickle.UnpicklingError(f"it holds an array of type {code!r}, expected u1")
    return np.dtype(np.uint8)


def _empty_array(*_: Any) -> np.ndarray:
    """Stands for what makes the array that shape and content are given to."""
    return np.zeros(0, np.uint8)


def _encode(text: str, _: str = "latin1") -> bytes:
    """What Python 3 writes for bytes in pickles of protocol 2."""
    return text.encode("latin1")


_STAND_INS = {
    ("numpy", "dtype"): _byte_type,
    ("numpy", "ndarray"): None,  # a pickle only ever passes it on
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _encode,
}


class _PlainUnpickler(pickle.Unpickler):
    """Resolves names to stand-ins of this module only, so that nothing else that a pickle names is ever called."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which plain data does not need") from None

    def persistent_load(self, identity: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside itself")


def read_plain_pickle(path: Path) -> Any:
    """The value in a pickle file; byte strings of Python 2 stay bytes, arrays can be of bytes only."""
    try:
        with open(path, "rb") as file:
            return _PlainUnpickler(file, encoding="bytes").load()
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise DataSetError(f"{path} is damaged or no plain pickle: {error}", "fetch it again") from error

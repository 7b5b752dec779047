"""CIFAR-10: 32 x 32 colour pictures in binary or pickled batches; no code that a pickle names is run."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from harness.core.errors import DataSetError
from harness.core.files import read_bounded
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
        pixels, labels = content[b"data"], content[b"labels"]
        if not (type(labels) is list and set(map(type, labels)) == {int} and len(labels) * _PIXELS == pixels.size):
            raise ValueError(f"expected {_PIXELS} pixels for each of a list of labels")
        labels = np.asarray(labels, dtype=np.uint8)
        records = np.concatenate([labels[:, np.newaxis], pixels.reshape(len(labels), _PIXELS)], axis=1)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataSetError(f"{path} is no CIFAR-10 batch: {error!r}", "fetch it again") from error
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


class ByteType:
    """Stands for numpy's dtype: that of bytes, whatever state a pickle gives it."""

    def __init__(self, code: Any, *_: Any) -> None:
        if code not in (b"u1", "u1"):
            raise pickle.UnpicklingError(f"it holds an array of type {code!r}, expected u1")

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment say nothing of bytes."""


class ByteArray:
    """Stands for numpy's array, and holds one of bytes as soon as a pickle gives it its state."""

    array: np.ndarray

    def __init__(self, *_: Any) -> None:
        """Takes the class and a shape that is not the array's yet."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        if not isinstance(kind, ByteType):
            raise pickle.UnpicklingError("it holds an array of no type")
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if is_fortran else "C")


def _encode(text: str, _: str = "latin1") -> bytes:
    """What Python 3 writes for bytes in pickles of protocol 2."""
    return text.encode("latin1")


_STAND_INS = {
    ("numpy", "dtype"): ByteType,
    ("numpy", "ndarray"): None,  # a pickle only ever passes it on
    ("numpy.core.multiarray", "_reconstruct"): ByteArray,
    ("numpy._core.multiarray", "_reconstruct"): ByteArray,
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


_MAKE_CONTAINERS = {
    "LIST", "EMPTY_LIST", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "DICT", "EMPTY_DICT",
}  # fmt: skip
_OPERATIONS = _MAKE_CONTAINERS | {
    "PROTO", "FRAME", "STOP", "MARK", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "APPEND", "APPENDS", "SETITEM",
    "SETITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "BININT",
    "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE", "SHORT_BINUNICODE",
    "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
}  # fmt: skip
"""What pickle writes for a batch in protocols 2 to 4."""

_FEWEST_OPERATIONS, _BYTES_PER_OPERATION = 10_000, 64  # a picture of 3,072 bytes takes some six


def _check_operations(content: bytes) -> None:
    """Refuse a pickle that would make much out of few bytes, before it is run.

    A container that is taken up again, in itself or in others, doubles what it holds with each few bytes; a number of
    the memo has a table made that is as long.
    """
    memo: Dict[int, str] = {}
    last = ""
    for count, (operation, argument, _) in enumerate(pickletools.genops(content)):
        name = operation.name
        if name not in _OPERATIONS:
            raise pickle.UnpicklingError(f"it has the operation {name}, which plain data does not need")
        if count > _FEWEST_OPERATIONS + len(content) / _BYTES_PER_OPERATION:
            raise pickle.UnpicklingError("it has more operations than pictures can need")
        if name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            place = len(memo) if argument is None else int(argument)
            if place > count:
                raise pickle.UnpicklingError(f"it keeps a value at place {place}")
            memo[place] = last
        elif name in ("BINGET", "LONG_BINGET") and memo.get(int(argument), "LIST") in _MAKE_CONTAINERS:
            raise pickle.UnpicklingError("it takes up a list, tuple or dict again")
        last = name


def read_plain_pickle(path: Path) -> Any:
    """The value in a pickle file; byte strings of Python 2 stay bytes, arrays can be of bytes only."""
    try:
        content = read_bounded(path)
        _check_operations(content)
        value = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        if isinstance(value, dict):
            return {key: one.array if isinstance(one, ByteArray) else one for key, one in value.items()}
        return value
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise DataSetError(f"{path} is damaged or no plain pickle: {error}", "fetch it again") from error

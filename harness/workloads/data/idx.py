"""The idx format of MNIST: a big-endian header and an array of bytes, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Sequence, Tuple, Union

import numpy as np

from harness.core.errors import DataSetError
from harness.workloads.data.mapped_rows import MappedRows

_UNSIGNED_BYTE = 8  # third byte of the magic number; MNIST has no other type


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write an array of bytes as an idx file."""
    if array.dtype != np.uint8:
        raise ValueError(f"idx files here hold uint8, got {array.dtype}")
    header = struct.pack(">BBBB", 0, 0, _UNSIGNED_BYTE, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.tobytes())


def read_idx(path: Path) -> Union[MappedRows, np.ndarray]:
    """Open an idx file of bytes: mapped where it is plain, in memory where its name ends in `.gz`.

    Raises:
        DataSetError: it is no such file, or it is damaged.
    """
    if path.suffix != ".gz":
        with open(path, "rb") as file:
            offset, shape = _parse_header(path, file.read(4 + 4 * 4))
        return MappedRows(path, offset, shape)
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataSetError(f"{path} is damaged: {error}", "fetch it again") from error
    offset, shape = _parse_header(path, content)
    if len(content) != offset + math.prod(shape):
        raise DataSetError(f"{path} unpacks to {len(content)} bytes instead of {offset + math.prod(shape)}")
    return np.frombuffer(content, dtype=np.uint8, offset=offset).reshape(shape)


def _parse_header(path: Path, start: bytes) -> Tuple[int, Tuple[int, ...]]:
    """Offset of the data and shape of the array."""
    dimensions = start[3] if len(start) >= 4 else 0
    offset = 4 + 4 * dimensions
    if start[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or not 1 <= dimensions <= 4 or len(start) < offset:
        raise DataSetError(
            f"{path} is no idx file of bytes: it starts with {start[:4].hex()}, expected 000008 and 01-04"
        )
    shape: Sequence[int] = struct.unpack(f">{dimensions}I", start[4:offset])
    return offset, tuple(shape)

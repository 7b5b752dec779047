"""Reads the plain values of a pickle (containers, numbers, text, numpy arrays) without running any code it names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Optional, Tuple

import numpy as np

from harness.core.errors import DataSetError


class _Type:
    """Stands for numpy's dtype."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like; of no meaning for single bytes."""


class _Array:
    """Stands for a numpy array until it is known to be one of bytes."""

    def __init__(self, *_: Any) -> None:
        self.shape: Optional[Tuple[int, ...]] = None

    def __setstate__(self, state: Any) -> None:
        """Take shape, type, order and content from numpy's own state tuple."""
        _, self.shape, kind, self.fortran, self.content = state
        self.code = kind.code


class _ArrayClass:
    """Stands for the class `numpy.ndarray`, which a pickle only ever passes on."""


def _encode(text: str, _: str = "latin1") -> bytes:
    """What Python 3 writes for bytes in pickles of protocol 2."""
    return text.encode("latin1")


_STAND_INS = {
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): _ArrayClass,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _encode,
}


class _PlainUnpickler(pickle.Unpickler):
    """Resolves names to inert stand-ins of this module only, so that nothing a pickle names is ever called."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which plain data does not need") from None

    def persistent_load(self, identity: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside itself")


def read_plain_pickle(path: Path) -> Any:
    """The value in a pickle file; byte strings of Python 2 stay bytes, arrays of bytes become numpy arrays.

    Raises:
        DataSetError: the file is damaged, or holds anything but plain data.
    """
    try:
        with open(path, "rb") as file:
            return _to_values(_PlainUnpickler(file, encoding="bytes").load())
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise DataSetError(f"{path} is damaged or no plain pickle: {error}", "fetch it again") from error


def _to_values(value: Any) -> Any:
    """The value with the stand-ins for arrays replaced."""
    if isinstance(value, _Array):
        return _to_array(value)
    if isinstance(value, dict):
        return {key: _to_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_values(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")


def _to_array(value: _Array) -> np.ndarray:
    if value.code not in (b"u1", "u1") or value.fortran:
        raise pickle.UnpicklingError(f"it holds an array of type {value.code!r}, expected u1 in C order")
    return np.frombuffer(value.content, dtype=np.uint8).reshape(value.shape)

"""Rows of equal size in a binary file, mapped into memory when first touched, so that reading one is a real fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import numpy as np

from harness.core.errors import DataSetError


class MappedRows:
    """The rows of a binary file of bytes.

    Pickles as its path: a DataLoader worker maps the file anew instead of getting a copy of it.
    """

    def __init__(self, path: Path, offset: int, shape: Tuple[int, ...]) -> None:
        """Say what the file holds.

        Args:
            path: the file.
            offset: bytes before the first row.
            shape: rows, then the shape of a row.

        Raises:
            DataSetError: the file does not have the size that follows from offset and shape.
        """
        self.path, self._offset, self.shape = path, offset, shape
        expected, size = offset + int(np.prod(shape)), path.stat().st_size
        if size != expected:
            raise DataSetError(f"{path} has {size} bytes, but its header or format asks for {expected}")
        self._rows: Optional[np.ndarray] = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> np.ndarray:
        """A copy of one row (uint8)."""
        if self._rows is None:
            try:
                self._rows = np.memmap(self.path, dtype=np.uint8, mode="r", offset=self._offset, shape=self.shape)
            except (OSError, ValueError) as error:
                raise DataSetError(f"cannot read {self.path}: {error}") from error
        return np.array(self._rows[index])

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_rows": None}

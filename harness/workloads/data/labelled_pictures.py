"""A folder of picture files, each with one label: what GLD-23k and ImageNet come down to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np

from harness.workloads.data.pictures import draw_size, fit_size, make_jpeg, read_picture


class LabelledPictures:
    """Pictures (PIL, RGB) and their labels; a picture is read and decoded when asked for."""

    in_memory = False

    def __init__(
        self, folder: Path, names: Sequence[str], labels: Sequence[int], index_files: Sequence[Path] = ()
    ) -> None:
        """List the pictures.

        Args:
            folder: where they are.
            names: their paths below the folder.
            labels: their labels, from 0.
            index_files: files that were read to know all this.
        """
        self._folder, self._names, self._labels, self._index_files = folder, list(names), list(labels), index_files

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Tuple[Any, int]:
        return read_picture(self._folder / self._names[index]), self._labels[index]

    def files(self, indices: Sequence[int]) -> List[Path]:
        """The index files and the pictures."""
        names = dict.fromkeys(self._names[index] for index in indices)
        return [*self._index_files, *(self._folder / name for name in names)]


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

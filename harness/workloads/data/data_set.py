"""A data set: the real one if available, else one of the same format, written to the storage; or a user's own."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Protocol, Sequence, Tuple

import numpy as np

from harness.core.device import Report
from harness.core.errors import DataSetError, InvalidValueError
from harness.core.files import make_own_folder, read_toml
from harness.workloads.data.written_folder import find_or_write, reported

REAL = "real"
IN_MEMORY = "in-memory"  # condition of storage and page cache if a data set has no files
_COPIED = "files"  # folder of a user's files in their copy, next to its manifest


class RawSamples(Protocol):
    """The samples of a data set as stored on the medium, decoded on access; DataLoader workers get a pickled copy."""

    # the set was read as a whole when it was opened, as is usual for text and packed arrays: training does not touch
    # the medium
    in_memory: bool

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...

    def files(self, indices: Sequence[int]) -> List[Path]:
        """The files that hold these samples, each once."""


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set of the papers: its real size, its format, and a writer of generated data in that format."""

    name: str  # `gld23k`, `mnist`, ..
    real_samples: int  # this and the next three: see `data_sets.toml`
    real_bytes: int
    default_samples: int
    places: Sequence[str]
    signs: Sequence[str]  # files, or patterns of them, any of which identifies the real one in a folder
    # writes `samples` samples made from `seed` into an empty directory, in the real format, and returns what they are
    # (`written`, `packaged: ...`). A sample depends on the seed and its index only, never on how many are written.
    write: Callable[[Path, int, int, Report], str]
    # the samples in a directory, real or written. Raises `DataSetError` if files are missing or damaged.
    open: Callable[[Path], RawSamples]
    version: int = 1  # increased whenever `write` writes different bytes

    @property
    def bytes_per_sample(self) -> float:
        return self.real_bytes / self.real_samples

    def find_real(self, data_root: Path) -> Optional[Path]:
        places = (data_root / name for name in self.places)
        return next(
            (place for place in places if any(match for sign in self.signs for match in place.glob(sign))), None
        )


_KNOWN = read_toml(Path(__file__).with_name("data_sets.toml"))


def known_data_set(
    name: str, write: Callable[[Path, int, int, Report], str], read: Callable[[Path], RawSamples], signs: Sequence[str]
) -> DataSet:
    table = {**_KNOWN[name], "places": tuple(_KNOWN[name]["places"])}
    return DataSet(name=name, write=write, open=read, signs=signs, **table)


@dataclasses.dataclass(frozen=True)
class PreparedData:
    directory: Optional[Path]  # where its files are; None if it has none
    # `real`, `real, repeated`, `written`, `packaged: ...` with what was packaged, or `own` and whether it was copied
    source: str
    samples: int  # how many samples an epoch has
    bytes: int  # size of all files that hold them
    files: List[Path]  # those files
    scale: float  # `samples` as a share of the real sample count
    in_memory: bool  # whether training reads it from memory, not from the medium
    own: Any = None  # a user's torch data set, read from `directory` if it has one


def prepare(
    data_set: DataSet,
    storage_dir: Path,
    data_root: Optional[Path],
    data_scale: Optional[float],
    seed: int,
    report: Report,
) -> PreparedData:
    """Find the real data set under `data_root`, or find or write a stand-in in `storage_dir`.

    `data_scale` is a share of the real sample count, by default all of a real set, `default_samples` of a written one:
    a seeded choice of a real set, or more than all of it, repeated. `DataSetError` if it is damaged or cannot be
    written.
    """
    wanted = None if data_scale is None else max(1, round(data_set.real_samples * data_scale))
    directory = None
    if data_root is not None:
        if not Path(data_root).is_dir():
            raise InvalidValueError(
                f"data root {data_root} is no directory", "give the one that holds the real data sets"
            )
        directory = data_set.find_real(Path(data_root))
        if directory is None:
            report(f"{data_root} does not hold {data_set.name}: it is written instead")
    if directory is not None:
        raw = open_samples(data_set, directory)
        samples = wanted or len(raw)
        source = REAL if samples <= len(raw) else f"{REAL}, repeated"
    else:
        samples = wanted or data_set.default_samples
        directory, source = find_or_write(
            Path(storage_dir),
            name=data_set.name,
            conditions={"samples": samples, "seed": seed, "version": data_set.version},
            expected_bytes=round(samples * data_set.bytes_per_sample),
            write=lambda folder: data_set.write(folder, samples, seed, report),
            report=report,
        )
        raw = open_samples(data_set, directory)
    files, scale = raw.files(choose(len(raw), samples, seed)), samples / data_set.real_samples
    return PreparedData(directory, source, samples, _total_bytes(files), files, scale, raw.in_memory)


def _total_bytes(files: Sequence[Path]) -> int:
    try:
        return sum(path.stat().st_size for path in files)
    except FileNotFoundError as error:
        missing = f"{error.filename} is missing, though its data set lists it"
        raise DataSetError(missing, "fetch the data set again") from None


def prepare_own(
    name: str,
    read: Callable[[Optional[Path]], Any],
    folder: Optional[Path],
    storage_dir: Path,
    data_scale: Optional[float],
    report: Report,
) -> PreparedData:
    """Open a user's own data set with `read`, once its folder, if it has one, lies on the medium of `storage_dir`.

    A data set without a folder that lists its files, as torchvision's image folders do, is where those are; any other
    is taken to be in memory. `data_scale` is a share of its samples.
    """
    directory, source = (None, "own") if folder is None else _on_medium(name, Path(folder), Path(storage_dir), report)
    own = read(directory)
    held = len(own)
    if held == 0:
        raise DataSetError(f"the data set of {name} holds no sample")
    if directory is None:
        files = _listed_files(own)
        directory = Path(os.path.commonpath([path.parent for path in files])) if files else None
    else:
        files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    samples = held if data_scale is None else max(1, round(held * data_scale))
    return PreparedData(directory, source, samples, _total_bytes(files), files, samples / held, not files, own)


def _listed_files(data_set: Any) -> List[Path]:
    """The files of a torchvision `DatasetFolder`, the only kind that lists them; none of other data sets."""
    listed = getattr(data_set, "samples", None)
    if not isinstance(listed, list):
        return []
    is_folder = all(isinstance(one, tuple) and one and isinstance(one[0], str) for one in listed)
    return [Path(one[0]).absolute() for one in listed] if is_folder else []


def _lies_on(folder: Path, storage_dir: Path) -> bool:
    return folder.stat().st_dev == storage_dir.stat().st_dev


def _on_medium(name: str, folder: Path, storage_dir: Path, report: Report) -> Tuple[Path, str]:
    """The folder itself if it is on the medium of `storage_dir`, else its copy there."""
    if not folder.is_dir():
        raise DataSetError(f"the data of workload {name} is {folder.absolute()}, which is no folder")
    make_own_folder(storage_dir)
    if _lies_on(folder, storage_dir):
        return folder.absolute(), "own"
    sizes = {path.relative_to(folder): path.stat() for path in sorted(folder.rglob("*")) if path.is_file()}
    content = "\n".join(f"{path} {status.st_size} {status.st_mtime_ns}" for path, status in sizes.items())

    def copy(directory: Path) -> str:
        for path in reported(sizes, name, len(sizes), "files", report):
            target = directory / _COPIED / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(folder / path), str(target))
        return "own, copied"

    copied, source = find_or_write(
        storage_dir,
        name=name,
        conditions={"content": hashlib.sha256(content.encode()).hexdigest()[:12]},
        expected_bytes=sum(status.st_size for status in sizes.values()),
        write=copy,
        report=report,
    )
    return copied / _COPIED, source


def open_samples(data_set: DataSet, directory: Path) -> RawSamples:
    raw = data_set.open(directory)
    if len(raw) == 0:
        raise DataSetError(f"{directory} holds no sample of {data_set.name}", "fetch the data set again")
    return raw


def first_of(directory: Path, names: Sequence[str], is_one: Callable[[Path], bool] = Path.is_file) -> Path:
    """The first of these files (or whatever `is_one` accepts) in a data set's folder."""
    for name in names:
        if is_one(directory / name):
            return directory / name
    raise DataSetError(f"{directory} has none of {', '.join(names)}")


def choose(held: int, wanted: int, seed: int) -> Sequence[int]:
    """Indices of `wanted` out of `held` samples: a seeded choice in rising order, all, or all repeated."""
    if wanted == held:
        return range(held)
    if wanted > held:
        return [index % held for index in range(wanted)]
    return sorted(np.random.default_rng(seed).choice(held, wanted, replace=False).tolist())


class FileRows:
    """The rows of a binary file of bytes, each read on access.

    Read, not mapped: the kernel keeps the pages that a process has mapped, so the page cache could not be dropped.
    Pickles as its path: a DataLoader worker opens the file anew.
    """

    def __init__(self, path: Path, offset: int, shape: Tuple[int, ...]) -> None:
        self.path, self._offset, self.shape = path, offset, shape
        self._row_bytes = math.prod(shape[1:])
        expected, size = offset + shape[0] * self._row_bytes, path.stat().st_size
        if size != expected:
            raise DataSetError(f"{path} has {size} bytes, but its header or format asks for {expected}")
        self._file: Optional[BinaryIO] = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> np.ndarray:
        row = range(len(self))[index]
        try:
            if self._file is None:
                self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - open as long as the data set is
            read = os.pread(self._file.fileno(), self._row_bytes, self._offset + row * self._row_bytes)
        except OSError as error:
            raise DataSetError(f"cannot read {self.path}: {error}") from error
        if len(read) < self._row_bytes:
            raise DataSetError(f"cannot read {self.path}: it ends within sample {row}", "fetch the data set again")
        return np.frombuffer(bytearray(read), np.uint8).reshape(self.shape[1:])

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_file": None}

"""A folder of files that appears whole or not at all, has a manifest that identifies it, and is checked before use."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterable, Iterator, Optional, Tuple, TypeVar

from harness.core.device import Report
from harness.core.errors import DataSetError
from harness.core.files import make_own_folder, read_json
from harness.core.terminal import format_duration
from harness.core.units import BYTES_PER_MIB

Item = TypeVar("Item")

MANIFEST = "manifest.json"
_SPARE = 1.1  # share of the expected size that must be free: sizes are drawn at random, files round up to blocks
_REPORT_INTERVAL_S = 2.0
WAIT_S = 0.2
IDLE_S = 300.0  # for another process that writes the folder: one that was stopped is not waited for


def find_or_write(
    storage_dir: Path,
    name: str,
    conditions: Dict[str, Any],
    expected_bytes: int,
    write: Callable[[Path], str],
    report: Report,
) -> Tuple[Path, str]:
    """The folder with these conditions, and what it holds; written first where it is missing, half-written or damaged.

    It is renamed when it is on the disk, so one with the final name is whole even after a crash; a lock keeps a second
    process waiting. `conditions` are what the content depends on; `write` fills an empty folder and says what it wrote.
    `DataSetError` if the storage is full, not writable, or open to other users, or something else is in the way.
    """
    folder = storage_dir / "-".join([name, *(f"{key}{value}" for key, value in sorted(conditions.items()))])
    try:
        make_own_folder(storage_dir)
        manifest, _ = _check(folder, conditions)
        if manifest is None:
            with _locked(storage_dir / f".{folder.name}.lock", name, report):
                manifest = _write_unless_there(folder, conditions, expected_bytes, write, report)
    except OSError as error:
        raise DataSetError(
            f"cannot write data set {name} to {storage_dir}: {error}",
            "choose another storage, free some space, or ask for less with --data-scale",
        ) from error
    return folder, manifest["source"]


@contextlib.contextmanager
def _locked(path: Path, name: str, report: Report) -> Iterator[None]:
    """Hold an advisory lock; the kernel lets go of it when its holder dies."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that writes {name}")
            _wait_for(lock, path, name)
        yield


def _wait_for(lock: BinaryIO, path: Path, name: str) -> None:
    """Wait for a lock while its holder writes; DataSetError once it has written nothing for `IDLE_S`."""
    partial = path.with_suffix(".partial")
    written_bytes, since_s = _size_bytes(partial), time.monotonic()
    while True:
        time.sleep(WAIT_S)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() - since_s < IDLE_S:
            continue
        before_bytes, written_bytes, since_s = written_bytes, _size_bytes(partial), time.monotonic()
        if written_bytes == before_bytes:
            what = f"another process that writes {name} has written nothing for {IDLE_S:g} s, and holds {path}"
            raise DataSetError(what, f"`fuser {path}` shows which one: end it")


def _size_bytes(folder: Path) -> int:
    size_bytes = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # renamed or removed meanwhile
            size_bytes += file.lstat().st_size
    return size_bytes


def _check(folder: Path, conditions: Dict[str, Any]) -> Tuple[Optional[Dict[str, Any]], str]:
    """The manifest of a whole folder, or None and what is wrong; `DataSetError` if it was not written here."""
    if not folder.exists():
        return None, "missing"
    if not (folder / MANIFEST).is_file():
        raise DataSetError(
            f"{folder} is in the way: it has no {MANIFEST}, so this suite did not write it",
            "move it away or choose another storage",
        )
    try:
        manifest = read_json(folder / MANIFEST)
        files = {str(path): int(size) for path, size in manifest["files"].items()}
        if manifest["conditions"] != conditions or not isinstance(manifest["source"], str):
            return None, f"{MANIFEST} belongs to another data set"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return None, f"{MANIFEST} cannot be read: {error}"
    for name, size in files.items():
        try:
            real_size = os.stat(folder / name).st_size
        except FileNotFoundError:
            return None, f"{name} is missing"
        if real_size != size:
            return None, f"{name} has {real_size} bytes instead of {size}"
    return manifest, ""


def _write_unless_there(
    folder: Path, conditions: Dict[str, Any], expected_bytes: int, write: Callable[[Path], str], report: Report
) -> Dict[str, Any]:
    manifest, problem = _check(folder, conditions)
    if manifest is not None:
        return manifest
    if folder.exists():
        report(f"{folder} is damaged ({problem}): writing it again")
        shutil.rmtree(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)  # left by a writer that died: who writes holds the lock, and that is this process now
    needed, free = round(expected_bytes * _SPARE), shutil.disk_usage(folder.parent).free
    if needed > free:
        raise DataSetError(
            f"{folder} needs {needed / BYTES_PER_MIB:,.0f} MiB, "
            f"but {folder.parent} has {free / BYTES_PER_MIB:,.0f} MiB free",
            "free some space, choose another storage, or ask for less with --data-scale",
        )
    partial.mkdir()
    try:
        source = write(partial)
        files = (path for path in sorted(partial.rglob("*")) if path.is_file())
        sizes = {str(path.relative_to(partial)): path.stat().st_size for path in files}
        manifest = {"source": source, "conditions": conditions, "files": sizes}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=0, sort_keys=True), encoding="utf-8")
        os.sync()  # the rename must not reach the disk before the data does
        os.rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest


def reported(
    items: Iterable[Item],
    what: str,
    total: int,
    unit: str,
    report: Report,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """The items; how many of them are written is said at most every two seconds."""
    started_s = reported_s = clock()
    for done, item in enumerate(items):
        now_s = clock()
        if done and now_s - reported_s >= _REPORT_INTERVAL_S:
            reported_s = now_s
            left = format_duration((now_s - started_s) / done * (total - done))
            report(f"writing {what}: {done} of {total} {unit}, {left} left")
        yield item

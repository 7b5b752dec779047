"""The kernel's small files of one value or one table: read by sensors, kept open by fast ones, set by knobs.

Sensors read (`read_text`, `read_int`, `KeptFile`) with this user's rights, and get an OSError. Knobs (`read_setting`,
`write` and so on) use the helper if root is needed, and get a ControlError; only this module calls the helper for them.
No file holds up its reader (`bounded_reads`). One whose reading is reported to hang the kernel (`hides_clocks`) is read
by a separate process: a process with a thread that the kernel holds cannot end.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shlex
import stat
from types import ModuleType
from typing import List, NamedTuple, Optional, Sequence

from harness.board.bounded_reads import HANG_S, bounded, silent, unread, write_bounded
from harness.core.errors import ControlError

_READ_BYTES = 1 << 16  # a file of sysfs shows no more than a page, those of /proc may be longer
_MOST_NAMED_BYTES = 1 << 20  # NVIDIA's confs have some 30 KiB, other files that are named hold one value
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ESRCH, errno.EACCES)  # or another user's to read
_GONE_S = 0.1  # timeout of a killed reader; one that hangs in the kernel stays


def read_text(path: str) -> str:
    """Stripped text; invalid UTF-8 is replaced, because the kernel truncates process names at 15 bytes."""
    return _content(path).decode(errors="replace").strip()


def _content(path: str) -> bytes:
    """The file's bytes. Python's own files raise a TypeError if the kernel returns EAGAIN; this raises an OSError."""
    try:
        if not _may_hang(path):
            return bounded(path, lambda: _read_all(path))
        from harness.board.bounded_process import run_bounded

        os.stat(path)
        if path not in silent:
            try:
                done = run_bounded(["cat", path], timeout_s=HANG_S, grace_s=_GONE_S)
            except ControlError as error:
                silent[path] = f"{error.what}; it is not read again"
            else:
                if done.status:
                    raise OSError(errno.EIO, done.output.strip())
                return done.output.encode()
        raise OSError(errno.ETIMEDOUT, silent[path])
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _read_all(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(fd, _READ_BYTES), b""))
    finally:
        os.close(fd)


def _may_hang(path: str) -> bool:
    """Whether reading is reported to hang; of clocks alone, so that the sampler loads the helper for boards only."""
    if "/devfreq/" not in path:
        return False
    from harness.board.privileged import hides_clocks

    return hides_clocks(path)


def left_alone(folder: str) -> ControlError:
    return ControlError(
        f"the clocks of {folder} are read, and not held: on a Thor, reading one was once reported to hang the kernel",
        "--hold-thor-clocks, or hold_thor_clocks = true in jetwatt.toml, holds them",
    )


def text_of(path: str) -> str:
    """As `read_text`; empty if the file does not exist, or cannot be read, which is then entered in `unread`."""
    try:
        text = read_text(path)
    except OSError as error:
        if error.errno not in _ABSENT:
            unread[path] = error.strerror or str(error)
        return ""
    unread.pop(path, None)
    return text


def read_paths(path: str) -> str:
    """The text of a file that contains paths: as `read_text`, but every byte is kept, as with `os.fsdecode`."""
    return os.fsdecode(_content(path)).strip()


def path_below(root: str, path: str) -> str:
    """Where a path that a file below `root` names lies; ControlError if the path or its links lead out of `root`.

    The files may be a stranger's: those of a recorded board.
    """
    joined = os.path.join(root, path.lstrip("/"))
    top = os.path.realpath(root)
    if top == "/":  # nothing is outside; and resolving would wait for network shares that are away
        return joined
    if "\0" in path or os.path.commonpath([top, os.path.realpath(joined)]) != top:
        hint = "do not use this record, or remove the path from it"
        raise ControlError(f"{path!r} leads out of {root}, whose files name it", hint)
    return joined


def read_below(root: str, path: str) -> str:
    """The text of a file that a file below `root` names, at most 1 MiB; ControlError if it is no such regular file."""
    place = path_below(root, path)
    if _may_hang(place):
        return read_text(place)
    handle = os.open(place, os.O_PATH | os.O_CLOEXEC)  # opens no device and waits for no pipe
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ControlError(f"{place} is not a regular file", "use a record that `jetwatt doctor --record` made")
        return bounded(place, lambda: _short_text(handle, place))
    except OSError as error:
        raise OSError(error.errno, error.strerror, place) from error
    finally:
        os.close(handle)


def _short_text(handle: int, place: str) -> str:
    """The text of an open file, at most 1 MiB."""
    content = bytearray()
    with open(f"/proc/self/fd/{handle}", "rb", buffering=0) as file:
        while True:
            part = file.read(_READ_BYTES)
            if not part:
                return content.decode(errors="replace")
            content += part
            if len(content) > _MOST_NAMED_BYTES:
                raise ControlError(f"{place} has more than {_MOST_NAMED_BYTES:,} bytes", "expected a short file")


def uptime_s(root: str) -> Optional[float]:
    """Seconds since the boot; None if the kernel does not tell."""
    try:
        return float(read_text(os.path.join(root, "proc/uptime")).split()[0])
    except (OSError, ValueError, IndexError):
        return None


def read_int(path: str) -> int:
    """The integer in the file; a ValueError with file and text if it contains none."""
    return whole_number(path, read_text(path))


class KeptFile:
    """A file of one value that stays open, so that a reading is one system call."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._is_bounded = _may_hang(path)
        self._fd: Optional[int] = None

    def read_text(self) -> str:
        """The file's text, without white space or the device tree's NUL around it."""
        if self._is_bounded:
            return read_text(self.path)
        try:
            data = bounded(self.path, self._read)
        except OSError as error:
            self.close()
            raise OSError(error.errno, error.strerror, self.path) from error
        return data.decode(errors="replace").strip("\0 \t\n")

    def _read(self) -> bytes:
        if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
            self.close()  # a driver that was bound again gives back its files
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDONLY)
        return os.pread(self._fd, _READ_BYTES, 0)

    def read_int(self) -> int:
        return whole_number(self.path, self.read_text())

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def numbered(pattern: str) -> List[str]:
    """The paths that match, in the order of the numbers in them: `zone2` before `zone10`."""
    return sorted(glob.glob(pattern), key=lambda path: [int(number) for number in re.findall(r"\d+", path)])


def may_read(path: str) -> bool:
    return os.access(path, os.R_OK, effective_ids=True)


def exists(path: str) -> bool:
    """Whether the file exists, even if only root sees it (debugfs); ControlError if the helper cannot check."""
    try:
        os.stat(path)
        return True
    except PermissionError:
        kind, name = _door().node_of(path) or ("", "")
        return bool(kind) and name in _door().names(kind)
    except OSError:
        return False


def entries(folder: str) -> List[str]:
    """The sorted entries of a folder, even if only root sees it; empty if it does not exist."""
    try:
        return sorted(os.listdir(folder))
    except PermissionError:
        kind, _ = _door().node_of(os.path.join(folder, "entry")) or ("", "")
        return sorted(_door().names(kind)) if kind else []
    except OSError:
        return []


def read_setting(path: str) -> str:
    """As `read_text`, through the helper where only root may read; a ControlError is caused by the OSError."""
    try:
        return read_text(path)
    except OSError as error:
        node = _door().node_of(path) if isinstance(error, PermissionError) else None
        if node is None:
            raise ControlError(f"{path} cannot be read: {error.strerror}") from error
        return _door().call("read", *node).strip()


def read_int_setting(path: str) -> int:
    try:
        return whole_number(path, read_setting(path))
    except ValueError as error:
        raise ControlError(str(error)) from None


READ_ONLY_HINT = "run outside of the container, or give it these files for writing (docker run --privileged)"


def check_writable(paths: Sequence[str]) -> None:
    closed = [path for path in paths if not may_write(path)]
    if closed:
        raise not_writable(closed)


def not_writable(paths: Sequence[str]) -> ControlError:
    """The error of files of which none may be written, with what helps."""
    if is_read_only(paths[0]):
        return ControlError(f"{paths[0]} lies on a read-only file system", READ_ONLY_HINT)
    return ControlError(f"{paths[0]} may not be written by this user", grant(paths))


def is_read_only(path: str) -> bool:
    """Whether nobody can write there, root included: /sys and /proc/sys of most containers."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def may_write(path: str) -> bool:
    if is_read_only(path):
        return False
    if os.access(path, os.W_OK, effective_ids=True):
        return True
    return _door().node_of(path) is not None and _door().closed() is None


def grant(paths: Sequence[str]) -> str:
    if any(map(is_read_only, paths)):
        return READ_ONLY_HINT
    if any(map(_door().node_of, paths)):
        return _door().ASK_FOR_RULE
    return f"until the next boot: `sudo chown $USER {' '.join(map(shlex.quote, paths))}`"


def write(path: str, value: object, hint: Optional[str] = None) -> None:
    """Write to an existing file; never creates one. The default hint is the command that grants the right."""
    try:
        try:
            write_bounded(path, lambda: _write_text(path, f"{value}\n"))
        except PermissionError:
            node = _door().node_of(path)
            if node is None:
                raise
            _door().call("write", *node, str(value))
    except OSError as error:
        refused = f"writing {value} to {path} was refused: {error.strerror}"
        raise ControlError(refused, grant([path]) if hint is None else hint) from error


def _write_text(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


Limits = List[int]  # lowest and highest clock, in the unit of the kernel's files


class LimitFiles(NamedTuple):
    minimum: str
    maximum: str

    def read(self) -> Limits:
        return [read_int_setting(self.minimum), read_int_setting(self.maximum)]

    def write(self, target: Limits) -> None:
        """Write both such that minimum <= maximum holds after each: the kernel refuses a write that breaks it."""
        lowest, highest = target
        writes = [(self.minimum, lowest), (self.maximum, highest)]
        if highest >= max(self.read()):  # of both: a program that writes past these rules may have left them crossed
            writes.reverse()
        for path, value in writes:
            write(path, value)


def whole_number(path: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path} holds {text!r}, not a whole number") from None


def numbers_in(text: str) -> List[int]:
    """The whole numbers of a list in a file, ascending; a driver may print words such as `N/A` in it."""
    return sorted(int(word) for word in text.split() if word.isdecimal())


def _door() -> ModuleType:
    """The module that calls the helper, imported on demand: the sampler's process runs no programs."""
    from harness.board import privileges

    return privileges

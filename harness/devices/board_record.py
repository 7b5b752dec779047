"""A record of a board or host in one file: kernel files and tool outputs, taken read-only, unpacked for emulation.

board.tar.gz:  root/proc/...  root/sys/...  root/etc/...   contents of the files that this suite reads
record.json                                 outputs of programs, sensor readings, unreadable files
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import glob
import gzip
import io
import json
import os
import re
import select
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set

import harness
from harness.board.bounded_process import ended_by_kill, run_bounded
from harness.board.bounded_reads import bounded
from harness.board.helper_stream import read_sensor
from harness.board.kernel_file import path_below, read_text
from harness.board.nvpmodel_conf import read_conf
from harness.board.privileged import JETSON_CLOCKS, NVPMODEL, OWN_CONF, hides_clocks
from harness.board.source import SourceSpec, open_watched, read_watched
from harness.core.environment import l4t_release, package_version
from harness.core.errors import ControlError, HarnessError, InvalidValueError
from harness.core.files import read_toml, write_output
from harness.core.units import s_to_ms

FORMAT = 1
TEGRASTATS = "usr/bin/tegrastats"

_LISTS = Path(__file__).with_name("board_record.toml")
_MEMORIES = re.compile("eeprom|nvmem|uevent|wwid|address|unique_id|.*(serial|uuid).*")
# the line of /proc/cpuinfo, the address of a network card, and whose folder a path leads to
_SERIAL = re.compile(r"(?im)^(serial\s*:\s*)\S+|\b([0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b|(?<=/home/)[^/\s]+")
_PLACES = tuple(f"root/{folder}/" for folder in ("proc", "sys", "etc", "lib/systemd", "usr/lib/systemd"))
_READ_BYTES = 1 << 16
_MOST_FILES, _MOST_BYTES, _MOST_FILE_BYTES = 20_000, 64 << 20, 1 << 20
_OVERHEAD_BYTES = 1 << 10  # of a file in the archive
_MOST_OUTPUT, _MOST_UNREADABLE = 200_000, 2_000  # of record.json, which is a file like the others
_PROGRAM_S, _BETWEEN_READINGS_S, _SLOWEST = 30.0, 0.2, 40


def record(path: Path, root: Path, sources: Sequence[SourceSpec], tegrastats_s: float) -> int:
    """Write a record of the board at `root` to `path`, and return the number of kernel files. Sets nothing.

    Serial numbers, network addresses and, in files that people write, names of host and users are removed.
    """
    hidden = _hiding(root)
    files: Dict[str, str] = {}
    unreadable: Dict[str, str] = {}
    took_ms: Dict[str, float] = {}
    room = _MOST_BYTES // 2
    for name in _names(root):
        began_s = time.monotonic()
        try:
            text = hidden(_text(Path(path_below(str(root), name)), str(root)), name.startswith("etc/"))
            room -= len(text) + _OVERHEAD_BYTES
            if room < 0:
                raise ValueError("left out: the record is full")
            files[name] = text
        except (OSError, ValueError, ControlError) as error:
            why = "no text" if isinstance(error, UnicodeDecodeError) else str(error)
            unreadable[name] = getattr(error, "strerror", None) or why
        took_ms[name] = round(s_to_ms(time.monotonic() - began_s), 3)
    slowest = sorted(took_ms, key=lambda name: -took_ms[name])[:_SLOWEST]
    summary = {
        "format": FORMAT,
        "jetwatt": harness.__version__,
        "l4t": l4t_release(root),
        "packages": {name: package_version(name) for name in ("torch", "jetson-stats")},
        "files_ms": round(sum(took_ms.values()), 1),
        "slowest_reads_ms": {name: took_ms[name] for name in slowest},
        "unreadable_files": len(unreadable),
        "unreadable": dict(list(unreadable.items())[:_MOST_UNREADABLE]),
        "programs": _programs(root, tegrastats_s),
        "sources": {spec.name: _reading(spec, str(root)) for spec in sources},
    }
    members = {f"root/{name}": text for name, text in files.items()}

    def in_all(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: in_all(part) for name, part in value.items()}
        if isinstance(value, list):
            return [in_all(part) for part in value]
        return hidden(value, True) if isinstance(value, str) else value

    members["record.json"] = json.dumps(in_all(summary), indent=1)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in members.items():
            content, member = text.encode(), tarfile.TarInfo(name)  # owner, group and time stay empty
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    write_output(path, packed.getvalue())
    return len(files)


def _hiding(root: Path) -> Callable[[str, bool], str]:
    """A function that removes from a text what identifies this board and, with True, its owner and users."""

    def contents_of(pattern: str) -> Iterator[str]:
        for path in glob.glob(os.path.join(glob.escape(str(root)), pattern)):
            with contextlib.suppress(OSError, ValueError):
                yield _text(Path(path), str(root)).strip("\0\n ")

    lists = read_toml(_LISTS)
    serials = {text for name in lists["serials"] for text in contents_of(name) if text.strip("0:")}
    serials |= {text.replace(":", mark) for text in serials for mark in ("", "-")}
    names: Set[str] = set(contents_of("etc/hostname"))
    if root == Path("/"):
        names |= {socket.gethostname()}
    names |= {name.partition(".")[0] for name in names}
    for entry in "\n".join(contents_of("etc/passwd")).splitlines():
        user, _, number, _, person, *_ = [*entry.split(":"), *[""] * 5]
        if number.isdigit() and 1000 <= int(number) < 65534:
            names |= {user, person.partition(",")[0], *person.partition(",")[0].split()}

    def pattern(words: Set[str], least: int) -> re.Pattern[str]:
        kept = [word for word in words if len(word) >= least and word.lower() not in lists["everybodys"]]
        ordered = sorted(map(re.escape, kept), key=len, reverse=True)
        return re.compile(rf"(?i)(?<!\w)({'|'.join(ordered) or '(?!)'})(?!\w)")

    serial, name = pattern(serials, 4), pattern(names, 3)

    def hide(text: str, has_names: bool) -> str:
        text = text.replace(str(root), "") if root != Path("/") else text
        text = _SERIAL.sub(lambda match: f"{match[1] or ''}(hidden)", serial.sub("(hidden)", text))
        return name.sub("(name)", text) if has_names else text

    return hide


def _names(root: Path) -> List[str]:
    """The files to record, relative to the root: those of the list, and the /sys files in the board's own conf."""
    patterns = read_toml(_LISTS)["files"]
    with contextlib.suppress(HarnessError):  # a conf that cannot be parsed is recorded as text
        params = read_conf(root / OWN_CONF).conf.params
        paths = [os.path.normpath(argument.path).lstrip("/") for param in params for argument in param.arguments]
        patterns += [glob.escape(path) for path in paths if path.startswith("sys/")]
    recordable = {path for pattern in patterns for path in glob.glob(os.path.join(glob.escape(str(root)), pattern))}
    names = [os.path.relpath(path, root) for path in sorted(recordable) if os.path.isfile(path) and _may_be_read(path)]
    return names[: _MOST_FILES - 1]


def _may_be_read(path: str) -> bool:
    """Whether a file is safe to record: files of a Thor's GPU are untested, memories hold serial numbers."""
    device = re.match(r"(.*/devfreq/[^/]+/)device/", path)
    is_thors = device is not None and hides_clocks(device[1] + "cur_freq")
    return not is_thors and _MEMORIES.fullmatch(os.path.basename(path)) is None


def _text(path: Path, root: str) -> str:
    """The whole file, as the kernel returns long ones in parts; clocks of a Thor are read in a separate process.

    Sensors that only root may read are read by the helper.
    """
    if hides_clocks(str(path)):
        return read_text(str(path)) + "\n"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError as error:
        try:
            return read_sensor(str(path), root) + "\n"
        except OSError:
            raise error from None
    try:
        return bounded(str(path), lambda: _content(fd)).decode()
    finally:
        os.close(fd)


def _content(fd: int) -> bytearray:
    content = bytearray()
    while part := os.read(fd, _READ_BYTES):
        content += part
        if len(content) > _MOST_FILE_BYTES:
            raise ValueError(f"it has more than {_MOST_FILE_BYTES:,} bytes")
    return content


def _programs(root: Path, tegrastats_s: float) -> Dict[str, Any]:
    """Outputs of the vendor's programs; none of these calls sets anything."""
    outputs: Dict[str, Any] = {}
    for program, *words in ((NVPMODEL, "-q", "--verbose"), (NVPMODEL, "-p", "--verbose"), (JETSON_CLOCKS, "--show")):
        executable, command = str(root / program), " ".join([program, *words])
        if os.path.exists(executable):
            try:
                done = run_bounded([executable, *words], timeout_s=_PROGRAM_S, answer="n\n")
                outputs[command] = {"status": done.status, "output": done.output[:_MOST_OUTPUT]}
            except ControlError as error:
                outputs[command] = {"error": error.what}
    if tegrastats_s > 0 and (root / TEGRASTATS).exists():
        outputs[TEGRASTATS] = {"lines": first_lines([str(root / TEGRASTATS), "--interval", "1000"], tegrastats_s)}
    return outputs


def first_lines(command: Sequence[str], seconds: float, first_within_s: float = 0.0) -> List[str]:
    """The output of an endless program in the first `seconds`; it is then killed with its children.

    `first_within_s` waits longer for the first line, on a machine where the program starts slowly.
    """
    output, start_s = b"", time.monotonic()

    def left_s() -> float:
        most_s = seconds if b"\n" in output else max(seconds, first_within_s)
        return start_s + most_s - time.monotonic()

    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None, "it is a pipe"
    try:
        while len(output) < _MOST_OUTPUT and select.select([process.stdout], [], [], max(0, left_s()))[0]:
            part = os.read(process.stdout.fileno(), _READ_BYTES)
            output += part
            if not part or left_s() < 0:
                break
    finally:
        ended_by_kill(process)  # one that the kernel holds is left behind
    return output.decode(errors="replace").rpartition("\n")[0].splitlines()


def _reading(spec: SourceSpec, root: str) -> Dict[str, Any]:
    try:
        began_s = time.monotonic()
        source = open_watched(spec, root)
        opened_s = time.monotonic()
        first = read_watched(spec.name, source, opened_s)
        time.sleep(_BETWEEN_READINGS_S)  # rates need a second reading, and jtop returns each sample once
        again_s = time.monotonic()
        reading = read_watched(spec.name, source, again_s)
        took = {"open_ms": opened_s - began_s, "read_ms": time.monotonic() - again_s}
        getattr(source, "close", lambda: None)()
        return {
            "values": {**first.values, **reading.values},
            "failed": {**first.failed, **reading.failed},
            "notes": source.notes,
            **{name: round(s_to_ms(seconds), 3) for name, seconds in took.items()},
        }
    except (HarnessError, OSError, ValueError, ImportError) as error:
        return {"error": str(error)}


def root_of(path: Path) -> Path:
    return unpacked(path) if path.is_file() else path


@functools.lru_cache(maxsize=None)
def unpacked(path: Path) -> Path:
    """The root of a recorded board, in a folder that is removed at exit; InvalidValueError for other files."""
    hint = "make one on the board or host: jetwatt doctor --record board.tar.gz"
    folder = Path(tempfile.mkdtemp(prefix="jetwatt-board-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        for name, content in _members(path):
            target = folder.joinpath(*name.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
        if json.loads((folder / "record.json").read_text(encoding="utf-8"))["format"] != FORMAT:
            raise ValueError("it was made by another version of jetwatt")
    except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError, zlib.error, tarfile.TarError) as error:
        raise InvalidValueError(f"{path} is not a record of a board: {error}", hint) from error
    return folder / "root"


def _members(path: Path) -> Iterator[Any]:
    """Name and content of each file; ValueError for links, paths outside the record, and excessive size."""
    with gzip.open(path) as file:
        whole = file.read(_MOST_BYTES + 1)
    if len(whole) > _MOST_BYTES:
        raise ValueError(f"it unpacks to more than {_MOST_BYTES:,} bytes")
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
        for count, member in enumerate(archive):
            name = PurePosixPath(member.name)
            is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
            is_ours = member.name == "record.json" or member.name.startswith(_PLACES)
            if not is_file or not is_ours or ".." in name.parts or member.size > _MOST_FILE_BYTES:
                raise ValueError(f"{member.name!r} is not part of a record, or too large")
            if count >= _MOST_FILES:
                raise ValueError(f"it has more than {_MOST_FILES} files")
            content = archive.extractfile(member)
            yield name, content.read() if content else b""

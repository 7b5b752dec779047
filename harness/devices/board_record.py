"""What a kernel and its tools show of a board, in one file to send: recorded read-only, unpacked to be emulated.

board.tar.gz:  root/proc/...  root/sys/...  root/etc/...   the files that this suite reads, as they read
record.json                                 programs' outputs, sensors' readings, what could not be read
"""

from __future__ import annotations

import atexit
import functools
import glob
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterator, List, Sequence

import harness
from harness.board.bounded_process import run_bounded
from harness.board.nvpmodel_conf import read_conf
from harness.board.privileged import JETSON_CLOCKS, NVPMODEL, OWN_CONF, hides_clocks
from harness.board.source import SourceSpec, open_source
from harness.core.environment import l4t_release, package_version
from harness.core.errors import ControlError, HarnessError, InvalidValueError
from harness.core.files import write_output

FORMAT = 1
TEGRASTATS = "usr/bin/tegrastats"

_CPU, _DEBUG = "sys/devices/system/cpu", "sys/kernel/debug"
_FILES = (
    "proc/device-tree/compatible", "proc/device-tree/model", "proc/cpuinfo", "proc/meminfo", "proc/stat",
    "proc/interrupts", "proc/sys/vm/drop_caches", "etc/nv_tegra_release", "etc/os-release", OWN_CONF,
    "etc/nvpmodel/*.conf", "etc/nvfancontrol.conf", "etc/systemd/system/nvfancontrol.service",
    f"{_CPU}/*", f"{_CPU}/cpu[0-9]*/online", f"{_CPU}/cpu[0-9]*/topology/thread_siblings_list",
    f"{_CPU}/cpufreq/policy*/*", "sys/class/devfreq/*/*", "sys/class/devfreq/*/device/*",
    "sys/class/devfreq/*/device/of_node/name", "sys/class/thermal/*/*", "sys/class/hwmon/hwmon*/*",
    "sys/class/hwmon/hwmon*/device/name", "sys/bus/i2c/devices/*/name", "sys/bus/i2c/devices/*/hwmon/hwmon*/*",
    "sys/bus/i2c/devices/*/iio:device*/*", "sys/bus/iio/devices/iio:device*/*", "sys/class/powercap/*/*",
    "sys/devices/pwm-fan/*", "sys/kernel/nvpmodel_*/*", f"{_DEBUG}/bpmp/debug/clk/emc/*",
    f"{_DEBUG}/bpmp/debug/emc/tables/regular/*", f"{_DEBUG}/bpmp/debug/soctherm/oc*/event_cnt",
    f"{_DEBUG}/clk/emc/*", f"{_DEBUG}/clk/override.emc/*", f"{_DEBUG}/tegra_bwmgr/*",
)  # fmt: skip
"""What the modules of `harness/board` read, and its neighbours."""

_GOVERNOR = re.compile(r".*/(available_)?governors?")
_SERIAL_FILES = ("proc/device-tree/serial-number", "etc/machine-id", "sys/class/dmi/id/product_serial")
_SERIAL = re.compile(r"(?im)^(serial\s*:\s*)\S+|\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b")
"""The line of /proc/cpuinfo, and the address of a network card."""

_MOST_FILES, _MOST_BYTES, _MOST_FILE_BYTES = 20_000, 64 << 20, 1 << 20
_READ_BYTES = 1 << 16
_PROGRAM_S, _BETWEEN_READINGS_S, _SLOWEST = 30.0, 0.2, 40


def record(path: Path, root: Path, sources: Sequence[SourceSpec], tegrastats_s: float) -> int:
    """Write what a board shows to `path`, and return how many files of the kernel that is. Nothing is set.

    Serial numbers and addresses of network cards are left out; host and user names are in none of what is recorded.
    """
    serials = [text for name in _SERIAL_FILES if (text := _text(root / name).strip("\0\n ")) and len(text) > 3]

    def hidden(text: str) -> str:
        for serial in serials:
            text = text.replace(serial, "(serial)")
        text = text.replace(str(root), "") if root != Path("/") else text
        return _SERIAL.sub(lambda found: f"{found[1] or ''}(serial)", text)

    files: Dict[str, str] = {}
    unreadable: Dict[str, str] = {}
    took_ms: Dict[str, float] = {}
    for name in _names(root):
        began_s = time.monotonic()
        try:
            files[name] = hidden(_text(root / name, strict=True))
        except (OSError, ValueError) as error:
            unreadable[name] = getattr(error, "strerror", None) or "no text"
        took_ms[name] = round((time.monotonic() - began_s) * 1e3, 3)
    slowest = sorted(took_ms, key=lambda name: -took_ms[name])[:_SLOWEST]
    said = {
        "format": FORMAT,
        "jetwatt": harness.__version__,
        "l4t": l4t_release(root),
        "packages": {name: package_version(name) for name in ("torch", "jetson-stats")},
        "files_ms": round(sum(took_ms.values()), 1),
        "slowest_reads_ms": {name: took_ms[name] for name in slowest},
        "unreadable": unreadable,
        "programs": _programs(root, tegrastats_s),
        "sources": {spec.name: _reading(spec, str(root)) for spec in sources},
    }
    members = {f"root/{name}": text for name, text in files.items()}
    members["record.json"] = hidden(json.dumps(said, indent=1))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in members.items():
            content, member = text.encode(), tarfile.TarInfo(name)  # owner, group and time stay empty
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    write_output(path, packed.getvalue())
    return len(files)


def _names(root: Path) -> List[str]:
    """The files to record, below the root: those that are known, and what the board's own conf names."""
    patterns = list(_FILES)
    try:
        params = read_conf(root / OWN_CONF).conf.params
        patterns += [glob.escape(one.path.lstrip("/")) for param in params for one in param.arguments]
    except HarnessError:
        pass  # its text is recorded all the same
    found = {path for pattern in patterns for path in glob.glob(os.path.join(glob.escape(str(root)), pattern))}
    names = [os.path.relpath(path, root) for path in sorted(found) if os.path.isfile(path) and _may_be_read(path)]
    return [name for name in names if name.startswith(("proc/", "sys/", "etc/"))][:_MOST_FILES]


def _may_be_read(path: str) -> bool:
    """Whether reading a file does no harm: clocks of Thor's GPU may hang the kernel, memories hold serial numbers."""
    if os.path.basename(path) in ("eeprom", "nvmem", "uevent"):
        return False
    folder = re.match(r".*/devfreq/[^/]+/", path)
    return folder is None or not hides_clocks(folder[0] + "x") or _GOVERNOR.fullmatch(path) is not None


def _text(path: Path, strict: bool = False) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(fd, _READ_BYTES).decode()
        finally:
            os.close(fd)
    except (OSError, ValueError):
        if strict:
            raise
        return ""


def _programs(root: Path, tegrastats_s: float) -> Dict[str, Any]:
    """What the vendor's programs say; none of these calls sets anything."""
    said: Dict[str, Any] = {}
    for program, *words in ((NVPMODEL, "-q", "--verbose"), (NVPMODEL, "-p", "--verbose"), (JETSON_CLOCKS, "--show")):
        executable, command = str(root / program), " ".join([program, *words])
        if os.path.exists(executable):
            try:
                done = run_bounded([executable, *words], timeout_s=_PROGRAM_S, answer="n\n")
                said[command] = {"status": done.status, "output": done.output}
            except ControlError as error:
                said[command] = {"error": error.what}
    if tegrastats_s > 0 and (root / TEGRASTATS).exists():
        command = [str(root / TEGRASTATS), "--interval", "1000"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            try:
                output, _ = process.communicate(timeout=tegrastats_s)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
        said[TEGRASTATS] = {"lines": output.splitlines()}
    return said


def _reading(spec: SourceSpec, root: str) -> Dict[str, Any]:
    """A sensor as a run would read it, jtop's among them, and how long that takes."""
    try:
        began_s = time.monotonic()
        source = open_source(spec, root)
        opened_s = time.monotonic()
        source.read(opened_s)
        time.sleep(_BETWEEN_READINGS_S)  # rates and jtop's answers come with the second reading
        again_s = time.monotonic()
        reading = source.read(again_s)
        took = {"open_ms": opened_s - began_s, "read_ms": time.monotonic() - again_s}
        return {**reading._asdict(), "notes": source.notes, **{name: round(s * 1e3, 3) for name, s in took.items()}}
    except (HarnessError, OSError, ValueError, ImportError) as error:
        return {"error": str(error)}


@functools.lru_cache(maxsize=None)
def unpacked(path: Path) -> Path:
    """The root of a recorded board, in a folder that goes with this process; InvalidValueError for other files."""
    hint = "make one on the board: jetwatt doctor --record board.tar.gz"
    folder = Path(tempfile.mkdtemp(prefix="jetwatt-board-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        for name, content in _members(path):
            target = folder.joinpath(*name.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
        if json.loads((folder / "record.json").read_text(encoding="utf-8"))["format"] != FORMAT:
            raise ValueError("another version of jetwatt made it")
    except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError, zlib.error, tarfile.TarError) as error:
        raise InvalidValueError(f"{path} is no record of a board: {error}", hint) from error
    return folder / "root"


def _members(path: Path) -> Iterator[Any]:
    """Name and content of each file: no links, nothing outside, and no more than a board has."""
    with gzip.open(path) as file:
        whole = file.read(_MOST_BYTES + 1)
    if len(whole) > _MOST_BYTES:
        raise ValueError(f"it unpacks to more than {_MOST_BYTES:,} bytes")
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
        for count, member in enumerate(archive):
            name = PurePosixPath(member.name)
            is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
            if not is_file or name.is_absolute() or ".." in name.parts or member.size > _MOST_FILE_BYTES:
                raise ValueError(f"{member.name!r} is no file below it, or too large")
            if count >= _MOST_FILES:
                raise ValueError(f"it has more than {_MOST_FILES} files")
            content = archive.extractfile(member)
            yield name, content.read() if content else b""

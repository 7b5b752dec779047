"""What the lab host has a board do: `python -m harness.fleet.on_board check|run|heal`, through ssh.

A run ends with its connection: it reads standard input, which the lab host holds open, and once that ends it does what
Ctrl-C does, so that what it changed is put back. Until then nobody else of the fleet runs anything on the board.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import List, Optional

import harness
from harness.board import thermal, throttling
from harness.board.lock import locked
from harness.board.saved_state import left_behind, restore
from harness.core.cases import INSTANCE_MARK
from harness.core.environment import l4t_release
from harness.core.errors import CannotRunError, ControlError, SourceUnavailableError
from harness.core.units import bytes_to_mb
from harness.devices.jetson_board import jetpack_of

UNFIT = 3  # the exit code of `check` for a board that must not measure now
CASES, RESULTS, CAMPAIGN = "cases.txt", "results.sqlite", "campaign.toml"
_OLD_S = 7 * 24 * 3600.0  # a run that nobody fetched
_RUNNING = "running.pid"


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.fleet.on_board", description=__doc__)
    parser.add_argument("action", choices=("check", "run", "heal"))
    parser.add_argument("--work", type=Path, default=Path("out/fleet"), help="folder of a run, or of all runs")
    parser.add_argument("--device", default="")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where /sys, /proc and /etc are looked for")
    parser.add_argument("--jetpack", default="")
    parser.add_argument("--free-mb", type=float, default=0.0)
    parser.add_argument("--version", default=harness.__version__, help="of the suite on the lab host")
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="what pytest is told further")
    arguments = parser.parse_args(argv)
    if arguments.action == "run":
        return run(arguments.work, arguments.device, arguments.pytest)
    if arguments.action == "heal":
        heal(arguments.work)
        return 0
    reason = why_unfit(arguments)
    boot_id = (arguments.root / "proc/sys/kernel/random/boot_id").read_text().strip()
    print(reason or f"fit, boot {boot_id}")
    return UNFIT if reason else 0


def why_unfit(asked: argparse.Namespace) -> str:
    root = asked.root
    if asked.version != harness.__version__:
        return f"has jetwatt {harness.__version__}, the lab host {asked.version}: install the same"
    l4t = l4t_release(root)
    jetpack = (jetpack_of(l4t) or "") if l4t else asked.jetpack  # a simulated board tells none
    if jetpack != asked.jetpack and not jetpack.startswith(f"{asked.jetpack}."):
        return f"has JetPack {jetpack or 'unknown'} (L4T {l4t}), lab.toml says {asked.jetpack}"
    left = left_behind()
    if left:
        return f"{', '.join(left)}: left changed by a run that was killed"
    for last in (False, True):  # another check holds the lock for a moment
        try:
            # the lock that runs of the fleet share, while nobody has that of the device
            with locked("fleet"), locked(asked.device.partition(INSTANCE_MARK)[0].replace(":", "-")):
                break
        except ControlError as error:
            if last:
                return error.what
        time.sleep(1.0)
    asked.work.mkdir(parents=True, exist_ok=True)
    free_mb = bytes_to_mb(shutil.disk_usage(asked.work).free)
    if free_mb < asked.free_mb:
        return f"disk full: {free_mb:.0f} MB free, {asked.free_mb:.0f} are needed"
    now_s = time.monotonic()
    with contextlib.suppress(SourceUnavailableError, CannotRunError):
        values = thermal.open_source(str(root)).read(now_s).values
        for channel, limit_c in thermal.temperature_limits_c(str(root)).items():
            if values.get(channel, 0.0) > limit_c:
                return f"hot: {channel} is {values[channel]:g}, the limit is {limit_c:g}"
    with contextlib.suppress(SourceUnavailableError):
        for channel, value in throttling.open_source(str(root)).read(now_s).values.items():
            if channel.endswith("_state") and value > 0:
                return f"throttled: {channel} is {value:g}"
    return ""


def on(device: str, test_id: str) -> str:
    """A test of a pool, or a board in it, for another: `[reads-sim:orin-agx-...]` is `[reads-sim:orin-agx@2-...]`."""
    pool = re.escape(device.partition(INSTANCE_MARK)[0])
    return re.sub(rf"(?<=[\[-]){pool}({INSTANCE_MARK}[^-\]]+)?(?=[-\]])", lambda _: device, test_id, count=1)


def run(work: Path, device: str, words: List[str]) -> int:
    import pytest

    listed = (work / CASES).read_text()
    ids = [on(device, line.partition("\t")[0]) for line in listed.splitlines()]
    own = work / "ids.txt"
    own.write_text("\n".join(ids) + "\n")
    files = list(dict.fromkeys(one.partition("::")[0] for one in ids))
    options = ["--cases", str(own), "--device", device, "--results", str(work / RESULTS), "--resume"]
    if (work / CAMPAIGN).exists():
        options += ["--campaign", str(work / CAMPAIGN)]
    with locked("fleet"):
        pid_file = work.parent / _RUNNING
        pid_file.write_text(str(os.getpid()))
        own_input = os.dup(0)  # pytest puts another one in its place, which has an end

        def end_with_input() -> None:
            while os.read(own_input, 4096):
                pass
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60.0)  # its finalizers put back what it changed
            os._exit(1)

        threading.Thread(target=end_with_input, daemon=True).start()
        try:
            # hypothesis, where it is installed, takes as long to load as all the rest
            plugins = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
            return int(pytest.main([*files, *options, "--junitxml", str(work / "junit.xml"), *plugins, *words]))
        finally:
            pid_file.unlink()


def heal(works: Path) -> None:
    """End a run whose lab host went away, put back what a killed one left changed, remove files of old ones."""
    pid_file = works / _RUNNING
    if pid_file.exists():
        pid = int(re.sub(r"\D", "", pid_file.read_text()) or 0)
        command = Path(f"/proc/{pid}/cmdline")
        if pid and command.exists() and b"harness.fleet.on_board" in command.read_bytes():
            print(f"ending process {pid}, a run that nobody waits for")
            os.kill(pid, signal.SIGTERM)
            return
        pid_file.unlink()
    for device in left_behind():
        print(f"{device}: {', '.join(restore(device))} as before")
    for old in works.glob("*"):
        if old.is_dir() and time.time() - old.stat().st_mtime > _OLD_S:
            print(f"removing {old}")
            shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

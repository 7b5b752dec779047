"""What the lab host runs on a board through ssh: `python -m harness.fleet.on_board check|run|heal|complete`.

A run ends with its connection: it reads standard input, which the lab host keeps open. When that ends, the run stops as
on Ctrl-C and restores its changes; until then the fleet runs nothing else on the board.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import harness
from harness.board import thermal
from harness.board.lock import locked
from harness.board.saved_state import left_behind, restore
from harness.board.source import SourceSpec, open_source
from harness.core.cases import INSTANCE_MARK
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import is_self_profiling
from harness.core.environment import l4t_release, suite_commit, without_changes
from harness.core.errors import NOTHING_COMPARED, CannotRunError, ControlError, DependencyError, SourceUnavailableError
from harness.core.units import bytes_to_mb
from harness.devices.jetson_board import jetpack_of
from harness.store.results import ResultsStore

OTHER_COMMIT = 8  # the exit code of `run` if the suite is not that of the submission; pytest's own are lower
UNFIT = 3  # the exit code of `check` for a board that must not measure now
CASES, RESULTS, CAMPAIGN = "cases.txt", "results.sqlite", "campaign.toml"
_OLD_S = 7 * 24 * 3600.0  # age of a run that was not fetched and is removed
_RUNNING = "running.pid"
CASE_BEGINS = "jetwatt-case: "
_MOST_ATTEMPTS = 60  # at a lock that other checks hold, a second apart


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.fleet.on_board", description=__doc__)
    parser.add_argument("action", choices=("check", "run", "heal", "complete"))
    parser.add_argument("--work", type=Path, default=Path("out/fleet"), help="folder of a run, or of all runs")
    parser.add_argument("--device", default="")
    parser.add_argument("--root", type=Path, default=Path("/"), help="the folder with /sys, /proc and /etc")
    parser.add_argument("--jetpack", default="")
    parser.add_argument("--free-mb", type=float, default=0.0)
    parser.add_argument("--version", default=harness.__version__, help="of the suite on the lab host")
    parser.add_argument("--commit", default="", help="of the suite, that a run must have; empty for any")
    parser.add_argument("--workloads", nargs="*", default=[], help="`check` trains a minibatch of each")
    parser.add_argument("--keep", nargs="*", default=[], help="folders that `heal` does not remove")
    parser.add_argument("--wait-s", type=float, default=0.0, help="for an abandoned run to end")
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="further arguments for pytest")
    arguments = parser.parse_args(argv)
    if arguments.action == "run":
        own = without_changes(suite_commit() or "")
        if own and arguments.commit and own != arguments.commit:
            hint = "check that out there, or `jetwatt fleet retry` runs the slice as the boards are"
            print(f"other commit: the board has {own}, the slice was submitted with {arguments.commit}: {hint}")
            return OTHER_COMMIT
        return run(arguments.work, arguments.device, arguments.pytest)
    if arguments.action == "heal":
        heal(arguments.work, arguments.wait_s, arguments.keep)
        return 0
    if arguments.action == "complete":
        return complete(arguments.work)
    reason = why_unfit(arguments) or why_not_able(arguments)
    boot_id = (arguments.root / "proc/sys/kernel/random/boot_id").read_text().strip()
    print(reason or f"fit, boot {boot_id}")
    return UNFIT if reason else 0


def why_unfit(arguments: argparse.Namespace) -> str:
    root = arguments.root
    if arguments.version != harness.__version__:
        hint = "install the same version; after an update of the lab host, run fleet init there"
        return f"has jetwatt {harness.__version__}, the lab host {arguments.version}: {hint}"
    l4t = l4t_release(root)
    jetpack = (jetpack_of(l4t) or "") if l4t else arguments.jetpack  # a simulated board has none
    if jetpack != arguments.jetpack and not jetpack.startswith(f"{arguments.jetpack}."):
        return f"has JetPack {jetpack or 'unknown'} (L4T {l4t}), lab.toml says {arguments.jetpack}"
    left = left_behind()
    if left:
        return f"{', '.join(left)}: left changed by a killed run"
    for attempt in itertools.count(1):
        try:
            # the lock that runs of the fleet share, while that of the device is free
            with locked("fleet"), locked(arguments.device.partition(INSTANCE_MARK)[0].replace(":", "-")):
                break
        except ControlError as error:
            # another check holds it for a moment, which is long on a busy board
            most = _MOST_ATTEMPTS if "harness.fleet.on_board check " in error.what else 2
            if attempt >= most:
                return error.what
        time.sleep(1.0)
    arguments.work.mkdir(parents=True, exist_ok=True)
    free_mb = bytes_to_mb(shutil.disk_usage(arguments.work).free)
    if free_mb < arguments.free_mb:
        return f"disk full: {free_mb:.0f} MB free, {arguments.free_mb:.0f} MB needed"
    now_s = time.monotonic()
    with contextlib.suppress(SourceUnavailableError, CannotRunError):
        values = open_source(SourceSpec("thermal"), str(root)).read(now_s).values
        for channel, limit_c in thermal.temperature_limits_c(str(root)).items():
            if values.get(channel, 0.0) > limit_c:
                return f"hot: {channel} is {values[channel]:g}, the limit is {limit_c:g}"
    with contextlib.suppress(SourceUnavailableError):
        for channel, value in open_source(SourceSpec("throttle"), str(root)).read(now_s).values.items():
            if channel.endswith("_state") and value > 0:
                return f"throttled: {channel} is {value:g}"
    return ""


def why_not_able(arguments: argparse.Namespace) -> str:
    """Why a workload of the suite cannot run here, though the board is fit; empty if all of them can.

    Users' own workloads are left to their run: that one fails on all boards alike is no fault of the board.
    """
    from harness.devices.registry import open_device
    from harness.measure.rehearsal import why_not_trained
    from harness.workloads import WORKLOADS

    workloads = [name for name in arguments.workloads if name in WORKLOADS]
    if not workloads:
        return ""
    device = open_device(arguments.device, load_configuration(Path(FILE_NAME), {}, None, False), arguments.root)
    if is_self_profiling(device):
        return ""
    for name in workloads:
        reason = why_not_trained(name, getattr(device, "gpu_uuid", ""))
        if reason is not None:
            return f"cannot train {name}: {reason}"
    return ""


def complete(work: Path) -> int:
    """Write the results of a killed run to standard output, as one file; nothing if there are none.

    Returns 1, having written nothing, if they cannot be made one file now, as on a full disk. Raises a StoreError for a
    damaged file.
    """
    path = work / RESULTS
    if path.exists():
        with ResultsStore(path):  # takes in what a killed run left in SQLite's own log
            pass
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size > 0:
            print(f"{log} is not empty: {path.name} is in use, or the disk is full", file=sys.stderr)
            return 1
        with ResultsStore(path, read_only=True):  # refuses a damaged file
            pass
        sys.stdout.flush()
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
    return 0


class CaseReporter:
    """A plugin of pytest that writes which case begins: `slice` on the lab host reads it."""

    def __init__(self, listed: Dict[str, str], output: int) -> None:
        self._listed, self._output = listed, output

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if nodeid in self._listed:
            os.write(self._output, f"\n{CASE_BEGINS}{self._listed[nodeid]}\n".encode())


def id_on_board(device: str, test_id: str) -> str:
    """The ID of a test for another board of the pool: `[reads-sim:orin-agx-...]` gives `[reads-sim:orin-agx@2-...]`."""
    pool = re.escape(device.partition(INSTANCE_MARK)[0])
    return re.sub(rf"(?<=[\[-]){pool}({INSTANCE_MARK}[^-\]]+)?(?=[-\]])", lambda _: device, test_id, count=1)


def run(work: Path, device: str, words: List[str]) -> int:
    try:
        import pytest
    except ImportError:
        raise DependencyError("pytest, which runs cases, is not installed", "pip install 'jetwatt[pytest]'") from None
    listed = (work / CASES).read_text()
    listed_ids = [line.partition("\t")[0] for line in listed.splitlines()]
    ids = [id_on_board(device, test_id) for test_id in listed_ids]
    own = work / "ids.txt"
    own.write_text("\n".join(ids) + "\n")
    files = list(dict.fromkeys(test_id.partition("::")[0] for test_id in ids))
    options = ["--cases", str(own), "--device", device, "--results", str(work / RESULTS), "--resume"]
    if (work / CAMPAIGN).exists():
        options += ["--campaign", str(work / CAMPAIGN)]
    with locked("fleet"):
        pid_file = work.parent / _RUNNING
        pid_file.write_text(str(os.getpid()))
        own_input = os.dup(0)  # pytest replaces standard input with an empty one

        def end_with_input() -> None:
            while os.read(own_input, 4096):
                pass
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60.0)  # time for its finalizers to restore its changes
            os._exit(1)

        threading.Thread(target=end_with_input, daemon=True).start()
        try:
            # hypothesis, if it is installed, takes as long to load as everything else
            plugins = ["-p", "jetwatt", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
            words = [*files, *options, "--junitxml", str(work / "junit.xml"), *plugins, *words]
            code = int(pytest.main(words, plugins=[CaseReporter(dict(zip(ids, listed_ids)), os.dup(1))]))
            return 0 if code == NOTHING_COMPARED else code  # a slice may have cases alone that the baseline lacks
        finally:
            pid_file.unlink()


def heal(works: Path, wait_s: float = 0.0, keep: Sequence[str] = ()) -> None:
    """End a run whose lab host went away, restore the changes of a killed one, remove files of old ones.

    A run restores its own changes before it ends; it may take `wait_s` for that. Folders to `keep` are left, as a board
    without a clock of its own may have dated them wrongly.
    """
    pid_file = works / _RUNNING
    if pid_file.exists():
        pid = int(re.sub(r"\D", "", pid_file.read_text()) or 0)
        command = Path(f"/proc/{pid}/cmdline")
        if pid and command.exists() and b"harness.fleet.on_board" in command.read_bytes():
            print(f"ending process {pid}, an abandoned run")
            os.kill(pid, signal.SIGTERM)
            end_s = time.monotonic() + wait_s
            while command.exists() and time.monotonic() < end_s:
                time.sleep(0.2)
            if command.exists():
                return
        pid_file.unlink(missing_ok=True)
    for device in left_behind():
        print(f"{device}: restored {', '.join(restore(device))}")
    for old in works.glob("*"):
        if old.is_dir() and old.name not in keep and time.time() - old.stat().st_mtime > _OLD_S:
            print(f"removing {old}")
            shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

"""Runs of pytest in processes of their own that need not load torch and pandas first: forked from one that has."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Sequence, Tuple

import pytest

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *("pytest", "pandas", "scipy.stats", "sklearn.datasets", "torchvision.transforms"),
        *("harness.plan", "harness.measure.run", "harness.devices.simulated"),
    ]
)

Main = Callable[[List[str]], int]


class Started:
    """A process that was started warm, with what of `subprocess.Popen` the tests use; `out` is its log."""

    def __init__(self, words: List[str], folder: Path, environment: Mapping[str, str], main: Main, own_group: bool):
        self.args = words
        self.out, self._err = (folder / f".{name}-{os.getpid()}" for name in ("out", "err"))
        for path in (self.out, self._err):
            path.write_text("")
        streams = (self.out, self._err)
        self._process = _FORKS.Process(target=_run, args=(main, words, folder, dict(environment), streams, own_group))
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> Optional[int]:
        """The exit status, or None while it runs."""
        return self._process.exitcode

    returncode = property(poll)

    def communicate(self, timeout: float) -> Tuple[str, str]:
        """What it printed; killed where it does not end in time."""
        self._process.join(timeout)
        if self.poll() is None:
            self._process.kill()
            self._process.join()
        said = self.out.read_text(), self._err.read_text()
        for path in (self.out, self._err):
            path.unlink()
        return said


def start(
    arguments: Sequence[object],
    folder: Path,
    environment: Mapping[str, str],
    main: Main = pytest.main,
    own_group: bool = False,
) -> Started:
    """Start what `run` runs; in a process group of its own, to be killed with its children, where that is asked for."""
    return Started(list(map(str, arguments)), folder, environment, main, own_group)


def run(
    arguments: Sequence[object],
    folder: Path,
    environment: Mapping[str, str],
    main: Main = pytest.main,
    timeout_s: float = 300.0,
) -> subprocess.CompletedProcess:
    """What `python -m pytest ARGUMENTS` says in a folder, started with an environment.

    Variables that Python itself reads when it starts have no effect: modules are found where the caller finds them, and
    in the folder. `main` takes the arguments in the place of pytest's own; it can be pickled.
    """
    process = start(arguments, folder, environment, main)
    out, err = process.communicate(timeout_s)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _run(
    main: Main,
    words: List[str],
    folder: Path,
    environment: Mapping[str, str],
    streams: Tuple[Path, Path],
    own_group: bool,
) -> None:
    multiprocessing.set_start_method("fork", force=True)  # as in a process that was not forked by a server
    gc.freeze()  # pytest collects garbage at its end, which takes half a second among the objects of torch
    if own_group:
        os.setsid()
    os.chdir(str(folder))
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in enumerate(streams, 1):
        os.dup2(os.open(str(path), os.O_WRONLY | os.O_APPEND), stream)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # who started it reads along
    sys.path.insert(0, str(folder))
    code = main(words)
    atexit._run_exitfuncs()
    sys.exit(int(code))

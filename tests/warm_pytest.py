"""Runs of pytest in processes of their own that need not load torch and pandas first: forked from one that has."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, Mapping, Sequence

import pytest

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pytest", "pandas", "scipy.stats", "sklearn.datasets", "torchvision.transforms"])


def run(
    arguments: Sequence[object],
    folder: Path,
    environment: Mapping[str, str],
    main: Callable[[List[str]], int] = pytest.main,
    timeout_s: float = 300.0,
) -> subprocess.CompletedProcess:
    """What `python -m pytest ARGUMENTS` says in a folder, started with an environment.

    Variables that Python itself reads when it starts have no effect: modules are found where the caller finds them, and
    in the folder. `main` takes the arguments in the place of pytest's own; it can be pickled.
    """
    words = list(map(str, arguments))
    out, err = (folder / f".{name}-{os.getpid()}" for name in ("out", "err"))
    for path in (out, err):
        path.write_text("")
    process = _FORKS.Process(target=_run, args=(main, words, folder, dict(environment), out, err))
    process.start()
    process.join(timeout_s)
    if process.exitcode is None:
        process.kill()
        process.join()
    said = [path.read_text() for path in (out, err)]
    for path in (out, err):
        path.unlink()
    return subprocess.CompletedProcess(words, process.exitcode, *said)


def _run(
    main: Callable[[List[str]], int],
    words: List[str],
    folder: Path,
    environment: Mapping[str, str],
    out: Path,
    err: Path,
) -> None:
    os.chdir(str(folder))
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(str(path), os.O_WRONLY | os.O_APPEND), stream)
    sys.path.insert(0, str(folder))
    code = main(words)
    atexit._run_exitfuncs()
    sys.exit(int(code))

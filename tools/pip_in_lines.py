"""Runs pip and says in few lines what it does: each large package as it comes, steps, and that it still works.

    python tools/pip_in_lines.py pip install -c constraints.txt -e '.[dev]'

Ends with pip's own status; if that is not 0, with the end of pip's output. Needs no package, on any Python from 3.8.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import IO, Callable, Iterator, List, Optional, Sequence, TextIO

LARGE_MB = 50.0  # a package of this size or more gets a line of its own
SILENCE_S = 20.0  # after so long without a line one says that pip still works
KEPT_LINES = 40  # of pip's output, shown where it fails

_FETCHED = re.compile(r"\s*(?P<how>Downloading|Using cached) (?P<path>\S+) \((?P<size>[\d.]+) (?P<unit>kB|MB|GB)\)")
_LOCAL = re.compile(r"\s*Processing (?P<path>/\S+\.whl)")
_MB = {"kB": 0.001, "MB": 1.0, "GB": 1000.0}


class Lines:
    """What is worth a line of pip's output; takes one line of it after the other."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, folder: str = sysconfig.get_path("purelib")
    ) -> None:
        """`folder` is where pip unpacks."""
        self._clock, self._began_s = clock, clock()
        self._folder = Path(folder)
        self._files = 0
        self._mb = 0.0
        self._to_unpack = 0  # packages
        self._unpacked_before = 0

    def of(self, line: str) -> Optional[str]:
        """A line for the user, None for nothing."""
        fetched, local = _FETCHED.match(line), _LOCAL.match(line)
        if fetched and not fetched["path"].endswith(".metadata"):
            how = "downloading" if fetched["how"] == "Downloading" else "from pip's cache:"
            return self._of_file(how, fetched["path"], float(fetched["size"]) * _MB[fetched["unit"]])
        if local:
            path = Path(local["path"])
            return self._of_file("from a folder:", path.name, path.stat().st_size / 1e6 if path.is_file() else 0.0)
        if line.startswith("Installing collected packages: "):
            self._to_unpack = len(line.partition(": ")[2].split(","))
            self._unpacked_before = self._unpacked()
            return f"  {self._so_far()}; unpacking {_packages(self._to_unpack)}"
        if line.startswith("Successfully installed "):
            return f"  installed {_packages(len(line.split()) - 2)}, {self._elapsed()}"
        return None

    def silence(self) -> str:
        """What to say where pip has said nothing for long."""
        if not self._to_unpack:
            return f"  still at work, {self._elapsed()}"
        count = max(self._unpacked() - self._unpacked_before, 0)
        return f"  still at work, {self._elapsed()}; {count} of {_packages(self._to_unpack)} unpacked"

    def _unpacked(self) -> int:
        """The packages in the folder: pip writes a folder `NAME.dist-info` for each."""
        return sum(1 for _ in self._folder.glob("*.dist-info"))

    def _of_file(self, how: str, file: str, mb: float) -> Optional[str]:
        self._files += 1
        self._mb += mb
        if mb < LARGE_MB:
            return None
        name = "-".join(file.rpartition("/")[2].split("-")[:2])
        return f"  {how} {name}, {mb:.0f} MB; {self._so_far()}"

    def _so_far(self) -> str:
        return f"{self._files} files, {self._mb:.0f} MB so far"

    def _elapsed(self) -> str:
        return f"after {self._clock() - self._began_s:.0f} s"


def _packages(count: int) -> str:
    return "1 package" if count == 1 else f"{count} packages"


def _lines_of(stream: IO[str]) -> Iterator[Optional[str]]:
    """The lines of a stream; None wherever none came for `SILENCE_S`."""
    arrived: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stream:
            arrived.put(line)
        arrived.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = arrived.get(timeout=SILENCE_S)
        except queue.Empty:
            yield None
            continue
        if not line:
            return
        yield line


def run(command: Sequence[str], out: Optional[TextIO] = None) -> int:
    """Run a command that prints as pip does; returns its status. `out` is standard output by default."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None  # it is a pipe
    lines = Lines()
    kept: List[str] = []
    for line in _lines_of(process.stdout):
        if line is not None:
            kept = [*kept, line][-KEPT_LINES:]
        said = lines.silence() if line is None else lines.of(line)
        if said:
            print(said, file=out, flush=True)
    status = process.wait()
    if status:
        print("".join(kept), end="", file=out)
        print(f"error: {' '.join(command)} ended with {status}; above is the end of its output", file=out, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(run([sys.executable, "-m", *sys.argv[1:]]))

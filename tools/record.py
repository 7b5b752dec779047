"""Computes every recorded figure anew, and writes those that the documents print into README.md and docs/.

python -m tools.record [--only PART[,PART]]        (make record, make record ONLY=predictors)
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

from harness.core.errors import CannotRunError, HarnessError, InvalidValueError, UnknownNameError
from harness.core.files import write_output
from harness.core.terminal import format_duration
from tools import figure_blocks
from tools.recorded_figures import (
    DATA_VARIABLE,
    PARTS,
    PROJECT,
    TRAINING,
    Part,
    data_file,
    differences,
    gone,
    read_record,
    write_record,
)

APPROACHES = PROJECT / "baselines" / "recorded" / "approaches.csv"
MOST_LINES = 40
"""Changes of a part that are printed; `git diff` has all."""


def record_part(part: Part) -> List[str]:
    """Compute a part, write its record, and return what changed."""
    rows = part.compute()
    try:
        recorded = read_record(part)
        changed = [*gone(part, recorded, rows), *differences(part, recorded, rows)]
        changed = changed if recorded else [f"{len(rows)} rows, recorded for the first time"]
    except InvalidValueError as error:  # its columns are no longer those of the part
        changed = [f"{error.what}; recorded anew with {', '.join((*part.key, *part.figures))}"]
    write_record(part, rows)
    return changed


def record_gates() -> List[str]:
    """What `pytest tests/gates` compares with; where measured tables are missing, the entries of simulated ones."""
    return run_pytest(APPROACHES.parent, "tests/gates", "--record-baselines")


def record_golden() -> List[str]:
    """The golden files: what commands print, some of it computed from the prior."""
    return run_pytest(PROJECT / "tests" / "golden" / "files", "tests/golden", JETWATT_REMAKE_GOLDEN="1")


def run_pytest(written: Path, *arguments: str, **variables: str) -> List[str]:
    """Run tests that write JSON files into a folder, and return which of these changed."""
    before = {path: path.read_bytes() for path in written.glob("*.json")}
    run_module("pytest", "-q", *arguments, env={**os.environ, **variables})
    after = {path: path.read_bytes() for path in sorted(written.glob("*.json"))}
    return [f"{path.name} changed" for path, content in after.items() if before.get(path) != content]


def run_module(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m WORDS` in the project's folder.

    Raises:
        CannotRunError: its exit code is not 0.
    """
    done = subprocess.run([sys.executable, "-m", *words], cwd=PROJECT, check=False, **options)
    if done.returncode != 0:
        raise CannotRunError(
            f"python -m {' '.join(words)} ended with exit code {done.returncode}", "see its output above"
        )
    return done


def record_approaches() -> List[str]:
    """What `jetwatt advise` weighs."""
    computed = run_module("tools.approaches", str(data_file(TRAINING)), stdout=subprocess.PIPE).stdout
    if computed == APPROACHES.read_bytes():
        return []
    write_output(APPROACHES, computed)
    return [f"{APPROACHES.name} changed"]


Recorder = Tuple[Sequence[str], Callable[[], List[str]]]
"""The measured tables that a part needs, and what records it and returns what changed."""

RECORDERS: Dict[str, Recorder] = {
    **{part.name: (part.files, functools.partial(record_part, part)) for part in PARTS},
    "gates": ((), record_gates),
    "approaches": ((TRAINING,), record_approaches),
    "golden": ((), record_golden),
}


def main(argv: Sequence[str] = ()) -> int:
    """Record the parts that are named, or all that there are tables for; 1 if a part could not be computed."""
    parser = argparse.ArgumentParser(prog="python -m tools.record", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="PART[,PART]", help=f"of {', '.join(RECORDERS)}")
    parser.add_argument("--blocks", action="store_true", help="compute nothing, only rewrite the documents")
    arguments = parser.parse_args(argv)
    names = [] if arguments.blocks else (arguments.only.split(",") if arguments.only else list(RECORDERS))
    unknown = [name for name in names if name not in RECORDERS]
    if unknown:
        raise UnknownNameError(f"no part is called {', '.join(unknown)}", f"parts: {', '.join(RECORDERS)}")
    failed = 0
    for number, name in enumerate(names, 1):
        files, record = RECORDERS[name]
        missing = [file for file in files if not data_file(file).is_file()]
        if missing:
            where = f"{', '.join(missing)} not found in {data_file(missing[0]).parent.parent}"
            print(f"[{number}/{len(names)}] {name}: left as recorded. {where}; {DATA_VARIABLE} names the data folder")
            continue
        print(f"[{number}/{len(names)}] {name}: computing", flush=True)
        start_s = time.monotonic()
        try:
            changed = record()
        except HarnessError as error:
            print(f"{name}: failed: {error}", flush=True)
            failed += 1
            continue
        print_changes(name, changed, time.monotonic() - start_s)
        write_documents()
    for reason in write_documents():
        print(reason)
    return int(failed > 0)


def print_changes(name: str, changed: Sequence[str], seconds: float) -> None:
    print(f"{name}: recorded in {format_duration(seconds)}, {len(changed) or 'no'} changes")
    for line in changed[:MOST_LINES]:
        print(f"  {line}")
    if len(changed) > MOST_LINES:
        print(f"  and {len(changed) - MOST_LINES} more: git diff baselines/recorded")
    sys.stdout.flush()


def write_documents() -> List[str]:
    """Write the recorded figures into the documents, and return why any block was left as it is."""
    reasons = []
    for path in figure_blocks.DOCUMENTS:
        name = path.relative_to(PROJECT)
        text = path.read_text(encoding="utf-8")
        rewritten, left = figure_blocks.rewrite(text)
        reasons += [f"{name}: {reason}" for reason in left]
        if rewritten != text:
            write_output(path, rewritten.encode("utf-8"))
            print(f"{name}: figures rewritten", flush=True)
    return reasons


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HarnessError as error:
        sys.exit(f"error: {error}")

"""`bisect-versions`: which version of a package made training slower, measured with environments that are installed."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.cli.options import add_threshold, output_folder
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.terminal import format_table, shown
from harness.judge.case_frame import SOFTWARE
from harness.judge.compare import DEFAULT_THRESHOLD, compare_files
from harness.judge.quantities import TIME
from harness.judge.verdicts import OVERALL
from harness.stats.comparison import Change
from harness.stats.noise import RunNoise, prior, runs_needed
from harness.store.conditions import differences

FOUND_CODE, NOTHING_CODE = 0, 2
MOST_RUNS = 12  # of an environment: noise that asks for more is told, and the verdict may be unsure
_SUITE = Path(__file__).resolve().parents[2]
_ASK = "import json; from harness.core.environment import describe_environment as d; print(json.dumps(d()))"


class Installed(NamedTuple):
    python: str
    environment: Dict[str, Any]

    def version(self, package: str) -> str:
        found = {"python": self.environment["python"], **self.environment["packages"]}.get(package)
        if found is None:
            raise UnknownNameError(f"{self.python} has no {package}", "install it there, or name another --package")
        return str(found)


class Tried(NamedTuple):
    place: int  # among the environments, oldest version first
    runs: int
    change: Optional[Change]  # of the minibatch time, against the good one; None of that itself
    is_bad: bool
    is_sure: bool  # whether the interval excludes the middle between good and bad


Measure = Callable[[Installed, int], Path]
"""Measures with an environment so many times more, and returns the results file with all of its runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.description = (
        "Find the version of a package from which on training is slower. Environments with the versions are installed"
        " beforehand, with this suite in each; they are halved like commits by `git bisect`. Good and bad are measured"
        " in turns, as often as the noise of the device asks for, then those in the middle, against the good one."
    )
    parser.epilog = (
        "exit code: 0 the version was found; 2 bad is not slower than good. Example: jetwatt bisect-versions --good"
        " torch==2.8 --bad torch==2.9.1 --among ~/envs/*/bin/python --device orin-agx -- --workload resnet18-imagenet"
    )
    for name, text in (("good", "fast"), ("bad", "slow")):
        add(
            f"--{name}",
            required=True,
            metavar="PYTHON|NAME==VERSION",
            help=f"the {text} one: an interpreter, or the version that one of --among has",
        )
    add("--among", nargs="+", default=[], metavar="PYTHON", help="interpreters of the environments in between")
    add("--package", help="whose versions are in question (default: that of --good or --bad, else torch)")
    add("--device", default="host", help="what to measure on, as pytest benchmarks takes it (default: %(default)s)")
    add_threshold(parser, DEFAULT_THRESHOLD, "a slowdown below this is none")
    add(
        "--repetitions",
        type=int,
        metavar="N",
        help=f"runs of each environment (default: as the noise asks, {MOST_RUNS} at most)",
    )
    add("--keep", type=output_folder, metavar="DIR", help="keep the results file of each environment there")
    add("arguments", nargs="*", metavar="ARGUMENT", help="for pytest benchmarks, behind --: test files, axes, settings")


def run(arguments: argparse.Namespace) -> int:
    if arguments.repetitions is not None and arguments.repetitions < 1:
        raise InvalidValueError(f"--repetitions is {arguments.repetitions}", "a number from 1 on")
    named = [text for text in (arguments.good, arguments.bad) if "==" in text]
    package = arguments.package or (named[0].partition("==")[0] if named else "torch")
    paths = [text for text in (arguments.good, arguments.bad) if "==" not in text]
    known = [ask(path) for path in dict.fromkeys(map(_absolute, [*paths, *arguments.among]))]
    good, bad = (chosen(text, known) for text in (arguments.good, arguments.bad))
    environments = between(known, good, bad, package)
    with tempfile.TemporaryDirectory() as folder:
        measure = measuring(arguments.keep or Path(folder), arguments.device, arguments.arguments)
        found = bisect(environments, measure, arguments.threshold, prior(arguments.device), arguments.repetitions)
    print(told(environments, found, package, arguments.threshold))
    return FOUND_CODE if found and found[1].is_bad else NOTHING_CODE


def _absolute(python: str) -> str:
    """An interpreter as it is found from any folder; links stay, as an environment is told by them."""
    return os.path.abspath(os.path.expanduser(python)) if os.sep in python else python


def ask(python: str) -> Installed:
    """What is installed where an interpreter is; the suite must be importable there or lie here."""
    try:
        done = subprocess.run([python, "-c", _ASK], cwd=_SUITE, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotRunError(f"cannot start {python}: {error}", "name the interpreter of an environment") from error
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CannotRunError(f"{python} cannot load the suite: {why}", "install jetwatt's requirements there")
    return Installed(python, json.loads(done.stdout))


def chosen(text: str, known: Sequence[Installed]) -> Installed:
    """The environment that `--good` or `--bad` names, by interpreter or by version: 2.8 stands for 2.8.1 too."""
    name, is_version, version = text.partition("==")
    if not is_version:
        return next(one for one in known if one.python == _absolute(text))
    fitting = [one for one in known if _number(one.version(name))[: len(_number(version))] == _number(version)]
    if len(fitting) != 1:
        there = ", ".join(f"{one.version(name)} ({one.python})" for one in fitting or known) or "none"
        raise UnknownNameError(f"{len(fitting)} environments have {text}", f"available: {there}; --among names them")
    return fitting[0]


def between(known: Sequence[Installed], good: Installed, bad: Installed, package: str) -> List[Installed]:
    first, last = (_number(one.version(package)) for one in (good, bad))
    if first == last:
        raise InvalidValueError(f"good and bad both have {package} {good.version(package)}", "name another --package")
    low, high = sorted((first, last))
    inside = [one for one in known if low < _number(one.version(package)) < high]
    inside.sort(key=lambda one: _number(one.version(package)), reverse=first > last)
    return [good, *inside, bad]


def _number(version: str) -> Tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def measuring(folder: Path, device: str, further: Sequence[str]) -> Measure:
    """Measures by running the benchmarks with an interpreter, into a results file of its own below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files: Dict[str, Path] = {}

    def measure(one: Installed, runs: int) -> Path:
        path = files.setdefault(one.python, (folder / f"environment-{len(files) + 1}.sqlite").absolute())
        names_a_file = any(argument.partition("::")[0].endswith(".py") for argument in further)
        command = [one.python, "-m", "pytest", *([] if names_a_file else ["benchmarks/test_training.py"]), *further]
        for _ in range(runs):
            print(f"measuring with {one.python}", file=sys.stderr, flush=True)
            done = subprocess.run(
                [*command, "--device", device, "--results", str(path), "-p", "no:cacheprovider", "-q"],
                cwd=_SUITE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            if done.returncode:
                tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
                raise CannotRunError(f"the benchmarks failed with {one.python}:\n{tail}", "mend that first")
        return path

    return measure


def bisect(
    environments: Sequence[Installed],
    measure: Measure,
    threshold: float,
    known: RunNoise,
    repetitions: Optional[int] = None,
) -> List[Tried]:
    """Halve the environments, the first good and the last bad, until two neighbours are left.

    Good and bad are measured in turns, so that a machine that drifts does so on both sides. An environment between
    them is bad if its time is nearer to that of the bad one; it is measured again while its interval has the middle in
    it, `MOST_RUNS` times at most. The verdicts come in the order they were made, good and bad first; only these two
    where bad is not slower.
    """
    last = len(environments) - 1
    count = repetitions or min(runs_needed(threshold, known), MOST_RUNS)
    files = [measure(environments[place], 1) for _ in range(count) for place in (0, last)]
    change, status = _overall(files[0], files[1], threshold)
    found = [Tried(0, count, None, False, True), Tried(last, count, change, status == TIME.worse, True)]
    if status != TIME.worse:
        return found
    low, high, middle = 0, last, change.ratio**0.5
    while high - low > 1:
        place = (low + high) // 2
        runs = repetitions or min(runs_needed(middle - 1, known), MOST_RUNS)  # apart from either end by half the change
        own, _ = _overall(files[0], measure(environments[place], runs), threshold)
        while own.low <= middle <= own.high and repetitions is None and runs < MOST_RUNS:
            own, _ = _overall(files[0], measure(environments[place], 1), threshold)
            runs += 1
        found.append(Tried(place, runs, own, own.ratio > middle, not own.low <= middle <= own.high))
        low, high = (low, place) if found[-1].is_bad else (place, high)
    return found


def _overall(before: Path, after: Path, threshold: float) -> Tuple[Change, str]:
    result = compare_files(before, after, SOFTWARE, threshold)
    for one in result.of(OVERALL):
        if one.quantity == TIME and one.change is not None:
            return one.change, one.status
    why = "; ".join(line for refused in result.refused for line in refused.differ[:1]) or "they share no case"
    raise CannotRunError(f"two environments cannot be compared: {why}", "only versions of software may differ")


def told(environments: Sequence[Installed], found: Sequence[Tried], package: str, threshold: float) -> str:
    rows = []
    for one in sorted(found, key=lambda one: one.place):
        own, verdict = environments[one.place], "bad" if one.is_bad else "good"
        time = str(one.change) if one.change else "-"
        rows.append([own.version(package), str(one.runs), time, verdict if one.is_sure else f"{verdict}?", own.python])
    lines = [format_table([package, ">runs", ">minibatch time", "verdict", "interpreter"], rows), ""]
    if not found[1].is_bad:
        bad = environments[-1].version(package)
        return "\n".join(
            [*lines, f"{package} {bad} is not surely slower by more than {threshold:.1%}: nothing to bisect"]
        )
    first = environments[min(one.place for one in found if one.is_bad)]
    before = environments[max(one.place for one in found if not one.is_bad)]
    lines.append(f"slower since {package} {first.version(package)}; {before.version(package)} is the last good one")
    also = differences(before.environment, first.environment)
    lines += [f"differs there: {shown(line)}" for line in also]
    if not all(one.is_sure for one in found):
        lines.append(f"unsure where marked ?: after {MOST_RUNS} runs the interval still has the middle in it")
    return "\n".join(lines)

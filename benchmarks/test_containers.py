"""What does a container cost, are its limits seen, and how much shared memory do DataLoader workers need (F17)?

Runs only if it is requested: `pytest benchmarks/test_containers.py`, `--engine NAME` or `--container-image IMAGE`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import pytest

from harness.board.containers import ContainerEngine, gpu_options, shared_memory_bytes
from harness.board.disk import disk_under
from harness.board.lock import LOCK_DIR_VARIABLE
from harness.core.cases import Case
from harness.core.device import Device
from harness.core.errors import SourceUnavailableError
from harness.core.metrics import between
from harness.core.profiles import Profile, is_disqualified
from harness.core.terminal import Progress
from harness.fixtures import as_pytest_outcome
from harness.measure.flags import stretch
from harness.options import configuration_from
from harness.plan import plan_of
from harness.stats.estimates import Interval, paired_ratio
from harness.store.conditions import comparable_conditions, differences
from harness.store.results import ResultsStore
from harness.workloads.optional_packages import require

PROJECT = Path(__file__).resolve().parents[1]
PAIRS = 6  # with 6 the range of all ratios is an interval of 97 %
MOST = 1.05  # a container adds namespaces and a file-system layer, and neither lies in the way of a minibatch
LEAST = 1.5
"""A limit makes a case at least so much slower. The processor's is of a quarter of a core, which makes 4 on a quiet
machine; what is read from the disk takes ten times as long as the rest of the minibatch."""
LIMIT_CORES, LIMIT_BYTES_PER_S = 0.25, 2_000_000
INTERVAL_S = 0.25  # a case of a second has samples of its CPU time too
LIMIT_S = 1800  # a run that takes longer is given up


def used_cores(profile: Profile) -> float:
    """How many cores were in use, by workers too."""
    series, (start_s, end_s) = profile.telemetry.series["cpu_own_cores"], stretch(profile)
    # a sample is the mean since the one before; where none ends within so short a time, the next holds it
    return statistics.mean(between(series, start_s, end_s).values or between(series, end_s, math.inf).values[:1])


def processor_s(profile: Profile) -> float:
    """The CPU time of a minibatch."""
    start_s, end_s = stretch(profile)
    return used_cores(profile) * (end_s - start_s) / len(profile.counted)


FIGURES: Dict[str, Callable[[Profile], float]] = {
    "time": lambda profile: profile.aggregates["minibatch_time_ms"],
    "stall": lambda profile: profile.aggregates["fetch_stall_ms"],
    "CPU time": processor_s,  # what others take does not lengthen it much
}


class Sides:
    """Runs a case on this machine and in a container on it: the same command, each time in a process of its own."""

    def __init__(
        self, engine: ContainerEngine, case: Case, config: pytest.Config, folder: Path, progress: Progress
    ) -> None:
        self._engine, self.case, self._folder, self._progress = engine, case, folder, progress
        self._configuration, self._accelerator, self._count = configuration_from(config), [], 0
        if require("harness.measure.training_loop").accelerator_name() != "cpu":
            self._accelerator = gpu_options(engine.options)

    def data(self, case: Case) -> Path:
        """Where the data set lies, which has to be there before a container can have it."""
        path = self._configuration.data_directory(case.storage).resolve()
        path.mkdir(parents=True, exist_ok=True)
        return path

    def run(self, case: Case, *options: str, inside: bool = True) -> Tuple[Optional[Profile], str]:
        """The profile, and what was said; `options` are the engine's. There is none where the case was skipped."""
        self._count += 1
        self._progress.update(f"    run {self._count}: {'in a container' if inside else 'bare'} {' '.join(options)}")
        results, data = self._folder / f"{self._count}.sqlite", self.data(case)
        is_host, place = case.device == "host", self._configuration.place(case.storage)
        words: Dict[str, object] = {
            "device": "host", "workload": case.workload, "power-mode": case.power_mode.name if is_host else "maxn",
            "workers": case.workers, "storage": case.storage if place is None else f"{case.storage}={place}",
            "batch-size": case.batch_size, "cache": case.settings.cache, "seed": case.settings.seed,
            "data-scale": case.settings.data_scale, "data-root": self._configuration.data_root,
            "epochs": case.settings.epochs, "minibatches": case.settings.minibatches,
            "interval": INTERVAL_S, "results": results,
        }  # fmt: skip
        command = [self._engine.python if inside else sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider"]
        command += ["-c", str(PROJECT / "pytest.ini"), "--rootdir", str(PROJECT)]
        command += [str(PROJECT / "benchmarks/test_training.py")]
        command += [word for name, value in words.items() if value is not None for word in (f"--{name}", str(value))]
        if inside:
            root = self._configuration.data_root
            folders = [PROJECT, Path.cwd(), data, self._folder, *([root.resolve()] if root else [])]
            # not less than outside, where nothing else is said
            enough = [] if "--shm-size" in options else ["--shm-size", str(shared_memory_bytes()[0])]
            command = self._engine.command(command, folders, Path.cwd(), [*self._accelerator, *enough, *options])
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end after {LIMIT_S} s: {' '.join(command)}", pytrace=False)
        if done.returncode or not results.exists():
            pytest.fail(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", pytrace=False)
        with ResultsStore(results, read_only=True) as store:
            return next(iter(store.profiles()), None), done.stdout

    def in_turns(self, pairs: int, case: Case, *options: str) -> Tuple[Dict[str, Interval], Profile, bool]:
        """Inside / bare, A B B A ..., with intervals; a profile measured inside; whether others disturbed a run."""
        found: Tuple[List[Profile], List[Profile]] = ([], [])
        for pair in range(pairs):
            for inside in (pair % 2 == 1, pair % 2 == 0):
                profile, said = self.run(case, *(options if inside else ()), inside=inside)
                if profile is None:
                    pytest.skip(" ".join(re.findall(r"^SKIPPED.*", said, re.MULTILINE)) or said[-500:])
                found[inside].append(profile)
        disturbed = sum(is_disqualified(profile.flags) for side in found for profile in side)
        ratios = {name: paired_ratio(*([of(one) for one in side] for side in found)) for name, of in FIGURES.items()}
        for name, ratio in ratios.items():
            words = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
            self._progress.line(f"    {name}, in a container {' '.join(options)} / bare: {words}, {pairs} pairs")
        self._progress.line(f"    of {2 * pairs} runs {disturbed} were disturbed or throttled")
        before, after = (comparable_conditions(side[0].conditions, side[0].case) for side in found)
        for line in differences(before, after):
            self._progress.line(f"    differs inside: {line}")
        return ratios, found[True][0], bool(disturbed)


@pytest.fixture
def sides(
    request: pytest.FixtureRequest, case: Case, device: Device, tmp_path: Path, progress: Progress
) -> Iterator[Sides]:
    """Both sides of the test's case; skips where no container was asked for or none can be started.

    The device is held, and a board is in the case's power mode: to what runs on either side it is the host.
    """
    given = [request.config.getoption(f"jetwatt_{name}") for name in ("engine", "container_image", "container_options")]
    if not plan_of(request.config).is_named(request.path) and not any(given):
        pytest.skip("no container was asked for: name the file, or --engine")
    if device.provenance != "measured":
        pytest.skip(f"{case.device} is not a machine that a container could run on")
    cpus = os.sched_getaffinity(0)
    request.getfixturevalue("power_mode")
    os.sched_setaffinity(0, cpus)  # what is started shall choose its own
    with pytest.MonkeyPatch.context() as patch, as_pytest_outcome():
        for name in (LOCK_DIR_VARIABLE, "XDG_STATE_HOME"):  # the lock is held by this run
            patch.setenv(name, str(tmp_path))
        patch.setenv("PYTHONPATH", str(PROJECT))
        with ContainerEngine(*given) as engine:
            yield Sides(engine, case, request.config, tmp_path, progress)


def small(case: Case, workers: int, **settings: object) -> Case:
    """Pictures in small batches, few of them."""
    settings = {"minibatches": 10, "epochs": None, **settings}
    case = dataclasses.replace(case, workload="mobilenetv3-gld23k", batch_size=4, workers=workers)
    return dataclasses.replace(case, settings=dataclasses.replace(case.settings, **settings))


@pytest.mark.parametrize("workload", ["resnet18-cifar10-32"])
def test_a_container_costs_little(sides: Sides) -> None:
    """Measure a case bare and in a container in turns; neither ratio is surely above the bound.

    Under load, time says how the scheduler treats groups of processes, so disturbed runs are judged by CPU time alone.
    """
    ratios, _, disturbed = sides.in_turns(PAIRS, sides.case)
    assert ratios["CPU time"].low <= MOST
    assert ratios["time"].low <= MOST or disturbed


@pytest.mark.parametrize("workload", ["resnet18-cifar10-32"])
@pytest.mark.parametrize("limit", ["processor", "reads"])
def test_a_limit_is_recorded_and_seen_in_the_figure(sides: Sides, limit: str) -> None:
    """Give the container less than the machine has: the profile says so, and the figure shows it."""
    if limit == "processor":
        case, options = small(sides.case, 0), ["--cpus", str(LIMIT_CORES)]
    else:
        case = small(sides.case, 0, cache="evicted")
        try:
            disk = disk_under(str(sides.data(case)), "/")
        except SourceUnavailableError as error:
            pytest.skip(str(error))
        options = ["--device-read-bps", f"/dev/{os.path.basename(disk)}:{LIMIT_BYTES_PER_S}"]
    ratios, inside, disturbed = sides.in_turns(2, case, *options)
    given = inside.conditions["container"]
    expected = {"cpu_cores": LIMIT_CORES} if limit == "processor" else {"read_bytes_per_s": LIMIT_BYTES_PER_S}
    assert expected.items() <= given.items()
    if limit == "processor":
        assert inside.conditions["cpu_quota_throttled_periods"] > 0
        assert used_cores(inside) <= 1.2 * LIMIT_CORES
        assert ratios["time"].low >= LEAST or disturbed
    else:
        assert ratios["stall"].low >= LEAST


@pytest.mark.parametrize("workload", ["resnet18-cifar10-32"])
def test_the_shared_memory_that_workers_ask_for_is_enough(sides: Sides) -> None:
    """With too little of it the case is refused, with a size; with that size it runs."""
    profile, said = sides.run(small(sides.case, 2), "--shm-size", "4m")
    assert profile is None
    size = re.search(r"--shm-size (\d+m)", said)
    assert size, said
    profile, said = sides.run(small(sides.case, 2), "--shm-size", size.group(1))
    assert profile is not None, said

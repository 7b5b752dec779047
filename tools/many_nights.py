"""Makes years of nights of simulated boards, and measures what `history` and `results archive` take for them.

The profiles of one night are measured on a simulated board, as `pytest benchmarks` does. Other nights have the same
cases with noise: a factor for the run, another for each minibatch and each power sample, so that no two values are
equal; aggregates are computed again. Nothing else differs from files of real nights: size, conditions, flags.

With `--boards`, further boards have results files of one byte that are only listed, and their profiles are written to
the index as if they had been read: those of the first board, with another board instance and other noise. That
measures an analysis of many boards with the whole index, without the hours and the disk that the files would take.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import numpy as np

from harness.core.boards import load_board
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.environment import describe_environment
from harness.core.metrics import summarise
from harness.core.power_modes import NamedMode
from harness.core.profiles import Minibatches, Profile, Series
from harness.core.units import ms_to_s
from harness.devices.registry import open_device
from harness.judge.history_index import NAME, SETTLED_NS, HistoryIndex, ReadNight, Signature
from harness.judge.profile_columns import ProfileColumns, ProfileSubject, columns_of
from harness.measure.run import run
from harness.store.archive import archive_results, files_of_archive
from harness.store.frames import profiles
from harness.store.results import ResultsStore

BOARD, WORKLOADS = (
    "orin-agx",
    ("lenet-mnist", "resnet18-imagenet", "mobilenetv3-gld23k", "yolov8n-coco", "lstm-wikitext"),
)
FIRST_NIGHT = datetime.datetime(2025, 1, 1, 2, tzinfo=datetime.timezone.utc)
RUN_NOISE, VALUE_NOISE = 0.005, 0.01  # standard deviations, as shares


def main() -> None:
    parser = argparse.ArgumentParser("python -m tools.many_nights", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, help="a new folder for the nights; needs 2 MB a night")
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--cases", type=int, default=100, help="profiles of a night")
    parser.add_argument(
        "--boards", default="", help="numbers of boards, rising: 10,200; all but one have an index only"
    )
    parser.add_argument("--archive", action="store_true", help="measure `results archive`, too, at the end")
    arguments = parser.parse_args()
    if not arguments.folder.exists():
        make_nights(arguments.folder / "board1", arguments.nights, arguments.cases)
    report("nights of one board", arguments.folder / "board1")
    measure("history, first time", arguments.folder, "--no-index")
    measure("history, building the index", arguments.folder)
    measure("history, nothing new", arguments.folder)
    print(f"index of one board: {(arguments.folder / NAME).stat().st_size / 1e6:.1f} MB")
    present = 1
    for boards in [int(word) for word in arguments.boards.split(",") if word]:
        add_boards(arguments.folder, present + 1, boards)
        present = boards
        measure(f"history of {boards} boards, nothing new", arguments.folder)
        print(f"index of {boards} boards: {(arguments.folder / NAME).stat().st_size / 1e6:.1f} MB")
    if arguments.archive:
        begun_s = time.perf_counter()
        done = archive_results(arguments.folder / "board1", older_than=0, out=arguments.folder / "archive")
        print(f"{done}, {done.bytes_after / done.profiles:.0f} bytes a profile, {time.perf_counter() - begun_s:.0f} s")
        print(f"archive: {len(files_of_archive(arguments.folder))} files")
        measure("history, archived", arguments.folder)
        measure("history, archived, nothing new", arguments.folder)


def make_nights(folder: Path, nights: int, cases: int) -> None:
    """Write nights of one board, a results file each."""
    measured = one_night(cases)
    environment = describe_environment()
    random = np.random.default_rng(0)
    for night in range(nights):
        begun = FIRST_NIGHT + datetime.timedelta(days=night)
        path = folder / f"{begun:%Y-%m-%d}" / "night.sqlite"
        with ResultsStore(path) as store:
            store._connection.execute("PRAGMA synchronous = OFF")  # only here: a lost file is made again
            factor = float(np.exp(RUN_NOISE * random.standard_normal()))
            for number, profile in enumerate(measured):
                created_at = (begun + datetime.timedelta(minutes=number)).isoformat(timespec="microseconds")
                store.add(with_noise(profile, factor, random), environment, f"{begun:%Y%m%dT%H%M%S}", created_at)


def one_night(cases: int) -> List[Profile]:
    """Profiles of several workloads under as many power modes as that takes."""
    space = load_board(BOARD).power_mode_space()
    modes = space.sample(max(cases // len(WORKLOADS), 1))
    device = open_device(f"sim:{BOARD}@1", Configuration())
    settings = CaseSettings(minibatches=40)
    night = []
    for mode in modes:
        for workload in WORKLOADS:
            named = NamedMode(mode.name, mode) if hasattr(mode, "name") else NamedMode(str(mode), mode)
            night.append(run(Case(f"sim:{BOARD}@1", workload, named, 4, "ssd", 16, settings), device))
    return night


def with_noise(profile: Profile, factor: float, random: np.random.Generator) -> Profile:
    """The profile as another run of the same case would have it."""
    columns = dict(Minibatches.of(profile.minibatches).columns)
    factors = factor * np.exp(VALUE_NOISE * random.standard_normal(len(columns["epoch"])))
    for name in ("stall_ms", "compute_ms", "e2e_ms"):
        columns[name] = columns[name] * factors
    columns["start_s"] = columns["start_s"][0] + ms_to_s(np.cumsum(np.append(0.0, columns["e2e_ms"][:-1])))
    series = dict(profile.telemetry.series)
    for channel in [name for name in series if name.startswith("power_")]:
        values = np.array(series[channel].values)
        noisy = values * np.exp(VALUE_NOISE * random.standard_normal(len(values)))
        series[channel] = Series(series[channel].times_s, tuple(noisy.tolist()))
    telemetry = dataclasses.replace(profile.telemetry, series=series)
    minibatches = Minibatches(columns)
    aggregates = {**profile.aggregates, **summarise(minibatches, telemetry, profile.case.batch_size)}
    return dataclasses.replace(profile, minibatches=minibatches, telemetry=telemetry, aggregates=aggregates)


def add_boards(folder: Path, first: int, last: int) -> None:
    """Put further boards into the index, whose nights are files of one byte."""
    own = sorted((folder / "board1").rglob("*.sqlite"))
    nights = []
    for path in own:
        with ResultsStore(path, read_only=True) as store:
            nights.append((path, columns_of(profiles(store, include_flagged=True), str(path))))
    random = np.random.default_rng(first)
    index = HistoryIndex(folder / NAME)
    for board in range(first, last + 1):
        new: Dict[str, Tuple[ReadNight, ProfileColumns]] = {}
        for path, columns in nights:
            place = folder / f"board{board}" / path.parent.name / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"x")
            signature = Signature.of(str(place))
            assert signature is not None
            later_ns = time.time_ns() + 2 * SETTLED_NS
            of_night = of_board(columns, board, random)
            new[str(place.relative_to(folder))] = ReadNight(signature, later_ns, len(of_night)), of_night
        index.update(new)
    index.write()


def of_board(columns: ProfileColumns, board: int, random: np.random.Generator) -> ProfileColumns:
    """The same night of another board."""
    subjects = []
    for subject in columns.subjects():
        device = f"sim:{BOARD}@{board}"
        case_id = subject.case_id.replace(subject.device_name, device)
        subjects.append(ProfileSubject(f"{board}-{subject.series}", case_id, BOARD, device, str(board), "simulated"))
    texts = {
        "subject": [json.dumps(subject) for subject in subjects],
        "run": [json.dumps(f"{json.loads(text)}-{board}") for text in columns.texts["run"]],
        "software": columns.texts["software"],
    }
    values: Dict[str, np.ndarray] = dict(columns.columns)
    values["key"] = values["key"] ^ board
    for name in ("minibatch_time_ms", "power_mw", "memory_peak_bytes"):
        values[name] = values[name] * np.exp(RUN_NOISE * random.standard_normal())
    return ProfileColumns(texts, values)


def report(what: str, folder: Path) -> None:
    files = sorted(folder.rglob("*.sqlite"))
    size = sum(file.stat().st_size for file in files)
    with ResultsStore(files[0], read_only=True) as store:
        count = len(files) * len(store)
    print(
        f"{what}: {len(files)} files, {count} profiles, {size / 1e6:.0f} MB, {size / max(count, 1):.0f} bytes a profile"
    )


def measure(what: str, folder: Path, *options: str) -> None:
    """Run `history` in a process of its own; print its times and memory."""
    command: Sequence[str] = [sys.executable, "-m", "jetwatt", "history", str(folder), *options]
    begun_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    took_s = time.perf_counter() - begun_s
    cpu_s = usage.ru_utime + usage.ru_stime
    print(f"{what}: {took_s:.1f} s, {cpu_s:.1f} s of CPU, {usage.ru_maxrss / 1024:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()

"""What a fleet costs and gains: as many simulated modes over some boards as over one, on this machine.

Each case waits for a while, as a lab host does while a board measures: simulated boards that computed all the time
would show how many cores this machine has. So efficiency, the time of one board over that of all boards together, is of
what the fleet does: 100 % where three boards take a third. A mode takes about 0.13 s of a board, a slice some seconds
more: 1,092 modes on one board and on three take about 6 minutes on two idle cores, all 4,368 of the papers about 20.
"""

from __future__ import annotations

import argparse
import datetime
import time

from harness.core.power_modes import PowerMode
from harness.fleet.lab import Fleet
from harness.fleet.submission import ListedCase, Slice, _new_folder, cancel, enqueue
from harness.store.results import ResultsStore
from tests.fleet.simulated_lab import POOL, SETTINGS, SLICE_S, SimulatedLab, why_not

TASKS, PAPERS_MODES = 18096, 4368


def pytest_addoption(parser):
    """This module is a plugin of pytest on the boards, too."""
    parser.addoption("--case-wait", type=float, default=0.0)


def pytest_runtest_teardown(item):
    time.sleep(item.config.getoption("case_wait"))


def main():
    how = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser("python -m tests.fleet.benchmark", description=__doc__, **how)
    parser.add_argument("--modes", type=int, default=1092, help=f"a sample; {PAPERS_MODES} is the papers' grid")
    parser.add_argument("--boards", default="1,3", help="numbers of boards, one after the other")
    parser.add_argument("--case-wait", type=float, default=0.1, help="seconds a case")
    parser.add_argument("--slice-cases", type=int, default=100, help="cases of a slice, at most")
    arguments = parser.parse_args()
    if why_not():
        raise SystemExit(why_not())
    one_board_s = None
    for boards in map(int, arguments.boards.split(",")):
        lab = SimulatedLab(boards=boards, settings=SETTINGS)
        try:
            lab.wait_until_idle()
            if boards == 1:
                submit_many(lab)
            took_s = measure(lab, boards, arguments)
        finally:
            lab.stop()
        one_board_s = took_s if boards == 1 else one_board_s
        if one_board_s and boards > 1:
            print(f"efficiency of {boards} boards: {100 * one_board_s / took_s / boards:.0f} %", flush=True)


def submit_many(lab):
    """As many slices as the space of modes of AGX Orin has, of a case each; taken back at once."""
    fleet = Fleet(lab.folder / "lab.toml")
    case = ListedCase("benchmarks/test_training.py::test_training[x]", "x", "sim:orin-agx", "x", PowerMode(1, 1, 1, 1))
    slices = [Slice((case,), "maxn")] * TASKS
    began = time.perf_counter()
    made = enqueue(fleet, _new_folder(fleet.folder / "submissions"), POOL, "sim:orin-agx", slices, [])
    print(f"{TASKS} tasks submitted in {time.perf_counter() - began:.2f} s", flush=True)
    cancel(fleet, made)
    lab.wait("the queue is empty", lambda: not lab.slurm("squeue", "-h").communicate()[0])


def measure(lab, boards, arguments):
    """The seconds from the first slice's start to the last one's end; what of them was for the fleet is printed."""
    words = ["benchmarks/test_training.py", "--workload", "resnet18-imagenet", "--workers", "4", "--minibatches", "40"]
    words += ["-p", "tests.fleet.benchmark", "--case-wait", str(arguments.case_wait), "--power-mode"]
    how = ["--wait", "--pool", POOL, "--case-seconds", str(SLICE_S / arguments.slice_cases)]
    warm_up = [lab.start("submit", *how, "--board", f"board{n + 1}", "--", *words, "maxn") for n in range(boards)]
    assert [process.communicate() and process.returncode for process in warm_up] == [0] * boards  # modules are compiled
    asked = "grid:paper" if arguments.modes == PAPERS_MODES else f"sample:{arguments.modes}"
    campaign = lab.start("submit", *how, "--", *words, asked)
    assert campaign.wait() == 0, campaign.stdout.read()
    slices = max((lab.fleet / "submissions").iterdir()) / "slices"
    begins, ends, busy_s, measuring_s, counts = [], [], 0.0, 0.0, []
    for ended in slices.glob("*/ended"):
        seconds = float(ended.read_text().split("\t")[2])
        ends.append(ended.stat().st_mtime)
        begins.append(ends[-1] - seconds)
        busy_s += seconds
        with ResultsStore(ended.with_name("results.sqlite"), read_only=True) as store:
            stored = [datetime.datetime.fromisoformat(record.created_at) for record in store.records()]
        counts.append(len(stored))
        measuring_s += (stored[-1] - stored[0]).total_seconds() * len(stored) / max(1, len(stored) - 1)
    took_s, count = max(ends) - min(begins), len(ends)
    modes, per_mode_ms = sum(counts), 1000 * measuring_s / sum(counts)
    print(f"{boards} boards: {modes} modes in {count} slices, {took_s:.0f} s; {per_mode_ms:.0f} ms a mode; ", end="")
    print(f"a slice of {modes / count:.0f} takes {(busy_s - measuring_s) / count:.1f} s beside its modes, ", end="")
    print(f"and {(took_s * boards - busy_s) / count:.1f} s until the next one", flush=True)
    print(lab.call("collect", "--out", str(lab.folder / "out.sqlite")).strip(), flush=True)
    return took_s


if __name__ == "__main__":
    main()

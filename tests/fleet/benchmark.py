"""What a fleet costs and gains, on this machine: `python -m tests.fleet.benchmark [--modes 4368] [--boards 1,3]`.

Simulated boards compute; they do not wait. So three of them are faster than one only as far as this machine has cores.
"""

from __future__ import annotations

import argparse
import time

from harness.core.power_modes import PowerMode
from harness.fleet.lab import Fleet
from harness.fleet.submission import ListedCase, Slice, _new_folder, cancel, enqueue
from tests.fleet.simulated_lab import POOL, SETTINGS, SimulatedLab, why_not

TASKS = 18096


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", type=int, default=4368)
    parser.add_argument("--boards", default="1,3")
    parser.add_argument("--case-seconds", type=float, default=0.1)
    arguments = parser.parse_args()
    if why_not():
        raise SystemExit(why_not())
    for boards in map(int, arguments.boards.split(",")):
        lab = SimulatedLab(boards=boards, settings=SETTINGS)
        try:
            lab.wait("boards are idle", lambda lab=lab, boards=boards: _idle(lab) == boards)
            if boards == 1:
                submit_many(lab)
            measure(lab, boards, arguments)
        finally:
            lab.stop()


def _idle(lab):
    status = lab.status()
    return sum(one["state"] == "idle" for one in status["boards"]) if status else 0


def submit_many(lab):
    """As many slices as the space of modes of AGX Orin has, of a case each; taken back at once."""
    fleet = Fleet(lab.folder / "lab.toml")
    case = ListedCase("benchmarks/test_training.py::test_training[x]", "x", "sim:orin-agx", "x", PowerMode(1, 1, 1, 1))
    began = time.perf_counter()
    made = enqueue(
        fleet, _new_folder(fleet.folder / "submissions"), POOL, "sim:orin-agx", [Slice((case,), "maxn")] * TASKS, []
    )
    print(f"{TASKS} tasks submitted in {time.perf_counter() - began:.2f} s", flush=True)
    cancel(fleet, made)
    lab.wait("the queue is empty", lambda: not lab.slurm("squeue", "-h").communicate()[0])


def measure(lab, boards, arguments):
    """A sample of modes from submit to collect: the wall time, and what of it boards spent between slices."""
    began = time.perf_counter()
    words = ["benchmarks/test_training.py", "--workload", "resnet18-imagenet", "--minibatches", "40"]
    asked = f"sample:{arguments.modes}" if arguments.modes != 4368 else "grid:paper"
    lab.call(
        "submit",
        "--wait",
        "--pool",
        POOL,
        "--case-seconds",
        str(arguments.case_seconds),
        "--",
        *words,
        "--power-mode",
        asked,
    )
    wall_s = time.perf_counter() - began
    ended = [path.read_text().split("\t") for path in lab.fleet.glob("submissions/*/slices/*/ended")]
    busy_s = sum(float(one[2]) for one in ended)
    idle_s = (wall_s * boards - busy_s) / len(ended)
    print(f"{boards} boards: {arguments.modes} modes in {len(ended)} slices, {wall_s:.0f} s; ", end="")
    print(f"at work {100 * busy_s / wall_s / boards:.0f} % of it, {idle_s:.1f} s between slices", flush=True)
    print(lab.call("collect", "--out", str(lab.folder / "out.sqlite")).strip(), flush=True)


if __name__ == "__main__":
    main()

"""`advise`: which way of finding a power mode pays off for a training, by the guide of 001 Table 1.

All approaches end with the training running in some power mode. They differ in the profiles they spend first, and in
how much slower their mode is than the best one. The total of an approach is

    profiles * hours per profile + fitting + runs * epochs * hours per epoch in the best mode * (1 + penalty)

so an expensive search pays off for a long training only. Profiles count once for any number of runs, which is why the
guide takes the number of runs.

All penalties are from one contest: mean over budgets of 17 to 50 W in steps of 3, on the same three measured tables of
an Orin AGX. A choice that exceeds its budget by more than 1 W is replaced by the vendor's best preset for that budget,
with the preset's penalty.

If the training is described, the papers' rules for manual tuning that apply to it are printed too.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Tuple, Union

from harness.core.cases import NamedWorkload
from harness.core.corpus import listed
from harness.core.errors import InvalidValueError
from harness.core.terminal import format_table
from harness.core.units import S_PER_HOUR, S_PER_MINUTE, percent_to_share

if TYPE_CHECKING:
    import pandas as pd

PROFILE_SECONDS = 13.4
"""Profiling time per mode of ResNet-18 over the corpus of an Orin AGX: 16.3 h for 4,368 modes (001 sec. 1.5)."""

RECORDED = Path(__file__).resolve().parents[2] / "baselines" / "recorded" / "approaches.csv"
PAPERS_GRID = 4368

WORKERS = 4  # more gain nothing (004 5.1.6)
SLOW_STORAGE = ("hdd", "sd")
LIGHT_WORKLOADS = ("lenet-mnist",)


def advise(
    epochs: float,
    epoch_minutes: float,
    *,
    runs: float = 1,
    profile_seconds: float = PROFILE_SECONDS,
    workers: Optional[int] = None,
    storage: Optional[str] = None,
    workload: Union[str, NamedWorkload, None] = None,
) -> Advice:
    """Which way of finding a power mode pays off for a training, as `jetwatt advise` does.

    Args:
        epochs: of one training.
        epoch_minutes: one epoch in a good mode within the budget.
        runs: trainings that will use the mode.
        profile_seconds: profiling time per mode.
        workers: `num_workers` of the DataLoader, for the papers' rules.
        storage: medium of the data set, such as `hdd`, for the papers' rules.
        workload: the trained workload, by name or as a `Workload`, for the papers' rules.

    Raises:
        InvalidValueError: a number is not above 0.
    """
    numbers = {"epochs": epochs, "epoch_minutes": epoch_minutes, "runs": runs, "profile_seconds": profile_seconds}
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise InvalidValueError(f"{name} is {value:g}, expected a finite number above 0")
    best_hours = runs * epochs * epoch_minutes * S_PER_MINUTE / S_PER_HOUR
    question = f"{runs:g} runs x {epochs:g} epochs x {epoch_minutes:g} min = {best_hours:.2f} h in the best mode"
    costs = weigh(read_approaches(), best_hours, profile_seconds)
    trained = None if workload is None else listed(workload)[0]
    return Advice(costs, tuple(rules(workers, storage, trained)), f"{question}; {profile_seconds:g} s a profile")


class Advice(NamedTuple):
    """What each approach costs; printed, it is the text of `jetwatt advise`."""

    costs: pd.DataFrame  # a row for each approach, the cheapest first: profiles, hours, penalty in %, origin
    rules: Tuple[str, ...]  # the papers' rules for manual tuning that apply
    question: str  # what was asked, in words

    def __repr__(self) -> str:
        titles = {
            "name": "approach", "profiles": ">profiles", "profiling_hours": ">profiling h",
            "over_limit_plus1_pct": ">over by 1 W %", "penalty_pct": ">penalty %", "training_hours": ">training h",
            "total_hours": ">total h", "origin": "origin",
        }  # fmt: skip
        digits = {"over_limit_plus1_pct": 0, "penalty_pct": 1}
        digits.update(profiling_hours=2, training_hours=2, total_hours=2)
        rows = [
            [f"{row[name]:.{digits[name]}f}" if name in digits else str(row[name]) for name in titles]
            for row in self.costs.to_dict("records")
        ]
        lines = [
            self.question,
            "total = profiles x seconds a profile + fitting + hours in the best mode x (1 + penalty)",
            "penalty: mean; a mode over its limit by more than 1 W is replaced by the vendor's preset",
            format_table(list(titles.values()), rows),
            f"cheapest: {self.costs['name'].iloc[0]}",
            *(f"rule: {line}" for line in self.rules),
        ]
        return "\n".join(lines)


def rules(workers: Optional[int], storage: Optional[str], workload: Optional[str]) -> List[str]:
    """The papers' rules for manual tuning that apply to a training, each with its source."""
    matching = []
    if workers is not None and workers < WORKERS:
        matching.append(
            f"{WORKERS} workers instead of {workers}: they hide the fetch stall at no cost in energy (004 5.1)"
        )
    if workers is not None and workers > WORKERS:
        matching.append(f"{WORKERS} workers are as fast as {workers} (004 5.1.6), and need fewer cores")
    if storage in SLOW_STORAGE:
        matching.append(
            f"{WORKERS} workers and a warm page cache make up for {storage}: a faster disk is not needed (004 5.2.2)"
        )
    if workload in LIGHT_WORKLOADS:
        matching.append(
            f"keep the CPU clock high: the GPU waits for it in a light network such as {workload} (004 5.6.6)"
        )
    elif workload is not None:
        matching.append(f"the GPU clock affects the speed of {workload} more than the CPU clock (004 5.6.4)")
    if matching:
        matching.append(
            "raise the batch size until the GPU is saturated (004 5.3.1); it also changes how a network learns"
        )
        matching.append(
            "let the board sleep between trainings and wake it over the network: idling costs most (004 5.6)"
        )
    return matching


def read_approaches(path: Path = RECORDED) -> pd.DataFrame:
    """Name, profiles, fitting time and penalty of each approach: means over the tables of the contest."""
    import pandas as pd

    rows = pd.read_csv(path)
    aggregations = {"profiles": "first", "fitting_s": "first", "priced_pct": "mean", "over_limit_plus1_pct": "mean"}
    approaches = (
        rows.groupby("name", sort=False).agg(aggregations).rename(columns={"priced_pct": "penalty_pct"}).reset_index()
    )
    approaches["origin"] = f"contest on {rows['target'].nunique()} measured tables of an Orin AGX, baselines/recorded"
    brute = {
        "name": "brute force",
        "profiles": PAPERS_GRID,
        "fitting_s": 0,
        "penalty_pct": 0,
        "over_limit_plus1_pct": 0,
    }
    brute["origin"] = "001 Table 1, over the paper's grid; the mode is the best by definition"
    return pd.concat([approaches, pd.DataFrame([brute])], ignore_index=True)


def weigh(approaches: pd.DataFrame, best_hours: float, profile_seconds: float) -> pd.DataFrame:
    """The cost of each approach, the cheapest first; the training takes `best_hours` in the best mode."""
    profiling = (approaches["profiles"] * profile_seconds + approaches["fitting_s"]) / S_PER_HOUR
    training = best_hours * (1 + percent_to_share(approaches["penalty_pct"]))
    costs = approaches.assign(profiling_hours=profiling, training_hours=training, total_hours=profiling + training)
    return costs.sort_values("total_hours", kind="stable", ignore_index=True)

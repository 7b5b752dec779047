"""`advise`: which way of finding a power mode pays for a training, the guide of 001 Table 1 with its arithmetic.

All approaches end with the training running in some power mode. They differ in what they spend on profiles first, and
in how much slower than the best mode the one is that they end with. The total of an approach is

    profiles * hours per profile + fitting + runs * epochs * hours per epoch in the best mode * (1 + penalty)

so an expensive search pays for a long training only. Profiles count once, however many runs follow: that is why the
guide asks for the number of runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from harness.core.errors import InvalidValueError
from harness.core.terminal import format_table
from predictors.evaluation import read_recorded

PROFILE_SECONDS = 13.4
"""Profiling time per mode of ResNet-18 over the corpus of an Orin AGX: 16.3 h for 4,368 modes (001 sec. 1.5)."""

RECORDED = Path(__file__).resolve().parents[2] / "baselines/recorded/strategies.json"
OWN = ("closed-loop", "one-shot")
OWN_FITTING_S = 10.0
"""Fifteen steps of fitting and predicting, each well under a second (docs/predictors.md)."""


class Approach(NamedTuple):
    """A way to find a power mode: what it profiles and computes, and the mean time penalty of the mode it ends with."""

    name: str
    profiles: int
    penalty_pct: float
    fitting_s: float
    origin: str


class ApproachCost(NamedTuple):
    """What an approach comes to for one training: profiling, fitting included, and all runs in the mode found."""

    approach: Approach
    profiling_hours: float
    training_hours: float

    @property
    def total_hours(self) -> float:
        """Profiling and training together."""
        return self.profiling_hours + self.training_hours


PUBLISHED = (
    Approach("brute force", 4368, 0.0, 0.0, "001 Table 1, over the paper's grid; the mode is the best by definition"),
    Approach("NN-100", 100, 5.0, 10.0, "001 Table 1; median penalty of NN on MobileNet, sec. 5.2"),
    Approach("PowerTrain, 50 modes", 50, 1.0, 30.0, "001 Table 1; median, sec. 1.4; over the limit by 1 W in 26.5 %"),
    Approach("random, 50 modes", 50, 20.0, 0.0, "001 sec. 5.2: 12 to 28 %"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--epochs", type=float, required=True, help="of one training")
    add("--epoch-minutes", type=float, required=True, help="one epoch in a good mode within the budget")
    add("--runs", type=float, default=1, help="trainings that will use the mode (default: 1)")
    add("--profile-seconds", type=float, default=PROFILE_SECONDS, help=f"per profile (default: {PROFILE_SECONDS}, 001)")
    add("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    costs = weigh(
        [*own_approaches(), *PUBLISHED],
        epochs=arguments.epochs,
        epoch_minutes=arguments.epoch_minutes,
        runs=arguments.runs,
        profile_seconds=arguments.profile_seconds,
    )
    if arguments.json:
        found = [{**one.approach._asdict(), **one._asdict(), "total_hours": one.total_hours} for one in costs]
        print(json.dumps([{**one, "approach": one["name"]} for one in found], indent=1))
    else:
        print(format_costs(costs, arguments))
    return 0


def weigh(
    approaches: List[Approach], *, epochs: float, epoch_minutes: float, runs: float, profile_seconds: float
) -> List[ApproachCost]:
    """What each approach comes to, the cheapest first; an epoch takes `epoch_minutes` in the best mode."""
    numbers = {"epochs": epochs, "epoch minutes": epoch_minutes, "runs": runs, "seconds per profile": profile_seconds}
    for name, value in numbers.items():
        if not value > 0:
            raise InvalidValueError(f"{name} is {value:g}, expected a number above 0")
    best_hours = runs * epochs * epoch_minutes / 60
    costs = [
        ApproachCost(
            approach,
            (approach.profiles * profile_seconds + approach.fitting_s) / 3600,
            best_hours * (1 + approach.penalty_pct / 100),
        )
        for approach in approaches
    ]
    return sorted(costs, key=lambda cost: cost.total_hours)


def own_approaches() -> List[Approach]:
    """This suite's strategies with the penalties that were recorded for them; none where nothing was recorded.

    Measured tables count, of several the worst one; simulated ones only where nothing was measured.
    """
    worst: Dict[str, Dict[str, Any]] = {}
    entries = read_recorded(RECORDED)
    for entry in [one for one in entries if one["provenance"] == "measured"] or entries:
        known = worst.get(entry["strategy"])
        if entry["strategy"] in OWN and (known is None or entry["penalty_median"] > known["penalty_median"]):
            worst[entry["strategy"]] = entry
    return [
        Approach(
            f"{name}, {entry['profiles']} modes",
            entry["profiles"],
            entry["penalty_median"],
            OWN_FITTING_S,
            f"mean, recorded on {entry['corpus']}, {entry['target']}; "
            f"over the limit by 1 W in {entry['over_limit_plus1_median']:.0f} %",
        )
        for name, entry in worst.items()
    ]


def format_costs(costs: List[ApproachCost], arguments: argparse.Namespace) -> str:
    """The arithmetic as a table, the cheapest first."""
    rows = [
        [
            one.approach.name,
            str(one.approach.profiles),
            f"{one.profiling_hours:.2f}",
            f"{one.approach.penalty_pct:.1f}",
            f"{one.training_hours:.2f}",
            f"{one.total_hours:.2f}",
            one.approach.origin,
        ]
        for one in costs
    ]
    titles = ("approach", ">profiles", ">profiling h", ">penalty %", ">training h", ">total h")
    best_hours = arguments.runs * arguments.epochs * arguments.epoch_minutes / 60
    return "\n".join(
        [
            f"{arguments.runs:g} runs x {arguments.epochs:g} epochs x {arguments.epoch_minutes:g} min = "
            f"{best_hours:.2f} h in the best mode; {arguments.profile_seconds:g} s a profile",
            "total = profiles x seconds a profile + hours in the best mode x (1 + penalty)",
            format_table([*titles, "where the figures are from"], rows),
            f"pays most: {costs[0].approach.name}",
        ]
    )

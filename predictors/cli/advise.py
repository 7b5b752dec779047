"""`advise`: which way of finding a power mode pays off for a training, by the guide of 001 Table 1."""

from __future__ import annotations

import argparse

from harness.cli.options import options_of
from predictors.cli.options import refuse_below
from predictors.strategies.advise import PROFILE_SECONDS, advise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--epochs", type=float, required=True, help="of one training")
    add("--epoch-minutes", type=float, required=True, help="one epoch in a good mode within the budget")
    add("--runs", type=float, default=1, help="trainings that will use the mode (default: 1)")
    add("--profile-seconds", type=float, default=PROFILE_SECONDS, help=f"per profile (default: {PROFILE_SECONDS}, 001)")
    add("--workers", type=int, metavar="N", help="num_workers of the DataLoader, for the papers' rules")
    add("--storage", metavar="NAME", help="storage medium of the data set, such as hdd, for the papers' rules")
    add("--workload", metavar="W", help="the trained workload, for the papers' rules")
    add("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    refuse_below(0, arguments, "epochs", "epoch_minutes", "runs", "profile_seconds", above=True)
    options = options_of(advise, arguments)
    advice = advise(arguments.epochs, arguments.epoch_minutes, **options)
    if arguments.json:
        print(advice.costs.assign(approach=advice.costs["name"]).to_json(orient="records", indent=1))
    else:
        print(advice)
    return 0

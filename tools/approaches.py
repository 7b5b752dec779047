"""Records what `advise` weighs: approaches on three measured tables of an Orin AGX, into baselines/recorded.

python -m tools.approaches orin-agx-training.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import List, NamedTuple

from predictors.cli.advise import RECORDED
from predictors.models.tables import find_table, load_tables
from predictors.strategies.evaluation import (
    PAPERS_TOLERANCE_MW,
    JudgedChoice,
    contest_runs,
    judge,
    run_contest,
    summarise,
)
from predictors.strategies.fixed import Presets, presets_of
from predictors.strategies.goals import budget_goals
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.registry import StrategySetting

BUDGETS = "17:50:3"
TARGETS = ("yolov8n-coco", "lstm-wikitext", "resnet18-imagenet")
REFERENCES = ("resnet18-imagenet", "yolov8n-coco")  # the second for the first itself
RISK = 0.05


class Approach(NamedTuple):
    """A row of the decision guide."""

    name: str
    strategy: str
    profiles: int
    fitting_s: int  # what its fits take, on a small machine
    repeats: int


APPROACHES = (
    Approach("closed-loop, 15 modes", "closed-loop", 15, 10, 1),
    Approach("one-shot, 15 modes", "one-shot", 15, 10, 3),
    Approach("PowerTrain, 50 modes", "powertrain", 50, 30, 3),
    Approach("NN-100", "nn", 100, 10, 3),
    Approach("random, 50 modes", "random", 50, 0, 3),
)


def main() -> None:
    import pandas as pd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, default=RECORDED)
    arguments = parser.parse_args()
    tables, rows = load_tables(arguments.corpus), []
    for approach in APPROACHES:
        for target in TARGETS:
            table = find_table(tables, target)
            reference = find_table(tables, REFERENCES[REFERENCES[0] == target])
            presets = presets_of(table.device)
            setting = StrategySetting(table.device, (reference,), presets, RISK)
            runs = contest_runs([approach.strategy], [table], [approach.profiles], approach.repeats)
            (found,) = run_contest(runs, budget_goals(BUDGETS), setting).values()
            idle = History(TableProfiler(table), 0)
            others = [judge(table, one.goal, Presets(presets).choose(idle, one.goal)) for one in found]
            told = summarise(found)
            rows.append(
                {
                    **approach._asdict(),
                    "target": target,
                    "penalty_mean_pct": f"{told['penalty_mean']:.2f}",
                    "over_limit_plus1_pct": f"{told['over_limit_plus1_pct']:.1f}",
                    "priced_pct": f"{priced(found, others):.2f}",
                }
            )
            print(rows[-1], flush=True)
    columns = ["name", "strategy", "profiles", "fitting_s", "target", "repeats"]
    pd.DataFrame(rows)[[*columns, *(name for name in rows[0] if name not in columns)]].to_csv(
        arguments.out, index=False
    )


def priced(found: List[JudgedChoice], presets: List[JudgedChoice]) -> float:
    """The mean penalty, in which a choice over the limit by more than 1 W counts with the preset's."""
    penalties = [
        preset.penalty_pct if one.over_mw > PAPERS_TOLERANCE_MW else one.penalty_pct
        for one, preset in zip(found, presets)
        if one.penalty_pct is not None
    ]
    return sum(penalties) / len(penalties)


if __name__ == "__main__":
    main()

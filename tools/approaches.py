"""Records what `advise` weighs: approaches on three measured tables of an Orin AGX.

python -m tools.approaches orin-agx-training.csv > baselines/recorded/approaches.csv
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List

from predictors.choose.corpora import load_tables
from predictors.contest.judged_choices import PAPERS_TOLERANCE_MW, contest_runs, judge, run_contest, summarise
from predictors.goals import budget_goals
from predictors.profiles import find_table
from predictors.strategies.fixed import Presets, presets_of
from predictors.strategies.protocol import History, TableProfiler
from predictors.strategies.registry import StrategySetting

BUDGETS, RISK = "17:50:3", 0.05
REFERENCES = dict.fromkeys(("yolov8n-coco", "lstm-wikitext"), "resnet18-imagenet")
REFERENCES["resnet18-imagenet"] = "yolov8n-coco"

APPROACHES = (
    ("closed-loop, 15 modes", "closed-loop", 15, 10, 1),
    ("one-shot, 15 modes", "one-shot", 15, 10, 3),
    ("PowerTrain, 50 modes", "powertrain", 50, 30, 3),
    ("NN-100", "nn", 100, 10, 3),
    ("random, 50 modes", "random", 50, 0, 3),
)
"""Name, strategy, profiles, what its fits take in s, repeats."""


def main(corpus: Path) -> None:
    tables = load_tables(corpus)
    print("name,strategy,profiles,fitting_s,target,repeats,penalty_mean_pct,over_limit_plus1_pct,priced_pct")
    for name, strategy, profiles, fitting_s, repeats in APPROACHES:
        for target, reference in REFERENCES.items():
            table = find_table(tables, target)
            presets = presets_of(table.device)
            setting = StrategySetting(table.device, (find_table(tables, reference),), presets, RISK)
            runs = contest_runs([strategy], [table], [profiles], repeats)
            (found,) = run_contest(runs, budget_goals(BUDGETS), setting).values()
            told = summarise(found)
            priced: List[float] = []
            for outcome in found:
                if outcome.penalty_pct is None:
                    continue
                if outcome.over_mw > PAPERS_TOLERANCE_MW:  # the preset runs instead
                    idle = History(TableProfiler(table), 0)
                    outcome = judge(table, outcome.goal, Presets(presets).choose(idle, outcome.goal))
                assert outcome.penalty_pct is not None, "the goal has an optimum, whatever runs"
                priced.append(outcome.penalty_pct)
            figures = f"{told['penalty_mean']:.2f},{told['over_limit_plus1_pct']:.1f},{sum(priced) / len(priced):.2f}"
            print(f'"{name}",{strategy},{profiles},{fitting_s},{target},{repeats},{figures}', flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

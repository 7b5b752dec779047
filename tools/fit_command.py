"""What `simulation fit` does: fits the parameters of simulated boards, describes the fit and writes the files."""

from __future__ import annotations

import argparse
from typing import List, Sequence

import numpy as np

from harness.core.corpus import read_corpus
from harness.core.files import write_output
from harness.core.terminal import format_table
from harness.core.units import share_to_percent
from harness.judge.published_figures import CLOSE, load_figures
from harness.simulation.parameters import PHYSICS_FILE
from tools.fit import Fitted, MeasuredTable, fit, table_residuals, tables_of
from tools.free_parameters import file_texts, read_free_parameters
from tools.published import Evaluator, Parameters


def run(arguments: argparse.Namespace) -> int:
    tables = tables_of([row for path in arguments.corpus for row in read_corpus(path)])
    figures = load_figures()
    found = fit(figures, tables, arguments.most_steps)
    print(_describe_parameters(found))
    print()
    print("\n".join([*_describe_tables(tables, found.parameters), _describe_figures(Evaluator(figures), found)]))
    if arguments.out is not None:
        root = PHYSICS_FILE.parent
        for path, text in file_texts(found.parameters).items():
            target = arguments.out / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_output(target, text.encode("utf-8"))
        print(f"wrote {arguments.out}")
    return 0


def _describe_parameters(found: Fitted) -> str:
    free, _ = read_free_parameters()
    rows = []
    for parameter in free:
        at = found.distances[parameter.owner[1], parameter.key]
        value, prior = (f"{number:.4g}" for number in (parameter.value(at), parameter.prior))
        rows.append([parameter.owner[1], parameter.key, value, prior, f"{at:+.1f}"])
    return format_table(["of", "parameter", ">fitted", ">prior", ">spreads away"], rows)


def _describe_tables(tables: Sequence[MeasuredTable], parameters: Parameters) -> List[str]:
    kinds = sorted({(table.device, table.workload, table.load.task) for table in tables})
    lines = []
    for kind in kinds:
        residuals = [
            table_residuals(table, parameters)
            for table in tables
            if (table.device, table.workload, table.load.task) == kind
        ]
        time, power = (_median_percent(np.concatenate(parts)) for parts in zip(*residuals))
        lines.append(f"{' '.join(kind)}: median error of the time {time:.1f} %, of the power {power:.1f} %")
    return lines


def _median_percent(logarithms: np.ndarray) -> float:
    return share_to_percent(float(np.nanmedian(np.abs(np.expm1(logarithms)))))


def _describe_figures(evaluator: Evaluator, found: Fitted) -> str:
    answers = evaluator.answers(found.parameters, rough=False)
    deviations = [abs(figure.deviation(said)) for figure, said in zip(evaluator.figures, answers)]
    close = sum(deviation <= CLOSE for deviation in deviations)
    median = share_to_percent(float(np.median(deviations)))
    return (
        f"{close} of {len(deviations)} figures of the papers within {share_to_percent(CLOSE):g} %, "
        f"median {median:.1f} %; cost {found.cost:.1f} after {found.steps} steps"
    )

"""Blocks of README.md and docs/ whose text is made from the records: `<!-- figures: NAME -->` to `<!-- end -->`.

`tools.record` writes them; a test compares each with what the records render to. A block is a table, or a paragraph
that has figures in its sentences.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Match, Optional, Sequence, Tuple

from harness.core.errors import CannotRunError, UnknownNameError
from tools.recorded_figures import ERRORS, PART_OF, PROJECT, RISKS, read_record
from tools.table_experiments import VARIANTS

DOCUMENTS: Tuple[Path, ...] = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
BLOCK = re.compile(r"<!-- figures: (?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- end -->\n", re.DOTALL)
WIDTH = 130
"""Of the lines of a paragraph, in characters."""

Cells = Mapping[str, str]
KEY = ("device", "workload", "task")
TableKey = Tuple[str, str, str]

BOARDS = {"orin-agx": "Orin AGX", "orin-nano": "Orin Nano", "nano": "Jetson Nano"}
NETWORKS = {
    "resnet18-imagenet": "ResNet-18",
    "yolov8n-coco": "YOLOv8n",
    "lstm-wikitext": "LSTM",
    "inception-triton": "Inception",
    "lenet-mnist": "LeNet",
    "mobilenetv3-gld23k": "MobileNetV3",
    "bert-squad": "BERT",
}
ORIN_NETWORKS = ("resnet18-imagenet", "yolov8n-coco", "lstm-wikitext")
TABLES: Tuple[TableKey, ...] = (
    *(("orin-agx", workload, task) for task in ("training", "inference") for workload in ORIN_NETWORKS),
    ("orin-nano", "resnet18-imagenet", "training"),
    ("nano", "inception-triton", "inference"),
)
"""The measured tables, in the order of the documents."""


class Records:
    """Recorded figures as texts, each read once."""

    def __init__(self, folder: Optional[Path] = None) -> None:
        self.folder = folder
        self.read: Dict[str, List[Dict[str, str]]] = {}

    def rows(self, part: str, /, **key: object) -> List[Dict[str, str]]:
        """The rows of a part that have these values in their columns.

        Raises:
            CannotRunError: the part was never recorded.
        """
        if part not in self.read:
            self.read[part] = read_record(PART_OF[part], self.folder)
        if not self.read[part]:
            raise CannotRunError(f"there is no record {part}", f"make record ONLY={part}")
        wanted = {name: str(value) for name, value in key.items()}
        return [row for row in self.read[part] if all(row[name] == value for name, value in wanted.items())]

    def row(self, part: str, /, **key: object) -> Dict[str, str]:
        """The only row that has these values.

        Raises:
            CannotRunError: there is none, or more than one.
        """
        rows = self.rows(part, **key)
        if len(rows) != 1:
            what = " ".join(f"{name}={value}" for name, value in key.items())
            raise CannotRunError(f"the record {part} has {len(rows)} rows of {what}", f"make record ONLY={part}")
        return rows[0]


def figure(text: str, digits: int = 1) -> str:
    """A recorded figure as printed in documents: without decimals from 100 on, and a dash if it is missing."""
    if not text:
        return "-"
    value = float(text)
    shown = f"{value:.{0 if abs(value) >= 100 else digits}f}"
    return shown[1:] if float(shown) == 0 and shown.startswith("-") else shown


def name_of(key: TableKey) -> str:
    """What documents call a measured table."""
    device, workload, task = key
    return f"{BOARDS[device]}, {NETWORKS[workload]}, {task}"


def pair(row: Cells, *names: str, digits: int = 1) -> str:
    return " / ".join(figure(row[name], digits) for name in names or ("time_mape", "power_mape"))


def listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def paragraph(text: str) -> str:
    """A text in lines of `WIDTH`; no line ends within a pair of figures or before a unit."""
    kept = re.sub(r" (/|%)", "\N{NO-BREAK SPACE}\\1", " ".join(text.split()))
    kept = kept.replace("/ ", "/\N{NO-BREAK SPACE}")
    filled = textwrap.fill(kept, WIDTH, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\N{NO-BREAK SPACE}", " ") + "\n"


# ---------------------------------------------------------------------------------------------------- predictors

COUNTS = (10, 20, 50, 100)
FEW_AND_MANY = (10, 50)
COMPARED = ("physical-gp", "powertrain", "nn", "ridge", "gbr", "random-forest", "mlp", "linear", "npe")
"""The predictors that documents compare; the record has two variants more."""
TARGETS = ("yolov8n-coco", "lstm-wikitext")


def predictor_errors(records: Records) -> str:
    rows = []
    for name in COMPARED:
        cells = [
            pair(records.row("predictors", predictor=name, workload=target, modes=count))
            for target in TARGETS
            for count in FEW_AND_MANY
        ]
        rows.append([f"`{name}`", *cells])
    header = [f"{NETWORKS[target]}, {count} modes" for target in TARGETS for count in FEW_AND_MANY]
    return table(["predictor", *header], rows)


def errors_of(records: Records, predictor: str, workload: str) -> List[str]:
    return [pair(records.row("predictors", predictor=predictor, workload=workload, modes=count)) for count in COUNTS]


def errors_without_slice(records: Records) -> str:
    rows = [
        records.row("predictors", predictor="physical-gp", workload="yolov8n-coco", modes=count)
        for count in FEW_AND_MANY
    ]
    shown = [pair(row, "time_mape_without_slice", "power_mape_without_slice") for row in rows]
    return paragraph(f"Without the odd slice, the errors of `physical-gp` for YOLOv8n are {listed(shown)} %.")


LEFT_OUT = "left-out-networks"


def power_limits(records: Records) -> str:
    """Means over the networks of a GPU."""
    part, rows = "power-limits", []
    for device, name in (("v100", "V100, reference A40"), ("a40", "A40, reference V100")):
        for predictor in dict.fromkeys(row["predictor"] for row in records.rows(part)):
            cells = []
            for count in (3, 5, 10):
                of_networks = records.rows(part, device=device, predictor=predictor, modes=count)
                means = [
                    sum(float(row[error]) for row in of_networks) / len(of_networks)
                    for error in ("time_mape", "power_mape")
                ]
                cells.append(" / ".join(figure(str(mean)) for mean in means))
            rows.append([name, f"`{predictor}`", *cells])
    return table(["GPU", "predictor", "3 profiles", "5", "10"], rows)


def left_out_row(records: Records, key: TableKey, modes: int, sampling: str = "random") -> Optional[Cells]:
    device, workload, task = key
    rows = records.rows(LEFT_OUT, device=device, workload=workload, task=task, modes=modes, sampling=sampling)
    return rows[0] if rows else None


def left_out_errors(records: Records) -> str:
    def cell(row: Optional[Cells]) -> str:
        if row is None:
            return "-"
        return f"{pair(row)} ({pair(row, 'time_80', 'power_80', digits=0)})"

    counts = (0, 1, 5, 10, 50)
    rows = [[name_of(key), *(cell(left_out_row(records, key, count)) for count in counts)] for key in TABLES]
    return table(["table", "0 modes", *map(str, counts[1:])], rows)


def left_out_boards(records: Records) -> str:
    """`physical-gp` with a prior learned without the board, and the least errors of predictors without a prior."""
    counts, rows = (5, 10, 50), []
    for table_key in TABLES:
        key = dict(zip(KEY, table_key))
        cells = []
        for count in counts:
            here = records.rows("left-out-boards", modes=count, **key)
            [own] = [row for row in here if row["predictor"] == "physical-gp"]
            least = {
                what: min((row[what] for row in here if row is not own and row[what]), key=float)
                for what in ("time_mape", "power_mape")
            }
            cells += [f"{pair(own)} ({pair(own, 'time_80', 'power_80', digits=0)})", pair(least)]
        rows.append([name_of(table_key), *cells])
    header = [text for count in counts for text in (f"{count} modes", "others")]
    return table(["table", *header], rows)


def left_out_coverage(records: Records) -> str:
    def mean(name: str, count: int) -> str:
        rows = [left_out_row(records, key, count) for key in TABLES]
        values = [float(row[name]) for row in rows if row is not None]
        return f"{sum(values) / len(values):.0f}"

    held = [f"{mean('time_80', count)} / {mean('power_80', count)} % at {count} modes" for count in (5, 10, 50)]
    wide = [float(mean(name, count)) for name in ("time_95", "power_95") for count in (5, 10, 20, 50)]

    def outside(workload: str) -> str:
        rows = [left_out_row(records, ("orin-agx", workload, "training"), count) for count in (10, 50)]
        names = ("time_mape_without_slice", "power_mape_without_slice")
        return listed([pair(row, *names) for row in rows if row is not None])

    return paragraph(
        f"Averaged over these tables, the 80 % intervals cover {listed(held)}, and the 95 % intervals {min(wide):.0f} "
        f"to {max(wide):.0f} %. Without the odd slice, the errors with 10 and 50 modes are "
        f"{outside('yolov8n-coco')} for training YOLOv8n, {outside('resnet18-imagenet')} for training ResNet-18."
    )


def samplings(records: Records) -> str:
    """Means over the tables that the strategy `sequential` works on: training, one batch size."""
    keys = [key for key in TABLES if key[2] == "training"]

    def mean(sampling: str, count: int) -> str:
        rows = [row for row in (left_out_row(records, key, count, sampling) for key in keys) if row is not None]
        return " / ".join(figure(str(sum(float(row[name]) for row in rows) / len(rows))) for name in ERRORS)

    return paragraph(
        f"Over the four tables of training, the mean errors with one mode are {mean('random', 1)} % if it is random, "
        f"{mean('greatest-first', 1)} % if it is the highest; with 10 modes {mean('random', 10)} % (`random`), "
        f"{mean('greatest-first', 10)} % (`greatest-first`) and {mean('sequential', 10)} % (`sequential`)."
    )


ONE_CLOCK = "training at the greatest"
"""What profiles at one CPU, GPU or memory clock have in common; documents have a row for the three."""


def unprofiled_settings(records: Records) -> str:
    """The least and the greatest figure over the networks."""
    part = "unprofiled-settings"
    groups: Dict[Tuple[str, str], List[Cells]] = {}
    for row in records.rows(part):
        is_one_clock = row["profiled"].startswith(ONE_CLOCK)
        profiled = "training at one CPU, GPU or memory clock" if is_one_clock else row["profiled"]
        groups.setdefault((profiled, row["predicted"]), []).append(row)

    def span(rows: Sequence[Cells], name: str) -> str:
        values = sorted(float(row[name]) for row in rows)
        return f"{figure(str(values[0]), 0)} to {figure(str(values[-1]), 0)}"

    names = (*ERRORS, "time_80", "power_80")
    rows = [[*settings, *(span(of_networks, name) for name in names)] for settings, of_networks in groups.items()]
    return table(["profiled", "predicted", "time MAPE", "power MAPE", "time within 80 %", "power within 80 %"], rows)


def published_errors(records: Records) -> str:
    def counts(kind: str) -> Dict[str, int]:
        return {row["verdict"]: int(row["count"]) for row in records.rows("published", kind=kind)}

    errors, relations = counts("error"), counts("relation")

    def of(verdicts: Mapping[str, int], verdict: str) -> str:
        return str(verdicts.get(verdict, 0))

    return paragraph(
        f"On the tables behind the paper, and on simulated boards for cases without a table, "
        f"{of(errors, 'confirmed')} of {sum(errors.values())} errors are confirmed, {of(errors, 'differs')} are "
        f"smaller, {of(errors, 'undecided')} undecided and {of(errors, 'contradicted')} contradicted. Of "
        f"{sum(relations.values())} relations, {of(relations, 'confirmed')} are confirmed, "
        f"{of(relations, 'contradicted')} contradicted and {of(relations, 'undecided')} undecided."
    )


# ---------------------------------------------------------------------------------------------------- strategies


def choice(row: Cells) -> str:
    """Penalty, share of choices that break a limit by more than 2 %."""
    return f"{figure(row['penalty_mean'])} / {share(row['violations_pct'])}"


def share(text: str) -> str:
    value = figure(text)
    return value[:-2] if value.endswith(".0") else value


CONTEST = (
    ("closed-loop", "`closed-loop`", (5, 8, 15)),
    ("front", "`front`", (50,)),
    ("one-shot", "`one-shot`", (15, 50)),
    ("powertrain", "`powertrain`", (50,)),
    ("random", "`random`", (50,)),
    ("mdbs", "`mdbs`", (15,)),
    ("gmd", "`gmd`", (15,)),
    ("presets", "`presets`", (0,)),
    ("maxn", "`maxn`", (0,)),
)
CONTEST_TABLES = ("yolov8n-coco", "lstm-wikitext", "resnet18-imagenet")


CHOSEN_AFTER = 15
"""Profiles of the contest that README reports."""


def accuracy_in_short(records: Records) -> str:
    """README's paragraph: errors of predictions from ten modes, and penalties of chosen modes."""

    def errors(predictor: str) -> str:
        return pair(records.row("predictors", predictor=predictor, workload="yolov8n-coco", modes=10))

    left_out = left_out_row(records, ("orin-agx", "yolov8n-coco", "training"), 10)
    assert left_out is not None
    contests = [
        records.row("strategies", strategy="closed-loop", workload=workload, profiles=CHOSEN_AFTER)
        for workload in CONTEST_TABLES
    ]
    yolo, lstm, resnet = (figure(row["penalty_mean"]) for row in contests)
    rows = records.rows("strategies", strategy="closed-loop")
    broken = sum(float(row["violations_pct"]) > 0 or float(row["over_limit_plus1_pct"]) > 0 for row in rows)
    kept = "it never exceeded a limit" if not broken else f"it exceeded a limit in {broken} of {len(rows)} contests"
    return paragraph(
        f"On the tables behind PowerTrain (Orin AGX, 4,368 power modes), ten profiled modes predict time / power of "
        f"YOLOv8n in all others with a MAPE of {errors('physical-gp')} % (PowerTrain, as implemented here: "
        f"{errors('powertrain')} %). These tables are part of the prior; if YOLOv8n is left out of it, the errors are "
        f"{pair(left_out)} %. With 12 budgets from 17 to 50 W, the mode that `recommend` chose after {CHOSEN_AFTER} "
        f"profiles was {yolo} % (YOLOv8n), {lstm} % (LSTM) and {resnet} % (ResNet-18, whose table has outlying modes) "
        f"slower than the best one; {kept}."
    )


def strategies(records: Records) -> str:
    rows = []
    for strategy, name, counts in CONTEST:
        for count in counts:
            of_tables = [
                records.rows("strategies", strategy=strategy, workload=workload, profiles=count)
                for workload in CONTEST_TABLES
            ]
            rows.append([name, str(count), *(choice(row[0]) if row else "-" for row in of_tables)])
    return table(["strategy", "profiles", "YOLOv8n", "LSTM", "ResNet-18"], rows)


def strategies_left_out(records: Records) -> str:
    part = "strategies-left-out-networks"
    rows = []
    for table_key in TABLES:
        key = dict(zip(KEY, table_key))

        def row(strategy: str, profiles: int, key: Mapping[str, str] = key) -> Cells:
            return records.row(part, strategy=strategy, profiles=profiles, **key)

        ours = [row("closed-loop", profiles) for profiles in (5, 8, 15)]
        broken = max((row["violations_pct"] for row in ours), key=float)
        cells = [f"{'; '.join(figure(row['penalty_mean']) for row in ours)} / {share(broken)}"]
        for strategy, profiles in (("one-shot", 8), ("mdbs", 8), ("random", 8), ("presets", 0)):
            other = row(strategy, profiles)
            cells.append(f"{figure(other['penalty_mean'])} / {share(other['violations_pct'])}")
        rows.append([name_of(table_key), *cells])
    header = ["table", "closed-loop, 5; 8; 15", "one-shot, risk 5 %", "mdbs", "random", "presets"]
    return table(header, rows)


def one_shot_risks(records: Records) -> str:
    def cell(profiles: str, risk: float) -> str:
        rows = records.rows("one-shot-risks", risk=risk, profiles=profiles)
        penalty, broken = (
            sum(float(row[name]) for row in rows) / len(rows) for name in ("penalty_mean", "violations_pct")
        )
        return f"{penalty:.1f} / {broken:.1f}"

    def worst(profiles: str) -> str:
        rows = records.rows("one-shot-risks", risk=RISKS[0], profiles=profiles)
        return figure(str(max(float(row["violations_pct"]) for row in rows)))

    counts = dict.fromkeys(row["profiles"] for row in records.rows("one-shot-risks"))
    rows = [[count, *(cell(count, risk) for risk in RISKS), worst(count)] for count in counts]
    return table(["random modes", *(f"`--risk {risk}`" for risk in RISKS), f"worst table at {RISKS[0]}"], rows)


def power_limit_strategies(records: Records) -> str:
    """Mean and greatest penalty over the networks of a GPU, for the least energy and for the least time of a sample."""
    part, rows = "power-limit-strategies", []
    for device, gpu in (("v100", "V100"), ("a40", "A40")):
        for name in dict.fromkeys(row["strategy"] for row in records.rows(part)):
            cells = []
            for goal in ("energy", "time"):
                for count in (6, 20):
                    of_networks = records.rows(part, device=device, goal=goal, strategy=name, profiles=count)
                    penalties = [float(row["penalty_mean"]) for row in of_networks]
                    mean, greatest = sum(penalties) / len(penalties), max(penalties)
                    cells.append(f"{figure(str(mean))} / {figure(str(greatest))}")
            rows.append([gpu, f"`{name}`", *cells])
    return table(["GPU", "strategy", "energy, 6 profiles", "20", "time, 6 profiles", "20"], rows)


def binary_search_variants(records: Records) -> str:
    def cell(variant: str, workload: str) -> str:
        return figure(records.row("binary-search-variants", variant=variant, workload=workload)["penalty_mean"])

    rows = [[variant, *(cell(variant, workload) for workload in ORIN_NETWORKS)] for variant in VARIANTS]
    return table(["variant", *(NETWORKS[workload] for workload in ORIN_NETWORKS)], rows)


BATCH_SIZE_NETWORKS = ("lenet-mnist", "yolov8n-coco", "mobilenetv3-gld23k", "resnet18-imagenet", "bert-squad")


def batch_sizes(records: Records) -> str:
    def gain(workload: str) -> str:
        row = records.row("batch-sizes", workload=workload)
        return f"{figure(row['least_gain'], 2)} to {figure(row['greatest_gain'], 2)} for {NETWORKS[workload]}"

    return paragraph(
        f"Under the same power budget, the best batch size from 4 to 128 shortens an epoch against batch size 16 by "
        f"these factors, in the best modes of a simulated Orin AGX at 15 to 40 W: "
        f"{listed([gain(name) for name in BATCH_SIZE_NETWORKS])}. arXiv 2502.18323 reports up to 2.4 on boards. These "
        f"figures do not consider memory, or the epochs that a network needs to learn."
    )


# ---------------------------------------------------------------------------------------------------- simulated boards

SIMULATED = tuple(key for key in TABLES if key[1] != "inception-triton")
"""The measured tables of workloads that simulated boards have too."""


def simulated(records: Records, about: str, part: str = "") -> Dict[str, str]:
    return {row["figure"]: row["value"] for row in records.rows("simulation", about=about, part=part)}


def signed(text: str) -> str:
    value = figure(text)
    return value if value.startswith("-") or float(value) == 0 else f"+{value}"


MEDIAN_ERRORS = ("time_median_ape", "power_median_ape")


def simulation_errors(records: Records) -> str:
    """The errors of each table, left out of the fit and fitted, and what a choice by the fitted board costs."""
    rows = []
    for key in SIMULATED:
        figures = simulated(records, "/".join(key))
        left_out = records.row("simulation-left-out", **dict(zip(KEY, key)))
        cells = [
            f"{figure(figures[f'{what}_mape'])} / {signed(figures[f'{what}_median_bias'])}"
            for what in ("time", "power")
        ]
        chosen = "-"
        if "front_median_penalty_pct" in figures:
            chosen = f"{figure(figures['front_median_penalty_pct'])} / {figure(figures['front_over_budget_pct'], 0)}"
        rows.append([name_of(key), f"{int(figures['rows']):,}", pair(left_out, *MEDIAN_ERRORS), *cells, chosen])
    header = ["table", "rows", "left out", "fitted: time", "fitted: power", "chosen by it"]
    return table(header, rows)


def simulation_figures(records: Records) -> str:
    every, exact = (simulated(records, "published figures", part) for part in ("all", "exact"))
    curves = simulated(records, "learning curves")
    return paragraph(
        f"Of {every['count']} published figures, {figure(every['close_pct'], 0)} % are within 15 %; so are "
        f"{figure(exact['close_pct'], 0)} % of the {exact['count']} that are neither a range nor a bound. The "
        f"predictors `ridge` and `physical-gp`, fitted to 10, 50 and 100 random modes, have similar errors on "
        f"simulated and on measured ResNet-18 and YOLOv8n: {curves['alike']} of {curves['count']} errors are within a "
        f"factor of 1.5 (ratios {figure(curves['least'], 2)} to {figure(curves['greatest'], 2)})."
    )


def simulation_claims(records: Records) -> str:
    claims = simulated(records, "claims")
    return paragraph(
        f"Simulated boards can answer {claims['count']} claims and checks; {claims['holding']} of them hold on every "
        f"board that they apply to."
    )


BLOCKS: Dict[str, Callable[[Records], str]] = {
    "accuracy-in-short": accuracy_in_short,
    "predictor-errors": predictor_errors,
    "errors-without-slice": errors_without_slice,
    "left-out-networks": left_out_errors,
    "left-out-boards": left_out_boards,
    "left-out-networks-coverage": left_out_coverage,
    "samplings": samplings,
    "unprofiled-settings": unprofiled_settings,
    "power-limits": power_limits,
    "published": published_errors,
    "strategies": strategies,
    "strategies-left-out-networks": strategies_left_out,
    "one-shot-risks": one_shot_risks,
    "power-limit-strategies": power_limit_strategies,
    "binary-search-variants": binary_search_variants,
    "batch-sizes": batch_sizes,
    "simulation-errors": simulation_errors,
    "simulation-figures": simulation_figures,
    "simulation-claims": simulation_claims,
}
"""The function that renders each block; its text ends in a line break."""


def render(name: str, records: Records) -> str:
    if name not in BLOCKS:
        raise UnknownNameError(f"no block of figures is called {name}", f"blocks: {', '.join(BLOCKS)}")
    return f"<!-- figures: {name} -->\n\n{BLOCKS[name](records)}\n<!-- end -->\n"


def rewrite(text: str, records: Optional[Records] = None) -> Tuple[str, List[str]]:
    """A document with its blocks rendered from the records, and the reasons for blocks left as they are."""
    recorded = Records() if records is None else records
    left: List[str] = []

    def rendered(match: Match[str]) -> str:
        try:
            return render(match["name"], recorded)
        except CannotRunError as error:
            left.append(f"{match['name']} is left as it is: {error}")
            return match[0]

    return BLOCK.sub(rendered, text), left

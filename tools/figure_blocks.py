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

FEW_AND_MANY = (10, 50)
COMPARED = ("physical-gp", "powertrain", "nn", "linear", "npe", "mlp")
"""The predictors that documents compare: those of the papers, and the best of the baselines. The record has more."""
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


LEFT_OUT = "left-out-networks"


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def mean_of(name: str, rows: Sequence[Cells]) -> float:
    return mean([float(row[name]) for row in rows])


def mean_errors(rows: Sequence[Cells]) -> List[float]:
    """Of time and of power."""
    return [mean_of(name, rows) for name in ERRORS]


def pair_of(errors: Sequence[float]) -> str:
    return " / ".join(figure(str(error)) for error in errors)


def power_limits(records: Records) -> str:
    """Means over the networks of a GPU: of `physical-gp`, and the least of the other predictors."""
    part, counts, rows = "power-limits", (3, 10), []
    predictors = dict.fromkeys(row["predictor"] for row in records.rows(part))
    for device, name in (("v100", "V100, reference A40"), ("a40", "A40, reference V100")):
        cells = []
        for count in counts:
            means = {
                predictor: mean_errors(records.rows(part, device=device, predictor=predictor, modes=count))
                for predictor in predictors
            }
            own = means.pop("physical-gp")
            least = [min(errors) for errors in zip(*means.values())]
            cells += [pair_of(own), pair_of(least)]
        rows.append([name, *cells])
    return table(["GPU", *(text for count in counts for text in (f"{count} profiles", "others"))], rows)


def left_out_row(records: Records, key: TableKey, modes: int, sampling: str = "random") -> Optional[Cells]:
    device, workload, task = key
    rows = records.rows(LEFT_OUT, device=device, workload=workload, task=task, modes=modes, sampling=sampling)
    return rows[0] if rows else None


def left_out_errors(records: Records) -> str:
    counts = (0, 10, 50)
    rows = []
    for key in TABLES:
        errors = [left_out_row(records, key, count) for count in counts]
        rows.append([name_of(key), *("-" if row is None else pair(row) for row in errors)])
    return table(["table", "0 modes", *map(str, counts[1:])], rows)


def left_out_board(records: Records, table_key: TableKey, count: int) -> Tuple[Cells, Cells]:
    """`physical-gp` with a prior learned without the board, and the least errors of predictors without a prior."""
    rows = records.rows("left-out-boards", modes=count, **dict(zip(KEY, table_key)))
    [own] = [row for row in rows if row["predictor"] == "physical-gp"]
    others = [row for row in rows if row is not own]
    return own, {name: min((row[name] for row in others if row[name]), key=float) for name in ERRORS}


def left_out_boards(records: Records) -> str:
    rows = [[name_of(key), *(pair(errors) for errors in left_out_board(records, key, 10))] for key in TABLES]
    return table(["table", "10 modes", "others"], rows)


SHARES = ("time_80", "power_80")


def coverage(rows: Sequence[Cells], count: int) -> str:
    """Shares of measurements within the 80 % interval: the means over tables, and in brackets the least."""
    shares = [[float(row[name]) for row in rows] for name in SHARES]
    means = " / ".join(f"{mean(of_tables):.0f}" for of_tables in shares)
    least = " / ".join(f"{min(of_tables):.0f}" for of_tables in shares)
    return f"{means} % ({least}) at {count}"


def left_out_coverage(records: Records) -> str:
    def rows(count: int) -> List[Cells]:
        return [row for row in (left_out_row(records, key, count) for key in TABLES) if row is not None]

    covered = listed([coverage(rows(count), count) for count in (0, 5, 10, 50)])
    few = pair_of(mean_errors(rows(5)))
    wide = [mean_of(name, rows(count)) for name in ("time_95", "power_95") for count in (5, 10, 20, 50)]
    return paragraph(
        f"With 5 modes, the mean errors are {few}. The 80 % intervals cover on average (in the worst table) {covered}, "
        f"the 95 % intervals {min(wide):.0f} to {max(wide):.0f} % from 5 modes on."
    )


def left_out_boards_coverage(records: Records) -> str:
    def means(count: int) -> str:
        of_tables = zip(*(left_out_board(records, key, count) for key in TABLES))
        own, others = (pair_of(mean_errors(rows)) for rows in of_tables)
        return f"{own} with {count} modes (others {others})"

    shown = [
        coverage(records.rows("left-out-boards", predictor="physical-gp", modes=count), count) for count in (5, 10, 50)
    ]
    return paragraph(
        f"The mean errors are {listed([means(count) for count in (5, 10, 50)])}. The 80 % intervals cover on average "
        f"(in the worst table) {listed(shown)}."
    )


def samplings(records: Records) -> str:
    """Means over the tables that the strategy `sequential` works on: training, one batch size."""
    keys = [key for key in TABLES if key[2] == "training"]

    def errors(sampling: str, count: int) -> str:
        rows = [row for row in (left_out_row(records, key, count, sampling) for key in keys) if row is not None]
        return pair_of(mean_errors(rows))

    return paragraph(
        f"In training, the mean errors with one mode are {errors('random', 1)} % if it is random, "
        f"{errors('greatest-first', 1)} % if it is the highest; with 10 modes {errors('random', 10)} % (`random`), "
        f"{errors('greatest-first', 10)} % (`greatest-first`) and {errors('sequential', 10)} % (`sequential`)."
    )


ONE_CLOCK = "training at the greatest"
"""What profiles at one CPU, GPU or memory clock have in common; documents have a row for the three."""


def unprofiled_settings(records: Records) -> str:
    """Over the networks: the least and the greatest errors, and the least shares within the 80 % interval."""
    part = "unprofiled-settings"
    groups: Dict[Tuple[str, str], List[Cells]] = {}
    for row in records.rows(part):
        is_one_clock = row["profiled"].startswith(ONE_CLOCK)
        profiled = "training at one CPU, GPU or memory clock" if is_one_clock else row["profiled"]
        groups.setdefault((profiled, row["predicted"]), []).append(row)

    def extreme(rows: Sequence[Cells], choose: Callable[[Sequence[float]], float], names: Sequence[str]) -> str:
        return " / ".join(figure(str(choose([float(row[name]) for row in rows])), 0) for name in names)

    rows = [
        [
            *settings,
            extreme(of_networks, min, ERRORS),
            extreme(of_networks, max, ERRORS),
            extreme(of_networks, min, SHARES),
        ]
        for settings, of_networks in groups.items()
    ]
    return table(["profiled", "predicted", "least MAPE", "greatest MAPE", "least share within 80 %"], rows)


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
    ("closed-loop", "`closed-loop`", (8, 15)),
    ("front", "`front`", (50,)),
    ("one-shot", "`one-shot`", (50,)),
    ("powertrain", "`powertrain`", (50,)),
    ("mdbs", "`mdbs`", (15,)),
    ("presets", "`presets`", (0,)),
)
CONTEST_TABLES = ("yolov8n-coco", "lstm-wikitext", "resnet18-imagenet")


RISK_COUNTS = (10, 25, 50)
"""Profiles of the choices that are not measured."""

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

        ours = [row("closed-loop", profiles) for profiles in (8, 15)]
        broken = max((row["violations_pct"] for row in ours), key=float)
        cells = [f"{'; '.join(figure(row['penalty_mean']) for row in ours)} / {share(broken)}"]
        for strategy, profiles in (("one-shot", 8), ("mdbs", 8), ("presets", 0)):
            other = row(strategy, profiles)
            cells.append(f"{figure(other['penalty_mean'])} / {share(other['violations_pct'])}")
        rows.append([name_of(table_key), *cells])
    header = ["table", "closed-loop, 8; 15", "one-shot, risk 5 %", "mdbs", "presets"]
    return table(header, rows)


def one_shot_risks(records: Records) -> str:
    """Means over the tables, and the greatest share broken at the least risk."""

    def values(name: str, risk: float, count: int) -> List[float]:
        return [float(row[name]) for row in records.rows("one-shot-risks", risk=risk, profiles=count)]

    def means(name: str, risk: float) -> str:
        of_counts = [values(name, risk, count) for count in RISK_COUNTS]
        return "; ".join(figure(str(mean(of_tables))) for of_tables in of_counts)

    rows = [[str(risk), means("penalty_mean", risk), means("violations_pct", risk)] for risk in RISKS]
    worst = max(max(values("violations_pct", RISKS[0], count)) for count in RISK_COUNTS)
    return (
        table(["`--risk`", "penalty", "broken"], rows)
        + "\n"
        + paragraph(f"With {RISKS[0]}, up to {figure(str(worst))} % are broken in a table.")
    )


def power_limit_strategies(records: Records) -> str:
    """Mean penalties over the networks of a GPU, for the least energy and the least time of a sample; the greatest."""
    part, counts, rows = "power-limit-strategies", (6, 20), []
    names = list(dict.fromkeys(row["strategy"] for row in records.rows(part)))

    def penalties(name: str, count: int, **key: str) -> List[float]:
        return [float(row["penalty_mean"]) for row in records.rows(part, strategy=name, profiles=count, **key)]

    for device, gpu in (("v100", "V100"), ("a40", "A40")):
        for name in names:
            cells = []
            for goal in ("energy", "time"):
                of_counts = [penalties(name, count, device=device, goal=goal) for count in counts]
                cells.append("; ".join(figure(str(mean(of_networks))) for of_networks in of_counts))
            rows.append([gpu, f"`{name}`", *cells])
    greatest = [
        f"{listed([figure(str(max(penalties(name, count)))) for count in counts])} % for `{name}`" for name in names
    ]
    return (
        table(["GPU", "strategy", "energy, 6; 20 profiles", "time, 6; 20 profiles"], rows)
        + "\n"
        + paragraph(f"In the worst network, the excess is {listed(greatest)}.")
    )


def binary_search_variants(records: Records) -> str:
    def penalties(variant: str) -> str:
        rows = [records.row("binary-search-variants", variant=variant, workload=workload) for workload in ORIN_NETWORKS]
        return f"{listed([figure(row['penalty_mean']) for row in rows])} %"

    as_described, *others = VARIANTS
    of_others = ", ".join(f"with the {variant} {penalties(variant)}" for variant in others)
    return paragraph(
        f"Paper 000 leaves both open: for {listed([NETWORKS[name] for name in ORIN_NETWORKS])}, the mean time "
        f"penalties are {penalties(as_described)}, {of_others} (parameters of `BinarySearch`)."
    )


BATCH_SIZE_NETWORKS = ("lenet-mnist", "yolov8n-coco", "bert-squad")


def batch_sizes(records: Records) -> str:
    def gain(workload: str) -> str:
        row = records.row("batch-sizes", workload=workload)
        return f"{figure(row['least_gain'], 2)} to {figure(row['greatest_gain'], 2)} for {NETWORKS[workload]}"

    return paragraph(
        f"With budgets of 15 to 40 W on a simulated Orin AGX, the best batch size from 4 to 128 shortens an epoch "
        f"against batch size 16 by factors of {listed([gain(name) for name in BATCH_SIZE_NETWORKS])}, without regard "
        f"to memory or to the epochs that a network needs to learn. arXiv 2502.18323 reports up to 2.4 on boards."
    )


# ---------------------------------------------------------------------------------------------------- simulated boards

SIMULATED = tuple(key for key in TABLES if key[1] != "inception-triton")
"""The measured tables of workloads that simulated boards have too."""


def simulated(records: Records, about: str, part: str = "") -> Dict[str, str]:
    return {row["figure"]: row["value"] for row in records.rows("simulation", about=about, part=part)}


MEDIAN_ERRORS = ("time_median_ape", "power_median_ape")


def simulation_errors(records: Records) -> str:
    """The errors of each table, left out of the fit and fitted, and what a choice by the fitted board costs."""
    rows = []
    for key in SIMULATED:
        figures = simulated(records, "/".join(key))
        left_out = records.row("simulation-left-out", **dict(zip(KEY, key)))
        chosen = "-"
        if "front_median_penalty_pct" in figures:
            chosen = f"{figure(figures['front_median_penalty_pct'])} / {figure(figures['front_over_budget_pct'], 0)}"
        rows.append([name_of(key), pair(left_out, *MEDIAN_ERRORS), pair(figures), chosen])
    return table(["table", "left out", "fitted", "chosen by it"], rows)


def simulation_figures(records: Records) -> str:
    every, exact = (simulated(records, "published figures", part) for part in ("all", "exact"))
    curves = simulated(records, "learning curves")
    return paragraph(
        f"Of {every['count']} published figures, {figure(every['close_pct'], 0)} % are within 15 %; so are "
        f"{figure(exact['close_pct'], 0)} % of the {exact['count']} that are neither a range nor a bound. Predictors "
        f"have similar errors on simulated and on measured ResNet-18 and YOLOv8n: {curves['alike']} of "
        f"{curves['count']} are within a factor of 1.5 (ratios {figure(curves['least'], 2)} to "
        f"{figure(curves['greatest'], 2)})."
    )


def simulation_claims(records: Records) -> str:
    claims = simulated(records, "claims")
    return paragraph(
        f"Of {claims['count']} claims and checks that simulated boards can answer, {claims['holding']} hold on every "
        f"board."
    )


BLOCKS: Dict[str, Callable[[Records], str]] = {
    "accuracy-in-short": accuracy_in_short,
    "predictor-errors": predictor_errors,
    "left-out-networks": left_out_errors,
    "left-out-boards": left_out_boards,
    "left-out-boards-coverage": left_out_boards_coverage,
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

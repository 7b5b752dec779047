"""Tables of README.md and docs/ that are made from the records: `<!-- figures: NAME -->` to `<!-- end -->`.

`tools.record` writes them; a test compares each with what the records render to.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Match, Optional, Sequence, Tuple, Union

from harness.core.errors import CannotRunError, UnknownNameError
from tools.recorded_figures import ERRORS, PART_OF, PROJECT, RISKS, read_record
from tools.table_experiments import VARIANTS

if TYPE_CHECKING:
    import pandas as pd

DOCUMENTS: Tuple[Path, ...] = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
BLOCK = re.compile(r"<!-- figures: (?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- end -->\n", re.DOTALL)

Key = Mapping[str, Union[str, int, float]]
"""Values of columns of a record, which select its rows."""

Cell = Callable[["pd.DataFrame"], str]
"""What a cell of a table shows of the rows of a record that belong to it, at least one."""

Columns = Mapping[str, Tuple[Key, Cell]]
"""The columns of a table by their headings."""

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
CONTEST_NETWORKS = ("yolov8n-coco", "lstm-wikitext", "resnet18-imagenet")

TABLE_KEY = ("device", "workload", "task")
TABLES: Dict[str, Key] = {
    f"{BOARDS[device]}, {NETWORKS[workload]}, {task}": dict(zip(TABLE_KEY, (device, workload, task)))
    for device, workload, task in (
        *(("orin-agx", workload, task) for task in ("training", "inference") for workload in ORIN_NETWORKS),
        ("orin-nano", "resnet18-imagenet", "training"),
        ("nano", "inception-triton", "inference"),
    )
}
"""The measured tables by what documents call them, in their order."""


class Records:
    """Recorded figures as frames, each read once: keys are texts, figures numbers (NaN where missing)."""

    def __init__(self, folder: Optional[Path] = None) -> None:
        self.folder = folder
        self.read: Dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        """A record; CannotRunError if it was never made."""
        import pandas as pd

        if name not in self.read:
            part = PART_OF[name]
            frame = pd.DataFrame(read_record(part, self.folder))
            if frame.empty:
                raise CannotRunError(f"there is no record {name}", f"make record ONLY={name}")
            self.read[name] = frame.astype(dict.fromkeys(part.key, str)).assign(
                **{figure: pd.to_numeric(frame[figure]) for figure in part.figures}
            )
        return self.read[name]


def select(frame: pd.DataFrame, key: Key) -> pd.DataFrame:
    """The rows of a record that have these values."""
    for name, value in key.items():
        frame = frame[frame[name] == str(value)]
    return frame


def cells(frame: pd.DataFrame, key: Key, columns: Columns) -> List[str]:
    """A row of a table; a dash where the record has nothing."""
    own = select(frame, key)
    parts = [(select(own, column_key), cell) for column_key, cell in columns.values()]
    return [cell(part) if len(part) else "-" for part, cell in parts]


def of_one_row(cell: Cell) -> Cell:
    """A cell of a row that its key identifies; CannotRunError if several rows have it."""

    def shown(rows: pd.DataFrame) -> str:
        if len(rows) > 1:
            raise CannotRunError(f"{len(rows)} rows of a record are for one cell", "give the cell a longer key")
        return cell(rows)

    return shown


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def table_of(frame: pd.DataFrame, corner: str, rows: Mapping[str, Key], columns: Columns) -> str:
    return table([corner, *columns], [[label, *cells(frame, key, columns)] for label, key in rows.items()])


def keys(column: str, values: Mapping[str, Union[str, int, float]]) -> Dict[str, Key]:
    """The rows of a table for values of a column of the record, by their labels."""
    return {label: {column: value} for label, value in values.items()}


def by(column: str, values: Mapping[str, Union[str, int, float]], cell: Cell) -> Columns:
    """The same as columns, which all show the same."""
    return {label: (key, cell) for label, key in keys(column, values).items()}


def in_code(names: Sequence[str]) -> Dict[str, str]:
    """Names by how documents print them."""
    return {f"`{name}`": name for name in names}


def networks(names: Sequence[str]) -> Dict[str, str]:
    """Networks by what documents call them."""
    return {NETWORKS[name]: name for name in names}


def figure(value: float, digits: int = 1) -> str:
    """A figure as printed in documents: without decimals from 100 on, and a dash if it is missing."""
    if value != value:
        return "-"
    shown = f"{value:.{0 if abs(value) >= 100 else digits}f}"
    return shown[1:] if float(shown) == 0 and shown.startswith("-") else shown


def share(value: float) -> str:
    shown = figure(value)
    return shown[:-2] if shown.endswith(".0") else shown


def pair(values: Sequence[float], digits: int = 1) -> str:
    return " / ".join(figure(value, digits) for value in values)


# ---------------------------------------------------------------------------------------------------- predictors

TIME_POWER_80, TIME_POWER_95 = ["time_80", "power_80"], ["time_95", "power_95"]
ERROR_NAMES = list(ERRORS)


def mean_errors(rows: pd.DataFrame) -> str:
    return pair(rows[ERROR_NAMES].mean())


errors_of_one = of_one_row(mean_errors)


def least_errors(rows: pd.DataFrame) -> str:
    """The least of several predictors' errors in each table, averaged over the tables."""
    return pair(rows.groupby(list(TABLE_KEY))[ERROR_NAMES].min().mean())


def least_mean_errors(rows: pd.DataFrame) -> str:
    """The least of several predictors' mean errors over the tables."""
    return pair(rows.groupby("predictor")[ERROR_NAMES].mean().min())


def mean_coverage(names: Sequence[str]) -> Cell:
    return lambda rows: pair(rows[list(names)].mean(), 0)


def least_coverage(rows: pd.DataFrame) -> str:
    return pair(rows[TIME_POWER_80].min(), 0)


COVERAGES: Columns = {
    "within 80 %": ({}, mean_coverage(TIME_POWER_80)),
    "in the worst table": ({}, least_coverage),
    "within 95 %": ({}, mean_coverage(TIME_POWER_95)),
}
"""Shares of measurements within predictive intervals."""


def with_default(frame: pd.DataFrame) -> pd.DataFrame:
    """A record with the predictor as `own`, and all others together as `others`."""
    return frame.assign(whose=["own" if name == "physical-gp" else "others" for name in frame["predictor"]])


def predictor_errors(records: Records) -> str:
    compared = ("physical-gp", "powertrain", "nn", "linear", "npe", "mlp")  # the papers', and the best of the baselines
    columns: Columns = {
        f"{name}, {count} modes": ({"workload": target, "modes": count}, errors_of_one)
        for name, target in networks(("yolov8n-coco", "lstm-wikitext")).items()
        for count in (10, 50)
    }
    return table_of(records["predictors"], "predictor", keys("predictor", in_code(compared)), columns)


def random_modes(records: Records) -> pd.DataFrame:
    return select(records["left-out-networks"], {"sampling": "random"})


def left_out_errors(records: Records) -> str:
    columns = by("modes", {"0 modes": 0, "10": 10, "50": 50}, errors_of_one)
    return table_of(random_modes(records), "table", TABLES, columns)


def left_out_coverage(records: Records) -> str:
    columns: Columns = {"mean error": ({}, mean_errors), **COVERAGES}
    rows = keys("modes", {str(count): count for count in (0, 5, 10, 20, 50)})
    return table_of(random_modes(records), "modes, mean over the tables", rows, columns)


def left_out_boards(records: Records) -> str:
    frame = select(with_default(records["left-out-boards"]), {"modes": 10})
    return table_of(frame, "table", TABLES, by("whose", {"10 modes": "own", "others": "others"}, least_errors))


def left_out_boards_coverage(records: Records) -> str:
    columns: Columns = {
        **by("whose", {"mean error": "own", "others": "others"}, least_errors),
        **{heading: ({"whose": "own"}, cell) for heading, (_, cell) in COVERAGES.items()},
    }
    rows = keys("modes", {str(count): count for count in (5, 10, 50)})
    return table_of(with_default(records["left-out-boards"]), "modes, mean over the tables", rows, columns)


def samplings(records: Records) -> str:
    """Means over the tables that `sequential` works on: training, one batch size."""
    training = select(records["left-out-networks"], {"task": "training"})
    rows = keys("sampling", in_code(("random", "greatest-first", "sequential")))
    return table_of(training, "mean errors in training", rows, by("modes", {"1 mode": 1, "10 modes": 10}, mean_errors))


def unprofiled_settings(records: Records) -> str:
    """Over the networks: the least and the greatest errors, and the least shares within the 80 % interval."""
    frame = records["unprofiled-settings"]
    one_clock = frame["profiled"].str.replace("training at the greatest .*", "training at one clock", regex=True)
    frame = frame.assign(
        profiled=one_clock.replace("training at one clock", "training at one CPU, GPU or memory clock")
    )
    settings = frame[["profiled", "predicted"]].drop_duplicates().to_dict("records")
    columns: Columns = {
        "least MAPE": ({}, lambda rows: pair(rows[ERROR_NAMES].min(), 0)),
        "greatest MAPE": ({}, lambda rows: pair(rows[ERROR_NAMES].max(), 0)),
        "least share within 80 %": ({}, least_coverage),
    }
    rows = [[setting["profiled"], setting["predicted"], *cells(frame, setting, columns)] for setting in settings]
    return table(["profiled", "predicted", *columns], rows)


def power_limits(records: Records) -> str:
    """Means over the networks of a GPU: of `physical-gp` with its coverage, and the least of the other predictors."""
    kinds = {
        "{} profiles": ("own", least_mean_errors),
        "within 80 %, {}": ("own", mean_coverage(TIME_POWER_80)),
        "others, {}": ("others", least_mean_errors),
    }
    columns: Columns = {
        heading.format(count): ({"modes": count, "whose": whose}, cell)
        for count in (3, 10)
        for heading, (whose, cell) in kinds.items()
    }
    rows = keys("device", {"V100, reference A40": "v100", "A40, reference V100": "a40"})
    return table_of(with_default(records["power-limits"]), "GPU", rows, columns)


def published_errors(records: Records) -> str:
    def total(rows: pd.DataFrame) -> str:
        return str(int(rows["count"].sum()))

    verdicts = {name: name for name in ("confirmed", "smaller", "undecided", "contradicted")}
    columns: Columns = {"all": ({}, total), **by("verdict", {**verdicts, "smaller": "differs"}, total)}
    rows = keys("kind", {"errors": "error", "relations": "relation"})
    return table_of(records["published"], "of the papers", rows, columns)


# ---------------------------------------------------------------------------------------------------- strategies


def choice(rows: pd.DataFrame) -> str:
    """Penalty, share of choices that break a limit by more than 2 %; means over several tables."""
    return f"{figure(rows['penalty_mean'].mean())} / {share(rows['violations_pct'].mean())}"


def penalty(rows: pd.DataFrame) -> str:
    return figure(rows["penalty_mean"].mean())


def greatest_penalty(rows: pd.DataFrame) -> str:
    return figure(rows["penalty_mean"].max())


choice_of_one = of_one_row(choice)
CONTEST_COLUMNS = by("workload", networks(CONTEST_NETWORKS), choice_of_one)


def accuracy_in_short(records: Records) -> str:
    """README's table: errors of predictions from ten modes, and penalties of chosen modes."""
    errors = by("workload", networks(CONTEST_NETWORKS), errors_of_one)
    left_out: Key = {"device": "orin-agx", "task": "training", "modes": 10}
    chosen: Key = {"strategy": "closed-loop", "profiles": 15}
    rows = {
        "MAPE of time / power from ten profiles": (
            cells(records["predictors"], {"predictor": "physical-gp", "modes": 10}, errors)
        ),
        "the same, the network left out of the prior": cells(random_modes(records), left_out, errors),
        "the same of PowerTrain, as implemented here": (
            cells(records["predictors"], {"predictor": "powertrain", "modes": 10}, errors)
        ),
        "excess time of the mode that `recommend` chose / choices over a limit": (
            cells(records["strategies"], chosen, CONTEST_COLUMNS)
        ),
    }
    return table(["in %", *errors], [[label, *own] for label, own in rows.items()])


def strategies(records: Records) -> str:
    contest = {
        "closed-loop": (8, 15),
        "front": (50,),
        "one-shot": (50,),
        "powertrain": (50,),
        "mdbs": (15,),
        "presets": (0,),
    }
    rows = [
        [f"`{name}`", str(count), *cells(records["strategies"], {"strategy": name, "profiles": count}, CONTEST_COLUMNS)]
        for name, counts in contest.items()
        for count in counts
    ]
    return table(["strategy", "profiles", *CONTEST_COLUMNS], rows)


def strategies_left_out(records: Records) -> str:
    columns: Columns = {
        "closed-loop, 8": ({"strategy": "closed-loop", "profiles": 8}, choice_of_one),
        "closed-loop, 15": ({"strategy": "closed-loop", "profiles": 15}, choice_of_one),
        "one-shot, risk 5 %": ({"strategy": "one-shot", "profiles": 8}, choice_of_one),
        "mdbs": ({"strategy": "mdbs", "profiles": 8}, choice_of_one),
        "presets": ({"strategy": "presets", "profiles": 0}, choice_of_one),
    }
    return table_of(records["strategies-left-out-networks"], "table", TABLES, columns)


def one_shot_risks(records: Records) -> str:
    """Means over the tables, and the greatest share broken in any."""
    frame = records["one-shot-risks"]
    columns: Columns = {
        **by("profiles", {f"{count} profiles": count for count in (10, 25, 50)}, choice),
        "most broken in a table": ({}, lambda rows: share(rows["violations_pct"].max())),
    }
    rows = keys("risk", {str(risk): risk for risk in RISKS})
    return table_of(frame[frame["profiles"] != "15"], "`--risk`", rows, columns)


def power_limit_strategies(records: Records) -> str:
    """Mean penalties over the networks of a GPU, for the least energy and the least time of a sample; the greatest."""
    frame = records["power-limit-strategies"]
    columns: Columns = {
        f"{goal}, {count} profiles": ({"goal": goal, "profiles": count}, penalty)
        for goal in ("energy", "time")
        for count in (6, 20)
    }
    worst = by("profiles", {f"worst, {count} profiles": count for count in (6, 20)}, greatest_penalty)
    rows = {
        f"{gpu}, `{name}`": {"device": device, "strategy": name}
        for device, gpu in (("v100", "V100"), ("a40", "A40"))
        for name in dict.fromkeys(frame["strategy"])
    }
    return table_of(frame, "GPU, strategy", rows, {**columns, **worst})


def binary_search_variants(records: Records) -> str:
    columns = by("workload", networks(ORIN_NETWORKS), of_one_row(penalty))
    rows = keys("variant", {variant: variant for variant in VARIANTS})
    return table_of(records["binary-search-variants"], "time penalty in %", rows, columns)


def batch_sizes(records: Records) -> str:
    columns: Columns = {
        "best of 4 to 128, least gain": ({}, lambda rows: figure(rows["least_gain"].min(), 2)),
        "greatest gain": ({}, lambda rows: figure(rows["greatest_gain"].max(), 2)),
    }
    rows = keys("workload", networks(("lenet-mnist", "yolov8n-coco", "bert-squad")))
    return table_of(records["batch-sizes"], "simulated Orin AGX, 15 to 40 W", rows, columns)


def false_alarms(records: Records) -> str:
    columns: Columns = {
        "nights that turn red": ({}, of_one_row(lambda rows: figure(rows["red_pct"].item()))),
        "cases decided": ({}, of_one_row(lambda rows: figure(rows["significant_pct"].item()))),
        "cases that fail": ({}, of_one_row(lambda rows: figure(rows["alarms_pct"].item()))),
    }
    rows = keys("gate", {**in_code(("compare", "baseline check", "history")), "requirements": "requirements"})
    return table_of(records["false-alarms"], "in %", rows, columns)


# ---------------------------------------------------------------------------------------------------- simulated boards


def simulated(records: Records, about: str, part: str = "") -> Dict[str, float]:
    own = select(records["simulation"], {"about": about, "part": part})
    return dict(zip(own["figure"], own["value"]))


def simulation_errors(records: Records) -> str:
    """The errors of each table, left out of the fit and fitted, and what a choice by the fitted board costs."""
    rows = []
    for label, key in TABLES.items():
        figures = simulated(records, "/".join(map(str, key.values())))
        if not figures:  # of a workload that simulated boards do not have
            continue
        left_out = select(records["simulation-left-out"], key)[["time_median_ape", "power_median_ape"]].mean()
        chosen = "-"
        if "front_median_penalty_pct" in figures:
            chosen = f"{figure(figures['front_median_penalty_pct'])} / {figure(figures['front_over_budget_pct'], 0)}"
        rows.append([label, pair(left_out), pair([figures[name] for name in ERRORS]), chosen])
    return table(["table", "left out", "fitted", "chosen by it"], rows)


def simulation_figures(records: Records) -> str:
    every, exact = (simulated(records, "published figures", part) for part in ("all", "exact"))
    curves, claims = simulated(records, "learning curves"), simulated(records, "claims")
    ratios = f"{figure(curves['least'], 2)} to {figure(curves['greatest'], 2)}"
    rows = [
        ["published figures, within 15 %", figure(every["count"]), f"{figure(every['close_pct'], 0)} %"],
        ["those that are neither a range nor a bound", figure(exact["count"]), f"{figure(exact['close_pct'], 0)} %"],
        [
            f"errors of predictors, within a factor of 1.5 of those on measured tables ({ratios})",
            figure(curves["count"], 0),
            figure(curves["alike"], 0),
        ],
        ["claims and checks, holding on every board", figure(claims["count"]), figure(claims["holding"])],
    ]
    return table(["simulated", "all", "agree"], rows)


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
    "false-alarms": false_alarms,
    "simulation-errors": simulation_errors,
    "simulation-figures": simulation_figures,
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

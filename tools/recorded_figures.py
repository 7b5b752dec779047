"""Figures that the documents print: which command computes each part, and its record in `baselines/recorded/documents`.

A record is a CSV file with a row for each case. What is measured on a machine, such as how long a run takes, is not
among them: documents state it with the machine it was measured on.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.files import write_output
from harness.core.measured_tables import load_table
from tools import false_alarms, table_experiments

PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / "baselines" / "recorded" / "documents"
DATA_VARIABLE = "JETWATT_DATA"

TRAINING, INFERENCE = "orin-agx-training.csv", "orin-agx-inference.csv"
NANO_TRAINING, NANO_INFERENCE = "orin-nano-training.csv", "nano-inference.csv"
SUBFOLDERS = {
    TRAINING: "powertrain",
    INFERENCE: "powertrain",
    NANO_TRAINING: "powertrain",
    NANO_INFERENCE: "loudva",
}
"""Measured tables by name, and the subfolder of the data folder that holds each."""

Figure = Union[str, int, float, None]
Row = Dict[str, Figure]
Rows = List[Row]


class Part(NamedTuple):
    """Figures that are computed together and recorded in one file."""

    name: str
    key: Tuple[str, ...]  # the columns that identify a row
    figures: Tuple[str, ...]  # the columns that hold what was computed
    files: Tuple[str, ...]  # measured tables that it needs
    compute: Callable[[], Rows]
    compute_sample: Optional[Callable[[], Rows]] = None  # some of the rows, in a minute at most; None if none is cheap

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.csv"

    @property
    def missing(self) -> List[str]:
        """The measured tables that are not there."""
        return [name for name in self.files if not data_file(name).is_file()]


def data_file(name: str) -> Path:
    """Where a measured table is: in the folder that `JETWATT_DATA` names, or in `../shared/data`."""
    folder = Path(os.environ.get(DATA_VARIABLE) or PROJECT.parent / "shared" / "data")
    return folder / SUBFOLDERS[name] / name


def run_jetwatt(command: str, exit_codes: Sequence[int] = (0,)) -> Any:
    """Run `jetwatt COMMAND --json FILE` on the measured tables that it names, and return the content of the file.

    Raises:
        CannotRunError: the exit code is another.
    """
    words = [str(data_file(word)) if word in SUBFOLDERS else word for word in shlex.split(command)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        called = [sys.executable, "-m", "jetwatt", *words, "--json", str(out)]
        code = subprocess.run(called, stdout=subprocess.DEVNULL, cwd=PROJECT, check=False).returncode
        if code not in exit_codes:
            raise CannotRunError(f"jetwatt {command} ended with exit code {code}", "see its messages above")
        return json.loads(out.read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------- errors

ERRORS = ("time_mape", "power_mape")
COVERAGE = ("time_80", "power_80", "time_95", "power_95")
WITHOUT_SLICE = ("time_mape_without_slice", "power_mape_without_slice")

EVALUATE = f"evaluate --corpus {TRAINING} --reference resnet18-imagenet"
ERRORS_SAMPLE = "--target lstm-wikitext --predictors physical-gp,ridge,npe --modes 10"
TEST_PRIOR = f"prior evaluate {TRAINING} {INFERENCE} {NANO_TRAINING} {NANO_INFERENCE}"
LEAVE_OUT = f"{TEST_PRIOR} --leave-out network --references"
PLAIN_PREDICTORS = "ridge,gbr,random-forest,decision-tree,mlp,linear"  # learn from the target's profiles alone


def error_rows(results: Sequence[Mapping[str, Any]]) -> Rows:
    rows = []
    for result in results:
        outside = result["without_slice"] or {}
        row: Row = {name: result[name] for name in ("predictor", "device", "task", "sampling", "modes")}
        row["workload"] = str(result["target"]).split("/")[1] if "/" in result["target"] else result["target"]
        row.update({name: result[f"{name}_median"] for name in ERRORS})
        row.update({f"{name}_without_slice": outside.get(f"{name}_median") for name in ERRORS})
        row.update({name: result["coverage"][name] for name in COVERAGE})
        rows.append(row)
    return rows


def evaluate(options: str) -> Rows:
    return error_rows(run_jetwatt(f"{EVALUATE} {options}")["results"])


def leave_out(*options: str) -> Rows:
    return [row for words in options for row in error_rows(run_jetwatt(f"{LEAVE_OUT} {words}")["results"])]


def leave_out_boards() -> Rows:
    """physical-gp under a prior without the table's board, and predictors without a prior, all without references."""
    options = "--modes 5,10,50 --repeats 6"
    rows = error_rows(run_jetwatt(f"{TEST_PRIOR} --leave-out board {options}")["results"])
    networks = "resnet18-imagenet,yolov8n-coco,lstm-wikitext"
    targets = (
        (TRAINING, "training", networks),
        (INFERENCE, "inference", networks),
        (NANO_TRAINING, "training", "resnet18-imagenet"),
        (NANO_INFERENCE, "inference", "inception-triton"),
    )
    for corpus, task, workloads in targets:
        command = f"evaluate --corpus {corpus} --task {task} --target {workloads} --predictors {PLAIN_PREDICTORS}"
        rows += error_rows(run_jetwatt(f"{command} {options}")["results"])
    return rows


GPUS = ("zeus-v100", "zeus-a40")


def under_limits(predictors: str, modes: str) -> Rows:
    """Errors on each GPU whose table ships with the suite, with the table of the other as the reference."""
    rows: Rows = []
    for gpu, other in (GPUS, GPUS[::-1]):
        networks = ",".join(load_table(gpu)["workload"].unique())
        command = f"evaluate --corpus {gpu} --target {networks} --reference {networks} --reference-corpus {other}"
        rows += error_rows(run_jetwatt(f"{command} --predictors {predictors} --modes {modes}")["results"])
    return rows


# ---------------------------------------------------------------------------------------------------- choices

CHOICES = ("penalty_mean", "over_limit_plus1_pct", "violations_pct")

BUDGETS = "17:50:3"
WITH_REFERENCE = (
    f"strategies evaluate --corpus {TRAINING} --reference resnet18-imagenet --target yolov8n-coco,lstm-wikitext",
    f"strategies evaluate --corpus {TRAINING} --reference yolov8n-coco --target resnet18-imagenet",
)
ALL_TABLES = (
    f"strategies evaluate --corpus {TRAINING} {INFERENCE} {NANO_TRAINING} {NANO_INFERENCE} --task all"
    " --leave-out network --budgets spread:4 --latency-limits 200 --repeats 1"
)
AT_A_RISK = (
    f"strategies evaluate --corpus {TRAINING} {NANO_TRAINING} --leave-out network --budgets spread:12"
    " --strategies one-shot --profiles 10,15,25,50 --repeats 2"
)
RISKS = (0.05, 0.1, 0.3)


def choice_rows(results: Sequence[Mapping[str, Any]]) -> Rows:
    rows = []
    for result in results:
        row: Row = {name: result[name] for name in ("strategy", "device", "task", "profiles")}
        row["workload"] = result["target"]
        row.update({name: result[name] for name in CHOICES})
        row.update({name: result[name] for name in ("choices", "infeasible")})
        rows.append(row)
    return rows


def with_reference(*options: str) -> Rows:
    """The contest on the tables behind PowerTrain, each with another network as the reference."""
    commands = [f"{command} --budgets {BUDGETS} {words}" for words in options for command in WITH_REFERENCE]
    return [row for command in commands for row in choice_rows(run_jetwatt(command)["results"])]


def strategies_sample() -> Rows:
    command = WITH_REFERENCE[0].replace("yolov8n-coco,", "")
    options = f"--budgets {BUDGETS} --strategies closed-loop --profiles 5 --repeats 1"
    searched = choice_rows(run_jetwatt(f"{command} {options}")["results"])
    return searched + with_reference("--strategies mdbs,gmd,presets,maxn --profiles 15 --repeats 1")


def all_tables(*options: str) -> Rows:
    return [row for words in options for row in choice_rows(run_jetwatt(f"{ALL_TABLES} {words}")["results"])]


def at_a_risk() -> Rows:
    rows = []
    for risk in RISKS:
        for row in choice_rows(run_jetwatt(f"{AT_A_RISK} --risk {risk}")["results"]):
            rows.append({"risk": str(risk), **row})
    return rows


GPU_GOALS = {"energy": "--goal sample-energy --budgets none", "time": "--goal throughput --budgets spread:3"}


def choices_under_limits(strategies: str, profiles: str) -> Rows:
    """The contest on each GPU whose table ships with the suite, with the table of the other as the reference."""
    rows: Rows = []
    for gpu, other in (GPUS, GPUS[::-1]):
        networks = ",".join(load_table(gpu)["workload"].unique())
        command = f"strategies evaluate --corpus {gpu} --reference {networks} --reference-corpus {other}"
        for goal, options in GPU_GOALS.items():
            words = f"{command} {options} --strategies {strategies} --profiles {profiles} --repeats 3"
            rows += [{"goal": goal, **row} for row in choice_rows(run_jetwatt(words)["results"])]
    return rows


# ---------------------------------------------------------------------------------------------------- the papers

PUBLISHED = f"published --corpus {TRAINING} --corpus {NANO_TRAINING}"


def published() -> Rows:
    """How many of the papers' errors, and of the relations between two, have each verdict."""
    counts: Dict[Tuple[str, str], int] = {}
    for error in run_jetwatt(PUBLISHED, exit_codes=(0, 1))["errors"]:
        key = ("relation" if error["versus"] else "error", str(error["verdict"]))
        counts[key] = counts.get(key, 0) + 1
    return [{"kind": kind, "verdict": verdict, "count": count} for (kind, verdict), count in sorted(counts.items())]


VALIDATE = f"simulation validate --corpus {TRAINING} --corpus {INFERENCE} --corpus {NANO_TRAINING}"
SMOOTH, SOUND = "smooth model", "without the odd slice"


def simulation() -> Rows:
    """How far simulated boards are from measured tables and published figures, a figure a row."""
    found = run_jetwatt(VALIDATE, exit_codes=(0, 1))
    rows: Rows = []

    def add(about: str, part: str, figures: Mapping[str, Any]) -> None:
        for name, value in figures.items():
            if isinstance(value, (int, float)):
                rows.append({"about": about, "part": part, "figure": name, "value": value})

    for table in found["corpora"].values():
        about = "/".join((table["device"], table["workload"], table["task"]))
        for part, figures in (("", table), (SOUND, table.get("sound", {})), (SMOOTH, table["smooth"])):
            add(about, part, figures)
    curves = found["learning_curves"]
    ratios = [curve["ratio"] for curve in curves]
    alike = sum(curve["is_alike"] for curve in curves)
    add("learning curves", "", {"count": len(curves), "alike": alike, "least": min(ratios), "greatest": max(ratios)})
    claims = found["claims"]
    holding = sum(claim["holds"] for claim in claims)
    add("claims", "", {"count": len(claims), "holding": holding})
    for part, summary in (("all", found["summary"]), ("exact", found["summary"]["of_exact_figures"])):
        add("published figures", part, {name: summary[name] for name in ("count", "close_pct")})
    return rows


# ---------------------------------------------------------------------------------------------------- all of them

_ERRORS_KEY = ("predictor", "device", "workload", "task", "sampling", "modes")
_CHOICES_KEY = ("strategy", "device", "workload", "task", "profiles")
_ALL_FILES = (TRAINING, INFERENCE, NANO_TRAINING, NANO_INFERENCE)

PARTS: Tuple[Part, ...] = (
    Part(
        "predictors",
        _ERRORS_KEY,
        (*ERRORS, *WITHOUT_SLICE, *COVERAGE),
        (TRAINING,),
        lambda: evaluate("--target yolov8n-coco,lstm-wikitext --predictors all --modes 10,20,50,100"),
        lambda: evaluate(ERRORS_SAMPLE),
    ),
    Part(
        "left-out-networks",
        _ERRORS_KEY,
        (*ERRORS, *WITHOUT_SLICE, *COVERAGE),
        _ALL_FILES,
        lambda: leave_out(
            "--modes 0,1,3,5,10,20,50",
            "--modes 1,3,10 --sampling greatest-first",
            "--modes 10 --sampling sequential",
        ),
    ),
    Part("left-out-boards", _ERRORS_KEY, (*ERRORS, *WITHOUT_SLICE, *COVERAGE), _ALL_FILES, leave_out_boards),
    Part(
        "unprofiled-settings",
        ("workload", "profiled", "predicted"),
        (*ERRORS, "time_80", "power_80"),
        (TRAINING, INFERENCE, NANO_TRAINING, NANO_INFERENCE),
        lambda: table_experiments.predict_unprofiled([data_file(name) for name in _ALL_FILES]),
    ),
    Part(
        "strategies",
        _CHOICES_KEY,
        (*CHOICES, "choices", "infeasible"),
        (TRAINING,),
        lambda: with_reference(
            "--strategies closed-loop --profiles 5,8,15 --repeats 1",
            "--strategies front --profiles 25,50 --repeats 1",
            "--strategies one-shot --profiles 15,25,50 --repeats 3",
            "--strategies powertrain,random --profiles 50 --repeats 3",
            "--strategies mdbs,gmd,presets,maxn --profiles 15 --repeats 1",
        ),
        strategies_sample,
    ),
    Part(
        "strategies-left-out-networks",
        _CHOICES_KEY,
        (*CHOICES, "choices", "infeasible"),
        _ALL_FILES,
        lambda: all_tables(
            "--strategies closed-loop --profiles 5,8,15", "--strategies one-shot,mdbs,random,presets --profiles 8"
        ),
    ),
    Part(
        "one-shot-risks",
        ("risk", *_CHOICES_KEY),
        (*CHOICES, "choices", "infeasible"),
        (TRAINING, NANO_TRAINING),
        at_a_risk,
    ),
    Part(
        "binary-search-variants",
        ("variant", "workload"),
        ("penalty_mean",),
        (TRAINING,),
        lambda: table_experiments.binary_search_variants(data_file(TRAINING), BUDGETS),
        lambda: table_experiments.binary_search_variants(data_file(TRAINING), BUDGETS),
    ),
    Part(
        "batch-sizes",
        ("workload",),
        ("least_gain", "greatest_gain"),
        (),
        table_experiments.gain_of_batch_sizes,
        table_experiments.gain_of_batch_sizes,
    ),
    Part(
        "power-limits",
        ("predictor", "device", "workload", "task", "sampling", "modes"),
        (*ERRORS, *COVERAGE),
        (),
        lambda: under_limits("physical-gp,ridge,gbr", "3,5,10"),
        lambda: under_limits("physical-gp,ridge", "5"),
    ),
    Part(
        "power-limit-strategies",
        ("goal", *_CHOICES_KEY),
        ("penalty_mean", "violations_pct", "choices"),
        (),
        lambda: choices_under_limits("closed-loop,zeus,random", "6,20"),
        lambda: choices_under_limits("zeus", "6"),
    ),
    Part(
        "false-alarms",
        ("gate",),
        ("nights", "red_pct", "verdicts", "significant_pct", "alarms_pct"),
        (),
        false_alarms.false_alarms,
    ),
    Part("published", ("kind", "verdict"), ("count",), (TRAINING, NANO_TRAINING), published),
    Part(
        "simulation-left-out",
        ("left_out", "device", "workload", "task"),
        ("time_median_ape", "power_median_ape"),
        (TRAINING, INFERENCE, NANO_TRAINING),
        lambda: table_experiments.simulate_left_out([data_file(name) for name in (TRAINING, INFERENCE, NANO_TRAINING)]),
    ),
    Part("simulation", ("about", "part", "figure"), ("value",), (TRAINING, INFERENCE, NANO_TRAINING), simulation),
)
PART_OF = {part.name: part for part in PARTS}


# ---------------------------------------------------------------------------------------------------- records

DIGITS = 3


def as_text(value: Figure) -> str:
    """A cell of a record; empty for what has no value."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value + 0.0:.{DIGITS}f}".replace(f"-{0:.{DIGITS}f}", f"{0:.{DIGITS}f}")
    return str(value)


def write_record(part: Part, rows: Sequence[Row]) -> None:
    columns = [*part.key, *part.figures]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[as_text(row[name]) for name in columns] for row in rows])
    part.path.parent.mkdir(parents=True, exist_ok=True)
    write_output(part.path, text.getvalue().encode("utf-8"))


def read_record(part: Part, folder: Optional[Path] = None) -> List[Dict[str, str]]:
    """The rows of a record as texts; none if it was never recorded."""
    path = part.path if folder is None else folder / part.path.name
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [*part.key, *part.figures]
    if rows and list(rows[0]) != expected:
        raise InvalidValueError(f"{path} has the columns {', '.join(rows[0])}", f"make record ONLY={part.name}")
    return rows


def differences(
    part: Part, recorded: Sequence[Mapping[str, str]], computed: Sequence[Row], share: float = 0.0
) -> List[str]:
    """A line for each figure of computed rows that differs from the record by more than a share of it.

    With a share of 0 the texts of both, rounded to `DIGITS`, have to be equal; else the last digit may differ, too.
    """
    before = {tuple(row[name] for name in part.key): row for row in recorded}
    lines = []
    for row in computed:
        key = tuple(as_text(row[name]) for name in part.key)
        where = " ".join(word for word in key if word)
        for name in part.figures:
            new = as_text(row[name])
            if key not in before:
                lines.append(f"{where}: {name} is {new or 'empty'}, not recorded")
                continue
            old = before[key][name]
            if old != new and not (share > 0 and old and new and is_near(float(old), float(new), share)):
                lines.append(f"{where}: {name} {old or 'empty'} -> {new or 'empty'}")
    return lines


def gone(part: Part, recorded: Sequence[Mapping[str, str]], computed: Sequence[Row]) -> List[str]:
    """A line for each recorded row that is not among the computed ones."""
    keys = {tuple(as_text(row[name]) for name in part.key) for row in computed}
    before = [tuple(row[name] for name in part.key) for row in recorded]
    return [f"{' '.join(filter(None, key))}: recorded, not computed any more" for key in before if key not in keys]


def is_near(old: float, new: float, share: float) -> bool:
    return abs(new - old) <= max(1.5 * 10**-DIGITS, share * abs(old))

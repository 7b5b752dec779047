"""`published`: the papers' errors next to those of the predictors here in the same setting.

Rows with `versus` are relations: the error of one case minus that of another, repeat by repeat on the same modes.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import msgspec
import numpy as np

from harness.core.boards import load_board
from harness.core.environment import describe_environment
from harness.core.errors import UnknownNameError
from harness.core.power_modes import PowerMode, parse_power_mode
from harness.core.terminal import format_table
from harness.core.units import KHZ_PER_MHZ, share_to_percent
from harness.judge.published_figures import read_published
from harness.judge.verdict import CONFIRMED, CONTRADICTED, UNDECIDED
from predictors.choose.corpora import load_all_tables
from predictors.contest.evaluate import run_evaluation
from predictors.contest.judged_choices import ContestRun, contest_runs, run_contest, summarise
from predictors.contest.runs import USUAL_RUNS, Runs, repeats_of, tell
from predictors.contest.scenarios import ProfileSource, Scenario, ScenarioCase, make_plan
from predictors.contest.trials import Group, TrialPlan
from predictors.evaluation import Target, spread
from predictors.goals import budget_goals
from predictors.models.base import ALL, check_kind
from predictors.models.linear import PAPERS_SUBSET, ranked_subsets
from predictors.models.registry import DEFAULT, predictor_names
from predictors.strategies.registry import StrategySetting

if TYPE_CHECKING:
    import pandas as pd

# The papers' errors; `fact` is the number of a figure in this project's reading of the papers.
FILE = Path(__file__).resolve().parents[2] / "baselines" / "published" / "predictors.csv"
ENERGY_MODEL = ("lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10")  # that 004 sec. 5.7.1 learns one energy from
SLACK = 0.25  # share of a published error by which a confirming error may differ
DIFFERS = "differs"  # verdict if the error here is smaller than published, which is no failure to reproduce it
# Metrics of what strategies choose under power budgets, as 001 sec. 5.2 calls them.
CHOICES = {"penalty_median": "penalty", "penalty_iqr": "penalty Q3-Q1", "over_limit_plus1_pct": "A/L+1"}
IQR = "_iqr"  # suffix of metrics: the interquartile range of repeats; for penalties, of the budgets
DRAWS = 1000  # of the repeats with replacement, for the spread between repeats
POINT = 1.0  # by which a figure of choices may always differ from the published one: some are 0
BUDGETS_W = "17:50:1"
ONE_PICK = "one-shot"  # the strategy compared with the papers': ours with their single pick
TEN_MODES = "a..j"  # 004 Table 3: the ten modes of a Xavier that 004 tests its regressions on

# Number of modes that the paper profiled of a workload on an Orin AGX, if not the whole grid.
SAMPLES = {
    "bert-squad": 100,  # 001 sec. 4.3.2: 50 to fit, 50 others to validate
    "lstm-wikitext": 100,
    "resnet18-gld23k": 150,  # 001 sec. 4.3.1: 100 to validate
    "mobilenetv3-imagenet": 150,
}
DEVICE_SAMPLES = {"xavier-agx": 1000, "orin-nano": 180}  # 001 sec. 4.3.3, 4.3.4


class PublishedError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One error of a paper: a row of the file."""

    fact: str
    paper: str
    section: str
    predictor: str  # its name here; of a choice under power budgets, that of the strategy
    device: str
    workload: str
    batch_size: int
    reference: str = ""  # the workload that a transfer started from
    modes: str  # a number, `all`, or names with commas
    tested: str = ""  # a mode, `a..j`, or empty for all
    metric: str  # as in results of `evaluate`, or of `strategies evaluate`: `CHOICES`; may end in `IQR`
    comparator: str  # `=`, `<`, `<=`, `>`, `~`, `range`, or `within`: the value is the greatest distance from 0
    value_pct: float  # the lower end of a range
    value_high_pct: Optional[float] = None
    # the fields that differ in the case whose error is subtracted: `predictor=nn reference=`; empty without one
    versus: str = ""

    def __post_init__(self) -> None:
        """Refuse named modes that 004 does not name, and comparisons with an invalid case."""
        if self.modes != ALL and not self.modes.isdecimal() and self.tested != TEN_MODES:
            raise ValueError(f"modes {self.modes!r}")
        self.other()

    def other(self) -> Optional[PublishedError]:
        """The case whose error is subtracted."""
        differing = dict(part.split("=") for part in self.versus.split())
        # By the constructor: `replace` checks nothing in the release for Python 3.8.
        return PublishedError(**{**msgspec.structs.asdict(self), **differing, "versus": ""}) if differing else None

    @property
    def count(self) -> Optional[int]:
        """Number of modes to fit; None for all but a held-out tenth, and if they are named."""
        return int(self.modes) if self.modes.isdecimal() else None

    @property
    def text(self) -> str:
        """The error, or the difference of two, as the paper gives it."""
        if self.value_high_pct is not None:
            return f"{self.value_pct:g}-{self.value_high_pct:g}"
        if self.comparator == "within":
            return f"+-{self.value_pct:g}"
        return f"{'' if self.comparator == '=' else self.comparator}{self.value_pct:g}"

    def case(self, greatest: PowerMode) -> ScenarioCase:
        """The case to test for the same figure; `greatest` fills in settings that a tested mode omits."""
        references: Tuple[ProfileSource, ...] = (ProfileSource(self.reference),) if self.reference else ()
        if self.tested == TEN_MODES:
            target = ProfileSource(self.workload, self.device, batch_size=self.batch_size, named=tuple("abcdefghij"))
            fitted = tuple(self.modes.split(","))
            if self.predictor == "linear-energy":
                others = [name for name in ENERGY_MODEL if name != self.workload]
                references = tuple(ProfileSource(name, self.device, named=fitted) for name in others)
            return ScenarioCase(target, references, fitted=fitted)
        drawn = DEVICE_SAMPLES.get(self.device, SAMPLES.get(self.workload))
        target = ProfileSource(self.workload, self.device, batch_size=self.batch_size, modes=drawn)
        tested = (parse_power_mode(self.tested, greatest),) if self.tested else ()
        return ScenarioCase(target, references, tested=tested)

    @property
    def bounds_pct(self) -> Tuple[float, float]:
        """Bounds of a confirming figure: below a published bound, or else near the published figure."""
        if self.comparator in ("<", "<="):
            least = -math.inf if self.versus else -100.0 if self.metric in CHOICES else 0.0
            return least, self.value_pct
        if self.comparator == ">":
            return self.value_pct, math.inf
        if self.comparator == "within":
            return -self.value_pct, self.value_pct
        ends = self.value_pct, self.value_pct if self.value_high_pct is None else self.value_high_pct
        slack = [max(SLACK * abs(end), POINT if self.metric in CHOICES else 0.0) for end in ends]
        return ends[0] - slack[0], ends[1] + slack[1]

    def verdict(self, low_pct: Optional[float], high_pct: Optional[float]) -> str:
        """Confirmed if the quartiles of repeats lie within the bounds, contradicted or differs if beyond one.

        Below the bounds of a figure it differs: the error is smaller. A relation that must be above a bound, or within
        some distance of 0, is contradicted below them too.
        """
        if low_pct is None or high_pct is None:
            return UNDECIDED
        least, greatest = self.bounds_pct
        if low_pct > greatest:
            return CONTRADICTED
        if high_pct < least:
            return CONTRADICTED if self.comparator in (">", "within") else DIFFERS
        on_bound = self.comparator in ("<", ">") and self.value_pct in (low_pct, high_pct)
        return CONFIRMED if least <= low_pct and high_pct <= greatest and not on_bound else UNDECIDED


def published_errors(path: Path = FILE) -> List[PublishedError]:
    return read_published(path, "published error", _published_error)


def _published_error(row: Mapping[str, str]) -> PublishedError:
    try:
        return msgspec.convert({name: text for name, text in row.items() if text}, PublishedError, strict=False)
    except msgspec.ValidationError as error:  # no ValueError in the release for Python 3.8
        raise ValueError(str(error)) from error


class Figures(NamedTuple):
    """The errors of a group."""

    repeats: pd.DataFrame  # a row each, with the errors over all modes, as the papers have them (001 sec. 4)
    provenance: str  # of the target, and of the references if another

    def of(self, metric: str) -> np.ndarray:
        """A metric of each repeat; for a spread between repeats, that of repeats drawn with replacement."""
        if metric in CHOICES:
            return self.repeats[metric].to_numpy(float)
        values = self.repeats[f"all_modes_{metric.partition(IQR)[0]}"].to_numpy(float)
        if not metric.endswith(IQR):
            return values
        drawn = values[np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))]
        return np.subtract(*np.quantile(drawn, (0.75, 0.25), axis=1))


def compare(
    rows: Sequence[PublishedError],
    figures_of_rows: Sequence[Tuple[Optional[Figures], Optional[Figures], Optional[Figures]]],
) -> List[Dict[str, Any]]:
    """Each error of a paper with the errors here, as plain values.

    `figures_of_rows` has, for each row, those of the same predictor, of the predictor it is compared with, and of the
    one that this suite adds; None if it could not be run.
    """
    compared = []
    for row, (same, other, best) in zip(rows, figures_of_rows):
        difference, provenances = None, [figures.provenance for figures in (same, other) if figures is not None]
        if same is not None and (other is not None or not row.versus):
            difference = spread(same.of(row.metric) - (0.0 if other is None else other.of(row.metric)))
        is_mixed = len({provenance.partition(",")[0] for provenance in provenances}) > 1
        reached, low, high = difference or (None, None, None)
        ours = None if best is None else spread(best.of(row.metric))
        compared.append(
            {
                **msgspec.structs.asdict(row),
                "published": row.text,
                "bounds_pct": [end if math.isfinite(end) else None for end in row.bounds_pct],
                "same_predictor_pct": reached,
                "quartiles_pct": [low, high],
                # Measured figures are not compared with simulated ones.
                "verdict": UNDECIDED if is_mixed else row.verdict(low, high),
                "best_pct": ours and ours.median,
                "provenance": " vs ".join(provenances[: 1 + is_mixed]) or (best and best.provenance),
            }
        )
    return compared


def published(
    *,
    predictors: Union[str, Sequence[str], None] = None,
    fact: Sequence[str] = (),
    corpus: Sequence[Union[str, Path]] = (),
    limit: Optional[int] = None,
    runs: Runs = USUAL_RUNS,
) -> PublishedComparison:
    """Compare the papers' errors with those of the predictors here in the same setting, as `jetwatt published` does.

    Args:
        predictors: only errors of these; None for all in the papers.
        fact: only these errors, by the numbers of `baselines/published/predictors.csv`; empty for all.
        corpus: files of measured profiles, used where they match; the rest is simulated.
        limit: greatest number of modes of each table, for a quick look.
        runs: how often, from which seed, and in how many processes.

    Returns:
        The comparison; its `table()` is a DataFrame with errors in %.

    Raises:
        HarnessError: no published error has these predictors and facts, or a corpus is invalid.
    """
    check_kind(Runs, runs=runs)
    rows = published_errors()
    if predictors:
        names = predictor_names(predictors if isinstance(predictors, str) else ",".join(predictors))
        rows = [row for row in rows if row.predictor in names]
    if fact:
        rows = [row for row in rows if row.fact in fact]
    if not rows:
        raise UnknownNameError("no published error has these predictors and facts", "omit predictors= or fact=")
    cases, chosen, wanted = _groups(rows)
    plan = make_plan(Scenario("published", "", "", tuple(cases)), load_all_tables(corpus), limit, runs.seed)
    plan = dataclasses.replace(plan, repeats=repeats_of(runs, 3), chosen=chosen)
    ran = run_evaluation(plan, runs).trials
    errors = {group: _figures(trials, plan.targets[group.target]) for group, trials in ran.trials.items()}
    groups_of_choices = [groups for row, groups in zip(rows, wanted) if row.metric in CHOICES]
    distinct_groups = dict.fromkeys(group for groups in groups_of_choices for group in groups if group is not None)
    choices = {group: _choices(group, plan, runs) for group in distinct_groups}
    of_rows = [choices if row.metric in CHOICES else errors for row in rows]
    figures_of_rows = []
    for of, groups in zip(of_rows, wanted):
        same_figures, other_figures, best_figures = (None if group is None else of.get(group) for group in groups)
        figures_of_rows.append((same_figures, other_figures, best_figures))
    compared = compare(rows, figures_of_rows)
    same = [plan.targets[groups[0].target] for groups in wanted]
    learned = [target for row, target in zip(rows, same) if (row.predictor, row.tested) == ("linear", TEN_MODES)]
    return PublishedComparison(compared, ran.skipped, format_subsets(learned) if learned else "")


class PublishedComparison(NamedTuple):
    """The papers' errors and those here; printed, it is the text of `jetwatt published`."""

    rows: List[Dict[str, Any]]  # as of `compare`
    skipped: List[Dict[str, Any]]  # trials that could not be run, with their reasons
    subsets: str  # on the best subsets of the ten modes of 004, if its regressions were compared

    def __repr__(self) -> str:
        counted = Counter(error["verdict"] for error in self.rows)
        listed = ", ".join(f"{counted[verdict]} {verdict}" for verdict in (CONFIRMED, CONTRADICTED, UNDECIDED))
        near = (
            f"the bounds of a figure are {share_to_percent(SLACK):.0f} % around it, those of a bound the bound itself"
        )
        lines = [
            format_compared(self.rows),
            *([self.subsets] if self.subsets else []),
            f"{listed}, {counted[DIFFERS]} smaller here than published",
            "confirmed: the same predictor's quartiles lie within the bounds here, differs: below them, contradicted:"
            f" above them, or the relation of two errors (vs) differs; {near}",
        ]
        return "\n".join(lines)

    @property
    def exit_code(self) -> int:
        """1 if an error of a paper is contradicted, else 0."""
        return int(any(error["verdict"] == CONTRADICTED for error in self.rows))

    def table(self) -> pd.DataFrame:
        """A row for each published error, with that of the same predictor and of the suite's here, in %."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def plain(self) -> Dict[str, Any]:
        """What `--json` writes."""
        return {"environment": describe_environment(), "errors": self.rows}


def _figures(repeats: pd.DataFrame, target: Target) -> Figures:
    own = target.table.provenance
    others = [table.provenance for table in target.references if table.provenance != own]
    return Figures(repeats, f"{own}, from {others[0]}" if others else own)


def _choices(group: Group, plan: TrialPlan, runs: Runs) -> Figures:
    import pandas as pd

    target = plan.targets[group.target]
    goals, table = budget_goals(BUDGETS_W), target.table
    setting = StrategySetting(device=table.device, references=target.references)
    contests = contest_runs([group.predictor], [table], [group.count or 0], plan.repeats, plan.seed)
    finished: List[ContestRun] = []

    def count(run: ContestRun) -> None:
        finished.append(run)
        tell(runs, len(finished), len(contests), f"{run.strategy} on {target.name}")

    contest = run_contest(contests, goals, setting, runs.jobs, count)
    (outcomes,) = contest.values()
    sweeps = []
    for first in range(0, len(outcomes), len(goals)):
        sweep = outcomes[first : first + len(goals)]
        penalties = spread([outcome.penalty_pct for outcome in sweep if outcome.penalty_pct is not None])
        sweeps.append({**summarise(sweep), f"penalty{IQR}": penalties.q3 - penalties.q1 if penalties else np.nan})
    return _figures(pd.DataFrame(sweeps), target)


def format_compared(compared: Sequence[Dict[str, Any]]) -> str:
    titles = ("fact", "predictor", "target", "reference", ">modes", "error", ">published %", ">bounds", ">here %")
    rows = []
    for row in compared:
        target = row["workload"] if row["batch_size"] == 16 else f"{row['workload']}/{row['batch_size']}"
        reached = ["-" if row[name] is None else f"{row[name]:.1f}" for name in ("same_predictor_pct", "best_pct")]
        ends = [["-" if end is None else f"{end:.1f}" for end in row[name]] for name in ("bounds_pct", "quartiles_pct")]
        between = ["-" if pair == ["-", "-"] else " to ".join(pair) for pair in ends]
        about = [row["fact"], row["predictor"], f"{target} {row['device']}", row["reference"] or "-", row["modes"]]
        error = CHOICES.get(row["metric"], row["metric"].partition("_")[0] + " Q3-Q1" * row["metric"].endswith(IQR))
        about += [f"{error} vs {row['versus']}" if row["versus"] else error]
        about += [row["published"], between[0], reached[0], between[1], reached[1]]
        rows.append([*about, row["provenance"] or "-", row["verdict"]])
    return format_table([*titles, ">Q1-Q3", f">{DEFAULT} %", "on", "verdict"], rows)


def format_subsets(targets: Sequence[Target]) -> str:
    """The four of the ten modes from which time is learned best here, and the rank of the paper's (004 sec. 5.7)."""
    modes = targets[0].table.modes
    inputs = np.column_stack([modes[:, 0], modes[:, 1:] / KHZ_PER_MHZ])
    ranked = ranked_subsets(inputs, np.column_stack([target.table.time_ms for target in targets]))
    named = load_board(targets[0].table.device).modes_by_name()
    names = {tuple(named[name]): name for name in "abcdefghij"}
    fitted = targets[0].fitted
    assert fitted is not None, "the paper names the modes that it learned from"
    (error, best), papers = ranked[0], tuple(sorted(fitted.tolist()))
    place, theirs = next((place, off) for place, (off, taken) in enumerate(ranked, 1) if taken == papers)
    most = ", ".join(sorted(names[tuple(row)] for row in modes[list(best)].tolist()))
    return (
        f"of {len(ranked)} subsets of four modes, {most} are best: {error:.0f} ms; the paper's, "
        f"{', '.join(PAPERS_SUBSET)}, rank {place}: {theirs:.0f} ms "
        f"(sum of root mean square errors, {targets[0].table.provenance})"
    )


def _groups(
    rows: Sequence[PublishedError],
) -> Tuple[List[ScenarioCase], Tuple[Group, ...], List[Tuple[Group, Optional[Group], Optional[Group]]]]:
    """The cases of the rows, the groups to try, each once, and those of each row, in the order `compare` takes."""
    cases: List[ScenarioCase] = []

    def group(row: PublishedError) -> Group:
        case = row.case(load_board(row.device).power_mode_space().greatest)
        if case not in cases:
            cases.append(case)
        return Group(row.predictor, cases.index(case), row.count)

    wanted = []
    for row in rows:
        same, other = group(row), row.other()
        ours = (ONE_PICK, row.count or 50) if row.metric in CHOICES else (DEFAULT, row.count)
        best = None if other else Group(ours[0], same.target, ours[1])
        wanted.append((same, group(other) if other else None, best))
    tried = [groups for row, groups in zip(rows, wanted) if row.metric not in CHOICES]
    chosen = tuple(dict.fromkeys(group for groups in tried for group in groups if group is not None))
    return cases, chosen, wanted

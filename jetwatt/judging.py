"""`compare`, `history`, baselines and requirements: verdicts on results files, as plain values and frames."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Union

from harness.core.corpus import listed
from harness.judge.baseline import check
from harness.judge.compare import compare_files, format_result
from harness.judge.compare import to_plain as plain_comparison
from harness.judge.history import read_history
from harness.judge.history import to_plain as plain_histories
from harness.judge.requirement_verdicts import RequirementVerdict, check_file
from harness.store.results import ResultsStore

if TYPE_CHECKING:
    import pandas as pd

PathLike = Union[str, Path]


def compare(
    before: PathLike,
    after: PathLike,
    *,
    by: Union[str, Sequence[str]] = (),
    threshold: Optional[float] = None,
    fastest: bool = False,
    include_flagged: bool = False,
) -> Dict[str, Any]:
    """Compare two results files, or JSON files of pytest-benchmark; returns the output of `jetwatt compare --json`.

    Printed, it is the text of `jetwatt compare`, and in a notebook a table.

    Args:
        before: one side.
        after: the other side.
        by: conditions that may differ, because they are being compared: `"torch"`, or a list.
        threshold: the tolerance, as a share: smaller changes are shown and do not count as worse; None for that of the
            board (`doctor --accept`), else 2 %. The command takes percent.
        fastest: compare the fast minibatches of the fast runs, for shared machines.
        include_flagged: include profiles flagged disturbed or throttled.

    Raises:
        HarnessError: a file cannot be read, or the threshold is invalid.
    """
    sides = compare_files(Path(before), Path(after), listed(by), threshold, fastest, include_flagged)
    return _PrintedComparison(plain_comparison(sides), format_result(sides))


class _PrintedComparison(Dict[str, Any]):
    """A comparison as plain values, which is shown as its text."""

    def __init__(self, plain: Dict[str, Any], text: str) -> None:
        super().__init__(plain)
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        from predictors.choose.notebook import html_table

        shown = {"name": "case", "figure": "figure", "ratio": "after / before", "status": "verdict"}
        compared = [*self["overall"], *self["workloads"], *self["cases"]]
        rows = [{title: verdict[name] for name, title in shown.items()} for verdict in compared]
        return html_table(f"{self['before']} -> {self['after']}", rows, self["notes"])


def history(
    files: Union[PathLike, Sequence[PathLike]],
    *,
    since: Optional[datetime.date] = None,
    threshold: Optional[float] = None,
    include_flagged: bool = False,
    index: Union[bool, PathLike] = True,
) -> Dict[str, Any]:
    """The changes of each case over many runs; returns the output of `jetwatt history --json`.

    Args:
        files: results files, or folders of them, in any order.
        since: leave out profiles stored before that day.
        threshold: the tolerance, as a share: smaller changes of level do not count as worse; None for that of the board
            (`doctor --accept`), else 2 %. The command takes percent.
        include_flagged: include profiles flagged disturbed or throttled.
        index: where to keep what was read of each night, so that the next call reads new nights only: True for a file
            in each folder, and nothing for single files; a file; False for nowhere.

    Raises:
        HarnessError: a named file cannot be read, or there are no profiles.
    """
    named = [files] if isinstance(files, (str, Path)) else files
    kept = index if isinstance(index, bool) else Path(index)
    histories = read_history([Path(path) for path in named], include_flagged, since, threshold, kept)
    return plain_histories(histories)


def check_baseline(
    results: PathLike,
    baseline: PathLike,
    *,
    threshold: Optional[float] = None,
    last: Optional[int] = None,
    include_flagged: bool = False,
    by: Union[str, Sequence[str]] = (),
) -> pd.DataFrame:
    """Compare the profiles of a results file with a baseline, as `jetwatt baseline check` does.

    Args:
        results: the results file.
        baseline: a file of `record_baseline`.
        threshold: the tolerance, as a share by which a median may rise; None for that of the board (`doctor
            --accept`), else of each quantity. The command takes percent.
        last: use the newest runs of each case, this many.
        include_flagged: include profiles flagged disturbed or throttled.
        by: conditions that may differ: `"torch"`, or a list.

    Returns:
        A row for each compared quantity of a case, or for a case that was not compared, then rows for workloads and
        overall: `case` (or the workload, or `overall`), `figure`, `status` (the verdict), `ratio` of now to the
        baseline with its interval `ratio_low` to `ratio_high`, `notes`, and `scope` (`cases`, `workloads`, `overall`).

    Raises:
        HarnessError: a file cannot be read, or the threshold is invalid.
    """
    import pandas as pd

    with ResultsStore(Path(results), read_only=True) as store:
        verdicts = check(store, Path(baseline), threshold, last, include_flagged, listed(by))
    rows = []
    for verdict in verdicts:
        change = verdict.change
        ratio = (None, None, None) if change is None else (change.ratio, change.low, change.high)
        rows.append((verdict.name, verdict.figure, verdict.status, *ratio, "; ".join(verdict.notes), verdict.scope))
    columns = ["case", "figure", "status", "ratio", "ratio_low", "ratio_high", "notes", "scope"]
    return pd.DataFrame(rows, columns=columns)


def check_requirements(
    results: PathLike,
    requirements: PathLike,
    *,
    last: Optional[int] = None,
    include_flagged: bool = False,
) -> pd.DataFrame:
    """Judge the profiles of a results file by requirements, as `jetwatt check` does.

    Args:
        results: the results file.
        requirements: a TOML file with limits of figures.
        last: use the newest runs of each case, this many.
        include_flagged: include profiles flagged disturbed or throttled.

    Returns:
        A row for each limit of each case that a requirement selects, then one for each requirement that no case met:
        `case`, `requirement` (where it stands), `figure`, `status` (`PASS`, `FAIL`, `INCONCLUSIVE`, `NO CASE`),
        `limit`, `value` with its interval `low` to `high` (in the unit that ends the figure's name; `high` is missing
        if it is not bounded), `runs`, `minibatches`, `missing` (how many minibatches more would decide), `provenance`
        and `notes`.

    Raises:
        HarnessError: a file cannot be read, or a requirement has an unknown key or an implausible limit.
    """
    import pandas as pd

    verdicts = check_file(Path(results), Path(requirements), include_flagged, last)
    rows = [verdict._replace(notes="; ".join(verdict.notes)) for verdict in verdicts]  # type: ignore[arg-type]
    return pd.DataFrame(rows, columns=RequirementVerdict._fields)

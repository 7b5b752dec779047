"""`compare` and `history`: what changed between two sides, and over many runs, as plain values."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Union

from harness.judge.compare import DEFAULT_THRESHOLD, compare_files
from harness.judge.compare import to_json as comparison_json
from harness.judge.history import read_history
from harness.judge.history import to_json as history_json

PathLike = Union[str, Path]


def compare(
    before: PathLike,
    after: PathLike,
    *,
    by: Sequence[str] = (),
    threshold: float = DEFAULT_THRESHOLD,
    fastest: bool = False,
    include_flagged: bool = False,
) -> Dict[str, Any]:
    """What `jetwatt compare --json` prints of two results files, or JSON files of pytest-benchmark.

    Args:
        before: one side.
        after: the other.
        by: conditions that may differ because they are the question: `["torch"]`.
        threshold: a change below this share is none; the command takes percent.
        fastest: compare the fast minibatches of the fast runs, for machines that others share.
        include_flagged: keep profiles that were flagged disturbed or throttled.

    Raises:
        HarnessError: a file cannot be read, or the threshold is none.
    """
    return json.loads(
        comparison_json(compare_files(Path(before), Path(after), by, threshold, fastest, include_flagged))
    )


def history(
    files: Union[PathLike, Sequence[PathLike]],
    *,
    since: Optional[datetime.date] = None,
    threshold: float = DEFAULT_THRESHOLD,
    include_flagged: bool = False,
) -> Dict[str, Any]:
    """What `jetwatt history --json` prints: each case over many runs, and since when it is slower or draws more.

    Args:
        files: results files, or folders of them, in any order.
        since: leave out what was stored before that day.
        threshold: a change of level below this share is none; the command takes percent.
        include_flagged: keep profiles that were flagged disturbed or throttled.

    Raises:
        HarnessError: a file that was named cannot be read, or there is no profile.
    """
    named = [files] if isinstance(files, (str, Path)) else files
    return json.loads(history_json(read_history([Path(one) for one in named], include_flagged, since, threshold)))

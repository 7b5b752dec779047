"""Which threshold a comparison has: the one given, else that of the board, else the default."""

from __future__ import annotations

from typing import List, Optional, Sequence

from harness.core.board_threshold import BoardThreshold
from harness.judge.pairs import Pair
from harness.judge.quantities import QUANTITIES, JudgedQuantity
from harness.judge.sides import CaseRuns


def allowed_share(pairs: Sequence[Pair], quantity: JudgedQuantity, given: Optional[float], default: float) -> float:
    """The share below which a change of these pairs is none; the largest of theirs."""
    if given is not None:
        return given
    return max((_share(each, quantity, default) for each in pairs), default=default)


def _share(case_pair: Pair, quantity: JudgedQuantity, default: float) -> float:
    carried = [side.threshold.shares for side in case_pair.sides if side.threshold is not None]
    return max((shares[quantity.column] for shares in carried if quantity.column in shares), default=default)


def describe_thresholds(pairs: Sequence[Pair], given: Optional[float], default: str) -> str:
    """The thresholds in words, with where those of boards come from; `default` is the text of all others."""
    boards = [] if given is not None else board_thresholds(pairs)
    if not boards:
        return default
    return "; ".join([*(_words(threshold) + _doubt(threshold, pairs) for threshold in boards), f"otherwise {default}"])


def board_thresholds(pairs: Sequence[Pair]) -> List[BoardThreshold]:
    """The thresholds that the compared profiles carry, each once."""
    carried = [side.threshold for side in _compared_sides(pairs) if side.threshold is not None]
    return [threshold for place, threshold in enumerate(carried) if threshold not in carried[:place]]


def _compared_sides(pairs: Sequence[Pair]) -> List[CaseRuns]:
    return [side for case_pair in pairs if case_pair.is_compared for side in case_pair.sides]


def _words(threshold: BoardThreshold) -> str:
    own = [(quantity.name, threshold.shares.get(quantity.column)) for quantity in QUANTITIES]
    shares = ", ".join(f"{name} {share:.1%}" for name, share in own if share is not None)
    return f"{shares} on {threshold.board} ({threshold.origin})"


def _doubt(threshold: BoardThreshold, pairs: Sequence[Pair]) -> str:
    """A remark where profiles have other software than the threshold was measured with."""
    sides = [side for side in _compared_sides(pairs) if side.threshold == threshold]
    for name, version in threshold.software.items():
        others = {side.conditions.get(name) for side in sides} - {version, None}
        if version and others:
            now = ", ".join(sorted(map(str, others)))
            return f", measured with {name} {version}, not {now}: repeat it with jetwatt doctor --accept=again"
    return ""

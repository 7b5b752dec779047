"""Which threshold a comparison has: the one given, else that of the board, else the default."""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

from harness.core.board_threshold import BoardThreshold
from harness.judge.pairs import Pair
from harness.judge.quantities import QUANTITIES, JudgedQuantity

CarriedThreshold = Tuple[BoardThreshold, Mapping[str, Any]]
"""A threshold that profiles carry, and their versions of software by name."""


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
    return describe_carried([] if given is not None else _carried(pairs), default)


def describe_carried(carried: Sequence[CarriedThreshold], default: str) -> str:
    """The thresholds of boards in words, each once; `default` is the text of all others."""
    boards = distinct(threshold for threshold, _ in carried)
    if not boards:
        return default
    words = [
        _words(board) + _doubt(board, [own for threshold, own in carried if threshold == board]) for board in boards
    ]
    return "; ".join([*words, f"otherwise {default}"])


def board_thresholds(pairs: Sequence[Pair]) -> List[BoardThreshold]:
    """The thresholds that the compared profiles carry, each once."""
    return distinct(threshold for threshold, _ in _carried(pairs))


def distinct(thresholds: Iterable[BoardThreshold]) -> List[BoardThreshold]:
    """Each threshold once, in their order; they have dictionaries and cannot be hashed."""
    listed: List[BoardThreshold] = []
    for threshold in thresholds:
        if threshold not in listed:
            listed.append(threshold)
    return listed


def _carried(pairs: Sequence[Pair]) -> List[CarriedThreshold]:
    sides = [side for case_pair in pairs if case_pair.is_compared for side in case_pair.sides]
    return [(side.threshold, side.conditions) for side in sides if side.threshold is not None]


def _words(threshold: BoardThreshold) -> str:
    own = [(quantity.name, threshold.shares.get(quantity.column)) for quantity in QUANTITIES]
    shares = ", ".join(f"{name} {share:.1%}" for name, share in own if share is not None)
    return f"{shares} on {threshold.board} ({threshold.origin})"


def _doubt(threshold: BoardThreshold, versions: Sequence[Mapping[str, Any]]) -> str:
    """A remark where profiles have other software than the threshold was measured with."""
    for name, version in threshold.software.items():
        others = {own.get(name) for own in versions} - {version, None}
        if version and others:
            now = ", ".join(sorted(map(str, others)))
            return f", measured with {name} {version}, not {now}: repeat it with jetwatt doctor --accept=again"
    return ""

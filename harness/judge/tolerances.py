"""Which tolerance a comparison has: the one given, else the threshold of the board, else the default."""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.core.board_threshold import BoardThreshold
from harness.core.errors import InvalidValueError
from harness.core.units import share_to_percent
from harness.judge.pairs import Pair
from harness.judge.quantities import QUANTITIES, GatedQuantity

CarriedThreshold = Tuple[BoardThreshold, Mapping[str, Any]]
"""A threshold that profiles carry, and their versions of software by name."""


class Tolerance(NamedTuple):
    """How large a change may be: the given share, else that of the board, else the default."""

    given: Optional[float] = None  # a share, for all quantities
    default: Optional[float] = None  # a share, for all quantities; None for each one's `GatedQuantity.tolerance`

    def check(self) -> None:
        """InvalidValueError for a given share below 0."""
        if self.given is not None and not self.given >= 0:
            raise InvalidValueError(f"the threshold must be 0 or more, got {share_to_percent(self.given):g} %")

    def share(self, pairs: Sequence[Pair], quantity: GatedQuantity) -> float:
        """The share of these pairs; the largest of theirs."""
        if self.given is not None:
            return self.given
        default = quantity.tolerance if self.default is None else self.default
        return max((_share(each, quantity, default) for each in pairs), default=default)

    def boards(self, pairs: Sequence[Pair]) -> List[BoardThreshold]:
        """Those of boards that are in use, each once."""
        return distinct(threshold for threshold, _ in self._carried(pairs))

    def describe(self, pairs: Sequence[Pair] = ()) -> str:
        """The shares in words, with where those of boards come from."""
        share = self.default if self.given is None else self.given
        if share is not None:
            return describe_carried(self._carried(pairs), f"{share:.1%}")
        of_quantities = ", ".join(f"{quantity.name} {quantity.tolerance:.1%}" for quantity in QUANTITIES)
        return describe_carried(self._carried(pairs), of_quantities)

    def _carried(self, pairs: Sequence[Pair]) -> List[CarriedThreshold]:
        if self.given is not None:
            return []
        sides = [side for case_pair in pairs if case_pair.is_compared for side in case_pair.sides]
        return [(side.threshold, side.conditions) for side in sides if side.threshold is not None]


def _share(case_pair: Pair, quantity: GatedQuantity, default: float) -> float:
    carried = [side.threshold.shares for side in case_pair.sides if side.threshold is not None]
    return max((shares[quantity.column] for shares in carried if quantity.column in shares), default=default)


def describe_carried(carried: Sequence[CarriedThreshold], default: str) -> str:
    """The thresholds of boards in words, each once; `default` is the text of all others."""
    boards = distinct(threshold for threshold, _ in carried)
    if not boards:
        return default
    words = [
        _words(board) + _doubt(board, [own for threshold, own in carried if threshold == board]) for board in boards
    ]
    return "; ".join([*words, f"otherwise {default}"])


def distinct(thresholds: Iterable[BoardThreshold]) -> List[BoardThreshold]:
    """Each threshold once, in their order; they have dictionaries and cannot be hashed."""
    listed: List[BoardThreshold] = []
    for threshold in thresholds:
        if threshold not in listed:
            listed.append(threshold)
    return listed


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

"""The profiles of one device as a take-away asks for them: cases that differ in one thing and agree in all others."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from harness.core.cases import AXES, TRAINING, Case
from harness.judge.evidence import WARM, Evidence
from harness.judge.findings import Cell, Drawn
from harness.stats.estimates import Estimate, drawn, quotient
from harness.stats.noise import RunNoise

_SETTINGS = ("cache", "data_scale", "clocks")
FIELDS = (*(axis for axis in AXES if axis != "device"), *_SETTINGS, "task")
"""What tells the cases of a device apart."""


def fields_of(case: Case) -> Dict[str, Any]:
    """What tells a case from others of its device."""
    return {name: getattr(case.settings if name in _SETTINGS else case, name) for name in FIELDS}


class View:
    """The pooled evidence of one device.

    Attributes:
        device: its name.
        evidence: one for each case.
        left_out: the same of what was disturbed or throttled; no figure is taken from it.
    """

    def __init__(self, device: str, evidence: Iterable[Evidence]) -> None:
        """Take the evidence of `device`, one for each case; that of others is not looked at.

        Where a workload was run with a data set of a size that was asked for, cases with the small default set say
        nothing more: their epochs are so short that how they begin and end is much of them.
        """
        self.device = device
        every = [one for one in evidence if one.case.device == device]
        self.left_out = [one for one in every if one.is_left_out]
        own = [one for one in every if not one.is_left_out]
        sized = {_kind(one.case) for one in own if one.case.settings.data_scale is not None} - {None}
        self.evidence = [one for one in own if one.case.settings.data_scale is not None or _kind(one.case) not in sized]
        self._by_fields = {self._place(fields_of(one.case)): one for one in self.evidence}

    @property
    def provenance(self) -> str:
        """Of its profiles."""
        return (self.evidence or self.left_out)[0].provenance

    @property
    def board(self) -> str:
        """What kind of device it is, instances alike."""
        return (self.evidence or self.left_out)[0].board

    @property
    def held_down(self) -> Tuple[str, ...]:
        """The storage whose reads were held to a limit: slow media that were made of fast ones, for want of a disk."""
        limited = {one.case.storage for one in self.evidence if one.conditions.get("storage_limit_bytes_per_s")}
        return tuple(sorted(limited))

    @property
    def run_noise(self) -> Mapping[str, RunNoise]:
        """How much runs differ, for each quantity."""
        return self.evidence[0].run_noise if self.evidence else {}

    @staticmethod
    def _place(fields: Mapping[str, Any]) -> Tuple[Any, ...]:
        return tuple(fields[name] for name in FIELDS)

    def where(self, **wanted: Any) -> List[Evidence]:
        """Evidence whose cases have these fields; training unless another task is asked for.

        A tuple stands for any of its values.
        """
        asked = {"task": TRAINING, **wanted}
        return [one for one in self.evidence if _has(fields_of(one.case), asked)]

    def figures(self, quantity: str, phase: str = WARM, **wanted: Any) -> List[Cell]:
        """A quantity of every case that has it and these fields."""
        return [
            Cell(_label(one.case), one.figures[quantity, phase])
            for one in self.where(**wanted)
            if (quantity, phase) in one.figures
        ]

    def compare(
        self,
        quantity: str,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        *,
        phase: str = WARM,
        phases: Optional[Tuple[str, str]] = None,
        per_sample: bool = False,
        where: Callable[[Evidence], bool] = lambda one: True,
        **wanted: Any,
    ) -> List[Cell]:
        """After / before of every two cases that have these fields and agree in all that is not named.

        Args:
            quantity: of `Evidence.figures`.
            before: fields of the first in which the two differ, such as `{"workers": 0}`.
            after: those of the second, such as `{"workers": 4}`.
            phase: of both.
            phases: instead, of each: cold and warm epochs of the same profile are compared with empty fields.
            per_sample: divide by the batch size, where that differs: what an epoch costs.
            where: what else is asked of the second.
            wanted: fields that both have.
        """
        first_phase, second_phase = phases or (phase, phase)
        cells = []
        for one in self.where(**{**wanted, **before}):
            other = self._by_fields.get(self._place({**fields_of(one.case), **after}))
            if other is None or not where(other):
                continue
            low, high = one.figures.get((quantity, first_phase)), other.figures.get((quantity, second_phase))
            if low is None or high is None:
                continue
            ratio = quotient(low, high)
            if per_sample:
                ratio = ratio._replace(value=ratio.value * one.case.batch_size / other.case.batch_size)
            cells.append(Cell(_label(other.case), ratio))
        return cells

    def drawn(
        self,
        label: str,
        evidence: Sequence[Evidence],
        quantities: Sequence[str],
        statistic: Callable[..., float],
    ) -> List[Drawn]:
        """A statistic of several cases' figures, with draws by their noise; none where a figure is missing.

        Args:
            label: of what, in short.
            evidence: the cases.
            quantities: what of them; `statistic` is given an array of each.
            statistic: of those.
        """
        found: List[List[Estimate]] = []
        for name in quantities:
            means = [one.figures.get((name, WARM)) for one in evidence]
            if not means or None in means:
                return []
            found.append([mean for mean in means if mean is not None])
        return [draw_statistic(f"{self.device} {label}", found, statistic)]


def draw_statistic(label: str, means: Sequence[Sequence[Estimate]], statistic: Callable[..., float]) -> Drawn:
    """A statistic of some means, and of means drawn by their noise; the same for the same label."""
    return Drawn(label, *drawn(label, means, statistic))


def quotient_of(first: Sequence[Cell], second: Sequence[Cell], label: str) -> List[Cell]:
    """Second / first, where there is one of each: how much more one ratio is than another one."""
    if len(first) != 1 or len(second) != 1:
        return []
    return [Cell(label, quotient(first[0].mean, second[0].mean))]


def _kind(case: Case) -> Optional[Tuple[str, str, str]]:
    """Cases that a data set's size matters to alike; None where the cache is warm and it does not matter."""
    return None if case.settings.cache == WARM else (case.task, case.workload, case.settings.cache)


def _has(fields: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        fields[name] in value if isinstance(value, tuple) else fields[name] == value for name, value in wanted.items()
    )


def _label(case: Case) -> str:
    """A case's id without its device."""
    return case.id[len(case.device) + 1 :]

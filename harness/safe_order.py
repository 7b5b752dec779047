"""The order of a run's cases: where clocks of a device can only be lowered, CPU and GPU clocks never rise (C11)."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence, TypeVar

from harness.core.cases import Case
from harness.core.mode_orders import AS_GIVEN, SAFE, order_passes
from harness.core.power_modes import PowerMode

Item = TypeVar("Item")
CaseOf = Callable[[Item], Optional[Case]]
ModeOf = Callable[[Case], PowerMode]


def in_safe_order(
    items: Sequence[Item], case_of: CaseOf, clocks_only_fall: Callable[[str], bool], mode_of: ModeOf
) -> List[Item]:
    """Put the cases of devices whose clocks only fall into an order with the fewest passes and few switches.

    Args:
        items: what is run; what has no case, and the cases of other devices, keep their places.
        case_of: the case of an item; None for what is none.
        clocks_only_fall: whether that holds for the device of this name.
        mode_of: the power mode of a case.
    """
    ordered = list(items)
    for places in _places(items, case_of, clocks_only_fall).values():
        passes = order_passes([items[place] for place in places], SAFE, lambda item: mode_of(case_of(item)))
        for place, item in zip(places, (item for one in passes for item in one)):
            ordered[place] = item
    return ordered


def passes_needed(
    items: Sequence[Item], case_of: CaseOf, clocks_only_fall: Callable[[str], bool], mode_of: ModeOf
) -> Dict[str, int]:
    """How often a clock rises in this order, and once more, for each device whose clocks only fall: passes over it."""
    return {
        device: len(order_passes([items[place] for place in places], AS_GIVEN, lambda item: mode_of(case_of(item))))
        for device, places in _places(items, case_of, clocks_only_fall).items()
    }


def _places(items: Sequence[Item], case_of: CaseOf, clocks_only_fall: Callable[[str], bool]) -> Dict[str, List[int]]:
    """Where the cases of each device stand whose clocks only fall."""
    places: Dict[str, List[int]] = {}
    for place, case in enumerate(map(case_of, items)):
        if case is not None:
            places.setdefault(case.device, []).append(place)
    return {device: found for device, found in places.items() if clocks_only_fall(device)}

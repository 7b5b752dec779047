"""Which CPUs share a physical core, and which of them to use for a given core count."""

from __future__ import annotations

import os
from typing import Collection, Dict, List, Mapping, Sequence

from harness.board.kernel_file import read_setting
from harness.core.errors import InvalidValueError


def parse_cpu_list(text: str) -> List[int]:
    """The kernel's list format: `0-3,8,10-11`; an empty text is no CPU.

    Raises:
        ValueError: the text is not of that form.
    """
    cpus: List[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def read_siblings(cpus: Collection[int], root: str) -> Dict[int, List[int]]:
    """For each CPU those that share its physical core, itself among them.

    A CPU whose topology the kernel does not show counts as a core of its own.
    """
    siblings = {}
    for cpu in cpus:
        path = os.path.join(root, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings[cpu] = parse_cpu_list(read_setting(path)) if os.path.exists(path) else [cpu]
    return siblings


def choose_cpus(count: int, siblings: Mapping[int, Sequence[int]]) -> List[int]:
    """Pick CPUs, one of each physical core before the second thread of any.

    Args:
        count: how many.
        siblings: each CPU that may be used, with those that share its core (as from `read_siblings`).

    Returns:
        `count` CPU numbers, ascending.

    Raises:
        InvalidValueError: `count` is below 1 or above the number of CPUs.
    """
    if not 1 <= count <= len(siblings):
        raise InvalidValueError(
            f"a core count of {count} is not possible here", f"1 to {len(siblings)} CPUs may be used"
        )
    usable_before = {cpu: sum(other < cpu and other in siblings for other in siblings[cpu]) for cpu in siblings}
    return sorted(sorted(siblings, key=lambda cpu: (usable_before[cpu], cpu))[:count])

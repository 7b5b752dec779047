"""How much runs of one case differ on a device, for each quantity: learned from its repeated cases, else assumed.

A machine that many things run on differs from run to run by far more than a board whose clocks are held. One run shows
nothing of that; a case that was repeated, as `test_variability.py` repeats some, tells it for all cases of a device.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

from harness.core.boards import BOARDS
from harness.stats.means import ANY_MACHINE, BOARD, BOARD_POWER, Mean, RunNoise, learned

Figures = Mapping[Tuple[str, str], Mean]
"""(quantity, phase) to its mean, of one run."""

TIME, POWER = "time", "power"
OF_POWER = (POWER, "energy")

UNSTEADY_BOARDS = {"xavier-nx": BOARD._replace(share=0.015)}
"""On NX epoch times deviate by up to 5 % (004 sec. 5.4.1), where AGX and Nano have 1 %: three times the noise."""


def noise_of(board: str, cases: Sequence[Sequence[Figures]]) -> Dict[str, RunNoise]:
    """The noise between runs of each quantity that the profiles of a device have.

    Cold and warm epochs are taken together. A quantity that was in no repeated case is taken to differ as times do,
    or as power does, where that is known to be more than is assumed.

    Args:
        board: what kind of device it is.
        cases: of each case the figures of its runs.
    """
    found: Dict[str, RunNoise] = {}
    for quantity in sorted({name for runs in cases for run in runs for name, _ in run}):
        found[quantity] = learned(_groups(cases, quantity), assumed(board, quantity))
    for quantity, noise in found.items():
        alike = found.get(POWER if quantity in OF_POWER else TIME)
        if not noise.repetitions and alike is not None and alike.share > noise.share:
            found[quantity] = alike
    return found


def told(noise: Mapping[str, RunNoise]) -> str:
    """The noise of times, and of power where there is any, in words, with where each is from."""
    return ", ".join(
        f"{name} {noise[name].share:.1%} ({_origin(noise[name])})" for name in (TIME, POWER) if name in noise
    )


def _origin(noise: RunNoise) -> str:
    return f"learned from {noise.repetitions} repetitions" if noise.repetitions else "assumed"


def assumed(board: str, quantity: str) -> RunNoise:
    """What is known of such a device before any of its cases was repeated."""
    if board not in BOARDS:
        return ANY_MACHINE
    return BOARD_POWER if quantity in OF_POWER else UNSTEADY_BOARDS.get(board, BOARD)


def _groups(cases: Sequence[Sequence[Figures]], quantity: str) -> List[List[Mean]]:
    """The means of a quantity, of each case and phase those of its runs."""
    groups = []
    for runs in cases:
        for name in dict.fromkeys(name for run in runs for name in run if name[0] == quantity):
            groups.append([run[name] for run in runs if name in run])
    return groups

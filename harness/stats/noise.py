"""How much runs of the same case differ: a prior for each kind of device, updated by its repeated cases.

A machine that many things run on differs from run to run by far more than a board whose clocks are held. One run shows
nothing of that, so every estimate starts from a prior, worth a number of runs, and learns from repeated cases: the
posterior of a variance [1, ch. 3], with moderated variances for single cases [2].

References:
    [1] A. Gelman et al.: Bayesian Data Analysis. CRC Press, 3rd ed. 2013.
    [2] G. Smyth: Linear models and empirical Bayes methods for assessing differential expression in microarray
        experiments. Statistical Applications in Genetics and Molecular Biology 3(1), 2004.
"""

from __future__ import annotations

import math
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from harness.core.boards import is_board, type_of
from harness.stats.estimates import CONFIDENCE, Estimate, geometric_mean

TIME, POWER, PEAK_MEMORY = "time", "power", "peak_memory"
OF_POWER = (POWER, "energy")

Figures = Mapping[Tuple[str, str], Estimate]  # (quantity, phase) to its estimate, of one run


class RunNoise(NamedTuple):
    share: float  # standard deviation between runs, of the logarithm: as a share of the figure
    dof: int  # degrees of freedom behind it
    repetitions: int = 0  # how many runs beside the first of a case it was learned from; 0 for a prior

    def __str__(self) -> str:
        origin = f"learned from {self.repetitions} repetitions" if self.repetitions else "assumed"
        return f"{self.share:.1%} ({origin})"


BOARD = RunNoise(0.005, 20)
"""Of times on a board with static clocks: on AGX Xavier and Nano the epoch times of 15 h deviate by 1 % at most, two
standard deviations (004 sec. 5.4.1). Worth many runs: it comes from hundreds of epochs, but of other cases."""

UNSTEADY_BOARDS = {"xavier-nx": BOARD._replace(share=0.015)}
"""On NX epoch times deviate by up to 5 % (004 sec. 5.4.1), where AGX and Nano have 1 %: three times the noise."""

BOARD_POWER = RunNoise(0.01, 20)  # the same of power: the tables of Orin AGX (001) repeat to within about 1 %

OF_MEMORY = RunNoise(0.02, 10)
"""Of peak memory on any machine: the same tensors each run; allocators and the time of samples differ. Chosen."""

ANY_MACHINE = RunNoise(0.05, 4)
"""The prior of any other machine: worth little, so that few repetitions outweigh it. On a shared virtual
machine of two cores, cases repeated within a run came out 5 to 7 % apart, over ten runs 11 to 14 % (standard
deviations)."""


def prior(device: str, quantity: str = TIME) -> RunNoise:
    """The noise between runs before any repetition, by a device's type or name; `ANY_MACHINE` unless it is a board."""
    if quantity == PEAK_MEMORY:
        return OF_MEMORY
    board = type_of(device)
    if not is_board(board):
        return ANY_MACHINE
    return BOARD_POWER if quantity in OF_POWER else UNSTEADY_BOARDS.get(board, BOARD)


POWER_OF_TEST = 0.8  # probability of detecting a change with `runs_needed` runs


def learn(groups: Iterable[Sequence[Estimate]], prior_noise: RunNoise) -> RunNoise:
    """The noise between runs, that within them included, from cases that were repeated.

    The greater of what repetitions show and of what they make of the prior: more than others have is believed at once.
    """
    squares, repetitions = 0.0, 0
    for runs in groups:
        logs = np.log([each.value for each in runs])
        squares += float(np.sum((logs - logs.mean()) ** 2))
        repetitions += len(runs) - 1
    if not repetitions:
        return prior_noise
    dof = repetitions + prior_noise.dof
    variance = max(squares / repetitions, (squares + prior_noise.dof * prior_noise.share**2) / dof)
    return RunNoise(math.sqrt(variance), dof, prior_noise.repetitions + repetitions)


def runs_needed(change: float, noise: RunNoise) -> int:
    """How many runs a side tell a change of this share from noise, by Student's t, four times out of five."""
    from scipy.stats import t

    for count in range(1, 1000):
        dof = noise.dof + 2 * (count - 1)
        error = noise.share * math.sqrt(2 / count)
        if (t.ppf((1 + CONFIDENCE) / 2, dof) + t.ppf(POWER_OF_TEST, dof)) * error <= math.log1p(change):
            return count
    return 1000


def over_runs(estimates: Sequence[Estimate], noise: Optional[RunNoise]) -> Estimate:
    """The figure of a case over its runs, with the noise between runs where `noise` is given."""
    if noise is None:
        return geometric_mean(estimates)
    return geometric_mean(estimates).with_noise(noise.share / math.sqrt(len(estimates)), noise.dof)


def noise_of(board: str, cases: Sequence[Sequence[Figures]]) -> Dict[str, RunNoise]:
    """The noise between runs of each quantity, cold and warm epochs together.

    A quantity without repeated cases takes the noise of times or of power, where that exceeds its prior; peak memory,
    which what else runs does not change, keeps its own.
    """
    learned: Dict[str, RunNoise] = {}
    for quantity in sorted({name for runs in cases for run in runs for name, _ in run}):
        groups: List[List[Estimate]] = []
        for runs in cases:
            for name in dict.fromkeys(name for run in runs for name in run if name[0] == quantity):
                groups.append([run[name] for run in runs if name in run])
        learned[quantity] = learn(groups, prior(board, quantity))
    for quantity, noise in learned.items():
        if quantity == PEAK_MEMORY:
            continue
        alike = learned.get(POWER if quantity in OF_POWER else TIME)
        if not noise.repetitions and alike is not None and alike.share > noise.share:
            learned[quantity] = alike
    return learned


def describe_noise(noise: Mapping[str, RunNoise]) -> str:
    """The noise of times, and of power where there is any, in words, with where each is from."""
    return ", ".join(f"{name} {noise[name]}" for name in (TIME, POWER) if name in noise)

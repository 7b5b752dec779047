"""Claims that no campaign can show: checks of the simulation's model (`baselines/published/unjudged.csv`)."""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import msgspec
import numpy as np

from harness.core.power_modes import PowerMode
from harness.core.units import MS_PER_S, S_PER_HOUR, mw_to_w
from harness.judge.published_figures import FIGURES_FILE, Condition
from harness.simulation.model import idle_power_mw
from tools.measured_tables import BUDGETS_W
from tools.simulated_answers import BOARD, WORKLOAD, Boards, find_modes

UNJUDGED_FILE = FIGURES_FILE.with_name("unjudged.csv")

LENET, MOBILENET = "lenet-mnist", "mobilenetv3-gld23k"
XAVIER, NX, NANO = "xavier-agx", "xavier-nx", "nano"
PROFILED = (
    Condition("orin-agx", "resnet18-imagenet", "grid:paper"),
    Condition("orin-agx", MOBILENET, "grid:paper"),
    Condition("orin-agx", "yolov8n-coco", "grid:paper", workers=0),
)
"""What 001 profiled in every mode."""

DRAWN, DRAWS = 50, 10


class ClaimResult(NamedTuple):
    """A claim, what simulated boards say to it, and why it is known not to hold; None if it should."""

    name: str  # of the claim
    facts: Tuple[str, ...]  # ids of the papers' statements
    says: str  # what is claimed and how it is judged
    holds: bool  # whether simulated boards behave so
    found: str  # the figures that say so
    shortfall: Optional[str]  # why they are known not to
    is_as_known: bool  # whether it holds, or does not hold as is on record


def load_statements() -> List[Any]:
    """The statements of papers that no profile answers; `check` names a function of this module, or is empty."""
    import pandas as pd

    return list(pd.read_csv(UNJUDGED_FILE, dtype=str, keep_default_na=False).itertuples(index=False))


def check_model() -> List[ClaimResult]:
    boards, known, results = Boards(), load_statements(), []
    for check in CHECKS:
        statements = [one for one in known if one.check == check.__name__]
        holds, found = check(boards)
        shortfall = next((one.shortfall for one in statements if one.shortfall), None)
        says = " ".join((check.__doc__ or "").split())
        facts = tuple(one.fact for one in statements)
        as_known = bool(holds) == (shortfall is None)
        results.append(ClaimResult(check.__name__, facts, says, bool(holds), found, shortfall, as_known))
    return results


Outcome = Tuple[bool, str]  # whether a claim holds, and the figures that say so


def _value(boards: Boards, metric: str, condition: Condition) -> float:
    return float(boards.values(condition, metric)[0])


def _listed(numbers: List[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def _default(board: str) -> PowerMode:
    return PowerMode(*map(int, find_modes(board, "default").table[0]))


def wake_on_lan_of_the_model_draws_least(boards: Boards) -> Outcome:
    """At the socket, every board that has Wake on LAN draws less than half of what it draws in any other idle state."""
    ratios = []
    for name in (XAVIER, NX, NANO):
        board, mode = boards.of(BOARD, name), _default(name)
        others = [idle_power_mw(board, mode, state, socket=True) for state in ("logging", "clean", "dvfs")]
        ratios.append(idle_power_mw(board, mode, "wol", socket=True) / min(others))
    return max(ratios) < 0.5, f"Wake on LAN over the next on AGX, NX, Nano: {_listed(ratios)}"


def waking_for_a_job_saves_energy(boards: Boards) -> Outcome:
    """One LeNet epoch an hour on Nano, suspended between them, takes less than half of the energy of staying up."""
    condition = Condition(NANO, LENET, "default", storage="sd")
    hours = _value(boards, "epoch_time", condition) / MS_PER_S / S_PER_HOUR
    board, mode = boards.of(BOARD, NANO), _default(NANO)
    training = _value(boards, "power", condition) * hours
    up, asleep = (
        training + (1.0 - hours) * idle_power_mw(board, mode, state, socket=True) for state in ("dvfs", "wol")
    )
    return asleep < 0.5 * up, f"suspended over up {asleep / up:.3g}"


def a_larger_model_leaves_less_cache_and_stalls_more(boards: Boards) -> Outcome:
    """With 1 GB more RAM held by the model, NX caches less of a quarter of GLD and stalls longer on an HDD."""
    small = boards.of(WORKLOAD, MOBILENET)
    large = msgspec.structs.replace(small, model_bytes=small.model_bytes + 1e9)
    both = [Boards({**boards.parameters, (WORKLOAD, MOBILENET): workload}, rough=False) for workload in (small, large)]
    condition = Condition(NX, MOBILENET, "default", workers=0, data_scale=0.25)
    shares = [_value(one, "cached_share", condition) for one in both]
    stalls = [_value(one, "stall_time", condition._replace(storage="hdd")) for one in both]
    holds = shares[1] < shares[0] and stalls[1] > 1.05 * stalls[0]
    return holds, f"cached {_listed(shares)}, stall {stalls[1] / stalls[0]:.3g} of the smaller's"


def the_gpu_clock_does_not_help_what_the_cpu_binds(boards: Boards) -> Outcome:
    """At a CPU clock of 1,037 MHz, a GPU clock of 1,377 instead of 421 MHz changes LeNet's epoch by less than 5 %."""
    modes = (f"8c-1036.8-{gpu}-2133" for gpu in ("420.75", "1377"))
    slow, fast = (_value(boards, "epoch_time", Condition(XAVIER, LENET, mode)) for mode in modes)
    return abs(fast / slow - 1.0) < 0.05, f"change {100.0 * (fast / slow - 1.0):.3g} %"


def fewer_and_faster_cores_train_faster(boards: Boards) -> Outcome:
    """With 4 workers, 4 cores at 2,112 MHz train MobileNet at least as fast as 8 cores at 1,037 MHz, on AGX."""
    modes = ("4c-2112-905.25-1600", "8c-1036.8-905.25-1600")
    few, many = (_value(boards, "epoch_time", Condition(XAVIER, MOBILENET, mode)) for mode in modes)
    return few <= many, f"few and fast over many and slow {few / many:.4g}"


def a_lower_mode_saves_energy_at_a_small_penalty(boards: Boards) -> Outcome:
    """For MobileNet on AGX, some mode of the grid saves at least 10 % of MAXN's energy for at most 10 % of time."""
    maxn, grid = (Condition(XAVIER, MOBILENET, modes) for modes in ("default", "grid:paper"))
    times, energies = boards.values(grid, "epoch_time"), boards.values(grid, "energy")
    least = energies[times <= 1.10 * _value(boards, "epoch_time", maxn)].min()
    saved = 1.0 - float(least) / _value(boards, "energy", maxn)
    return saved >= 0.10, f"saves up to {100.0 * saved:.3g} % within 10 % of MAXN's time"


def random_modes_meet_budgets_but_cost_time(boards: Boards) -> Outcome:
    """Choosing the best of 50 random modes breaks no budget, but costs time.

    Over 34 budgets the median penalty is 5 to 35 % for three workloads on Orin AGX (F543: 12 to 28 %).
    """
    penalties = [
        _penalty(boards.values(one, "minibatch_time"), mw_to_w(boards.values(one, "power"))) for one in PROFILED
    ]
    return all(0.05 <= penalty <= 0.35 for penalty in penalties), f"median penalties {_listed(penalties)}"


def _penalty(times: np.ndarray, powers_w: np.ndarray) -> float:
    """Median over budgets and draws of the time of the best drawn mode over that of the best one, less one."""
    found = []
    for seed in range(DRAWS):
        drawn = np.random.Generator(np.random.PCG64(seed)).choice(len(times), DRAWN, replace=False)
        for budget in BUDGETS_W:
            mine, all_ = times[drawn][powers_w[drawn] <= budget], times[powers_w <= budget]
            if len(mine):
                found.append(float(mine.min() / all_.min() - 1.0))
    return float(np.median(found))


CHECKS: Tuple[Callable[[Boards], Outcome], ...] = (
    wake_on_lan_of_the_model_draws_least,
    waking_for_a_job_saves_energy,
    a_larger_model_leaves_less_cache_and_stalls_more,
    the_gpu_clock_does_not_help_what_the_cpu_binds,
    fewer_and_faster_cores_train_faster,
    a_lower_mode_saves_energy_at_a_small_penalty,
    random_modes_meet_budgets_but_cost_time,
)

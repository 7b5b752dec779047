"""What clocks, cores and DVFS do to time, power and energy (004 sec. 5.5 and 5.6 and its appendix, 001 sec. 1.1)."""

from __future__ import annotations

from typing import List, Optional, Sequence

import numpy as np

from harness.analysis.means import quotient
from harness.analysis.pareto import pareto_front
from harness.cases import DVFS, STATIC
from harness.devices.boards import load_board
from harness.experiments.evidence import WARM, Evidence
from harness.experiments.findings import Cell, Drawn, Finding
from harness.experiments.takeaway import CIFAR, LENET, MOBILENET, ORIN, RESNET, XAVIER, Takeaways, Views
from harness.experiments.view import View, draw_statistic

DVFS_TAKEAWAYS = Takeaways("dvfs")
TAKEAWAYS = Takeaways("power_modes")

LETTERS = "abcdefghijklmn"
"""The modes of 004 Table 3; g is MAXN."""

WORKLOADS = (CIFAR, MOBILENET, LENET)
FREE = ({"clocks": STATIC}, {"clocks": DVFS})
ENOUGH_MODES = 20
"""Fewer modes say little about the range of all."""

PROFILED = {"batch_size": 16, "storage": "ssd", "clocks": STATIC, "cache": "warm"}


@DVFS_TAKEAWAYS.of("004 5.5.1", "F1006", "F1010", boards=(XAVIER,))
def dvfs_hardly_changes_time(view: View, views: Views) -> Finding:
    """With DVFS on, no epoch takes more or less time by 5 % or more (004: within 2 %)."""
    return Finding(view.compare("time", *FREE), "time with DVFS / static clocks", above=0.95, below=1.05)


@DVFS_TAKEAWAYS.of("004 5.5.1", "F1009", "F1010", boards=(XAVIER,))
def dvfs_hardly_changes_energy(view: View, views: Views) -> Finding:
    """With DVFS on, no epoch takes more or less energy by 8 % or more (004: within 3 %)."""
    return Finding(view.compare("energy", *FREE), "energy with DVFS / static clocks", above=0.92, below=1.08)


@DVFS_TAKEAWAYS.of("002 II.1", "F598", boards=(XAVIER, ORIN))
def static_clocks_are_no_slower(view: View, views: Views) -> Finding:
    """Without DVFS training is at least as fast: with it on, no epoch is shorter by 3 % or more."""
    return Finding(view.compare("time", *FREE), "time with DVFS / static clocks", above=0.97)


def _step(view: View, quantity: str, before: str, after: str, *workloads: str, workers: int = 4) -> List[Cell]:
    """A quantity in one mode / in another one, for each workload."""
    return view.compare(
        quantity,
        {"power_mode": before},
        {"power_mode": after},
        workload=workloads or WORKLOADS,
        workers=workers,
        **PROFILED,
    )


def _modes(view: View, workload: str, letters: str = LETTERS) -> List[Evidence]:
    """The profiles of a workload in these modes, in their order; none where one of them is missing."""
    found = {
        one.case.power_mode: one
        for one in view.where(workload=workload, workers=4, power_mode=tuple(letters), **PROFILED)
    }
    return [found[letter] for letter in letters] if set(found) == set(letters) else []


def _over_modes(view: View, workload: str, quantities: Sequence[str], statistic, letters: str = LETTERS) -> List[Drawn]:
    """A statistic over the modes of a workload, with draws by their noise."""
    return view.drawn(workload, _modes(view, workload, letters), quantities, statistic)


@TAKEAWAYS.of("004 5.6.1", "F1112", boards=(XAVIER,))
def maxn_is_fastest(view: View, views: Views) -> Finding:
    """Of modes a to n, none has an epoch that is more than 6 % shorter than g's (MAXN), for three workloads."""
    cells = [cell for other in LETTERS if other != "g" for cell in _step(view, "time", "g", other)]
    return Finding(cells, "time / at MAXN", above=0.94)


@TAKEAWAYS.of("004 5.6.1", "F1114", boards=(XAVIER,))
def power_and_time_are_inverse(view: View, views: Views) -> Finding:
    """Over modes a to n, logarithms of power and time correlate by less than -0.6, for three workloads."""

    def correlation(times: np.ndarray, powers: np.ndarray) -> float:
        return float(np.corrcoef(np.log(times), np.log(powers))[0, 1])

    cells = [cell for workload in WORKLOADS for cell in _over_modes(view, workload, ("time", "power"), correlation)]
    return Finding(cells, "correlation of log power and log time", below=-0.6)


@TAKEAWAYS.of("004 5.6.1", "F1115", boards=(XAVIER,))
def lenet_has_few_points_on_its_front(view: View, views: Views) -> Finding:
    """LeNet's front of time and energy over modes a to n has at most 4 points (004: 3)."""
    cells = _over_modes(view, LENET, ("time", "energy"), lambda times, energies: len(pareto_front(times, energies)))
    return Finding([cell._replace(draws=()) for cell in cells], "points on the front", below=4.5)


@TAKEAWAYS.of("004 5.6.1", "F1113", boards=(XAVIER,))
def the_default_mode_is_on_mobilenets_front(view: View, views: Views) -> Finding:
    """Of modes a to j, mode a is on MobileNet's front of time and energy."""
    return Finding(_default_on_front(view, MOBILENET), "1 where a is on the front, 0 where not", above=0.5)


@TAKEAWAYS.of("004 5.6.1", "F1113", boards=(XAVIER,))
def the_default_mode_is_on_no_other_front(view: View, views: Views) -> Finding:
    """Of modes a to j, mode a is not on the fronts of ResNet on CIFAR and LeNet."""
    cells = [cell for workload in (CIFAR, LENET) for cell in _default_on_front(view, workload)]
    return Finding(cells, "1 where a is on the front, 0 where not", below=0.5)


def _default_on_front(view: View, workload: str) -> List[Drawn]:
    def is_on_front(times: np.ndarray, energies: np.ndarray) -> float:
        return float(0 in pareto_front(times, energies))

    return _over_modes(view, workload, ("time", "energy"), is_on_front, LETTERS[:10])


@TAKEAWAYS.of("004 5.6.3", "F1122", boards=(XAVIER,))
def maxn_costs_most_energy(view: View, views: Views) -> Finding:
    """For ResNet on CIFAR and MobileNet, no mode of a to f takes more than 1.06 of the energy of g (MAXN)."""
    cells = [cell for other in "abcdef" for cell in _step(view, "energy", "g", other, CIFAR, MOBILENET)]
    return Finding(cells, "energy / at MAXN", below=1.06)


@TAKEAWAYS.of("004 5.6.4", "F1131", boards=(XAVIER,))
def compute_of_large_networks_follows_the_gpu_clock(view: View, views: Views) -> Finding:
    """From b to c (GPU clock x 1.34) compute time of ResNet on CIFAR falls to between 0.70 and 0.85."""
    return Finding(_step(view, "compute", "b", "c", CIFAR), "compute at c / at b", above=0.70, below=0.85)


@TAKEAWAYS.of("004 5.6.5", "F1138", boards=(XAVIER,))
def beyond_four_cores_gains_little(view: View, views: Views) -> Finding:
    """From a (4 cores) to b (8), epochs of ResNet on CIFAR and MobileNet change by less than 8 %."""
    return Finding(_step(view, "time", "a", "b", CIFAR, MOBILENET), "time at b / at a", above=0.92, below=1.08)


@TAKEAWAYS.of("004 5.6.6", "F1150", boards=(XAVIER,))
def workers_compete_with_kernel_launches_for_cores(view: View, views: Views) -> Finding:
    """From 8 to 2 cores (e to f) LeNet's compute time grows by more with 4 workers than with none."""
    growth = [_step(view, "compute", "e", "f", LENET, workers=workers) for workers in (0, 4)]
    if not all(growth):
        return Finding([], "")
    return Finding(
        [Cell(f"{LENET}, e to f", quotient(growth[0][0].mean, growth[1][0].mean))],
        "growth of compute with 4 workers / with none",
        above=1.0,
    )


@TAKEAWAYS.of("004 5.6.6", "F1151", boards=(XAVIER,))
def lenet_is_best_at_high_cpu_clocks(view: View, views: Views) -> Finding:
    """Of modes a to n, LeNet's shortest epoch and least energy at the greatest CPU clock are the best within 4 %."""
    modes = _modes(view, LENET)
    clocks = np.array([one.conditions["power_mode"]["cpu_khz"] for one in modes])
    cells: List[Drawn] = []
    for quantity in ("time", "energy"):
        cells += view.drawn(
            f"{LENET} {quantity}",
            modes,
            (quantity,),
            lambda values: float(values[clocks == clocks.max()].min() / values.min()),
        )
    return Finding(cells, "best at the greatest CPU clock / best", below=1.04)


@TAKEAWAYS.of("004 5.6.7", "F1158", boards=(XAVIER,))
def the_memory_clock_matters(view: View, views: Views) -> Finding:
    """From h to g (memory clock x 2) compute time falls by at least 5 %, for three workloads."""
    return Finding(_step(view, "compute", "h", "g"), "compute at g / at h", below=0.95)


@TAKEAWAYS.of("004 A", "F1186", boards=(XAVIER,))
def the_memory_clock_does_not_dominate(view: View, views: Views) -> Finding:
    """From c to d (memory clock x 1.2) no epoch shortens by 20 % or more, and none lengthens by 5 %."""
    return Finding(_step(view, "time", "c", "d"), "time at d / at c", above=0.80, below=1.05)


@TAKEAWAYS.of("004 A", "F1187", boards=(XAVIER,))
def a_faster_memory_shortens_every_epoch(view: View, views: Views) -> Finding:
    """From h to i (memory clock x 1.25) every epoch becomes shorter, for three workloads."""
    return Finding(_step(view, "time", "h", "i"), "time at i / at h", below=1.0)


@TAKEAWAYS.of("004 A", "F1182", "F1183", boards=(XAVIER,))
def cores_matter_to_lenet(view: View, views: Views) -> Finding:
    """From f (2 cores) to e (8) LeNet's epoch and its energy fall by at least 10 %."""
    cells = [*_step(view, "time", "f", "e", LENET), *_step(view, "energy", "f", "e", LENET)]
    return Finding(cells, "time and energy at e / at f", below=0.9)


@TAKEAWAYS.of("004 A", "F1182", boards=(XAVIER,))
def cores_matter_less_to_larger_networks(view: View, views: Views) -> Finding:
    """From f (2 cores) to e (8) epochs of ResNet on CIFAR and MobileNet fall by less than LeNet's."""
    return _less_than_lenet(view, "f", "e")


@TAKEAWAYS.of("004 A", "F1184", boards=(XAVIER,))
def the_cpu_clock_matters_most_to_lenet(view: View, views: Views) -> Finding:
    """From d to e (CPU clock x 1.77) epochs of ResNet on CIFAR and MobileNet fall by less than LeNet's."""
    return _less_than_lenet(view, "d", "e")


def _less_than_lenet(view: View, before: str, after: str) -> Finding:
    lenet = _step(view, "time", before, after, LENET)
    others = _step(view, "time", before, after, CIFAR, MOBILENET)
    if not lenet:
        return Finding([], "")
    cells = [Cell(cell.label, quotient(lenet[0].mean, cell.mean)) for cell in others]
    return Finding(cells, f"time at {after} / at {before} over the same of LeNet", above=1.0)


@TAKEAWAYS.of("004 A", "F1196", boards=(XAVIER,))
def lenet_is_fast_wherever_the_cpu_is(view: View, views: Views) -> Finding:
    """LeNet's epoch in the slowest mode at 2,265 MHz is shorter than in the fastest at 1,200 MHz or less."""
    modes = _modes(view, LENET)
    clocks = np.array([one.conditions["power_mode"]["cpu_khz"] for one in modes])

    def slowest_over_fastest(times: np.ndarray) -> float:
        return float(times[clocks == clocks.max()].max() / times[clocks <= 1_200_000].min())

    cells = view.drawn(LENET, modes, ("time",), slowest_over_fastest)
    return Finding(cells, "slowest at 2,265 MHz / fastest at 1,200 MHz", below=1.0)


@TAKEAWAYS.of("004 A", "F1185", "F1197", boards=(XAVIER,))
def the_gpu_clock_matters_most_to_resnet(view: View, views: Views) -> Finding:
    """From b to c (GPU clock x 1.34) ResNet's epoch falls by more than MobileNet's, and MobileNet's than LeNet's."""
    found = [_step(view, "time", "b", "c", workload) for workload in WORKLOADS]
    if not all(found):
        return Finding([], "")
    (resnet,), (mobilenet,), (lenet,) = found
    cells = [
        Cell("MobileNet against ResNet", quotient(resnet.mean, mobilenet.mean)),
        Cell("LeNet against MobileNet", quotient(mobilenet.mean, lenet.mean)),
    ]
    return Finding(cells, "time at c / at b over the same of the next larger network", above=1.0)


@TAKEAWAYS.of("002 II.1", "F599", "F600", "F757", boards=(XAVIER,))
def kernel_launches_bind_small_networks(view: View, views: Views) -> Finding:
    """From l to m (CPU clock x 2.2) LeNet's compute time falls by at least 30 %: the CPU launches its kernels late."""
    return Finding(_step(view, "compute", "l", "m", LENET), "compute at m / at l", below=0.7)


@TAKEAWAYS.of("002 II.1", "F599", boards=(XAVIER,))
def kernel_launches_do_not_bind_large_networks(view: View, views: Views) -> Finding:
    """From l to m (CPU clock x 2.2) compute time of ResNet on CIFAR changes by less than 8 %."""
    return Finding(_step(view, "compute", "l", "m", CIFAR), "compute at m / at l", above=0.92, below=1.08)


@TAKEAWAYS.of("001 1.1", "F157", boards=(ORIN,))
def power_modes_change_time_many_fold(view: View, views: Views) -> Optional[Finding]:
    """On Orin AGX the slowest mode of the papers' range takes 8 to 45 times as long as the fastest (001: up to 36)."""
    return _range_over_modes(view, "time", 8.0, 45.0)


@TAKEAWAYS.of("001 1.1", "F158", boards=(ORIN,))
def power_modes_change_power_several_fold(view: View, views: Views) -> Optional[Finding]:
    """On Orin AGX the mode that draws most takes 2.5 to 6 times the power of the one that draws least (001: 4.3)."""
    return _range_over_modes(view, "power", 2.5, 6.0)


def _range_over_modes(view: View, quantity: str, above: float, below: float) -> Finding:
    least = min(mode.cpu_khz for _, mode in load_board(ORIN).power_modes("grid:paper"))
    found = [
        one
        for one in view.where(workload=RESNET, workers=4, **PROFILED)
        if (quantity, WARM) in one.figures and one.conditions["power_mode"]["cpu_khz"] >= least
    ]
    if len(found) < ENOUGH_MODES:
        return Finding([], "")
    means = [one.figures[quantity, WARM] for one in found]
    cell = draw_statistic(f"{RESNET}, {len(means)} modes", [means], lambda values: float(values.max() / values.min()))
    return Finding([cell], f"greatest / least {quantity}", above=above, below=below)


@TAKEAWAYS.of("001 1.1", boards=(ORIN,))
def more_power_buys_time(view: View, views: Views) -> Finding:
    """Over the profiled modes of Orin AGX, time and power are inverse: their logarithms correlate by less than -0.5."""
    found = [one for one in view.where(workload=RESNET, workers=4, **PROFILED) if ("power", WARM) in one.figures]
    if len(found) < ENOUGH_MODES:
        return Finding([], "")
    cells = view.drawn(RESNET, found, ("time", "power"), lambda t, p: float(np.corrcoef(np.log(t), np.log(p))[0, 1]))
    return Finding(cells, "correlation of log power and log time", below=-0.5)

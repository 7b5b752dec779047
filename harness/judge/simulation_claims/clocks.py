"""Claims about cores, clocks and DVFS on AGX Xavier (004 sec. 5.5 and 5.6, appendix)."""

from __future__ import annotations

from typing import Dict, List

import numpy as np

from harness.core.power_modes import PowerMode
from harness.core.units import MS_PER_S, S_PER_HOUR, mw_to_w
from harness.judge.published_figures import Condition
from harness.judge.simulation_claims.claim import (
    CIFAR,
    LENET,
    MOBILENET,
    NANO,
    NX,
    ORIN,
    XAVIER,
    Claims,
    Finding,
    listed,
    percent,
    value,
    values,
)
from harness.simulation.model import idle_power_mw
from tools.quantities import Boards, find_modes

CLAIMS = Claims()

WORKLOADS = (CIFAR, MOBILENET, LENET)
LETTERS = "abcdefghijklmn"


def _changes(boards: Boards, metric: str, before: str, after: str, workers: int = 4) -> Dict[str, float]:
    """Relative change of a quantity of each workload from one power mode to another."""
    return {
        workload: value(boards, metric, XAVIER, workload, after, workers=workers)
        / value(boards, metric, XAVIER, workload, before, workers=workers)
        - 1.0
        for workload in WORKLOADS
    }


def _all(boards: Boards, metric: str, workload: str, letters: str = LETTERS) -> np.ndarray:
    return values(boards, metric, XAVIER, workload, ",".join(letters))


def _front(times: np.ndarray, costs: np.ndarray, names: str) -> List[str]:
    """Names of the points that no other one beats in both."""
    beaten = [
        any((times <= time) & (costs <= cost) & ((times < time) | (costs < cost))) for time, cost in zip(times, costs)
    ]
    return [name for name, is_beaten in zip(names, beaten) if not is_beaten]


@CLAIMS.of("F1006", "F1009", "F1010")
def dvfs_is_negligible_in_training(boards: Boards) -> Finding:
    """With DVFS on, time of an epoch changes by less than 4 % and energy by less than 8 %, for three workloads."""
    found = {
        metric: [
            value(boards, metric, XAVIER, workload, clocks="dvfs") / value(boards, metric, XAVIER, workload) - 1.0
            for workload in WORKLOADS
        ]
        for metric in ("epoch_time", "energy")
    }
    holds = max(map(abs, found["epoch_time"])) < 0.04 and max(map(abs, found["energy"])) < 0.08
    return Finding(holds, f"time {listed(found['epoch_time'])}; energy {listed(found['energy'])}")


@CLAIMS.of("F1029")
def wake_on_lan_draws_least(boards: Boards) -> Finding:
    """At the socket, every board that has Wake on LAN draws less than half of what it draws in any other idle state."""
    ratios = []
    for name in (XAVIER, NX, NANO):
        board, mode = boards.parameters.boards[name], _default(name)
        others = [idle_power_mw(board, mode, state, socket=True) for state in ("logging", "clean", "dvfs")]
        ratios.append(idle_power_mw(board, mode, "wol", socket=True) / min(others))
    return Finding(max(ratios) < 0.5, f"Wake on LAN over the next on AGX, NX, Nano: {listed(ratios)}")


@CLAIMS.of("F1030")
def dvfs_saves_on_large_idle_boards(boards: Boards) -> Finding:
    """When idle, DVFS saves at least 2 W on Orin AGX and AGX Xavier, and less than a third of that on NX and Nano."""
    saved = {}
    for name in (ORIN, XAVIER, NX, NANO):
        board, mode = boards.parameters.boards[name], _default(name)
        saved[name] = mw_to_w(idle_power_mw(board, mode, "clean") - idle_power_mw(board, mode, "dvfs"))
    large, small = min(saved[ORIN], saved[XAVIER]), max(saved[NX], saved[NANO])
    return Finding(large >= 2.0 and small < large / 3.0, f"W saved: {listed(saved)}")


@CLAIMS.of("F1031")
def telemetry_costs_most_on_nano(boards: Boards) -> Finding:
    """Telemetry adds at most 5 % to the idle power of Orin AGX and AGX Xavier, and at least 10 % to Nano's."""
    shares = []
    for name in (ORIN, XAVIER, NANO):
        board, mode = boards.parameters.boards[name], _default(name)
        shares.append(idle_power_mw(board, mode, "logging") / idle_power_mw(board, mode, "clean") - 1.0)
    return Finding(max(shares[:2]) <= 0.05 and shares[2] >= 0.10, f"Orin, AGX, Nano: {listed(shares)}")


def _default(name: str) -> PowerMode:
    return PowerMode(*map(int, find_modes(name, "default").table[0]))


@CLAIMS.of("F1112")
def maxn_is_fastest(boards: Boards) -> Finding:
    """Of modes a to n, none has an epoch that is more than 2 % shorter than g's (MAXN), for three workloads."""
    found = {}
    for workload in WORKLOADS:
        times = _all(boards, "epoch_time", workload)
        found[workload] = float(times[LETTERS.index("g")] / times.min() - 1.0)
    return Finding(max(found.values()) <= 0.02, f"g over the shortest: {listed(found)}")


@CLAIMS.of("F1113")
def the_default_mode_is_on_mobilenets_front_only(boards: Boards) -> Finding:
    """Of modes a to j, a is on the front of time and energy for MobileNet, but not for ResNet on CIFAR nor LeNet."""
    fronts = _energy_fronts(boards, LETTERS[:10])
    return Finding([w for w in WORKLOADS if "a" in fronts[w]] == [MOBILENET], f"fronts: {_told(fronts)}")


@CLAIMS.of("F1115")
def lenet_has_few_points_on_its_front(boards: Boards) -> Finding:
    """LeNet's front of time and energy over modes a to n has at most 4 points, no more than the others' over a to j."""
    lenet, others = _energy_fronts(boards, LETTERS)[LENET], _energy_fronts(boards, LETTERS[:10])
    fewest = min(len(others[workload]) for workload in (CIFAR, MOBILENET))
    return Finding(len(lenet) <= 4 and len(lenet) <= fewest, f"LeNet {lenet}; a to j: {_told(others)}")


def _energy_fronts(boards: Boards, letters: str) -> Dict[str, str]:
    return {
        workload: "".join(
            _front(_all(boards, "epoch_time", workload, letters), _all(boards, "energy", workload, letters), letters)
        )
        for workload in WORKLOADS
    }


def _told(fronts: Dict[str, str]) -> str:
    return ", ".join(f"{workload} {names}" for workload, names in fronts.items())


@CLAIMS.of("F1114")
def power_and_time_are_inverse(boards: Boards) -> Finding:
    """Over modes a to n, logarithms of power and epoch time correlate by -0.7 or less, for three workloads."""
    found = [
        float(np.corrcoef(np.log(_all(boards, "epoch_time", w)), np.log(_all(boards, "power", w)))[0, 1])
        for w in WORKLOADS
    ]
    return Finding(max(found) <= -0.7, f"correlations {listed(found)}")


@CLAIMS.of("F1122")
def maxn_costs_most_energy(boards: Boards) -> Finding:
    """For ResNet on CIFAR and MobileNet, g (MAXN) takes at least 97 % of the most energy that modes a to g take."""
    shares = [
        float(_all(boards, "energy", workload, "g")[0] / _all(boards, "energy", workload, "abcdefg").max())
        for workload in (CIFAR, MOBILENET)
    ]
    return Finding(min(shares) >= 0.97, f"shares {listed(shares)}")


@CLAIMS.of("F1131")
def compute_of_large_networks_follows_the_gpu_clock(boards: Boards) -> Finding:
    """Compute time of large networks is inverse to the GPU clock.

    From b to c (GPU clock x 1.34) it falls with the clock to the power of 0.7 to 1.1 for ResNet on CIFAR, of 0.3 or
    more for MobileNet.
    """
    changes = _changes(boards, "compute_time", "b", "c")
    clocks = [find_modes(XAVIER, letter).table[0, 2] for letter in "bc"]
    powers = [float(-np.log1p(changes[w]) / np.log(clocks[1] / clocks[0])) for w in (CIFAR, MOBILENET)]
    return Finding(0.7 <= powers[0] <= 1.1 and powers[1] >= 0.3, f"powers {listed(powers)}")


@CLAIMS.of("F1138")
def beyond_four_cores_gains_little(boards: Boards) -> Finding:
    """From a (4 cores) to b (8), epochs of ResNet on CIFAR and MobileNet change by less than 6 %."""
    changes = _changes(boards, "epoch_time", "a", "b")
    return Finding(all(abs(changes[w]) < 0.06 for w in (CIFAR, MOBILENET)), f"changes: {listed(changes)}")


@CLAIMS.of("F1150")
def workers_compete_with_kernel_launches_for_cores(boards: Boards) -> Finding:
    """From 8 to 2 cores (e to f) LeNet's compute time grows at least 5 points more with 4 workers than with none."""
    with_workers, without = (_changes(boards, "compute_time", "e", "f", workers)[LENET] for workers in (4, 0))
    return Finding(with_workers >= without + 0.05, f"with {percent(with_workers)}, without {percent(without)}")


@CLAIMS.of("F1151")
def lenet_is_best_at_high_cpu_clocks(boards: Boards) -> Finding:
    """Of modes a to n, LeNet's shortest epoch and least energy are at the greatest CPU clock, or within 1 % of it."""
    clocks = find_modes(XAVIER, ",".join(LETTERS)).table[:, 1]
    shortfalls = [
        float(found[clocks == clocks.max()].min() / found.min() - 1.0)
        for found in (_all(boards, "epoch_time", LENET), _all(boards, "energy", LENET))
    ]
    return Finding(max(shortfalls) <= 0.01, f"best at the greatest clock over best: time, energy {listed(shortfalls)}")


@CLAIMS.of("F1158")
def the_memory_clock_matters(boards: Boards) -> Finding:
    """From h to g (memory clock x 2) compute time falls by at least 10 % for all three workloads."""
    changes = _changes(boards, "compute_time", "h", "g")
    return Finding(max(changes.values()) <= -0.10, f"changes: {listed(changes)}")


@CLAIMS.of("F1182", "F1183")
def core_counts_matter_to_lenet_only(boards: Boards) -> Finding:
    """More cores shorten LeNet's epochs, and those of larger networks hardly.

    From f (2 cores) to e (8), LeNet's epoch and energy fall by at least 15 %, ResNet's and MobileNet's epochs by less
    than half of LeNet's share.
    """
    times, energies = _changes(boards, "epoch_time", "f", "e"), _changes(boards, "energy", "f", "e")
    holds = times[LENET] <= -0.15 and energies[LENET] <= -0.15
    holds = holds and all(times[w] > 0.5 * times[LENET] for w in (CIFAR, MOBILENET))
    return Finding(holds, f"time: {listed(times)}; LeNet's energy {percent(energies[LENET])}")


@CLAIMS.of("F1184", "F1196")
def the_cpu_clock_matters_most_to_lenet(boards: Boards) -> Finding:
    """The CPU clock has a larger effect on LeNet than on the others.

    From d to e (CPU clock x 1.77) LeNet's epoch falls by at least 10 points more, and every mode at 2,265 MHz has a
    shorter LeNet epoch than every mode at 1,200 MHz or less.
    """
    changes = _changes(boards, "epoch_time", "d", "e")
    clocks = find_modes(XAVIER, ",".join(LETTERS)).table[:, 1]
    times = _all(boards, "epoch_time", LENET)
    slowest, fastest = times[clocks == clocks.max()].max(), times[clocks <= 1_200_000].min()
    holds = changes[LENET] <= min(changes[CIFAR], changes[MOBILENET]) - 0.10 and slowest < fastest
    return Finding(
        bool(holds), f"changes: {listed(changes)}; slowest at 2,265 over fastest at 1,200 {slowest / fastest:.3g}"
    )


@CLAIMS.of("F1185", "F1197")
def the_gpu_clock_matters_most_to_resnet(boards: Boards) -> Finding:
    """From b to c (GPU clock x 1.34) ResNet's epoch falls by at least 15 %, MobileNet's by less, LeNet's by least."""
    changes = _changes(boards, "epoch_time", "b", "c")
    holds = changes[CIFAR] <= -0.15 and changes[CIFAR] + 0.02 < changes[MOBILENET] < changes[LENET] - 0.02
    return Finding(holds, f"changes: {listed(changes)}")


@CLAIMS.of("F1186")
def the_memory_clock_does_not_dominate(boards: Boards) -> Finding:
    """From c to d (memory clock x 1.2) no epoch shortens by more than 15 % or lengthens by more than 1 %."""
    changes = _changes(boards, "epoch_time", "c", "d")
    return Finding(all(-0.15 < change < 0.01 for change in changes.values()), f"changes: {listed(changes)}")


@CLAIMS.of("F1187")
def a_faster_memory_shortens_every_epoch(boards: Boards) -> Finding:
    """From h to i (memory clock x 1.25) the epochs of all three workloads shorten by at least 2 %."""
    changes = _changes(boards, "epoch_time", "h", "i")
    return Finding(max(changes.values()) <= -0.02, f"changes: {listed(changes)}")


@CLAIMS.of("F738")
def the_gpu_clock_does_not_help_what_the_cpu_binds(boards: Boards) -> Finding:
    """At a CPU clock of 1,037 MHz, a GPU clock of 1,377 instead of 421 MHz changes LeNet's epoch by less than 5 %."""
    slow, fast = (value(boards, "epoch_time", XAVIER, LENET, f"8c-1036.8-{gpu}-2133") for gpu in ("420.75", "1377"))
    return Finding(abs(fast / slow - 1.0) < 0.05, f"change {percent(fast / slow - 1.0)}")


@CLAIMS.of("F599", "F600", "F757")
def kernel_launches_bind_small_networks(boards: Boards) -> Finding:
    """Where kernels are launched too late the GPU waits, which happens to small networks.

    From l to m (CPU clock x 2.2) compute time falls by at least 35 % for LeNet, by less than 5 % for ResNet on CIFAR.
    """
    changes = _changes(boards, "compute_time", "l", "m")
    return Finding(changes[LENET] <= -0.35 and changes[CIFAR] > -0.05, f"changes: {listed(changes)}")


@CLAIMS.of("F730")
def fewer_and_faster_cores_train_faster(boards: Boards) -> Finding:
    """With 4 workers, 4 cores at 2,112 MHz train MobileNet at least as fast as 8 cores at 1,037 MHz, on AGX."""
    few, many = (
        value(boards, "epoch_time", XAVIER, MOBILENET, f"{cores}c-{clock}-905.25-1600")
        for cores, clock in ((4, "2112"), (8, "1036.8"))
    )
    return Finding(few <= many, f"few and fast over many and slow {few / many:.4g}")


@CLAIMS.of("F731")
def a_lower_mode_saves_energy_at_a_small_penalty(boards: Boards) -> Finding:
    """For MobileNet on AGX, some mode of the grid saves at least 10 % of MAXN's energy for at most 10 % of time."""
    time, energy = (value(boards, metric, XAVIER, MOBILENET) for metric in ("epoch_time", "energy"))
    times, energies = (values(boards, metric, XAVIER, MOBILENET, "grid:paper") for metric in ("epoch_time", "energy"))
    saved = 1.0 - float(energies[times <= 1.10 * time].min()) / energy
    return Finding(saved >= 0.10, f"saves up to {percent(saved)} within 10 % of MAXN's time")


@CLAIMS.of("F934")
def compute_follows_the_boards_gpus(boards: Boards) -> Finding:
    """LeNet's compute time is at least 10 % longer on Nano than on NX, and on NX than on AGX."""
    nano, nx, agx = (value(boards, "compute_time", device, LENET, storage="hdd") for device in (NANO, NX, XAVIER))
    return Finding(nano >= 1.1 * nx and nx >= 1.1 * agx, f"Nano over NX {nano / nx:.3g}, NX over AGX {nx / agx:.3g}")


@CLAIMS.of("F1188")
def waking_for_a_job_saves_energy(boards: Boards) -> Finding:
    """One LeNet epoch an hour on Nano, suspended between them, takes less than half of the energy of staying up."""
    condition = Condition(NANO, LENET, "default", storage="sd")
    hours = float(boards.values(condition, "epoch_time")[0]) / MS_PER_S / S_PER_HOUR
    board, mode = boards.parameters.boards[NANO], _default(NANO)
    training = float(boards.values(condition, "power")[0]) * hours
    up, asleep = (
        training + (1.0 - hours) * idle_power_mw(board, mode, state, socket=True) for state in ("dvfs", "wol")
    )
    return Finding(asleep < 0.5 * up, f"suspended over up {asleep / up:.3g}")

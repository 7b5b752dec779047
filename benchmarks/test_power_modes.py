"""What do cores and clocks do to time, power and energy, and which modes are on the front (E11 to E13)?"""

from functools import partial

import pytest

from harness.judge.claims import claim, known
from harness.judge.mode_statistics import (
    best_at_greatest_cpu_clock,
    best_of_both_over_maxn,
    error_of_linear_model,
    error_of_model_of_four_modes,
    first_mode_on_front,
    greatest_over_least,
    maxn_penalty,
    minutes_of_fifty_profiles,
    points_on_front,
    share_predicted_within_a_tenth,
    share_saved,
    slowest_at_fast_cpu_over_fastest_at_slow,
)
from harness.judge.papers import A_TO_J, A_TO_N, LARGER, LENET, MOBILENET, PAPERS, RESNET, RESNET_IMAGENET, USUAL, YOLO
from harness.judge.query import ANY_OTHER
from harness.judge.verdict import both


@pytest.mark.parametrize("workload", ["lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10"])
@pytest.mark.parametrize("power_mode", ["maxn", "sample:10"])
def test_power_modes(profile, baseline):
    baseline.check(profile())


TO_IDLE = {
    "task": ("training", "idle"),
    "workers": (4, 0),
    "batch_size": (16, 1),
    "cache": ("warm", "as-is"),
    "storage": "ssd",
    "clocks": "static",
}
"""From training to the idle state of the same power mode: what of its power is baseload."""


@claim("004 5.6.1", facts="F1112", boards="xavier-agx")
def test_maxn_is_fastest(ratio):
    """Of modes a to n, none has an epoch that is 5 % shorter than g's (MAXN), for three workloads.

    004 has none that is shorter at all; modes differ by 2 % in what no clock explains, and single runs by as
    much. On a real machine without these modes: of whatever modes and workloads it was profiled in.
    """
    assert ratio("time", power_mode=[("g", list("abcdefhijklmn")), ("maxn", ANY_OTHER)]) > 0.95


@claim("001 5.1", facts="F507", boards="orin-agx", only_there=True)
def test_maxn_is_fastest_on_orin(ratio):
    """On Orin AGX, no profiled mode has a minibatch that is 5 % shorter than MAXN's, for ResNet and MobileNet."""
    assert ratio("time", power_mode=("maxn", ANY_OTHER), workload=[RESNET_IMAGENET, MOBILENET], **USUAL) > 0.95


@claim("001 5.2", facts="F542", boards="orin-agx", only_there=True)
def test_maxn_breaks_many_budgets(value):
    """On Orin AGX, MAXN breaks at least 20 % of the budgets of 17 to 50 W, for three workloads.

    That is, it draws more than 23 W.
    """
    assert (
        value(
            "power",
            workload=[RESNET_IMAGENET, MOBILENET, YOLO],
            power_mode="maxn",
            batch_size=16,
            storage="ssd",
            clocks="static",
            cache="warm",
        )
        > 23000
    )


@claim("001 5.2", facts="F541", boards="orin-agx", only_there=True)
def test_maxn_is_faster_than_budgets_allow(over_modes):
    """On Orin AGX, MAXN takes less time than the best profiled mode within a budget, for ResNet and MobileNet.

    On average over budgets of 17 to 50 W: its penalty is below 0.
    """
    assert over_modes(maxn_penalty, "time", "power", workload=[RESNET_IMAGENET, MOBILENET], **USUAL) < 0


@claim("001 4.2", facts="F425 F426 F195 F1206", boards="orin-agx", only_there=True, fitted=True)
def test_fifty_modes_are_profiled_in_25_minutes(over_modes):
    """On Orin AGX, 50 random modes are profiled in less than 25 minutes and more than 5, for ResNet and MobileNet.

    Each settles for 2.5 s and trains 41 minibatches. 001 has under 25 minutes for 50 and under 15 for 30, tens of
    minutes.
    """
    minutes = over_modes(
        minutes_of_fifty_profiles, "time", papers_range=True, workload=[RESNET_IMAGENET, MOBILENET], **USUAL
    )
    assert minutes.within(5, 25)


@claim("001 4.1", facts="F417", boards="orin-agx", only_there=True)
def test_resnet_has_the_widest_range_of_power(over_modes):
    """On Orin AGX the power of ResNet spans a greater ratio over the papers' modes than that of MobileNet.

    001 says that this makes ResNet the best reference workload.
    """
    power_range = partial(over_modes, greatest_over_least, "power", papers_range=True, **USUAL)
    assert power_range(workload=RESNET_IMAGENET) / power_range(workload=MOBILENET) > 1


@claim("004 5.6.1", facts="F1112", boards="xavier-agx")
def test_nothing_beats_maxn_in_time_and_energy(over_modes):
    """Of modes a to n, none beats g (MAXN) by 5 % in both time and energy: it is on the front of three workloads."""
    assert over_modes(best_of_both_over_maxn, "time", "energy", workload=PAPERS, power_mode=A_TO_N, **USUAL) > 0.95


@claim("004 5.6", facts="F1035 F1036 F1037", boards="xavier-agx", only_there=True, fitted=True)
def test_what_the_least_gpu_clock_costs(as_printed):
    """On AGX ResNet on CIFAR is 10.3 times as fast at MAXN as at a GPU clock of 115 MHz.

    It draws 3.6 times the power and takes 0.35 of the energy; within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("004 5.6.1", facts="F1114", boards="xavier-agx")
def test_power_and_time_are_inverse(correlation):
    """Over modes a to n, logarithms of power and time correlate by less than -0.7, for three workloads."""
    assert correlation("time", "power", workload=PAPERS, power_mode=A_TO_N, **USUAL) < -0.7


@claim("004 5.6.1", facts="F1115", boards="xavier-agx")
def test_lenet_has_few_points_on_its_front(over_modes):
    """LeNet's front of time and energy over modes a to n has at most 4 points (004: 3)."""
    points = over_modes(points_on_front, "time", "energy", workload=LENET, power_mode=A_TO_N, **USUAL)
    assert points.exact() < 4.5


@claim("004 5.6.1", facts="F1115", boards="xavier-agx")
def test_larger_networks_have_no_fewer_points_on_theirs(over_modes):
    """Over modes a to j, the fronts of ResNet on CIFAR and MobileNet have as many points as LeNet's, or more."""
    points = partial(over_modes, points_on_front, "time", "energy", power_mode=A_TO_J, **USUAL)
    assert points(workload=LARGER, complete=True) - points(workload=LENET) > -0.5


@claim(
    "004 5.6.1",
    facts="F1113",
    boards="xavier-agx",
    shortfall=known(-0.5, 0.5, "energies of modes a to j differ by a few percent, less than the model errs"),
)
def test_the_default_mode_is_on_mobilenets_front(over_modes):
    """Of modes a to j, mode a is on MobileNet's front of time and energy."""
    assert over_modes(first_mode_on_front, "time", "energy", workload=MOBILENET, power_mode=A_TO_J, **USUAL) > 0.5


@claim("004 5.6.1", facts="F1113", boards="xavier-agx")
def test_the_default_mode_is_on_no_other_front(over_modes):
    """Of modes a to j, mode a is not on the fronts of ResNet on CIFAR and LeNet."""
    on_front = over_modes(first_mode_on_front, "time", "energy", workload=[RESNET, LENET], power_mode=A_TO_J, **USUAL)
    assert on_front < 0.5


@claim("004 5.6.3", facts="F1122", boards="xavier-agx")
def test_maxn_costs_most_energy(ratio):
    """For ResNet on CIFAR and MobileNet, no mode of a to f takes more than 1.05 of the energy of g (MAXN)."""
    assert ratio("energy", power_mode=("g", list("abcdef")), workload=LARGER, **USUAL) < 1.05


@claim("004 5.6.3", facts="F1119", boards="xavier-agx", fitted=True)
def test_energy_of_lenet_varies_modestly_over_modes(over_modes):
    """Without g to j, modes save at most 33.5 % of energy for LeNet.

    004 has 27 %: within 15 %, and what single runs add (1 % each: 2.3 % between extremes).
    """
    assert over_modes(share_saved, "energy", workload=LENET, power_mode=list("abcdefklmn"), **USUAL) < 0.335


@claim("004 5.6.3", facts="F1121", boards="xavier-agx", fitted=True)
def test_energy_of_mobilenet_varies_modestly_over_modes(over_modes):
    """Without g to j, modes save at most 16 % of energy for MobileNet.

    004 has 12 %: within 15 %, and what single runs add (1 % each: 2.3 % between extremes).
    """
    assert over_modes(share_saved, "energy", workload=MOBILENET, power_mode=list("abcdef"), **USUAL) < 0.16


@claim(
    "004 5.6.3",
    facts="F1120",
    boards="xavier-agx",
    fitted=True,
    shortfall=known(
        0.06,
        0.14,
        "the model's energies of modes a to f differ by 11 %: each is within a few percent, which a spread adds up",
    ),
)
def test_energy_of_resnet_hardly_varies_over_modes(over_modes):
    """Without g to j, modes save at most 9 % of energy for ResNet on CIFAR.

    004 has 6 %: within 15 %, and what single runs add.
    """
    assert over_modes(share_saved, "energy", workload=RESNET, power_mode=list("abcdef"), **USUAL) < 0.09


@claim("001 1.1", facts="F157", boards="orin-agx", fitted=True)
def test_power_modes_change_time_many_fold(over_modes):
    """On Orin AGX the slowest mode of the papers' range takes 10 to 41 times as long as the fastest (001: up to 36).

    36 within 15 %; a hundred modes may miss the slowest.
    """
    ranges = over_modes(greatest_over_least, "time", papers_range=True, workload=RESNET_IMAGENET, **USUAL)
    assert ranges.within(10, 41.4)


@claim("001 1.1", facts="F158", boards="orin-agx", fitted=True)
def test_power_modes_change_power_several_fold(over_modes):
    """On Orin AGX the mode that draws most takes 2.5 to 4.9 times the power of the one that draws least (001: 4.3).

    4.3 within 15 %; a hundred modes may miss the extremes.
    """
    ranges = over_modes(greatest_over_least, "power", papers_range=True, workload=RESNET_IMAGENET, **USUAL)
    assert ranges.within(2.5, 4.95)


@claim("001 1.1", facts="F158", boards="orin-agx", fitted=True)
def test_more_power_buys_time(correlation):
    """Over the profiled modes of Orin AGX, time and power are inverse: their logarithms correlate by less than -0.5."""
    assert correlation("time", "power", workload=RESNET_IMAGENET, **USUAL) < -0.5


@claim("001 3", facts="F364", boards="orin-agx", only_there=True)
def test_a_linear_model_of_time_is_inaccurate(over_modes):
    """A linear regression of minibatch time on cores and clocks errs by 15 % or more on average on Orin AGX.

    It is fitted to all profiled modes, for ResNet and for MobileNet.
    """
    assert over_modes(error_of_linear_model, "time", workload=[RESNET_IMAGENET, MOBILENET], **USUAL) > 0.15


@claim("004 5.7.2", facts="F1177", boards="xavier-agx")
def test_four_modes_predict_lenet_worst(over_modes):
    """A linear regression of epochs errs more on LeNet than on MobileNet and ResNet on CIFAR.

    It is fitted to modes e, f, i and j, and predicts modes a to j.
    """
    error = partial(over_modes, error_of_model_of_four_modes, "time", power_mode=A_TO_J, **USUAL)
    assert error(workload=LENET) / error(workload=LARGER, complete=True) > 1


@claim(
    "004 5.7.2",
    facts="F1172/F1173",
    boards="xavier-agx",
    shortfall=known(
        0.45,
        0.66,
        "the model's times are less linear in cores and clocks than the paper's: 16 of 30 predictions err"
        " by less than 10 %",
    ),
)
def test_four_modes_predict_most_within_a_tenth(over_modes):
    """A linear regression of epochs predicts at least 66 % of the times of three workloads with an error below 10 %.

    It is fitted to modes e, f, i and j, and predicts modes a to j. 004 has 31 of 40 with VGG-11, 78 %: within 15 %.
    """
    shares = over_modes(
        share_predicted_within_a_tenth, "time", workload=PAPERS, power_mode=A_TO_J, complete=True, **USUAL
    )
    assert shares.mean("networks") > 0.66


@claim("004 5.6.4", facts="F1123 F1126 F1130/F1129", boards="xavier-agx", only_there=True, fitted=True)
def test_what_the_gpu_clock_does_to_compute(as_printed):
    """On AGX a GPU clock x 1.34 (b to c) cuts compute of ResNet on CIFAR by 22 % and of MobileNet by 13 %.

    It does not cut that of LeNet; within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim("004 5.6.4", facts="F1131", boards="xavier-agx")
def test_compute_of_large_networks_follows_the_gpu_clock(ratio):
    """From b to c (GPU clock x 1.34) compute time of ResNet on CIFAR falls to between 0.70 and 0.85."""
    assert ratio("compute", power_mode=("b", "c"), workload=RESNET, **USUAL).within(0.7, 0.85)


@claim("004 5.6.5", facts="F1132 F1134 F1135", boards="xavier-agx", fitted=True)
def test_cpu_clock_and_cores_shorten_stalls(ratio):
    """From d to e (CPU clock x 1.77), a to b (4 to 8 cores) and f to e (2 to 8) every stall falls by at least 5 %."""
    assert ratio("stall", power_mode=[("d", "e"), ("a", "b"), ("f", "e")], workload=PAPERS, **USUAL) < 0.95


@claim("004 5.6.5", facts="F1132 F1134 F1135 F1137", boards="xavier-agx", only_there=True, fitted=True)
def test_what_cpu_clock_and_cores_do_to_stalls(as_printed):
    """On AGX a CPU clock x 1.77 (d to e) cuts stalls by 31 to 39 %, 8 cores for 4 (a to b) by 18 to 20 %.

    Two cores for 8 (e to f) lengthen those of LeNet and of ResNet on CIFAR by 54 and 47 %; within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.6.5",
    facts="F1136",
    boards="xavier-agx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.85,
        1.43,
        "workers on two cores wait for each other and for the main process in the model; MobileNet's "
        "costly decoding makes that long",
    ),
)
def test_what_two_cores_do_to_mobilenets_stall(as_printed):
    """On AGX 2 cores for 8 (e to f) lengthen MobileNet's stall by 47 %, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("004 5.6.5", facts="F1138", boards="xavier-agx")
def test_beyond_four_cores_gains_little(ratio):
    """From a (4 cores) to b (8), epochs of ResNet on CIFAR and MobileNet change by less than 8 %.

    004 calls it incremental, without a figure of epochs: 6 %, and what two single runs differ.
    """
    assert ratio("time", power_mode=("a", "b"), workload=LARGER, **USUAL).within(0.92, 1.08)


@claim(
    "004 5.6.6",
    facts="F1139 F1140 F1141 F1142 F1144 F1145 F1146 F1147 F1148 F1149",
    boards="xavier-agx",
    only_there=True,
    fitted=True,
)
def test_what_the_cpu_does_to_compute(as_printed):
    """On AGX compute changes with CPU clock (d, e; l, m) and cores (e, f; k, l) by 37, 46, 36 and 15 % for LeNet.

    It changes by 10 % and less for MobileNet's clock and ResNet on CIFAR, and hardly with LeNet's GPU clock (m to
    n to g); within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.6.6",
    facts="F1143",
    boards="xavier-agx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.8, 1.15, "launching MobileNet's kernels hides behind its arithmetic in the model even on two cores"
    ),
)
def test_what_two_cores_do_to_mobilenets_compute(as_printed):
    """On AGX 2 cores for 8 (e to f) lengthen MobileNet's compute by 15.6 %, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("004 5.6.6", facts="F1150", boards="xavier-agx")
def test_workers_compete_with_kernel_launches_for_cores(ratio):
    """From 8 to 2 cores (e to f) LeNet's compute time grows by 5 % more with 4 workers than with none.

    004 has 1.36 against 1.21: 12 % more.
    """
    growth = partial(ratio, "compute", power_mode=("e", "f"), workload=LENET)
    assert growth(**USUAL) / growth(**{**USUAL, "workers": 0}) > 1.05


@claim("004 5.6.6", facts="F1151", boards="xavier-agx")
def test_lenet_is_best_at_high_cpu_clocks(over_modes):
    """Of modes a to n, LeNet's shortest epoch and least energy at the greatest CPU clock are the best within 2 %."""
    best = partial(over_modes, best_at_greatest_cpu_clock, workload=LENET, power_mode=A_TO_N, **USUAL)
    assert both(best("time"), best("energy")) < 1.02


@claim("004 5.6.7", facts="F1158", boards="xavier-agx")
def test_the_memory_clock_matters(ratio):
    """From h to g (memory clock x 2) compute time falls by at least 10 %, for three workloads."""
    assert ratio("compute", power_mode=("h", "g"), workload=PAPERS, **USUAL) < 0.9


@claim("004 5.6.7", facts="F1153 F1154 F1155 F1156 F1157", boards="xavier-agx", only_there=True, fitted=True)
def test_what_the_memory_clock_does(as_printed):
    """On AGX a memory clock x 2 (h to g) cuts compute of ResNet on CIFAR and MobileNet by 26 and 28 %.

    It cuts stalls of all three workloads by 27 to 34 %; within 15 %.
    """
    assert as_printed().within(0.85, 1.15)


@claim(
    "004 5.6.7",
    facts="F1152",
    boards="xavier-agx",
    only_there=True,
    fitted=True,
    shortfall=known(
        0.85,
        1.34,
        "LeNet's compute is bound by launches in the model, which the memory clock does not speed up as much",
    ),
)
def test_what_the_memory_clock_does_to_lenets_compute(as_printed):
    """On AGX a memory clock x 2 (h to g) cuts LeNet's compute by 33 %, within 15 %."""
    assert as_printed().within(0.85, 1.15)


@claim("004 A", facts="F1186", boards="xavier-agx")
def test_the_memory_clock_does_not_dominate(ratio):
    """From c to d (memory clock x 1.2) no epoch shortens by 15 % or more, and none lengthens by 3 %."""
    assert ratio("time", power_mode=("c", "d"), workload=PAPERS, **USUAL).within(0.85, 1.03)


@claim("004 A", facts="F1187", boards="xavier-agx")
def test_a_faster_memory_shortens_every_epoch(ratio):
    """From h to i (memory clock x 1.25) every epoch becomes shorter by 2 %, for three workloads."""
    assert ratio("time", power_mode=("h", "i"), workload=PAPERS, **USUAL) < 0.98


@claim("004 A", facts="F1182 F1183", boards="xavier-agx")
def test_cores_matter_to_lenet(ratio):
    """From f (2 cores) to e (8) LeNet's epoch and its energy fall by at least 10 %."""
    assert ratio("time", "energy", power_mode=("f", "e"), workload=LENET, **USUAL) < 0.9


@claim("004 A", facts="F1182", boards="xavier-agx")
def test_cores_matter_less_to_larger_networks(ratio):
    """From f (2 cores) to e (8) epochs of ResNet on CIFAR and MobileNet fall by at least 10 % less than LeNet's."""
    gain = partial(ratio, "time", power_mode=("f", "e"), **USUAL)
    assert gain(workload=LARGER) / gain(workload=LENET) > 1.1


@claim("004 A", facts="F1184", boards="xavier-agx")
def test_the_cpu_clock_matters_most_to_lenet(ratio):
    """From d to e (CPU clock x 1.77) epochs of ResNet on CIFAR and MobileNet fall by 10 % less than LeNet's."""
    gain = partial(ratio, "time", power_mode=("d", "e"), **USUAL)
    assert gain(workload=LARGER) / gain(workload=LENET) > 1.1


@claim("004 A", facts="F1196", boards="xavier-agx")
def test_lenet_is_fast_wherever_the_cpu_is(over_modes):
    """LeNet's epoch in the slowest mode at 2,265 MHz is shorter than in the fastest at 1,200 MHz or less."""
    slowest = over_modes(slowest_at_fast_cpu_over_fastest_at_slow, "time", workload=LENET, power_mode=A_TO_N, **USUAL)
    assert slowest < 1


@claim("004 A", facts="F1185 F1197", boards="xavier-agx")
def test_the_gpu_clock_matters_most_to_resnet(ratio):
    """From b to c (GPU clock x 1.34) ResNet's epoch falls by more than MobileNet's, and MobileNet's than LeNet's."""
    gain = partial(ratio, "time", power_mode=("b", "c"), **USUAL)
    resnet, mobilenet, lenet = gain(workload=RESNET), gain(workload=MOBILENET), gain(workload=LENET)
    assert both(mobilenet / resnet, lenet / mobilenet) > 1


@claim("002 II.1", facts="F599 F600 F757", boards="xavier-agx")
def test_kernel_launches_bind_small_networks(ratio):
    """From l to m (CPU clock x 2.2) LeNet's compute time falls by at least 38 %: the CPU launches its kernels late.

    004 sec. 5.6.6 has 46 %, a ratio of 0.54: within 15 %.
    """
    assert ratio("compute", power_mode=("l", "m"), workload=LENET, **USUAL) < 0.62


@claim("002 II.1", facts="F599", boards="xavier-agx")
def test_kernel_launches_do_not_bind_large_networks(ratio):
    """From l to m (CPU clock x 2.2) compute time of ResNet on CIFAR changes by less than 5 %."""
    assert ratio("compute", power_mode=("l", "m"), workload=RESNET, **USUAL).within(0.95, 1.05)


@claim("004 5.6.2", facts="F1117", boards="xavier-agx", fitted=True)
def test_baseload_dominates_the_energy_of_a_small_network(ratio):
    """In each of modes a to n at least 65 % of LeNet's energy is baseload (004: 65 to 80 %)."""
    assert ratio("power", workload=(LENET, "idle"), power_mode=A_TO_N, **TO_IDLE) > 0.65


@claim("004 5.6.2", facts="F1118", boards="xavier-agx", fitted=True)
def test_baseload_is_less_than_half_of_the_energy_of_large_networks(ratio):
    """In each of modes a to j 20 to 45 % of the energy of ResNet on CIFAR and MobileNet is baseload."""
    assert ratio("power", workload=(LARGER, "idle"), power_mode=A_TO_J, **TO_IDLE).within(0.2, 0.45)

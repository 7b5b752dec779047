"""Claims about loading data: workers, storage media and the page cache (003 sec. III; 004 sec. 5.1 and 5.2)."""

from __future__ import annotations

import dataclasses

import numpy as np

from harness.judge.simulation_claims.claim import (
    CIFAR,
    LENET,
    MEDIA,
    MOBILENET,
    NANO,
    NX,
    TRAINED,
    XAVIER,
    Claims,
    Finding,
    listed,
    percent,
    value,
)
from tools.quantities import Boards

CLAIMS = Claims()


@CLAIMS.of("F602")
def one_worker_hides_an_ssd(boards: Boards) -> Finding:
    """On an SSD with one worker, MobileNet's stall is at most 10 % of compute, cold and warm, on AGX and NX."""
    found = [
        value(boards, "stall_time", device, MOBILENET, workers=1, cache=cache)
        / value(boards, "compute_time", device, MOBILENET, workers=1, cache=cache)
        for device in (XAVIER, NX)
        for cache in ("cold", "warm")
    ]
    return Finding(max(found) <= 0.10, f"stall over compute {listed(found)}")


@CLAIMS.of("F603", "F696")
def a_slow_disk_gains_more_from_workers(boards: Boards) -> Finding:
    """From 1 to 4 workers in a cold epoch, an HDD saves at least 5 times the stall that an SSD saves on AGX."""
    saved = {
        storage: value(boards, "stall_time", XAVIER, MOBILENET, workers=1, storage=storage, cache="cold")
        - value(boards, "stall_time", XAVIER, MOBILENET, workers=4, storage=storage, cache="cold")
        for storage in ("hdd", "ssd")
    }
    return Finding(saved["hdd"] >= 5.0 * saved["ssd"] > 0, f"ms saved: HDD {saved['hdd']:.0f}, SSD {saved['ssd']:.0f}")


@CLAIMS.of("F604")
def a_slow_disk_with_more_workers_matches_a_fast_one(boards: Boards) -> Finding:
    """On NX an HDD with 4 workers comes within 3 % of an SSD with 1, and an HDD with 1 does not."""
    fast = value(boards, "epoch_time", NX, MOBILENET, workers=1)
    more, one = (value(boards, "epoch_time", NX, MOBILENET, workers=w, storage="hdd") / fast - 1.0 for w in (4, 1))
    return Finding(more <= 0.03 < one, f"HDD over SSD with 1: with 4 workers {percent(more)}, with 1 {percent(one)}")


@CLAIMS.of("F605", "F686", "F711")
def a_cached_data_set_makes_up_for_a_slow_disk(boards: Boards) -> Finding:
    """Without workers on AGX, HDD and SSD differ by at most 3 % in a warm epoch, by more than 50 % in a cold one."""
    warm, cold = (
        value(boards, "epoch_time", XAVIER, MOBILENET, workers=0, storage="hdd", cache=cache)
        / value(boards, "epoch_time", XAVIER, MOBILENET, workers=0, cache=cache)
        - 1.0
        for cache in ("warm", "cold")
    )
    return Finding(warm <= 0.03 and cold > 0.5, f"HDD over SSD: warm {percent(warm)}, cold {percent(cold)}")


@CLAIMS.of("F607")
def a_larger_model_leaves_less_cache_and_stalls_more(boards: Boards) -> Finding:
    """With 1 GB more RAM held by the model, NX caches less of a quarter of GLD and stalls longer on an HDD."""
    workloads = boards.parameters.workloads
    large = dataclasses.replace(workloads[MOBILENET], model_bytes=workloads[MOBILENET].model_bytes + 1e9)
    with_large = Boards(boards.parameters._replace(workloads={**workloads, MOBILENET: large}), rough=False)
    plain = Boards(boards.parameters, rough=False)
    shares = [value(b, "cached_share", NX, MOBILENET, workers=0, data_scale=0.25) for b in (plain, with_large)]
    stalls = [
        value(b, "stall_time", NX, MOBILENET, workers=0, storage="hdd", data_scale=0.25) for b in (plain, with_large)
    ]
    holds = shares[1] < shares[0] and stalls[1] > 1.05 * stalls[0]
    return Finding(holds, f"cached {listed(shares)}, stall {listed(np.array(stalls) / stalls[0])} of the smaller's")


@CLAIMS.of("F670", "F718", "F1202")
def nx_caches_a_smaller_share_of_a_larger_data_set(boards: Boards) -> Finding:
    """On NX the cached share of GLD falls from 0.25 to 1 to 4 times its size, and is below 10 % at its own."""
    shares = [value(boards, "cached_share", NX, MOBILENET, data_scale=scale) for scale in (0.25, 1.0, 4.0)]
    return Finding(shares[0] > shares[1] > shares[2] and shares[1] < 0.10, f"cached {listed(shares)}")


@CLAIMS.of("F690")
def a_second_worker_gains_nothing_on_fast_storage(boards: Boards) -> Finding:
    """On NX, from 1 to 2 workers on SSD and SD, MobileNet's epoch changes by less than 3 %."""
    changes = [
        value(boards, "epoch_time", NX, MOBILENET, workers=2, storage=storage)
        / value(boards, "epoch_time", NX, MOBILENET, workers=1, storage=storage)
        - 1.0
        for storage in ("ssd", "sd")
    ]
    return Finding(max(map(abs, changes)) < 0.03, f"change on SSD, SD: {listed(changes)}")


@CLAIMS.of("F697")
def a_faster_gpu_gains_more_from_workers(boards: Boards) -> Finding:
    """From 1 to 4 workers on an HDD in a cold epoch, MobileNet gains at least 5 points more on AGX than on NX."""
    gains = [
        1.0
        - value(boards, "epoch_time", device, MOBILENET, workers=4, storage="hdd", cache="cold")
        / value(boards, "epoch_time", device, MOBILENET, workers=1, storage="hdd", cache="cold")
        for device in (XAVIER, NX)
    ]
    return Finding(gains[0] >= gains[1] + 0.05, f"gain on AGX {percent(gains[0])}, on NX {percent(gains[1])}")


@CLAIMS.of("F703")
def a_medium_that_compute_hides_is_fast_enough(boards: Boards) -> Finding:
    """With 2 workers, MobileNet's epochs on SSD, SD and HDD lie within 3 % on AGX and within 5 % on NX."""
    spreads = []
    for device in (XAVIER, NX):
        times = [value(boards, "epoch_time", device, MOBILENET, workers=2, storage=storage) for storage in MEDIA]
        spreads.append(max(times) / min(times) - 1.0)
    return Finding(spreads[0] < 0.03 and spreads[1] < 0.05, f"spread on AGX, NX: {listed(spreads)}")


@CLAIMS.of("F719")
def on_an_ssd_stalls_do_not_grow_with_the_data_set(boards: Boards) -> Finding:
    """On NX with an SSD, MobileNet's stall per minibatch changes by less than 10 % from 0.25 to 4 times GLD."""
    stalls = [value(boards, "minibatch_stall", NX, MOBILENET, data_scale=scale) for scale in (0.25, 1.0, 4.0)]
    return Finding(max(stalls) / min(stalls) < 1.10, f"ms per minibatch {listed(stalls)}")


@CLAIMS.of("F720")
def on_an_ssd_epochs_grow_linearly_with_the_data_set(boards: Boards) -> Finding:
    """On NX with an SSD, MobileNet's epoch over the data's size varies by less than 3 % from 0.25 to 4 times GLD."""
    times = [value(boards, "epoch_time", NX, MOBILENET, data_scale=scale) / scale for scale in (0.25, 1.0, 4.0)]
    return Finding(max(times) / min(times) < 1.03, f"relative to the whole set {listed(np.array(times) / times[1])}")


@CLAIMS.of("F721")
def an_ssd_seems_as_fast_as_ram(boards: Boards) -> Finding:
    """With 4 workers on an SSD, a cold epoch of MobileNet takes less than 3 % longer than a cached one on AGX."""
    cold, warm = (value(boards, "epoch_time", XAVIER, MOBILENET, cache=cache) for cache in ("cold", "warm"))
    return Finding(cold / warm - 1.0 < 0.03, f"cold over warm {percent(cold / warm - 1.0)}")


@CLAIMS.of("F728")
def on_an_hdd_epochs_grow_faster_than_the_data_set(boards: Boards) -> Finding:
    """On NX with an HDD and no workers, 4 times GLD takes at least 5 % more than 16 times a quarter of it."""
    large, small = (
        value(boards, "epoch_time", NX, MOBILENET, workers=0, storage="hdd", data_scale=scale) for scale in (4.0, 0.25)
    )
    return Finding(large / (16.0 * small) >= 1.05, f"ratio over that of the sizes {large / (16.0 * small):.3g}")


@CLAIMS.of("F729")
def caching_shows_on_an_hdd(boards: Boards) -> Finding:
    """On NX with an HDD and no workers, a quarter of GLD stalls at least 1.5 times as long cold as warm."""
    cold, warm = (
        value(boards, "stall_time", NX, MOBILENET, workers=0, storage="hdd", data_scale=0.25, cache=cache)
        for cache in ("cold", "warm")
    )
    return Finding(cold / warm >= 1.5, f"cold over warm {cold / warm:.3g}")


@CLAIMS.of("F737")
def a_fast_disk_does_not_help_once_data_are_cached(boards: Boards) -> Finding:
    """With 1, 2 or 4 workers and a warm cache, MobileNet on AGX trains on an HDD within 3 % of the time on an SSD."""
    changes = [
        value(boards, "epoch_time", XAVIER, MOBILENET, workers=w, storage="hdd")
        / value(boards, "epoch_time", XAVIER, MOBILENET, workers=w)
        - 1.0
        for w in (1, 2, 4)
    ]
    return Finding(max(map(abs, changes)) < 0.03, f"HDD over SSD {listed(changes)}")


@CLAIMS.of("F912", "F913")
def caching_helps_only_where_all_data_fit(boards: Boards) -> Finding:
    """The page cache helps only where the whole data set fits.

    With 4 workers on an HDD, warm epochs of MobileNet stall at most half as long as cold ones on AGX, which caches all
    of GLD, and as long within 15 % on NX, which does not.
    """
    ratio = {
        device: value(boards, "stall_time", device, MOBILENET, storage="hdd")
        / value(boards, "stall_time", device, MOBILENET, storage="hdd", cache="cold")
        for device in (XAVIER, NX)
    }
    return Finding(ratio[XAVIER] <= 0.5 and abs(ratio[NX] - 1) < 0.15, f"AGX {ratio[XAVIER]:.3g}, NX {ratio[NX]:.3g}")


@CLAIMS.of("F914", "F961")
def caching_and_storage_do_not_matter_for_small_data(boards: Boards) -> Finding:
    """LeNet on three boards and ResNet on CIFAR stall alike within 10 %, cold or warm, and cold on SSD or HDD."""
    ratios = [
        value(boards, "stall_time", device, workload, storage="hdd", cache="cold")
        / value(boards, "stall_time", device, workload, storage=storage, cache=cache)
        for device, workload in TRAINED
        if workload != MOBILENET
        for storage, cache in (("hdd", "warm"), ("ssd", "cold"))
    ]
    return Finding(max(abs(ratio - 1.0) for ratio in ratios) < 0.10, f"ratios {listed(ratios)}")


@CLAIMS.of("F917")
def caching_helps_in_a_sweet_spot_only(boards: Boards) -> Finding:
    """Of all boards and workloads, only MobileNet on AGX stalls at least 20 % less when warm (4 workers, HDD)."""
    gains = {
        (device, workload): 1.0
        - value(boards, "stall_time", device, workload, storage="hdd")
        / value(boards, "stall_time", device, workload, storage="hdd", cache="cold")
        for device, workload in TRAINED
    }
    winners = [pair for pair, gain in gains.items() if gain >= 0.20]
    return Finding(
        winners == [(XAVIER, MOBILENET)], f"gain 20 % or more: {', '.join(map(' '.join, winners)) or 'none'}"
    )


@CLAIMS.of("F925")
def small_data_gain_by_pipelining_not_by_the_cache(boards: Boards) -> Finding:
    """For LeNet and ResNet on CIFAR, the first worker cuts the stall cold as much as warm, within 5 points."""
    differences = []
    for device, workload in TRAINED:
        if workload != MOBILENET:
            cold, warm = (
                value(boards, "stall_time", device, workload, workers=1, storage="hdd", cache=cache)
                / value(boards, "stall_time", device, workload, workers=0, storage="hdd", cache=cache)
                for cache in ("cold", "warm")
            )
            differences.append(abs(cold - warm))
    return Finding(max(differences) < 0.05, f"differences {listed(differences)}")


@CLAIMS.of("F931")
def resnet_on_cifar_hardly_stalls(boards: Boards) -> Finding:
    """Without workers, in a cold epoch on an HDD, ResNet on CIFAR stalls for at most 10 % of the epoch on AGX."""
    share = value(boards, "stall_share", XAVIER, CIFAR, workers=0, storage="hdd", cache="cold")
    return Finding(share <= 0.10, f"stall {percent(share)} of the epoch")


@CLAIMS.of("F1193")
def lenet_stalls_for_a_larger_share(boards: Boards) -> Finding:
    """Without workers LeNet stalls for at least 15 % of the epoch on every board, and 3 times ResNet's share on AGX."""
    shares = [value(boards, "stall_share", device, LENET, workers=0, storage="hdd") for device in (XAVIER, NX, NANO)]
    resnet = value(boards, "stall_share", XAVIER, CIFAR, workers=0, storage="hdd")
    return Finding(min(shares) >= 0.15 and shares[0] >= 3.0 * resnet, f"LeNet {listed(shares)}, ResNet {resnet:.3g}")


@CLAIMS.of("F1192")
def reading_small_data_is_negligible(boards: Boards) -> Finding:
    """In a cold epoch on an HDD without workers, reading is at most 15 % of the stall of LeNet and ResNet on CIFAR."""
    shares = [
        value(boards, "minibatch_fetch", device, workload, workers=0, storage="hdd", cache="cold")
        / value(boards, "minibatch_stall", device, workload, workers=0, storage="hdd", cache="cold")
        for device, workload in TRAINED
        if workload != MOBILENET
    ]
    return Finding(max(shares) <= 0.15, f"shares {listed(shares)}")


@CLAIMS.of("F936", "F947")
def mobilenet_on_agx_needs_one_worker(boards: Boards) -> Finding:
    """With a warm cache on AGX, MobileNet with 2, 4 and 8 workers is within 5 % of its time with 1."""
    one, *more = (value(boards, "epoch_time", XAVIER, MOBILENET, workers=w, storage="hdd") for w in (1, 2, 4, 8))
    return Finding(max(abs(time / one - 1.0) for time in more) < 0.05, f"times over 1's {listed(np.array(more) / one)}")


@CLAIMS.of("F946")
def workers_saturate_at_four(boards: Boards) -> Finding:
    """On NX with an HDD, MobileNet's epoch falls by at least 5 % from 1 to 4 workers, by less than 2 % from 4 to 8."""
    one, four, eight = (value(boards, "epoch_time", NX, MOBILENET, workers=w, storage="hdd") for w in (1, 4, 8))
    holds = four / one <= 0.95 and abs(eight / four - 1.0) < 0.02
    return Finding(holds, f"1 to 4 {percent(four / one - 1.0)}, 4 to 8 {percent(eight / four - 1.0)}")


@CLAIMS.of("F953")
def pipelining_raises_power_and_lowers_energy(boards: Boards) -> Finding:
    """From no to 4 workers, power rises on every board and workload, and energy falls on all but LeNet on Nano."""
    ratios = {
        metric: [
            value(boards, metric, device, workload, storage="hdd")
            / value(boards, metric, device, workload, workers=0, storage="hdd")
            for device, workload in TRAINED
            if metric == "power" or device != NANO
        ]
        for metric in ("power", "energy")
    }
    holds = min(ratios["power"]) > 1.0 and max(ratios["energy"]) < 1.0
    return Finding(holds, f"power {listed(ratios['power'])}; energy {listed(ratios['energy'])}")


@CLAIMS.of("F902")
def what_pipelining_gains_varies(boards: Boards) -> Finding:
    """The cut in epoch time by one worker differs by at least 20 points between boards and workloads."""
    cuts = [
        1.0
        - value(boards, "epoch_time", device, workload, workers=1, storage="hdd")
        / value(boards, "epoch_time", device, workload, workers=0, storage="hdd")
        for device, workload in TRAINED
    ]
    return Finding(max(cuts) - min(cuts) >= 0.20, f"cuts {listed(cuts)}")


@CLAIMS.of("F960")
def cold_stalls_follow_the_speed_of_the_medium(boards: Boards) -> Finding:
    """Without workers, MobileNet's cold stall on AGX rises by at least 25 % from SSD to SD and from SD to HDD."""
    ssd, sd, hdd = (
        value(boards, "stall_time", XAVIER, MOBILENET, workers=0, storage=storage, cache="cold") for storage in MEDIA
    )
    return Finding(sd >= 1.25 * ssd and hdd >= 1.25 * sd, f"SD over SSD {sd / ssd:.3g}, HDD over SD {hdd / sd:.3g}")


@CLAIMS.of("F969")
def storage_has_no_energy_cost_of_its_own(boards: Boards) -> Finding:
    """In warm epochs with 4 workers, energy on the three media differs by less than 3 %, on AGX and NX."""
    spreads = []
    for device in (XAVIER, NX):
        energies = [value(boards, "energy", device, MOBILENET, storage=storage) for storage in MEDIA]
        spreads.append(max(energies) / min(energies) - 1.0)
    return Finding(max(spreads) < 0.03, f"spread on AGX, NX {listed(spreads)}")


@CLAIMS.of("F1199")
def without_pipelining_the_gpu_is_used_less(boards: Boards) -> Finding:
    """On NX, MobileNet uses the GPU at least 20 points less without workers than with one, on every medium."""
    gaps = [
        value(boards, "gpu_utilisation", NX, MOBILENET, workers=1, storage=storage)
        - value(boards, "gpu_utilisation", NX, MOBILENET, workers=0, storage=storage)
        for storage in MEDIA
    ]
    return Finding(min(gaps) >= 0.20, f"gaps {listed(gaps)}")


@CLAIMS.of("F1200")
def one_worker_does_not_fill_agx_from_slow_media(boards: Boards) -> Finding:
    """In a cold epoch on AGX, one worker stalls MobileNet at least 3 times as long on SD and HDD as on an SSD."""
    ssd, sd, hdd = (
        value(boards, "stall_time", XAVIER, MOBILENET, workers=1, storage=storage, cache="cold") for storage in MEDIA
    )
    return Finding(min(sd, hdd) >= 3.0 * ssd, f"SD {sd / ssd:.3g}, HDD {hdd / ssd:.3g} times the SSD's")


@CLAIMS.of("F1201")
def two_workers_hide_an_hdd_on_nx(boards: Boards) -> Finding:
    """On NX with an HDD and 2 workers, MobileNet's stall is at most 10 % of compute."""
    share = value(boards, "stall_time", NX, MOBILENET, workers=2, storage="hdd") / value(
        boards, "compute_time", NX, MOBILENET, workers=2, storage="hdd"
    )
    return Finding(share <= 0.10, f"stall over compute {share:.3g}")


@CLAIMS.of("F935")
def relative_speeds_decide(boards: Boards) -> Finding:
    """LeNet's stall differs more between AGX and Nano without workers than with one: a slower GPU hides more."""
    without, one = (
        value(boards, "stall_time", NANO, LENET, workers=w, storage="hdd")
        / value(boards, "stall_time", XAVIER, LENET, workers=w, storage="hdd")
        for w in (0, 1)
    )
    return Finding(without > 1.1 * one, f"Nano over AGX: without {without:.3g}, with one {one:.3g}")

"""Flags: each is raised by what it is for, and by nothing else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from harness.core.cases import Case, CaseSettings
from harness.core.configuration import NOT_FRESH
from harness.core.profiles import CLEAN, FIRST, RAW_PRUNED, Minibatch, Profile, Series, Telemetry, is_disqualified
from harness.measure import flags as flags_module
from harness.measure.flags import find_flags, flag_meanings
from tests.messages import says
from tests.named_modes import mode_on

CASE = Case("host", "lenet-mnist", mode_on(), 0, "ssd", 10)
CONDITIONS = {
    "cache_residency_before": 1.0,
    "data_samples": 1000,
    "last_loss": 0.5,
    "storage_medium": {"kind": "ssd", "transport": "nvme"},
    "storage_is_default_place": True,
    "data_in_memory": False,
    "power_source": None,
    "accelerator": "cpu",
}
FIGURES = {
    "minibatch_time_ms": 100.0,
    "minibatch_time_q1_ms": 98.0,
    "minibatch_time_q3_ms": 103.0,
    "power_settled_s": 2.0,
}
MINIBATCHES = [
    Minibatch(0, index, CLEAN if index else FIRST, 10.0 + index, 100.0, 900.0, 1000.0) for index in range(11)
]


def flags(case=CASE, telemetry=None, minibatches=MINIBATCHES, figures=None, **conditions):
    profile = Profile(
        case=case,
        provenance="measured",
        conditions={**CONDITIONS, **conditions},
        minibatches=minibatches,
        telemetry=telemetry or sampled("cpu_other_cores", [0.02] * 10),
        aggregates={**FIGURES, **(figures or {})},
        flags=[],
        started_at="2026-01-01T00:00:00+00:00",
    )
    found = find_flags(profile)
    return {flag.partition(":")[0]: flag for flag in found}


def sampled(channel, values, start_s=11.0, **record):
    quiet = Series((11.0,), (0.02,))
    times = tuple(start_s + index for index in range(len(values)))
    return Telemetry(1.0, series={"cpu_other_cores": quiet, channel: Series(times, tuple(values))}, **record)


def asked(storage="ssd", **settings):
    return dataclasses.replace(CASE, storage=storage, settings=CaseSettings(**settings))


QUIET = sampled("cpu_other_cores", [0.02] * 10)
POWER = sampled("power_total_mw", [1.0] * 3)
CAPPED, NEVER_CAPPED = (sampled("gpu_power_capped_share", values) for values in ([0.0, 1.0], [0.0, 0.0]))
DOUBTFUL = sampled("cpu_other_cores", [0.02] * 10, missing={"power_total_mw": "rail POM_5V_GPU reads 8949 mW"})
SHORT = [Minibatch(0, index, CLEAN, 10.0 + index / 100, 1.0, 9.0, 10.0) for index in range(5)]  # 50 ms in all
ON_DATA = {"storage_medium": {"kind": None, "transport": "virtio", "mount_point": "/data"}}
ON_HDD = {"storage_medium": {**ON_DATA["storage_medium"], "kind": "hdd"}}
USE = {
    "gpu_khz": {"set_khz": 1_300_500, "samples": 12, "off": 3},
    "cpu0_khz": {"set_khz": 1, "samples": 9, "off": 0},
}
NEVER = {"power_settled_s": None}


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        ({"telemetry": QUIET}, None, ""),
        ({"telemetry": sampled("cpu_other_cores", [0.5] * 10)}, "disturbed", "other processes used 0.50 cores"),
        ({"telemetry": sampled("cpu_steal_cores", [0.5] * 10)}, "disturbed", "the hypervisor's .* used 0.50 cores"),
        ({"telemetry": sampled("cpu_other_cores", [2.0, 0.0, 0.0, 0.0], start_s=10.5)}, None, "before clean ones"),
        ({"minibatches": SHORT, "telemetry": sampled("cpu_other_cores", [0.3], start_s=10.06)}, None, "one tick"),
        ({"minibatches": SHORT, "telemetry": sampled("cpu_other_cores", [1.0], start_s=10.06)}, "disturbed", ""),
        ({"telemetry": Telemetry(1.0)}, "disturbance-unknown", ""),
        ({"figures": {"minibatch_time_q3_ms": 125.0}}, "noisy", "27% of the median"),
        ({"figures": {"minibatch_time_q3_ms": 110.0}}, None, ""),
        ({"telemetry": sampled("cpu_other_cores", [0.0], lost_samples=3)}, "lost-samples", "3 telemetry samples"),
        ({"telemetry": sampled("cpu_other_cores", [0.0], died_at_s=12.0)}, "telemetry-lost", ""),
        ({"telemetry": POWER, "figures": NEVER}, "power-unsettled", ""),
        ({"figures": NEVER}, None, "without a sensor"),
        ({"telemetry": DOUBTFUL}, "power-gaps", "POM_5V_GPU"),
        ({"telemetry": POWER, "power_source": "rapl", "accelerator": "RTX 3090"}, "power-without-gpu", "RTX"),
        ({"telemetry": POWER, "power_source": "rapl"}, None, ""),
        ({"case": asked(cache="warm"), "cache_residency_before": 0.5}, "not-warm", "50%"),
        ({"case": asked(cache="cold"), "cache_residency_before": 0.0}, None, ""),
        ({"case": asked(cache="cold"), "cache_residency_before": 0.5}, "not-cold", "50%"),
        ({"case": asked(cache="evicted"), "cache_residency_before": 0.5}, "not-cold", "50%"),
        ({"case": asked(cache="as-is"), "cache_residency_before": None}, None, ""),
        ({"case": asked(cache="warm"), "cache_residency_before": None}, "cache-unknown", ""),
        ({"case": asked(cache="cold"), "data_samples": 50, "cache_residency_before": 0.0}, "data-reread", "2.2 times"),
        ({"data_samples": 50}, None, "a warm set stays warm"),
        ({**ON_DATA}, "storage-unverified", "/data"),
        ({**ON_DATA, "storage_is_default_place": False}, None, "somebody said so"),
        ({**ON_HDD}, "storage-mislabelled", "/data"),
        ({**ON_HDD, "case": asked("scratch"), "storage_is_default_place": False}, None, "claims nothing"),
        ({"data_in_memory": True}, "in-memory", ""),
        ({"last_loss": None}, "diverged", ""),
        ({"cpu_quota_throttled_periods": 7}, "cpu-quota", "in 7 periods"),
        ({"cpu_quota_throttled_periods": 0}, None, ""),
        ({"dvfs": "off", "clock_use": USE}, "not-static", "^not-static: gpu_khz was not 1300500 in 3 of 12 samples$"),
        ({"dvfs": "on"}, "not-static", "^not-static: DVFS is on$"),
        ({"dvfs": "off", "memory_clock_free": "why"}, "not-static", "the memory clock is not held: why$"),
        ({"telemetry": CAPPED, "dvfs": "off", "clock_use": USE}, None, "a power limit lowers clocks on purpose"),
        ({"telemetry": NEVER_CAPPED, "dvfs": "off", "clock_use": USE}, "not-static", "gpu_khz"),
        ({"case": asked(clocks="dvfs"), "dvfs": "on", "clock_use": USE}, None, "they may move"),
        ({"clock_use": USE}, None, "nobody can hold them"),
        ({"case": asked(max_temperature_c=80.0), "temperature_limits_c": {}}, "temperature-unwatched", "above 80 C"),
        ({"case": asked(max_temperature_c=80.0), "temperature_limits_c": {"temperature_cpu_c": 80.0}}, None, ""),
        ({"telemetry": sampled("throttle_cpu_state", [1, 1, 0], start_s=5.0)}, None, "before clean ones"),
        ({"telemetry": sampled("throttle_cpu_state", [0, 1, 1], start_s=25.0)}, None, "after clean ones"),
        ({"telemetry": sampled("fan_pwm", [255] * 10), "fan_set_pwm": 255}, None, ""),
        (
            {"telemetry": sampled("fan_pwm", [255, 255, 88, 88, 88]), "fan_set_pwm": 255},
            "fan-moved",
            "^fan-moved: fan_pwm was 88 to 255, not 255, in 3 of 5 samples$",
        ),
        ({"telemetry": sampled("fan_2_pwm", [88] * 5), "fan_set_pwm": 255}, "fan-moved", "in 5 of 5 samples"),
        ({"telemetry": sampled("fan_pwm", [88] * 5)}, None, "it was not set, and did not move"),
        ({"telemetry": sampled("fan_pwm", [66, 88, 88])}, "fan-moved", "^fan-moved: fan_pwm went from 66 to 88$"),
        ({"telemetry": sampled("fan_rpm", [2900, 2700])}, None, "a tachometer is not exact"),
        ({"telemetry": sampled("fan_rpm", [2900, 2900, 1200]), "fan_set_pwm": 255}, "fan-moved", "from 1200 to 2900"),
        ({"telemetry": sampled("fan_pwm", [88, 255], start_s=5.0), "fan_set_pwm": 255}, None, "before clean ones"),
    ],
)
def test_a_flag_is_raised_by_what_it_is_for_and_by_nothing_else(found, kind, words):
    raised = flags(**found)
    assert list(raised) == ([kind] if kind else [])
    assert kind is None or re.search(words, raised[kind])


def test_a_medium_whose_reads_were_held_down_is_named_and_is_still_the_medium():
    found = flags(case=asked("ssd@2.5"), storage_limit_bytes_per_s=2_500_000)
    assert list(found) == ["storage-throttled"]
    assert "limited to 2.5 MB/s" in found["storage-throttled"]
    assert not is_disqualified(list(found.values()))


def test_throttling_is_named_with_when_and_how_long_counted_from_the_first_clean_minibatch():
    state = sampled("throttle_gpu_throttle_alert_state", [0, 0, 1, 1, 0, 0])  # from 13 to 15 s; clean ones from 11 s on
    assert says(flags(telemetry=state)["throttled"], "2.0 s to 4.0 s", "gpu_throttle_alert")
    events = sampled("throttle_oc3_events", [0, 0, 0, 3, 3, 4, 4])
    text = flags(telemetry=events)["throttled"]
    assert re.findall(r"from ([\d.]+) s to ([\d.]+) s by oc3 \((\d) events?\)", text) == [
        ("2.0", "3.0", "3"),
        ("4.0", "5.0", "1"),
    ]


def test_an_idle_device_that_others_use_or_that_trained_before_is_named():
    settings = CaseSettings(minibatches=None, idle_s=10.0)
    idle = {
        "case": dataclasses.replace(CASE, workload="idle", task="idle", settings=settings), "minibatches": [],
        "logging": "on", "clean_process": True, "dvfs": "off",
    }  # fmt: skip
    busy, quiet = (sampled("cpu_other_cores", [cores] * 10) for cores in (0.5, 0.0))
    assert list(flags(telemetry=quiet, **idle)) == []
    assert list(flags(telemetry=busy, **idle)) == ["disturbed"]
    assert list(flags(telemetry=quiet, **{**idle, "clean_process": False})) == ["not-clean"]
    assert list(flags(telemetry=Telemetry(1.0), **{**idle, "logging": "the power sensor alone, every 1 s"})) == []


OWN_LOOP = ("few-minibatches", "ended-early", "unsynchronised", "dropped-minibatches", "untimed-gpus", "other-gpu")


@pytest.mark.parametrize(
    ("conditions", "figures", "kind", "words"),
    [
        ({}, {"clean_minibatches": 2.0}, "few-minibatches", "2 of at least 40"),
        ({}, {"power_samples": 2.0}, "few-minibatches", "2 power samples"),
        ({"ended_by": "ValueError"}, {}, "ended-early", "ValueError"),
        ({"unsynchronised_share": 0.12}, {}, "unsynchronised", "12%"),
        ({"unsynchronised_share": 0.1}, {}, None, ""),
        ({"dropped_minibatches": 3}, {}, "dropped-minibatches", "last 3"),
        ({"untimed_gpus": [1, 3]}, {}, "untimed-gpus", "cuda:1, cuda:3"),
        ({"other_gpu": ["cuda:1 (GPU-5)", "GPU-4"]}, {}, "other-gpu", "ran on cuda:1 (GPU-5)"),
        ({}, {}, None, ""),
    ],
)
def test_a_loop_of_the_users_own_is_flagged_for_what_it_lacks(conditions, figures, kind, words):
    enough = {"clean_minibatches": 40.0, "power_samples": 3.0}
    flagged = flags(telemetry=POWER, figures={**enough, **figures}, trained_by="caller", **conditions)
    assert [each for each in flagged if each in OWN_LOOP] == ([kind] if kind else [])
    assert words in flagged.get(kind, "")
    assert not set(OWN_LOOP) & set(flags(telemetry=POWER, figures=figures, **conditions))  # of the suite's own loop


def idle_flags(values, **record):
    case = dataclasses.replace(CASE, workload="idle", task="idle", settings=CaseSettings(minibatches=None, idle_s=60.0))
    conditions = {"logging": "off", "clean_process": True}
    telemetry = Telemetry(1.0, series={"power_total_mw": Series(tuple(range(len(values))), tuple(values))}, **record)
    return flags(case, telemetry, [], **conditions)


def test_idle_power_that_falls_within_the_minute_is_flagged_and_steady_power_is_not():
    falling = [15_900 - 112 * second for second in range(61)]
    assert says(idle_flags(falling)["power-unsettled"], "14276 mW", "10804 mW")
    assert idle_flags([15_900, *[9_200 + second % 3 for second in range(60)]]) == {}
    assert "rail" in idle_flags([9_200] * 61, missing={"power_total_mw": "rail VDD_IN"})["power-gaps"]


def test_a_sample_above_what_board_or_supply_allow_is_named_with_the_limit():
    limits = [["power_vdd_in_mw", 25_000.0, "the over-current limit of VDD_IN (curr1_crit)"],
              ["power_total_mw", 20_000.0, "what a nano's input may take"]]  # fmt: skip
    rail = sampled("power_vdd_in_mw", [24_000, 26_100, 24_000])
    flag = flags(telemetry=rail, power_limits=limits)["power-peak"]
    assert says(flag, "power_vdd_in_mw", "26100", "25000", "VDD_IN")
    assert "nano" not in flag
    first = sampled("power_vdd_in_mw", [26_100, 24_000], start_s=10.5)  # in the first minibatch, which does not count
    assert "power-peak" in flags(telemetry=first, power_limits=limits)
    before = sampled("power_vdd_in_mw", [26_100, 24_000], start_s=9.5)
    assert "power-peak" not in flags(telemetry=before, power_limits=limits)


def test_every_flag_has_a_meaning():
    """Kinds in the code: texts that begin with `kind: ` where flags are made, and names that devices and stores use."""
    folder = Path(flags_module.__file__).parents[1]
    sources = [Path(flags_module.__file__), folder / "devices" / "host.py", folder / "devices" / "jetson.py"]
    texts = "".join(source.read_text(encoding="utf-8") for source in sources)
    raised = set(re.findall(r"\"([a-z]+(?:-[a-z]+)*): (?=[^\"])", texts)) | {NOT_FRESH, RAW_PRUNED}
    meanings = flag_meanings()
    assert raised == set(meanings)
    assert [kind for kind, meaning in meanings.items() if not meaning.raised] == []

"""A replayed corpus answers what it holds, at once, and says of everything else what it has instead."""

from __future__ import annotations

import re

import pytest

from harness.core.campaigns import Sweep
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError, InvalidValueError, StoreError, UnknownNameError
from harness.core.metrics import AGGREGATES
from harness.core.power_modes import PowerMode
from harness.devices.registry import open_device
from harness.devices.replay import ReplayDevice
from harness.measure.run import check, run
from tests.harness.devices.corpora import MODES, row, rows, write


@pytest.fixture
def device(tmp_path):
    return open_device(f"replay:{write(tmp_path / 'agx.csv', rows())}", Configuration())


def case_of(device, mode=MODES[0], workload="yolov8n-coco", batch_size=16, workers=None, storage=None):
    return Case(device.name, workload, named_mode(device, PowerMode(*mode).name), workers, storage, batch_size)


def profile_of(device, case):
    check(case, device)
    return run(case, device)


def test_a_profile_is_the_recorded_row_and_claims_nothing_more(device):
    assert (device.name, device.provenance, device.board) == ("replay:agx.csv", "replayed", "orin-agx")
    assert case_of(device).id == f"replay:agx.csv-yolov8n-coco-{PowerMode(*MODES[0]).name}-bs16"
    recorded = row(MODES[3])
    profile = profile_of(device, case_of(device, MODES[3]))
    assert profile.provenance == "replayed"
    assert profile.conditions["source_provenance"] == "measured"
    assert profile.conditions["power_mode"] == PowerMode(*MODES[3])._asdict()
    known = {name: value for name, value in profile.aggregates.items() if value is not None}
    assert known == {name: pytest.approx(recorded[name]) for name in ("minibatch_time_ms", "power_mw")}
    assert (profile.minibatches, dict(profile.telemetry.series), profile.flags) == ([], {}, [])


def test_axes_that_are_not_recorded_fall_together(device):
    axes = {"device": ("replay:x/agx.csv",), "workload": ("yolov8n-coco",), "power_mode": ("maxn",),
            "workers": (0, 4), "storage": ("ssd", "sd"), "batch_size": (16,)}  # fmt: skip
    sweep = device.narrow(Sweep(axes, CaseSettings(minibatches=3, cache="evicted")), is_chosen=True)
    assert sweep.axes == {"device": ("replay:agx.csv",), "workload": ("yolov8n-coco",), "power_mode": ("maxn",),
                          "workers": (None,), "storage": (None,), "batch_size": (16,)}  # fmt: skip
    assert sweep.settings == CaseSettings()
    unasked = device.narrow(Sweep(axes, CaseSettings()), is_chosen=False)
    assert unasked.axes["workload"] == ("yolov8n-coco", "lstm-wikitext")


def test_a_mode_that_is_not_recorded_is_an_error_that_names_the_nearest(device):
    with pytest.raises(InvalidValueError) as refused:
        device.power_modes("12c-2201.6-1200-3199")
    assert "12c-2201.6-1300.5-3199" in str(refused.value)
    assert "not among the 12 recorded ones" in str(refused.value)
    with pytest.raises(InvalidValueError, match=r"12c-2201\.6-1300\.5-3199"):
        device.apply(PowerMode(12, 2_201_600, 1_200_000, 3_199_000))


def test_a_mode_that_another_workload_has_is_refused_with_those_of_this_one(device):
    with pytest.raises(CannotRunError, match=f"nearest .*{re.escape(PowerMode(*MODES[0]).name)}"):
        device.check(case_of(device, MODES[1], "lstm-wikitext"))


def test_samples_are_drawn_from_what_is_recorded_of_the_workload(device):
    modes = {mode for _, mode in device.power_modes("sample:6", "lstm-wikitext")}
    assert modes == {PowerMode(*mode) for mode in MODES[::2]}
    with pytest.raises(InvalidValueError, match="draw 1 to 6 from"):
        device.power_modes("sample:7", "lstm-wikitext")
    assert len(device.power_modes("all")) == len(MODES)
    assert device.power_modes("maxn") == [("maxn", PowerMode(*MODES[-1]))]


def test_maxn_is_the_greatest_mode_of_its_own_workload(device):
    profile = profile_of(device, Case(device.name, "lstm-wikitext", named_mode(device, "maxn"), None, None, 16))
    assert profile.conditions["power_mode"]["gpu_khz"] == 420_750  # the greater clock is recorded of the other alone


def test_a_grid_means_the_boards_own_as_far_as_it_is_recorded(device):
    recorded = {mode for _, mode in device.power_modes("grid:paper")}
    assert recorded == {PowerMode(*mode) for mode in MODES if mode[1] == 2_201_600}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workload": "bert-squad"}, "workload in the corpus: yolov8n-coco, lstm-wikitext"),
        ({"batch_size": 8}, "batch_size in the corpus: 16"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(device, change, words):
    with pytest.raises(CannotRunError, match=words):
        device.check(case_of(device, **change))


def test_recorded_workers_select_a_row(tmp_path):
    table = [row(workers=workers, storage="ssd", minibatch_time_ms=100.0 - workers) for workers in (0, 4)]
    device = ReplayDevice(str(write(tmp_path / "w.csv", table, workers=int, storage=str)))
    profile = profile_of(device, case_of(device, workers=4, storage="ssd"))
    assert profile.aggregates["minibatch_time_ms"] == 96.0
    with pytest.raises(CannotRunError, match="with workers 2; it has: 0, 4"):
        device.check(case_of(device, workers=2, storage="ssd"))


def test_further_columns_of_an_export_come_back(tmp_path):
    table = [row(fetch_stall_ms=3.5, flags="noisy: much; disturbed: by others; and more", torch="2.15.0")]
    device = ReplayDevice(str(write(tmp_path / "e.csv", table, fetch_stall_ms=float, flags=str, torch=str)))
    profile = profile_of(device, case_of(device))
    assert profile.aggregates["fetch_stall_ms"] == 3.5
    assert profile.flags == ["noisy: much", "disturbed: by others; and more"]
    assert profile.conditions["recorded"]["torch"] == "2.15.0"
    assert set(profile.aggregates) == set(AGGREGATES)


def test_rows_that_cannot_be_told_apart_are_refused(tmp_path):
    table = [row(seed=1), row(seed=2)]
    device = ReplayDevice(str(write(tmp_path / "t.csv", table, seed=int)))
    with pytest.raises(CannotRunError, match=r"holds 2 rows .* which differ in seed"):
        device.check(case_of(device))


def test_of_a_case_that_was_measured_repeatedly_the_medians_are_replayed_unless_its_times_contradict(tmp_path):
    def replayed(*times_ms):
        table = [row(minibatch_time_ms=time_ms, power_mw=100 * time_ms, note=f"{time_ms}") for time_ms in times_ms]
        device = ReplayDevice(str(write(tmp_path / "t.csv", table, note=str)))
        return profile_of(device, case_of(device)).aggregates

    repeated = replayed(100.0, 103.0, 110.0)
    assert (repeated["minibatch_time_ms"], repeated["power_mw"]) == (103.0, 10_300.0)
    with pytest.raises(CannotRunError, match=r"holds 2 rows .* which differ in minibatch_time_ms, power_mw"):
        replayed(100.0, 130.0)


def test_of_several_devices_one_is_chosen(tmp_path):
    path = write(tmp_path / "two.csv", [row(), row(device="my-board")])
    with pytest.raises(InvalidValueError, match=r"several devices: orin-agx, my-board; .*two\.csv@orin-agx"):
        ReplayDevice(str(path))
    assert ReplayDevice(f"{path}@my-board").name == "replay:two.csv@my-board"
    with pytest.raises(UnknownNameError, match="'tx2'; available: my-board, orin-agx"):
        ReplayDevice(f"{path}@tx2")


def test_a_file_that_is_not_there_or_empty_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="cannot read"):
        ReplayDevice(str(tmp_path / "none.csv"))
    with pytest.raises(InvalidValueError, match="holds no row"):
        ReplayDevice(str(write(tmp_path / "empty.csv", [])))

"""`recommend` with a program as the workload, rehearsed on a simulated board; what it refuses beside one."""

from __future__ import annotations

import sys

import pytest

from harness.core.errors import CannotRunError, HarnessError, InvalidValueError
from harness.core.power_modes import MOST_FAILURES, NO_SETTINGS, parse_power_mode
from harness.store.frames import profiles
from harness.store.results import ResultsStore
from harness.workloads.command import Command
from predictors.choose.recommend import recommend
from predictors.choose.request import Job, Search
from predictors.choose.tuning import tuning
from predictors.plans.concurrent import concurrent
from tests.harness.failing_command import failing_in

pytest.importorskip("sklearn")

REHEARSED = Command(["no-such-program"], name="mine", rehearse_as="resnet18-cifar10")


def test_a_command_is_searched_for_as_a_workload_is(tmp_path):
    search = Search(profiles=6, results=tmp_path / "r.sqlite")
    answer = recommend("sim:orin-agx", workload=REHEARSED, power_w=25, search=search)
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        frame = profiles(store)
    assert list(frame["task"].unique()) == ["command"]
    assert len(frame) == 6
    chosen = answer.recommendations[0][0].mode
    assert answer.keeps_limits
    assert chosen.power_mw.value <= 25_000
    assert 1000 * frame["wall_time_s"].min() < chosen.time_ms.value <= 1000 * frame["wall_time_s"].max()
    again = recommend("sim:orin-agx", workload=REHEARSED, power_w=25, search=Search(**{**vars(search), "resume": True}))
    assert again.power_mode == answer.power_mode
    assert "6 of them from the results file" in str(again)


def fails_with_few_cores(name):
    return parse_power_mode(name, NO_SETTINGS).cpu_cores < 9


def test_a_search_goes_on_after_modes_in_which_the_command_fails_and_names_them(monkeypatch):
    tried = failing_in(monkeypatch, fails_with_few_cores)
    answer = recommend("sim:orin-agx", workload=REHEARSED, power_w=25, search=Search(profiles=10))
    failures = [fails_with_few_cores(name) for name in tried]
    assert "111" in "".join(str(int(failed)) for failed in failures)  # so many in a row end other searches
    assert len(tried) == 10
    assert not fails_with_few_cores(answer.power_mode.name)
    assert str(answer).count("failed:      ") == sum(failures)
    assert [each["mode"] for each in answer.plain()["failed"]] == [name for name in tried if fails_with_few_cores(name)]


def test_a_command_that_fails_in_each_of_the_first_modes_ends_the_search_with_its_reason(monkeypatch):
    tried = failing_in(monkeypatch, lambda name: True)
    with pytest.raises(CannotRunError) as ended:
        recommend("sim:orin-agx", workload=REHEARSED, power_w=25, search=Search(profiles=10))
    assert len(tried) == MOST_FAILURES
    assert all(name in ended.value.what for name in tried)
    assert "exit code 7" in ended.value.what
    assert "no memory left" in ended.value.hint


@pytest.mark.parametrize(
    "call",
    [
        lambda: recommend("sim:orin-agx", workload=Job(REHEARSED, batch_size=8), power_w=25),
        lambda: recommend("sim:orin-agx", workload=Job(REHEARSED, epochs=3), power_w=25),
        lambda: recommend("sim:orin-agx", workload=REHEARSED, power_w=25, search=Search(memory_limit_mib=100)),
        lambda: recommend("sim:orin-agx", workload=REHEARSED, power_w=25, search=Search(percentile=95)),
        lambda: recommend("sim:orin-agx", workload=REHEARSED, power_w=25, writes_conf=True),
        lambda: recommend("pool:boards", workload=REHEARSED, power_w=25),
        lambda: recommend("sim:orin-agx", workload=["lenet-mnist", REHEARSED], power_w=25),
        lambda: tuning("sim:orin-agx", workload=REHEARSED, power_w=25).__enter__(),
        lambda: concurrent("sim:orin-agx", training=REHEARSED, inference="lenet-mnist", arrival_rate=1, latency_ms=99),
    ],
    ids=["sizes", "epochs", "memory", "percentile", "conf", "pool", "several", "tuning", "concurrent"],
)
def test_what_does_not_apply_to_a_command_is_refused(call):
    with pytest.raises(InvalidValueError, match="command"):
        call()


def test_a_simulated_board_needs_a_workload_in_the_place_of_a_command():
    with pytest.raises(CannotRunError, match="rehearse_as="):
        recommend("sim:orin-agx", workload=Command(["no-such-program"]), power_w=25)


def test_a_machine_without_a_power_sensor_runs_nothing(tmp_path):
    started = tmp_path / "started"
    command = Command([sys.executable, "-c", f"open({str(started)!r}, 'w')"], name="touch")
    with pytest.raises(HarnessError, match="power"):
        recommend("host", workload=command, power_w=25, search=Search(root=tmp_path))
    assert not started.exists()

"""A device behind a search: which errors end it, which one mode is left out for, and profiles that are taken again."""

from __future__ import annotations

import contextlib

import pytest

from harness.core.cases import Case, CaseSettings
from harness.core.errors import (
    CannotRunError,
    ControlError,
    DoesNotFitError,
    OverBudgetError,
    OverheatedError,
    SourceUnavailableError,
    StoreError,
    UnwatchedError,
)
from harness.core.power_modes import PowerMode
from harness.core.profiles import Minibatch, Profile, Series, Telemetry
from harness.store.results import ResultsStore
from predictors.choose.device_profiler import COOLING_S, DeviceProfiler, RunResults
from predictors.choose.on_device import PowerPeak, WithinPeak
from predictors.choose.request import Search
from predictors.goals import Goal
from predictors.settings import Settings
from predictors.strategies.protocol import FailedMode, History, MeasuredMode, Strategy
from tests.named_modes import mode_on

MODES = [PowerMode(cores, cpu, gpu, 3_199_000) for cores in (2, 4) for cpu in (8, 16) for gpu in (3, 6)]
NAMES = [f"mode{place}" for place in range(len(MODES))]
DISTURBED = "disturbed: other processes used 1.5 CPUs"
REFUSED = ControlError("power mode did not take", "see dmesg")
HOT = OverheatedError("temperature_gpu_c is 102, and the run ends above 101.5", "let it cool down")
UNWATCHED = UnwatchedError("the telemetry sampler gave no sample for 14 s", "end other programs")


class Board:
    """Answers each profile with what stands in its list: an error, flags, or minibatch times with flags."""

    name, clocks_only_fall = "orin-agx", False

    def __init__(self, *answers, provenance="measured", refuses=None, power_mw=20_000.0):
        self.provenance, self._answers, self._refuses, self._power_mw = provenance, list(answers), refuses, power_mw
        self.profiled = []

    def check(self, case):
        if self._refuses is not None:
            self._refuses(case)

    def conditions(self, case):
        told = {"power_source": "ina", "data_in_memory": True, "storage_medium": {"kind": "ssd"}}
        return {**told, "power_mode": {"name": case.power_mode.name}}

    def profile(self, case):
        self.profiled.append(case.power_mode.name)
        answer = self._answers.pop(0) if self._answers else ()
        if isinstance(answer, Exception):
            raise answer
        time_ms, flags = answer or (50.0, [])
        minibatches = [Minibatch(0, 0, "clean", 10.0, 0.0, time_ms, time_ms)]
        telemetry = Telemetry(1.0, series={"power_total_mw": Series((8.0,), (20_000.0,))})
        powers_mw = self._power_mw
        figures = {
            "minibatch_time_ms": time_ms,
            "power_mw": powers_mw.pop(0) if isinstance(powers_mw, list) else powers_mw,
        }
        return Profile(
            case, self.provenance, self.conditions(case), minibatches, telemetry, figures, list(flags),
            "2025-01-01T00:00:00+00:00",
        )  # fmt: skip


def profiler_of(board, **options):
    case = Case("orin-agx", "mobilenetv3-gld23k", mode_on("orin-agx"), 4, "ssd", 16, CaseSettings())
    return DeviceProfiler(board, case, list(zip(NAMES, MODES)), **{"wait": lambda seconds: None, **options})


@pytest.mark.parametrize("error", [REFUSED, CannotRunError("it does not fit into the memory", "a smaller batch")])
def test_a_mode_that_cannot_be_profiled_has_failed_and_is_not_tried_again(error):
    board = Board(error)
    profiler = profiler_of(board)
    found = profiler.profile(3)
    assert isinstance(found, FailedMode)
    assert found.reason == str(error)
    assert profiler.profile(3) is found
    assert profiler.profile(2).time_ms == 50.0
    assert board.profiled == ["mode3", "mode2"]


@pytest.mark.parametrize(
    "error",
    [
        StoreError("disk full"),
        SourceUnavailableError("no sensor"),
        OverBudgetError("5min is spent"),
        KeyboardInterrupt(),
    ],
)
def test_what_concerns_the_whole_device_ends_the_search(error):
    def interrupted(case):
        raise error

    with pytest.raises(type(error)):
        profiler_of(Board(refuses=interrupted)).profile(3)


def test_a_write_that_needs_a_right_ends_the_search():
    error = ControlError("writing 1 was refused", "grant it")
    error.__cause__ = PermissionError(13, "Permission denied")
    with pytest.raises(ControlError, match="grant it"):
        profiler_of(Board(error)).profile(3)


class Falling(Board):
    """Of a kind some of whose releases only lower clocks."""

    clocks_only_fall = True


@pytest.mark.parametrize("before", [[], [2], [3, 0]])
def test_where_clocks_may_only_fall_a_refused_rise_ends_the_search_for_a_reboot_may_bring_it(before):
    profiler = profiler_of(Falling(*[()] * len(before), REFUSED))
    for index in before:
        profiler.profile(index)
    with pytest.raises(ControlError):
        profiler.profile(5)  # CPU 8, GPU 6


@pytest.mark.parametrize("before", [[3], [2, 1]])
def test_a_refusal_that_is_no_rise_or_comes_after_one_is_of_the_mode_there_too(before):
    profiler = profiler_of(Falling(*[()] * len(before), REFUSED))
    for index in before:
        profiler.profile(index)
    assert isinstance(profiler.profile(5), FailedMode)


def test_a_refusal_in_the_same_words_for_another_mode_is_none_of_the_mode():
    def everywhere(case):
        raise CannotRunError("batches of 16 are too small", "--batch-size 32")

    with pytest.raises(CannotRunError, match="--batch-size 32"):
        profiler_of(Board(refuses=everywhere)).profile(0)


def test_a_refusal_of_one_mode_is_of_the_mode():
    def this_one(case):
        if case.power_mode.name == "mode0":
            raise CannotRunError("mode0 takes a reboot")

    profiler = profiler_of(Board(refuses=this_one))
    assert profiler.profile(0).reason == "mode0 takes a reboot"
    assert profiler.profile(1).time_ms == 50.0


def test_a_mode_that_is_too_hot_is_left_out_with_all_that_are_nowhere_below_it_after_a_pause():
    waited = []
    profiler = profiler_of(Board(HOT), wait=waited.append)
    found = profiler.profile(3)  # 2 cores, both clocks at their greatest
    assert waited == [COOLING_S]
    assert found.rules_out == (7,)
    assert "temperature_gpu_c is 102" in found.reason
    assert profiler.profile(0).time_ms == 50.0


def test_a_board_that_is_too_hot_twice_in_a_row_ends_the_search():
    profiler = profiler_of(Board(HOT, HOT))
    profiler.profile(3)
    with pytest.raises(OverheatedError, match="cool down"):
        profiler.profile(0)


def test_a_board_that_was_hot_and_has_cooled_down_may_be_hot_again():
    profiler = profiler_of(Board(HOT, (), HOT))
    assert [isinstance(profiler.profile(index), FailedMode) for index in (3, 0, 6)] == [True, False, True]


def test_a_disturbed_profile_is_taken_once_more_and_the_undisturbed_one_counts(tmp_path):
    board = Board((70.0, [DISTURBED]), (50.0, []))
    with ResultsStore(tmp_path / "r.sqlite") as store:
        profiler = profiler_of(board, results=RunResults(store))
        assert profiler.profile(3).time_ms == 50.0
        assert len(store) == 2
    assert board.profiled == ["mode3", "mode3"]
    assert profiler.flagged == {}


def test_a_mode_whose_temperature_was_lost_is_profiled_once_more_and_twice_ends_the_search():
    waited = []
    board = Board(UNWATCHED, (), UNWATCHED, UNWATCHED)
    profiler = profiler_of(board, wait=waited.append)
    assert profiler.profile(3).time_ms == 50.0
    with pytest.raises(UnwatchedError, match="end other programs"):
        profiler.profile(0)
    assert board.profiled == ["mode3", "mode3", "mode0", "mode0"]
    assert waited == []  # nothing was hot


def test_both_takes_are_paid_for():
    once, twice = profiler_of(Board()).profile(3), profiler_of(Board((50.0, [DISTURBED]))).profile(3)
    assert twice.seconds == pytest.approx(2 * once.seconds)


@pytest.mark.parametrize("times_ms", [(70.0, 55.0), (55.0, 70.0)])
def test_a_mode_that_stays_disturbed_is_profiled_twice_the_quicker_counts_and_it_is_said(times_ms):
    board = Board(*((time_ms, [DISTURBED]) for time_ms in times_ms))
    profiler = profiler_of(board)
    assert profiler.profile(3).time_ms == 55.0
    assert board.profiled == ["mode3", "mode3"]
    assert profiler.flagged == {3: [DISTURBED]}


@pytest.mark.parametrize(
    ("flag", "provenance"),
    [(DISTURBED, "simulated"), (DISTURBED, "replayed"), ("noisy: 95 % interval of the median is 6 %", "measured")],
)
def test_what_is_not_measured_now_or_does_not_spoil_the_time_is_not_taken_again(flag, provenance):
    board = Board((50.0, [flag]), provenance=provenance)
    profiler_of(board).profile(3)
    assert board.profiled == ["mode3"]


@pytest.mark.parametrize(
    ("before", "now", "time_ms", "is_resumed", "flagged"),
    [
        ([(70.0, [DISTURBED]), (50.0, [])], [], 50.0, True, {}),
        ([(70.0, [DISTURBED]), (60.0, [DISTURBED])], [], 60.0, True, {3: [DISTURBED]}),
        ([(70.0, [DISTURBED]), StoreError("the power went")], [(52.0, [])], 52.0, False, {}),
    ],
    ids=["the undisturbed one", "disturbed twice", "disturbed once"],
)
def test_resuming_takes_what_is_stored_and_measures_what_is_missing(
    tmp_path, before, now, time_ms, is_resumed, flagged
):
    with ResultsStore(tmp_path / "r.sqlite") as store:
        with contextlib.suppress(StoreError):
            profiler_of(Board(*before), results=RunResults(store)).profile(3)
        board = Board(*now)
        again = profiler_of(board, results=RunResults(store), search=Search(resume=True))
        assert again.profile(3).time_ms == time_ms
    assert (board.profiled, again.resumed, again.flagged) == (["mode3"] * len(now), is_resumed, flagged)


def test_a_search_of_a_slurm_job_that_was_queued_again_goes_on_with_what_the_job_stored(tmp_path, monkeypatch):
    """Without resume; of another job nothing counts, and the job is in the record."""
    lines = []

    def search(job, restarts, *takes):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        board = Board(*takes)
        with ResultsStore(tmp_path / "r.sqlite") as store:
            profiler = profiler_of(board, results=RunResults(store), report=lines.append)
            return profiler.profile(3).time_ms, board.profiled

    assert search("12", "0", (50.0, [])) == (50.0, ["mode3"])
    assert search("12", "1") == (50.0, [])
    assert "Slurm job 12 was queued again" in lines[-1]
    assert search("13", "1", (60.0, [])) == (60.0, ["mode3"])
    with ResultsStore(tmp_path / "r.sqlite") as store:
        jobs = [(record.conditions["slurm_job"], record.conditions["slurm_restarts"]) for record in store.records()]
    assert jobs == [("12", 0), ("13", 1)]


def test_a_profile_without_a_sample_of_power_is_taken_once_more_and_the_one_with_power_counts():
    board = Board((50.0, []), (60.0, [DISTURBED]), power_mw=[None, 21_000.0])
    profiler = profiler_of(board)
    assert profiler.profile(3)[:2] == (60.0, 21_000.0)
    assert board.profiled == ["mode3", "mode3"]
    assert profiler.flagged == {3: [DISTURBED]}
    without_sensor = Board(power_mw=[None, 21_000.0])
    without_sensor.conditions = lambda case: {**Board.conditions(without_sensor, case), "power_source": None}
    with pytest.raises(SourceUnavailableError, match="gave no power"):
        profiler_of(without_sensor).profile(3)
    assert without_sensor.profiled == ["mode3"]


def test_power_that_is_gone_ends_the_search():
    with pytest.raises(SourceUnavailableError, match="gave no power"):
        profiler_of(Board(power_mw=None)).profile(3)


def test_where_a_batch_does_not_fit_into_the_memory_no_greater_one_is_tried():
    profiler = profiler_of(Board(DoesNotFitError("it does not fit")), batch_sizes=(8, 16, 32))
    found = profiler.profile(1)  # batch size 16 of the first mode
    left_out = profiler.candidates.batch_size[[1, *found.rules_out]]
    assert sorted(left_out) == [16] * len(MODES) + [32] * len(MODES)
    assert "batch sizes of 16 and more" in found.reason


class Searched:
    """A profiler of five modes of 10, 20, ... W and 50, 40, ... ms, whose peaks are a fifth above."""

    task = "training"
    candidates = Settings.of(MODES[:5])

    def __init__(self, told=range(5)):
        self.peaks, self._told = {}, told

    def profile(self, index):
        power_mw = 10_000.0 * (index + 1)
        if index in self._told:
            self.peaks[index] = PowerPeak(1.2 * power_mw, 1.0, "")
        return MeasuredMode(50.0 - 10 * index, power_mw, 1.0)


class Known(Strategy):
    """Knows power and time of all modes beforehand, and profiles none."""

    def choose(self, history, goal):
        within = [place for place in range(5) if 10_000 * (place + 1) <= goal.limits["power_mw"]]
        return history.choice(max(within, default=0), "known", bool(within))


@pytest.mark.parametrize(
    ("budget_mw", "power_mw", "chosen", "feasible"),
    [(50_000, None, 3, True), (36_000, None, 2, True), (35_999, None, 1, True), (60_000, 25_000, 1, True),
     (11_999, None, 0, False)],
)  # fmt: skip
def test_the_mode_that_is_named_keeps_a_limit_of_peaks(budget_mw, power_mw, chosen, feasible):
    profiler = Searched()
    goal = Goal("time_ms", {} if power_mw is None else {"power_mw": power_mw})
    choice = WithinPeak(Known(), budget_mw, profiler.peaks).choose(History(profiler, 5), goal)
    assert (choice.index, choice.feasible) == (chosen, feasible)
    assert not feasible or profiler.peaks[choice.index].peak_mw <= budget_mw


def test_a_mode_whose_peak_is_not_told_is_not_named():
    profiler = Searched(told=())
    with pytest.raises(CannotRunError, match="has no peak power"):
        WithinPeak(Known(), 50_000, profiler.peaks).choose(History(profiler, 5), Goal())

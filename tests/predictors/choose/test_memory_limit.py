"""A batch size that needs more memory than allowed is never started: it is predicted from smaller ones."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jetwatt
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.errors import InvalidValueError, OverMemoryLimitError, SourceUnavailableError
from harness.core.power_modes import PowerMode
from harness.core.profiles import Minibatch, Profile, Telemetry
from harness.devices import registry
from harness.devices.registry import open_device
from harness.workloads.counting import MemoryFloor
from predictors.choose import device_profiler
from predictors.choose.device_profiler import DeviceProfiler
from predictors.choose.memory_limit import GENEROUS, MARGIN, MemoryLimit, predicted_bytes
from predictors.choose.on_device import profiler_of as profiler_of_answer
from predictors.choose.request import Search
from predictors.strategies.protocol import FailedMode, MeasuredMode
from tests.messages import says
from tests.named_modes import mode_on

MIB = 2**20
MODES = [("low", PowerMode(2, 8, 3, 3_199_000)), ("high", PowerMode(4, 16, 6, 3_199_000))]


class Board:
    """Takes 500 MiB and 10 MiB a sample; notes each batch size that it starts."""

    name, clocks_only_fall, provenance = "orin-agx", False, "measured"

    def __init__(self, has_memory=True, jumps_at=None):
        self.started, self._has_memory, self._jumps_at = [], has_memory, jumps_at

    def check(self, case):
        pass

    def conditions(self, case):
        return {"power_source": "ina", "data_in_memory": True, "storage_medium": {"kind": "ssd"}, "power_mode": {}}

    def profile(self, case):
        self.started.append(case.batch_size)
        needed = (500 + 10 * case.batch_size) * MIB
        if self._jumps_at is not None and case.batch_size >= self._jumps_at:
            needed += 2000 * MIB
        figures = {"minibatch_time_ms": 50.0, "power_mw": 20_000.0}
        if self._has_memory:
            figures["memory_peak_bytes"] = needed
        minibatches = [Minibatch(0, 0, "clean", 10.0, 0.0, 50.0, 50.0)]
        return Profile(
            case, self.provenance, self.conditions(case), minibatches, Telemetry(1.0), figures, ["noted"],
            "2025-01-01T00:00:00+00:00",
        )  # fmt: skip


def profiler_of(board, sizes, limit_mib, workload="mobilenetv3-gld23k"):
    case = Case("orin-agx", workload, mode_on("orin-agx"), 4, "ssd", sizes[0], CaseSettings())
    return DeviceProfiler(board, case, MODES, batch_sizes=sizes, search=Search(memory_limit_mib=limit_mib))


def places_of(profiler):
    return {int(size): place for place, size in enumerate(profiler.candidates.batch_size)}


@pytest.mark.parametrize(
    ("sizes", "limit_mib", "fit"),
    [
        ((16, 32, 64, 128), 1300, {16, 32, 64}),  # 128 takes 1780
        ((16, 32, 64, 128), 5000, {16, 32, 64, 128}),
        ((16, 32, 64, 128), 720, {16}),  # 16 takes 660
        ((128, 512), 1900, {128}),
    ],
)
def test_a_size_that_needs_more_than_the_limit_is_never_started_even_where_it_is_asked_for_first(sizes, limit_mib, fit):
    board = Board()
    profiler = profiler_of(board, sizes, limit_mib)
    for size, place in sorted(places_of(profiler).items(), reverse=True):
        result = profiler.profile(place)
        assert isinstance(result, MeasuredMode if size in fit else FailedMode), size
        if size not in fit:
            assert set(result.rules_out) >= {at for at, own in enumerate(profiler.candidates.batch_size) if own > size}
    assert all(500 + 10 * size <= limit_mib for size in board.started)
    assert fit <= set(board.started)


def test_the_refusal_has_the_prediction_and_the_sizes_it_comes_from():
    profiler = profiler_of(Board(), (16, 64), 900)
    refused = profiler.profile(places_of(profiler)[64])
    assert says(refused.reason, "64", "1140 MiB", "1 and 2")
    assert "limit of 900 MiB" in refused.reason


def test_where_the_smallest_size_does_not_fit_the_search_ends_before_it_is_started():
    board = Board()
    profiler = profiler_of(board, (64, 128), 900)
    with pytest.raises(OverMemoryLimitError, match="batches of 64 need about 1140 MiB"):
        profiler.profile(places_of(profiler)[64])
    assert max(board.started) < 64


def test_a_size_that_was_started_and_took_more_is_refused_with_all_larger_ones():
    """A library that takes another algorithm from some size on, and with it more memory than the line has."""
    board = Board(jumps_at=24)
    profiler = profiler_of(board, (16, 24, 32), 1800)
    assert isinstance(profiler.profile(places_of(profiler)[16]), MeasuredMode)
    failed = profiler.profile(places_of(profiler)[24])
    assert says(failed.reason, "24", "2740 MiB", "1800 MiB")
    assert isinstance(profiler.profile(places_of(profiler)[32]), FailedMode)
    assert max(board.started) == 24


def test_small_sizes_whose_memory_hides_below_what_a_process_takes_anyway_do_not_decide_on_large_ones():
    """A process takes 700 MiB to load its libraries, which batches of up to 20 samples do not exceed."""
    started = []

    def needed(size):
        started.append(size)
        return max(700.0, 500.0 + 10 * size) * MIB

    memory = MemoryLimit(1500 * MIB, [16, 128])
    with pytest.raises(OverMemoryLimitError, match="batches of 128 need about"):
        memory.check(128, needed)
    assert started == [1, 2, 4, 8, 16, 32]


def test_the_peak_of_a_size_is_described_as_profiled_or_predicted():
    memory = MemoryLimit(1500 * MIB, [16])
    assert memory.describe(16) == ""
    for size in (4, 8):
        memory.add(size, (500 + 10 * size) * MIB)
    assert says(memory.describe(8), "580 MiB", "profiled", "limit 1500 MiB")
    assert says(memory.describe(16), "660 MiB", "predicted", "limit 1500 MiB")


def test_a_profile_without_memory_ends_the_search_with_the_reason():
    profiler = profiler_of(Board(has_memory=False), (16, 64), 900)
    with pytest.raises(SourceUnavailableError, match="has no peak memory"):
        profiler.profile(0)


@pytest.mark.parametrize(("limit_mib", "most"), [(4500, 32), (100_000, 128)])
@pytest.mark.exhaustive
def test_a_memory_limit_is_rehearsed_on_a_simulated_board(limit_mib, most):
    """Of 4500 MiB, 1431 are the network's, 1068 its workers', and a sample takes 42: 47 samples fit."""
    search = jetwatt.Search(profiles=6, memory_limit_mib=limit_mib)
    job = jetwatt.Job("mobilenetv3-gld23k", batch_size=[16, 32, 64, 128])
    answer = jetwatt.recommend("sim:xavier-nx", workload=job, power_w=12, goal="throughput", search=search)
    [[recommendation]] = answer.recommendations
    assert recommendation.choice.batch_size == most
    profiled = profiler_of_answer(recommendation.history)
    assert "MiB at its peak" in profiled.memory.describe(most)
    assert max(profiled.candidates.batch_size[index] for index in recommendation.history.taken) <= most


def test_inference_keeps_no_activations_in_a_rehearsal():
    board, case = (
        open_device("sim:nano", Configuration()),
        Case("sim:nano", "yolov8n-coco", mode_on("nano"), 4, "ssd", 64),
    )
    serving = dataclasses.replace(case, task="inference")
    assert board.peak_memory_bytes(serving) < board.peak_memory_bytes(case) / 2


def test_a_replayed_corpus_has_no_memory_to_limit(tmp_path):
    jetwatt.write_corpus(tmp_path / "c.csv", jetwatt.load_table("loudva-nano"))
    search = jetwatt.Search(memory_limit_mib=900)
    job = jetwatt.Job("inception-triton", task="inference")
    with pytest.raises(InvalidValueError, match=r"no peak memory .*replayed"):
        jetwatt.recommend(f"replay:{tmp_path / 'c.csv'}", workload=job, power_w=20, search=search)


@given(st.floats(0, 1e9), st.floats(0, 1e7), st.lists(st.integers(1, 512), min_size=2, max_size=5, unique=True))
def test_memory_that_is_a_line_is_predicted_exactly(fixed, per_sample, sizes):
    profiled = {size: fixed + per_sample * size for size in sizes}
    for size in (1, 100, 1000):
        expected = fixed + per_sample * size
        assert predicted_bytes(profiled, size) == pytest.approx(expected, rel=1e-6, abs=1.0)
    assert predicted_bytes({16: 1.0}, 32) is None


@given(
    st.integers(0, 2000), st.integers(0, 200), st.lists(st.integers(8, 512), min_size=1, unique=True),
    st.integers(100, 20_000),
)  # fmt: skip
def test_whatever_is_asked_for_nothing_beyond_the_limit_is_started(fixed, per_sample, sizes, limit):
    def needed(size):
        return float(fixed + per_sample * size)

    started = []

    def measure(size):
        started.append(size)
        return needed(size)

    memory = MemoryLimit(limit, sizes)
    for size in sizes:
        try:
            memory.check(size, measure)
        except OverMemoryLimitError:
            assert MARGIN * needed(size) > limit
        else:
            memory.add(size, measure(size))
    # Without a count, the smallest size and one sample more are all that nothing predicts.
    assert all(needed(size) <= limit for size in started if size > 2)


@given(
    st.integers(0, 2000), st.integers(1, 200), st.floats(1, GENEROUS),
    st.lists(st.integers(2, 512), min_size=1, unique=True), st.integers(100, 20_000), st.sampled_from([1, 2]),
)  # fmt: skip
def test_with_a_count_only_the_smallest_size_and_one_sample_more_may_exceed_the_limit(
    fixed, counted, growth, sizes, limit, smallest
):
    """A sample takes `growth` times what was counted."""

    def needed(size):
        return fixed + growth * counted * size

    started = []

    def measure(size):
        started.append(size)
        return needed(size)

    memory = MemoryLimit(limit, sizes, smallest, lambda: MemoryFloor(fixed, counted, "weights"))
    for size in sizes:
        try:
            memory.check(size, measure)
        except OverMemoryLimitError:
            assert MARGIN * needed(size) > limit
        else:
            memory.add(size, measure(size))
    assert all(needed(size) <= limit for size in started if size > smallest + 1)
    assert all(fixed + counted * size <= limit for size in started)


def floor_of(fixed_mib, sample_mib):
    return MemoryFloor(fixed_mib * MIB, sample_mib * MIB, "weights and activations")


def test_a_size_whose_counted_memory_exceeds_the_limit_is_refused_before_anything_is_started():
    memory = MemoryLimit(900 * MIB, [64], count=lambda: floor_of(300, 10))
    with pytest.raises(OverMemoryLimitError, match=r"64 .*940 MiB "):
        memory.check(64, lambda size: pytest.fail(f"{size} was started"))


@pytest.mark.parametrize(
    ("limit_mib", "expected"),
    [
        (5000, [4, 8, 16]),
        (700, [4, 8, 16]),  # 8 takes at most 540 + 4 x 20
        (640, [4, 8]),  # 16 takes 660 by the line through 4 and 8
        (600, [4]),  # 16 takes 600 at least, and that leaves nothing in reserve
        (570, []),  # 16 needs 580 at least
    ],
)
def test_the_second_size_is_the_largest_that_fits_if_a_sample_takes_several_times_its_count(limit_mib, expected):
    started = []

    def measure(size):
        started.append(size)
        return (500 + 10 * size) * MIB

    memory = MemoryLimit(limit_mib * MIB, [16, 32], count=lambda: floor_of(500, 5))
    with contextlib.suppress(OverMemoryLimitError):
        memory.check(16, measure)
        started.append(16)
    assert started == expected


def test_a_case_that_exceeds_the_limit_ends_and_is_not_started_again(monkeypatch):
    """The loop's own watch: it ends a case after the minibatch that took too much."""
    board, started = Board(), []

    def watched(case, device, report, memory_limit_bytes):
        started.append(case.batch_size)
        peak_bytes = (500 + 10 * case.batch_size) * MIB
        if peak_bytes > memory_limit_bytes:
            raise OverMemoryLimitError("it took too much", "", peak_bytes)
        return board.profile(case)

    monkeypatch.setattr(device_profiler, "run", watched)
    profiler = profiler_of(board, (16, 64), 505)
    failed = profiler.profile(places_of(profiler)[64])
    assert says(failed.reason, "510 MiB", "limit of 505 MiB")
    with pytest.raises(OverMemoryLimitError, match="batches of 1 took 510 MiB"):
        profiler.profile(places_of(profiler)[16])
    assert started == [1]


@pytest.mark.exhaustive
def test_recommend_starts_no_size_beyond_the_limit_and_lists_what_it_left_out(monkeypatch):
    board = open_device("sim:nano", Configuration())
    simulated_profile, started = board.profile, []

    def measured_profile(case):
        started.append(case.batch_size)
        profile = simulated_profile(case)
        aggregates = {**profile.aggregates, "memory_peak_bytes": (500 + 10 * case.batch_size) * MIB}
        return dataclasses.replace(profile, provenance="measured", aggregates=aggregates)

    monkeypatch.setattr(board, "profile", measured_profile)
    monkeypatch.setattr(board, "provenance", "measured")
    monkeypatch.setattr(registry, "open_device", lambda *arguments: board)
    job = jetwatt.Job("mobilenetv3-gld23k", batch_size=[16, 32, 64, 128])
    search = jetwatt.Search(profiles=6, memory_limit_mib=1300)
    answer = jetwatt.recommend("sim:nano", workload=job, power_w=8, search=search)
    assert set(started) >= {1, 2}
    assert max(started) <= 64
    [[recommendation]] = answer.recommendations
    size = recommendation.choice.batch_size
    assert size <= 64
    assert f"\nmemory:      {500 + 10 * size} MiB at its peak, profiled; limit 1300 MiB\n" in repr(answer)

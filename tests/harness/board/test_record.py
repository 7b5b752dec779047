"""The sampler's lines become a Telemetry, whatever happens to the sampler, a source, or the last line."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.board.sampler import SAMPLER, SamplerRecord
from harness.core.profiles import Series

OPENED = {"notes": {"a_mw": "what it is"}, "missing": {}}
SOURCES = ["one", "two"]


def sample(time_s, values, failed=None, lost=0, last=False):
    return {"time_s": time_s, "values": values, "failed": failed or {}, "lost": lost, "cpu_s": 0.01, "last": last}


def lines(*parts):
    return "".join(json.dumps(part) + "\n" for part in parts).encode()


@pytest.fixture
def file(tmp_path):
    fd = os.open(tmp_path / "lines", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def record_of(file, *samples, opened=OPENED):
    record = SamplerRecord(SOURCES)
    os.write(file, lines(opened, *samples))
    assert record.take_in(file) == len(samples)
    return record


def telemetry(record, stopped_s):
    return record.telemetry(interval_s=1.0, started_s=0.0, stopped_s=stopped_s, how_it_ended="ended with status -9")


def test_samples_become_series_with_their_own_times(file):
    record = record_of(
        file,
        sample(0.5, {"one": {"a_mw": 1}, "two": {}}),
        sample(1.5, {"one": {"a_mw": 2}, "two": {"b_c": 7}}, lost=2),
        sample(1.75, {"one": {"a_mw": 3}, "two": {"b_c": 8}}, lost=2, last=True),
    )
    seen = telemetry(record, stopped_s=1.75)
    assert seen.series == {"a_mw": Series((0.5, 1.5, 1.75), (1, 2, 3)), "b_c": Series((1.5, 1.75), (7, 8))}
    assert (seen.real_interval_s, seen.lost_samples, seen.died_at_s, seen.missing) == (0.625, 2, None, {})
    assert seen.sampler_cpu_share == pytest.approx(0.01 / 1.25)
    assert seen.notes == OPENED["notes"]


def test_a_sampler_without_a_last_sample_has_died(file):
    record = record_of(file, sample(0.5, {"one": {"a_mw": 1}, "two": {"b_c": 7}}))
    seen = telemetry(record, stopped_s=5.0)
    assert seen.died_at_s == 0.5
    assert seen.lost_samples == 4
    assert seen.missing == {SAMPLER: "died, last seen 0.5 s after its start: ended with status -9"}
    assert seen.series["a_mw"].values == (1,)


def test_a_sampler_that_wrote_nothing_has_died_at_its_start(file):
    seen = telemetry(SamplerRecord(SOURCES), stopped_s=2.0)
    assert seen.died_at_s == 0.0
    assert set(seen.missing) == {SAMPLER, *SOURCES}
    assert (seen.series, seen.real_interval_s, seen.sampler_cpu_share) == ({}, None, None)


def test_a_source_that_fails_says_since_when_and_how_often(file):
    record = record_of(
        file,
        sample(10.0, {"one": {"a_mw": 1}, "two": {"b_c": 7}}),
        sample(11.0, {"two": {"b_c": 7}}, failed={"one": "gone"}),
        sample(12.0, {"two": {"b_c": 7}}, failed={"one": "still gone"}),
        sample(13.0, {"one": {"a_mw": 1}, "two": {}}, failed={"b_c": "asleep"}, last=True),
    )
    assert telemetry(record, stopped_s=13.0).missing == {
        "one": "gone (2 of 4 samples, the first 1.0 s after the start)",
        "b_c": "asleep (1 of 4 samples, the first 3.0 s after the start)",
    }


def test_a_source_that_gives_nothing_is_missing(file):
    opened = {"notes": {}, "missing": {"one": "not here"}}
    record = record_of(file, sample(0.0, {"two": {}}, last=True), opened=opened)
    assert record.missing == {"one": "not here"}
    assert telemetry(record, 0.0).missing == {"one": "not here", "two": "gave no value in 1 samples"}


def test_of_two_sources_with_one_channel_the_first_is_taken(file):
    both = {"one": {"a_mw": 1}, "two": {"a_mw": 9, "b_c": 7}}
    seen = telemetry(record_of(file, sample(0.0, both), sample(1.0, both, last=True)), 1.0)
    assert seen.series["a_mw"].values == (1, 1)
    assert seen.missing == {"two: a_mw": "one gives this channel too, and comes first"}


def test_a_channel_without_a_value_yet_has_no_series(file):
    record = record_of(file, sample(0.0, {"one": {}}))
    assert record.series("a_mw") is None


@given(st.lists(st.integers(0, 10), max_size=10), st.data())
def test_a_line_cut_anywhere_loses_only_itself(tmp_path_factory, values, data):
    text = lines(OPENED, *(sample(float(time_s), {"one": {"a_mw": value}}) for time_s, value in enumerate(values)))
    cut = data.draw(st.integers(0, len(text)))
    fd = os.open(tmp_path_factory.mktemp("record") / "lines", os.O_RDWR | os.O_CREAT)
    try:
        record = SamplerRecord(["one"])
        os.write(fd, text[:cut])
        samples = max(0, text[:cut].count(b"\n") - 1)
        assert record.take_in(fd) == samples
        assert (record.series("a_mw") or Series((), ())).values == tuple(values[:samples])
        os.write(fd, text[cut:])
        assert record.take_in(fd) == len(values) - samples
        assert (record.series("a_mw") or Series((), ())).values == tuple(values)
    finally:
        os.close(fd)

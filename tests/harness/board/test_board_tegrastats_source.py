"""A running tegrastats: its last line is taken once and never waited for, and its end is not the end of the sampler."""

from __future__ import annotations

import sys
import time

import pytest

from harness.board import tegrastats
from harness.board.sampler import Sampler
from harness.board.source import SourceSpec
from harness.core.errors import InvalidValueError, SourceUnavailableError

TOTAL = "tegrastats_power_total_mw"
LINE = "RAM 100/7620MB GR3D_FREQ 99%@[1015] VDD_IN {power}mW/1mW VDD_SOC 7mW/7mW"


@pytest.fixture
def fake(tmp_path):
    """Writes an executable that runs `body`; gives its path."""

    def write(body):
        path = tmp_path / "tegrastats"
        path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


def read_until(source, wanted, now_s=0.0):
    """The first reading that `wanted` is true of; failures count too."""
    for _ in range(2000):
        try:
            reading = source.read(now_s)
        except (SourceUnavailableError, ValueError) as error:
            reading = error
        if wanted(reading):
            return reading
        time.sleep(0.005)
    raise AssertionError("no such reading came")


def failed_with(error):
    return lambda reading: isinstance(reading, error)


def has_values(reading):
    return not isinstance(reading, Exception) and bool(reading.values)


def test_a_line_is_given_once(fake):
    body = f"print({LINE.format(power=5000)!r}, flush=True); time.sleep(60)"
    source = tegrastats.open_source("/", executable=fake(body))
    values, failed = read_until(source, has_values)
    assert values == {
        "tegrastats_memory_used_bytes": 100 * 2**20,
        "tegrastats_gpu_load_share": 0.99,
        "tegrastats_gpu_khz": 1015000,
        "tegrastats_power_vdd_in_mw": 5000,
        "tegrastats_power_vdd_soc_mw": 7,
        TOTAL: 5000,
    }
    assert failed == {}
    assert source.read(1.0) == ({}, {})


def test_of_several_lines_the_last_counts_and_half_a_line_waits(fake):
    whole = "".join(LINE.format(power=power) + "\n" for power in (1, 2))
    body = (
        f"sys.stdout.write({whole + LINE.format(power=3)!r}); sys.stdout.flush()\n"
        "time.sleep(0.1); print(flush=True); time.sleep(60)"
    )
    source = tegrastats.open_source("/", executable=fake(body))
    assert [read_until(source, has_values).values[TOTAL] for _ in range(2)] == [2, 3]


def test_the_interval_reaches_it_in_milliseconds(fake):
    body = "option, value = sys.argv[1:]\nassert option == '--interval'\nprint(f'VDD_IN {value}mW/0mW', flush=True)"
    source = tegrastats.open_source("/", executable=fake(body), interval_s=0.07)
    assert read_until(source, has_values).values[TOTAL] == 70


def test_a_tegrastats_that_ends_fails_and_says_its_status(fake):
    source = tegrastats.open_source("/", executable=fake(f"print({LINE.format(power=9)!r}); sys.exit(3)"))
    read_until(source, has_values)
    assert "ended with status 3" in str(read_until(source, failed_with(SourceUnavailableError)))


def test_what_it_complains_of_is_the_reason(fake):
    source = tegrastats.open_source("/", executable=fake("sys.exit('tegrastats: not permitted')"))
    assert "tegrastats: not permitted" in str(read_until(source, failed_with(ValueError)))


def test_silence_fails_and_words_later_are_heard(fake):
    source = tegrastats.open_source("/", executable=fake("time.sleep(60)"), interval_s=1.0)
    assert source.read(100.0) == ({}, {})
    assert source.read(103.0) == ({}, {})
    with pytest.raises(SourceUnavailableError, match=r"printed nothing for 3\.5 s"):
        source.read(103.5)


def test_a_rail_of_the_definition_that_is_not_printed_fails_the_total(fake):
    body = f"print({LINE.format(power=5000)!r}, flush=True); time.sleep(60)"
    source = tegrastats.open_source("/", executable=fake(body), total=["VDD_IN", "SYS3V3"], remark="as the board says")
    values, failed = read_until(source, has_values)
    assert TOTAL not in values
    assert "SYS3V3" in failed[TOTAL]
    assert source.notes[TOTAL] == "sum of the rails VDD_IN, SYS3V3. as the board says"


def test_it_ends_with_its_source(fake):
    source = tegrastats.open_source("/", executable=fake("time.sleep(60)"))
    process = source._process
    assert process.poll() is None
    del source
    assert process.poll() is not None


def test_a_machine_without_it_says_so(tree):
    with pytest.raises(SourceUnavailableError, match=r"usr/bin/tegrastats.*comes with"):
        tegrastats.open_source(tree.root)


def test_an_interval_below_its_unit_is_refused(fake):
    with pytest.raises(InvalidValueError, match=r"0\.001 s"):
        tegrastats.open_source("/", executable=fake(""), interval_s=0.0001)


def test_the_sampler_reads_it_beside_others(fake, tree):
    body = f"while True:\n    print({LINE.format(power=5000)!r}, flush=True)\n    time.sleep(0.02)"
    sampler = Sampler([SourceSpec("tegrastats", {"executable": fake(body), "interval_s": 0.02})], 0.02, root=tree.root)
    with sampler:
        deadline_s = time.monotonic() + 20
        while sampler.series(TOTAL) is None and time.monotonic() < deadline_s:
            sampler.poll()
            time.sleep(0.02)
    assert set(sampler.stop().series[TOTAL].values) == {5000}

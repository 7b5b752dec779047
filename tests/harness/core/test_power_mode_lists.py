"""CSV lists of power modes: what is written reads back, other columns do no harm, a wrong line is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import InvalidValueError, StoreError
from harness.core.mode_texts import format_power_modes, read_power_modes
from harness.core.power_modes import PowerMode

HEADER = "cpu_cores,cpu_khz,gpu_khz,mem_khz\n"
power_modes = st.builds(PowerMode, st.integers(1, 16), *[st.integers(0, 5_000_000)] * 3)


@pytest.fixture
def listed(tmp_path):
    def write(text):
        path = tmp_path / "modes.csv"
        path.write_text(text)
        return path

    return write


@given(modes=st.lists(power_modes, min_size=1, unique=True))
def test_what_is_written_reads_back(modes, tmp_path_factory):
    path = tmp_path_factory.mktemp("lists") / "modes.csv"
    path.write_text(format_power_modes([(mode, {"pass": 1, "name": mode.name}) for mode in modes], ("pass", "name")))
    assert [mode for _, mode in read_power_modes(path)] == modes


def test_columns_may_stand_in_any_order_among_others(listed):
    path = listed("device,mem_khz,gpu_khz,cpu_khz,cpu_cores\norin-agx,3,2,1,4\n\norin-agx,6,5,4,7\n")
    assert read_power_modes(path) == [(2, PowerMode(4, 1, 2, 3)), (4, PowerMode(7, 4, 5, 6))]


def test_a_mode_that_stands_there_twice_comes_once_with_its_first_line(listed):
    path = listed(HEADER + "4,1,2,3\n5,1,2,3\n4,1,2,3\n")
    assert read_power_modes(path) == [(2, PowerMode(4, 1, 2, 3)), (3, PowerMode(5, 1, 2, 3))]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "line 1 has no column cpu_cores, cpu_khz, gpu_khz, mem_khz"),
        ("cpu_cores,cpu_khz,mem_khz\n4,1,3\n", "line 1 has no column gpu_khz"),
        (HEADER, "holds no power mode"),
        (HEADER + "4,1,2,3\n4,1,2\n", "line 3: 3 cells, expected 4"),
        (HEADER + "4,1,2.5,3\n", "line 2: gpu_khz is '2.5'"),
        (HEADER + "4,1,-2,3\n", "line 2: gpu_khz is '-2'"),
        (HEADER + "4,1,,3\n", "line 2: gpu_khz is ''"),
        (HEADER + "0,1,2,3\n", "line 2: cpu_cores is 0"),
        (HEADER + '4,1,2,"3\n', "no CSV text"),
    ],
)
def test_a_wrong_list_is_refused_with_the_line(listed, text, named):
    with pytest.raises(InvalidValueError, match=r"modes\.csv") as refused:
        read_power_modes(listed(text))
    assert named in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"none\.csv"):
        read_power_modes(tmp_path / "none.csv")

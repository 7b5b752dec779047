"""CPU clock limits: never minimum above maximum on the way, read back, and put back from anywhere."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.board import cpu_clocks
from harness.board.cpu_clocks import MAXIMUM, MINIMUM, CpuFrequency, write_order
from harness.core.errors import ControlError, InvalidValueError, SourceUnavailableError

DIRECTORY = "sys/devices/system/cpu/cpufreq"
LEVELS_KHZ = (115200, 729600, 1497600, 2201600)


def policy(number, cpus="0", levels=LEVELS_KHZ, limits=None):
    lowest, highest = limits or (levels[0], levels[-1])
    files = {
        "related_cpus": cpus,
        "cpuinfo_min_freq": levels[0],
        "cpuinfo_max_freq": levels[-1],
        "scaling_available_frequencies": " ".join(map(str, levels)),
        MINIMUM: lowest,
        MAXIMUM: highest,
    }
    return {f"{DIRECTORY}/policy{number}/{name}": content for name, content in files.items()}


@pytest.fixture
def board(tree):
    """Two clusters; the second is slower."""
    tree.write({**policy(0, "0 1"), **policy(2, "2 3", levels=(204000, 729600, 1113600))})
    return tree


limits = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted)


@given(limits, limits)
def test_the_minimum_is_never_above_the_maximum_on_the_way(now, target):
    minimum, maximum = now
    for limit, khz in write_order(now, target):
        minimum, maximum = (khz, maximum) if limit == MINIMUM else (minimum, khz)
        assert minimum <= maximum
    assert [minimum, maximum] == target


def test_raising_writes_the_maximum_first_and_lowering_the_minimum():
    assert [limit for limit, _ in write_order([1, 1], [5, 5])] == [MAXIMUM, MINIMUM]
    assert [limit for limit, _ in write_order([5, 5], [1, 1])] == [MINIMUM, MAXIMUM]


clocks = st.fixed_dictionaries({"policy0": st.lists(st.sampled_from(LEVELS_KHZ), min_size=2, max_size=2).map(sorted)})


@settings(max_examples=30)
@given(clocks, st.lists(clocks, max_size=5))
def test_restore_undoes_any_sequence_of_settings(before, sequence):
    with tempfile.TemporaryDirectory() as root:
        for name, content in policy(0, limits=before["policy0"]).items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
        knob = CpuFrequency(root)
        saved = knob.read()
        for setting in sequence:
            knob.set(setting)
            assert knob.read() == setting
        knob.restore(saved)
        assert knob.read() == before


def test_pinning_gives_each_policy_the_clock_or_its_nearest(board):
    knob = CpuFrequency(board.root)
    knob.set(knob.pinned(2201600))
    assert knob.read() == {"policy0": [2201600, 2201600], "policy2": [1113600, 1113600]}
    knob.set(knob.pinned(204000))
    assert knob.read() == {"policy0": [115200, 115200], "policy2": [204000, 204000]}


def test_a_clock_that_no_policy_has_is_refused_with_those_that_there_are(board):
    with pytest.raises(InvalidValueError, match=r"no CPU here runs at 1000000 kHz.*policy2: 204000, 729600, 1113600"):
        CpuFrequency(board.root).pinned(1_000_000)


def test_without_a_list_any_clock_in_the_range_is_possible(tree):
    files = policy(0, levels=(800_000, 4_000_000))
    del files[f"{DIRECTORY}/policy0/scaling_available_frequencies"]
    tree.write(files)
    knob = CpuFrequency(tree.root)
    assert knob.policies()[0].levels_khz == ()
    assert knob.pinned(1_234_567) == {"policy0": [1_234_567, 1_234_567]}
    with pytest.raises(InvalidValueError, match="800000 to 4000000"):
        knob.pinned(5_000_000)


def test_a_clock_that_the_driver_changes_is_an_error(board, monkeypatch):
    knob = CpuFrequency(board.root)
    asked = knob.pinned(729600)
    monkeypatch.setattr(knob, "read", lambda: {**asked, "policy0": [729600, 1497600]})
    with pytest.raises(ControlError, match=r"CPU frequency limits was set to .* and reads back .*1497600"):
        knob.set(asked)


def test_a_refused_write_names_file_value_and_way_out(board):
    knob = CpuFrequency(board.root)
    file = board.path / DIRECTORY / "policy0" / MAXIMUM
    saved = knob.read()
    file.unlink()
    file.mkdir()
    with pytest.raises(ControlError, match=r"policy0/scaling_max_freq"):
        knob.set(saved)


def test_without_cpufreq_it_is_not_available(tree):
    capability = CpuFrequency(tree.root).available()
    assert not capability.available
    assert "no cpufreq policy" in capability.detail


def test_without_the_right_to_write_the_grant_is_named(plain_user):
    for name, content in policy(0).items():
        path = plain_user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    closed = plain_user / DIRECTORY / "policy0" / MAXIMUM
    closed.chmod(0o444)
    knob = CpuFrequency(str(plain_user))
    capability = knob.available()
    assert not capability.available
    assert capability.hint == f"until the next boot: `sudo chown $USER {closed}`"
    with pytest.raises(ControlError, match=rf"writing 115200 to {closed} was refused: Permission denied; .*chown"):
        knob.set(knob.pinned(115200))


def test_with_the_right_to_write_it_is_available(board):
    capability = CpuFrequency(board.root).available()
    assert capability.available
    assert capability.detail == "cpufreq limits of policy0, policy2"


def test_policies_are_ordered_by_cpu_not_by_text(tree):
    tree.write({**policy(10, "10 11"), **policy(2, "2 3")})
    assert [each.name for each in CpuFrequency(tree.root).policies()] == ["policy2", "policy10"]


def test_a_cluster_that_is_offline_is_not_set(board):
    board.write({f"sys/devices/system/cpu/cpu{cpu}/online": int(cpu < 2) for cpu in range(4)})
    knob = CpuFrequency(board.root)
    knob.set(knob.pinned(729600))
    assert knob.read() == {"policy0": [729600, 729600], "policy2": [204000, 1113600]}


def test_a_cluster_that_the_kernel_does_not_show_while_offline_is_left_out(board, monkeypatch):
    """From Linux 5.19 on, its files answer EBUSY."""
    plain_read = cpu_clocks.read_setting

    def read_setting(path):
        if "policy2" not in path:
            return plain_read(path)
        raise ControlError(f"{path} cannot be read: busy") from OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(cpu_clocks, "read_setting", read_setting)
    knob = CpuFrequency(board.root)
    assert [each.name for each in knob.policies()] == ["policy0"]
    saved = knob.read()
    assert list(saved) == ["policy0"]
    monkeypatch.undo()
    knob.restore(saved)  # its CPUs came online meanwhile


def test_a_policy_that_cannot_be_read_is_an_error(board):
    (board.path / DIRECTORY / "policy2/related_cpus").unlink()
    with pytest.raises(ControlError, match="policy2/related_cpus cannot be read: No such file"):
        CpuFrequency(board.root).policies()


def running(number, cpus, khz):
    directory = f"sys/devices/system/cpu/cpufreq/policy{number}"
    return {f"{directory}/related_cpus": cpus, f"{directory}/scaling_cur_freq": khz}


def test_clocks_are_named_for_the_first_cpu_of_their_policy(tree):
    tree.write({**running(0, "0 1 2 3", 729600), **running(8, "8 9", 2201600), **running(10, "10", 115200)})
    source = cpu_clocks.open_source(tree.root)
    assert source.read(0.0).values == {"cpu0_khz": 729600, "cpu8_khz": 2201600, "cpu10_khz": 115200}
    assert source.notes["cpu0_khz"] == "scaling_cur_freq of CPUs 0 1 2 3"


def test_a_policy_that_goes_offline_or_says_nothing_fails_alone(tree):
    tree.write({**running(0, "0", 729600), **running(4, "4", 729600), **running(8, "8", 729600)})
    source = cpu_clocks.open_source(tree.root)
    (tree.path / "sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq").unlink()
    tree.write(running(8, "8", "<unknown>"))
    values, failed = source.read(0.0)
    assert values == {"cpu0_khz": 729600}
    assert set(failed) == {"cpu4_khz", "cpu8_khz"}
    assert "<unknown>" in failed["cpu8_khz"]


def test_without_cpufreq_the_reason_is_given(tree):
    with pytest.raises(SourceUnavailableError, match="no cpufreq policy"):
        cpu_clocks.open_source(tree.root)

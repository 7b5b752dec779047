"""CPUs go on- and offline; their time is the run's, the sampler's, or everyone else's: none of it twice or nowhere."""

from __future__ import annotations

import os
import shutil
import sys
import time

import pytest

from harness.board import cpu
from harness.board.cpu import CpuOnline, ProcessTree, kept_online, parse_cpu_ticks, parse_process_stat
from harness.core.errors import ControlError
from tests.harness.board.kernel_trees import CPU, cpus


@pytest.fixture
def board(tree):
    tree.write({**cpus(12, offline=(10, 11)), f"{CPU}/cpufreq/boost": 1, f"{CPU}/cpuidle/current_driver": "x"})
    return tree


def test_cpus_go_and_come_back(board):
    knob = CpuOnline(board.root)
    before, contents = knob.read(), board.contents()
    assert (knob.cpus(), before) == (list(range(12)), list(range(10)))  # by number, not by text
    knob.set([0, 1, 11])
    assert knob.read() == [0, 1, 11]
    assert (board.path / CPU / "cpu2/online").read_text() == "0\n"
    knob.restore(before)
    assert board.contents() == contents


def test_cpus_come_up_before_others_go(board, monkeypatch):
    order = []
    monkeypatch.setattr(cpu.CpuOnline, "_turn", lambda self, cpu, state: order.append((cpu, state)))
    CpuOnline(board.root).apply([0, *range(3, 9), 10, 11])
    assert order == [(10, 1), (11, 1), (9, 0), (2, 0), (1, 0)]


@pytest.mark.parametrize("cpus", [[], [1, 2], [0, 12]])
def test_cpu_0_stays_and_others_must_be_there(board, cpus):
    before = board.contents()
    with pytest.raises(ControlError, match=r"CPUs \[0\]"):
        CpuOnline(board.root).set(cpus)
    assert board.contents() == before


def test_a_cpu_without_a_switch_is_online(tree):
    tree.write({f"{CPU}/cpu0/topology/x": 0, f"{CPU}/cpu1/topology/x": 0, f"{CPU}/cpu2/online": 0})
    assert CpuOnline(tree.root).read() == [0, 1]


def test_a_cpu_is_kept_online_for_a_block_and_goes_again(board):
    knob = CpuOnline(board.root)
    before = knob.read()
    for number in (11, 3):
        with kept_online(board.root, [number]):
            assert number in knob.read()
        assert knob.read() == before


@pytest.mark.parametrize(
    ("cpus", "said"),
    [(list(range(12)), "CPU 10 was turned on and did not come back"), ([0], "CPU 9 was turned off and did not go")],
)
def test_a_cpu_that_stays_as_it_was_is_named(board, monkeypatch, cpus, said):
    monkeypatch.setattr(cpu, "write", lambda path, value: None)
    with pytest.raises(ControlError, match=said):
        CpuOnline(board.root).set(cpus)


# -- time in use -------------------------------------------------------------------------------------------------------

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
RUN, WORKER, NEIGHBOUR, NESTED = 100, 101, 200, 102


def seconds(value):
    return round(value * TICKS_PER_S)


def machine(user=0.0, irq=0.0, steal=0.0):
    """`/proc/stat` after that many seconds of each; idle and iowait run on."""
    return f"cpu  {seconds(user)} 0 0 999 999 {seconds(irq)} 0 {seconds(steal)} 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0"


def process(pid, parent, own=0.0, reaped=0.0, command="python"):
    """`/proc/<pid>/stat` of a process with that much CPU time of its own and of children it has waited for."""
    return f"{pid} ({command}) S {parent} 1 1 0 -1 0 0 0 0 0 {seconds(own)} 0 {seconds(reaped)} 0 20 0 1 0 77"


def remove(tree, pid):
    shutil.rmtree(tree.path / f"proc/{pid}")


@pytest.fixture
def busy(tree):
    tree.write(
        {
            "proc/stat": machine(user=50),
            f"proc/{RUN}/stat": process(RUN, 1, own=10),
            f"proc/{WORKER}/stat": process(WORKER, RUN, own=5),
            f"proc/{NEIGHBOUR}/stat": process(NEIGHBOUR, 1, own=20),
        }
    )
    return tree


def two_readings(tree, change):
    """What the source says of the two seconds in which `change` happens."""
    source = cpu.open_source(tree.root, pid=RUN)
    assert source.read(0.0).values == {}
    change()
    return source.read(2.0)


def test_busy_time_is_split_between_the_run_and_the_others(busy):
    values, failed = two_readings(
        busy,
        lambda: busy.write(
            {
                "proc/stat": machine(user=54, irq=1, steal=0.5),
                f"proc/{RUN}/stat": process(RUN, 1, own=11),
                f"proc/{WORKER}/stat": process(WORKER, RUN, own=6.5),
                f"proc/{NEIGHBOUR}/stat": process(NEIGHBOUR, 1, own=21.5),
            }
        ),
    )
    assert failed == {}
    assert values["cpu_own_cores"] == pytest.approx(1.25)
    # This process stands in for the sampler here: what it has used in between counts as the sampler's.
    assert values["cpu_other_cores"] + values["cpu_sampler_cores"] == pytest.approx(0.75)
    assert values["cpu_interrupt_cores"] == pytest.approx(0.5)
    assert values["cpu_steal_cores"] == pytest.approx(0.25)


def test_nothing_is_lost_when_a_worker_ends_and_is_waited_for(busy):

    def worker_ends_after_another_second():
        busy.write({"proc/stat": machine(user=51), f"proc/{RUN}/stat": process(RUN, 1, own=10, reaped=6)})
        remove(busy, WORKER)

    assert two_readings(busy, worker_ends_after_another_second).values["cpu_own_cores"] == pytest.approx(0.5)


def test_new_workers_and_their_children_count_from_their_start(busy):
    nested = {
        "proc/stat": machine(user=52),
        f"proc/{NESTED}/stat": process(NESTED, WORKER, own=2),
    }
    assert two_readings(busy, lambda: busy.write(nested)).values["cpu_own_cores"] == pytest.approx(1.0)


def test_a_worker_whose_parent_ended_still_belongs_to_the_run(busy):
    busy.write({f"proc/{NESTED}/stat": process(NESTED, WORKER, own=2)})

    def middle_process_ends():
        remove(busy, WORKER)
        busy.write(
            {
                "proc/stat": machine(user=51),
                f"proc/{RUN}/stat": process(RUN, 1, own=10, reaped=5),
                f"proc/{NESTED}/stat": process(NESTED, 1, own=3),
            }
        )

    assert two_readings(busy, middle_process_ends).values["cpu_own_cores"] == pytest.approx(0.5)


def test_time_that_left_the_run_is_said_not_guessed(busy):
    values, failed = two_readings(busy, lambda: remove(busy, WORKER))
    assert set(failed) == {"cpu_own_cores", "cpu_other_cores"}
    assert not set(failed) & set(values)


def test_the_sampler_is_no_part_of_the_run(tree):
    tree.write({f"proc/{RUN}/stat": process(RUN, 1, own=3), f"proc/{WORKER}/stat": process(WORKER, RUN, own=4)})
    assert ProcessTree(f"{tree.root}/proc", RUN, without=[WORKER]).ticks() == seconds(3)


def test_names_that_are_no_utf8_cost_nothing(busy):
    """A name is cut after 15 bytes, in the middle of a letter too."""
    cut = "Überwachungsdä".encode()[:15]
    assert cut.endswith(b"\xc3")
    for pid, parent, own in ((WORKER, RUN, 5), (NEIGHBOUR, 1, 20)):
        line = process(pid, parent, own=own, command="NAME").encode()
        (busy.path / f"proc/{pid}/stat").write_bytes(line.replace(b"NAME", cut))
    assert ProcessTree(f"{busy.root}/proc", RUN, without=()).ticks() == seconds(15)


def test_processes_that_may_not_be_read_are_none_of_the_run(tree_in, plain_user):
    """/proc mounted with `hidepid=1`."""
    tree = tree_in(plain_user)
    tree.write(
        {f"{pid}/stat": process(pid, parent, own=5) for pid, parent in ((RUN, 1), (WORKER, RUN), (NEIGHBOUR, 1))}
    )
    (tree.path / f"{NEIGHBOUR}").chmod(0)
    try:
        assert ProcessTree(tree.root, RUN, without=()).ticks() == seconds(10)
    finally:
        (tree.path / f"{NEIGHBOUR}").chmod(0o755)


def test_a_worker_that_ends_while_it_is_read_is_neither_lost_nor_counted_twice(busy, monkeypatch):
    processes = ProcessTree(f"{busy.root}/proc", RUN, without=())
    read = processes._read

    def read_and_lose_the_worker(pid):
        times = read(pid)
        if pid == RUN and (busy.path / f"proc/{WORKER}").exists():
            remove(busy, WORKER)
            busy.write({f"proc/{RUN}/stat": process(RUN, 1, own=10, reaped=5)})
        return times

    before = processes.ticks()
    monkeypatch.setattr(processes, "_read", read_and_lose_the_worker)
    assert processes.ticks() == before == seconds(15)


def test_a_run_that_has_ended_is_an_error(busy):
    source = cpu.open_source(busy.root, pid=RUN)
    remove(busy, RUN)
    with pytest.raises(FileNotFoundError):
        source.read(0.0)


@pytest.mark.parametrize("command", ["python", "a b", "tmux: (1) R 9 9", ") ("])
def test_a_command_may_look_like_anything(command):
    times = parse_process_stat(process(7, 42, own=1, reaped=2, command=command))
    assert times == (42, seconds(3))
    assert parse_process_stat(process(7, 42, own=1, reaped=2, command=command), with_children=False) == (42, seconds(1))


@pytest.mark.parametrize(
    ("parse", "text"),
    [*((parse_process_stat, text) for text in ("", "7 (python", "7 (python) S 1")),
     *((parse_cpu_ticks, text) for text in ("", "cpu 1 2 3", "intr 5"))],
)  # fmt: skip
def test_an_incomplete_text_is_refused(parse, text):
    with pytest.raises(ValueError, match=r"not the text|/proc/stat"):
        parse(text)


@pytest.mark.skipif(sys.platform != "linux", reason="reads this machine's /proc")
def test_this_process_and_its_children_are_seen_on_this_machine():
    tree = ProcessTree("/proc", os.getpid(), without=())
    before = tree.ticks()
    child = os.fork()
    if child == 0:
        end_s = time.process_time() + 5 / TICKS_PER_S
        while time.process_time() < end_s:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    assert tree.ticks() >= before + 3

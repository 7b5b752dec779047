"""Core counts: physical cores before their second threads; every thread and worker bound, and freed again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness
from harness.board.cpu import choose_cpus, parse_cpu_list, read_siblings
from harness.core.errors import InvalidValueError
from tests.messages import says

HYPERTHREADED = {0: [0, 4], 1: [1, 5], 2: [2, 6], 3: [3, 7], 4: [0, 4], 5: [1, 5], 6: [2, 6], 7: [3, 7]}


@pytest.mark.parametrize(
    ("text", "cpus"), [("", []), ("3", [3]), ("0-3", [0, 1, 2, 3]), ("0-1,8,10-11", [0, 1, 8, 10, 11])]
)
def test_cpu_lists_are_read(text, cpus):
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    ("count", "siblings", "chosen"),
    [
        (4, HYPERTHREADED, [0, 1, 2, 3]),
        (5, HYPERTHREADED, [0, 1, 2, 3, 4]),
        (3, {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}, [0, 1, 2]),
        (2, {4: [0, 4], 5: [1, 5], 1: [1, 5]}, [1, 4]),  # the first thread of 4's core may not be used
    ],
)
def test_each_core_is_used_once_before_any_twice(count, siblings, chosen):
    assert choose_cpus(count, siblings) == chosen


@pytest.mark.parametrize("count", [-1, 0, 9])
def test_an_impossible_count_is_refused(count):
    with pytest.raises(InvalidValueError, match=f"core count of {count} .* 1 to 8 CPUs"):
        choose_cpus(count, HYPERTHREADED)


cores = st.lists(st.integers(1, 3), min_size=1, max_size=8)


@st.composite
def topologies(draw):
    """CPUs in any numbering, on cores of one to three threads each."""
    threads = draw(cores)
    numbers = draw(st.permutations(range(sum(threads))))
    siblings = {}
    for count in threads:
        core, numbers = numbers[:count], numbers[count:]
        siblings.update(dict.fromkeys(core, sorted(core)))
    return siblings


@given(topologies(), st.data())
def test_no_core_is_used_twice_while_another_is_free(siblings, data):
    count = data.draw(st.integers(1, len(siblings)))
    chosen = choose_cpus(count, siblings)
    assert len(set(chosen)) == count
    assert set(chosen) <= set(siblings)
    uses = [sum(cpu in chosen for cpu in core) for core in map(list, {tuple(core) for core in siblings.values()})]
    free = [len(core) - used for core, used in zip({tuple(core) for core in siblings.values()}, uses)]
    assert all(used <= other + 1 for used in uses for other, left in zip(uses, free) if left)


def test_the_topology_is_read_and_a_cpu_without_one_is_a_core(tree):
    cpu = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    tree.write({cpu.format(0): "0,2", cpu.format(2): "0,2"})
    assert read_siblings([0, 1, 2], tree.root) == {0: [0, 2], 1: [1], 2: [0, 2]}


BIND = """
import multiprocessing, os, threading
from harness.board.cpu import Affinity
from harness.core.errors import ControlError

def of_worker(queue):
    queue.put(sorted(os.sched_getaffinity(0)))

stop = threading.Event()
threads = [threading.Thread(target=stop.wait, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
knob = Affinity()
assert knob.available().available
before = knob.read()
one = [before[0]]
knob.set(one)
assert [sorted(os.sched_getaffinity(int(tid))) for tid in os.listdir("/proc/self/task")] == [one] * 4
context = multiprocessing.get_context("fork")
queue = context.Queue()
worker = context.Process(target=of_worker, args=(queue,))
worker.start()
assert queue.get() == one
worker.join()
for cpus in ([4095], [], [-1], [before[0], 4095]):
    try:
        knob.set(cpus)
    except ControlError as error:
        print(error)
    else:
        raise AssertionError(f"{cpus} was taken")
knob.restore(before)
assert knob.read() == before
stop.set()
"""


FOLLOW = """
import multiprocessing, os, threading, time
from harness.board.cpu import Affinity, workers_follow

def work(started, cpus):
    if cpus:
        os.sched_setaffinity(0, cpus)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    started.send(True)
    time.sleep(60)

def of(worker):
    return [sorted(os.sched_getaffinity(int(tid))) for tid in os.listdir(f"/proc/{worker.pid}/task")]

context = multiprocessing.get_context("fork")
knob = Affinity()
before = knob.read()
first, last = before[:1], before[-1:]
workers = []
for cpus in ((), last, ()):
    here, there = context.Pipe()
    workers.append(context.Process(target=work, args=(there, cpus), daemon=True))
    workers[-1].start()
    here.recv()
follower, own, ended = workers
with workers_follow():
    knob.set(first)
    ended.kill()
    ended.join()
assert of(follower) == [first] * 2, of(follower)
assert of(own) == [last] * 2, of(own)
with workers_follow():
    knob.set(before)
assert of(follower) == [before] * 2, of(follower)
assert of(own) == [last] * 2, of(own)
"""


def in_a_process_of_its_own(code):
    """What it prints; a failure leaves the tests themselves unbound."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    folder = Path(harness.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, env=environment, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="binds workers to one of 2 CPUs")
def test_live_workers_follow_but_for_those_that_somebody_else_bound():
    in_a_process_of_its_own(FOLLOW)


@pytest.mark.skipif(sys.platform != "linux", reason="binds threads of this machine")
def test_every_thread_and_worker_is_bound_and_freed_again():
    refusals = in_a_process_of_its_own(BIND)
    assert len(refusals) == 4
    assert says(refusals[0], "cannot be bound", "[4095]")
    assert "reads back" in refusals[3]


@pytest.mark.parametrize("text", ["", "N/A", "0-x"])
def test_a_list_of_siblings_that_is_none_leaves_its_cpu_alone(tree, text):
    path = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    tree.write({path.format(0): "0,2", path.format(1): text, path.format(2): "0,2"})
    siblings = read_siblings([0, 1, 2], tree.root)
    assert (siblings[0], siblings[2]) == ([0, 2], [0, 2])
    assert choose_cpus(2, siblings) == [0, 1]

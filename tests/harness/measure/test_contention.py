"""Others on the CPU before a run: who is counted, what torch's threads do then, and what the profile records of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.board import cpu
from harness.board.cpu import OthersOnCpu, others_on_cpu
from harness.core.cases import Case
from harness.core.terminal import WIDTH
from harness.measure.contention import PASSIVE, WAIT_POLICY, meet, wait_policy
from harness.store.conditions import comparable_conditions, key
from harness.store.results import ResultsStore
from tests.messages import says
from tests.named_modes import mode_on

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
OWN, CHILD, STRANGER = 10, 11, 12


def others(cores):
    return OthersOnCpu(cores, {"make": cores}, 2)


def test_on_a_quiet_machine_nothing_is_said_and_nothing_is_changed():
    variables = {}
    assert meet(others(0.05), None, variables, is_torch_loaded=False) == ""
    assert variables == {}


def test_little_use_by_others_is_said_because_it_flags_and_threads_go_on_spinning():
    variables = {}
    said = meet(others(0.3), None, variables, is_torch_loaded=False)
    assert says(said, "0.30 of 2 cores", "make 0.30", "flagged disturbed")
    assert variables == {}
    assert meet(others(0.3), 0.4, variables, is_torch_loaded=False) == ""


def test_threads_sleep_while_they_wait_where_others_use_the_cpu():
    variables = {}
    said = meet(others(1.6), None, variables, is_torch_loaded=False)
    assert says(said, "1.60 of 2 cores", "make 1.60")
    assert "OMP_WAIT_POLICY=PASSIVE" in said
    assert "compared only" in said
    assert variables == {WAIT_POLICY: PASSIVE}


def test_they_also_do_where_so_much_is_allowed_that_nothing_is_flagged():
    variables = {}
    said = meet(others(1.6), 2.0, variables, is_torch_loaded=False)
    assert "flagged" not in said
    assert variables == {WAIT_POLICY: PASSIVE}


def test_a_policy_of_the_users_own_is_kept():
    variables = {WAIT_POLICY: "ACTIVE"}
    assert "OMP_WAIT_POLICY=ACTIVE is kept" in meet(others(1.6), None, variables, is_torch_loaded=False)
    assert variables == {WAIT_POLICY: "ACTIVE"}


def test_nothing_is_claimed_where_torch_is_loaded_and_would_not_notice():
    variables = {}
    said = meet(others(1.6), None, variables, is_torch_loaded=True)
    assert "torch is loaded already" in said
    assert "start with OMP_WAIT_POLICY=PASSIVE" in said
    assert variables == {}


def test_the_policy_is_a_condition_where_it_is_not_the_default():
    case = Case("host", "lenet-mnist", mode_on(), 0, "ssd", 16)
    by_default = comparable_conditions({"torch": "2.5.0", **wait_policy({})}, case)
    assert "omp_wait_policy" not in by_default
    passive, active = (
        comparable_conditions({"torch": "2.5.0", **wait_policy({WAIT_POLICY: value})}, case)
        for value in (" passive", "ACTIVE")
    )
    assert passive["omp_wait_policy"] == "passive"
    assert len({key(by_default), key(passive), key(active)}) == 3


def stat(own, child, stranger, machine):
    """The files of `/proc` after these seconds of CPU time."""

    def process(pid, parent, seconds):
        numbers = ["0"] * 9 + [str(round(seconds * TICKS_PER_S))] + ["0"] * 10
        return f"{pid} (p{pid}) R {parent} {' '.join(numbers)}"

    return {
        "proc/stat": f"cpu {round(machine * TICKS_PER_S)} 0 0 0 0 0 0 0 0 0",
        f"proc/{OWN}/stat": process(OWN, 1, own),
        f"proc/{CHILD}/stat": process(CHILD, OWN, child),
        f"proc/{STRANGER}/stat": process(STRANGER, 1, stranger),
    }


def test_others_are_the_machine_without_this_process_and_its_children(tree, monkeypatch):
    """Of 2.0 s on the machine 0.5 + 0.3 are our own; of the 1.2 left 0.4 are of a process that can be seen."""
    now_s = [100.0]

    def sleep(seconds):
        now_s[0] += seconds
        tree.write(stat(own=1.5, child=1.3, stranger=1.4, machine=12.0))

    monkeypatch.setattr(cpu.time, "sleep", sleep)
    monkeypatch.setattr(cpu.time, "monotonic", lambda: now_s[0])
    tree.write(stat(own=1.0, child=1.0, stranger=1.0, machine=10.0))
    found = others_on_cpu(OWN, 1.0, tree.root)
    assert found.cores == pytest.approx(1.2)
    assert found.by_name == pytest.approx({f"p{STRANGER}": 0.4})


BUSY = """
import importlib.abc, os, sys
from harness.board.cpu import OthersOnCpu
from harness.measure import contention
contention.others_on_cpu = lambda own, seconds: OthersOnCpu(1.6, {"make": 1.6}, 2)
class Spy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            open("policy-when-torch-was-loaded", "w").write(os.environ.get("OMP_WAIT_POLICY", "none"))
sys.meta_path.insert(0, Spy())
"""
OWN_WORKLOAD = """
import torch
from jetwatt import Workload
NET = Workload(
    "net", lambda: torch.nn.Linear(4, 2), lambda: [(torch.ones(4), torch.tensor(0))] * 64,
    lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
)
"""


@pytest.mark.exhaustive
@pytest.mark.training
@pytest.mark.parametrize("workload", [pytest.param("lenet-mnist", marks=pytest.mark.exhaustive), "mine:NET"])
@pytest.mark.long
def test_it_is_chosen_before_torch_is_loaded_and_recorded_and_is_the_first_line(
    run_suite, tmp_path, monkeypatch, workload
):
    monkeypatch.delenv(WAIT_POLICY, raising=False)
    (tmp_path / "busy.py").write_text(BUSY)
    (tmp_path / "mine.py").write_text(OWN_WORKLOAD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    done = run_suite("--workload", workload, "--workers", "0", "--minibatches", "2", "--results", "r.sqlite",
                     "-p", "busy", fresh=True)  # fmt: skip
    assert (tmp_path / "policy-when-torch-was-loaded").read_text() == PASSIVE
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        [profile] = store.profiles()
    assert profile.conditions["omp_wait_policy"] == "passive"
    remark, measured, _ = done.stdout.partition("other processes use 1.60 of 2 cores now")[2].partition("[1/1]")
    assert measured
    assert max(map(len, remark.splitlines())) <= WIDTH


SEARCH = """
import busy, sys
from harness.measure.contention import wait_policy
from predictors.choose import recommend, tuning
from predictors.plans import concurrent
class Begun(Exception): pass
def begin(*given, **options):
    print(wait_policy())
    raise Begun
recommend.recommend_mode = concurrent.histories_of = tuning.held = begin
"""
EXHAUSTIVE = pytest.mark.exhaustive

SEARCHES = {
    "recommend": 'recommend.recommend("host", workload="mine:NET", goal="energy")',
    "concurrent": 'concurrent.concurrent("host", training="mine:NET", inference="mine:NET", arrival_rate=1, '
    "latency_ms=900)",
    "tuning": 'tuning.tuning("host", power_w=10, report=lambda text: print(text, file=sys.stderr)).__enter__()',
}


@pytest.mark.training
@pytest.mark.parametrize(
    "search", [pytest.param("concurrent", marks=EXHAUSTIVE), pytest.param("recommend", marks=EXHAUSTIVE), "tuning"]
)
def test_searches_that_train_on_this_machine_choose_in_the_same_way(tmp_path, monkeypatch, search):
    monkeypatch.delenv(WAIT_POLICY, raising=False)
    (tmp_path / "busy.py").write_text(BUSY)
    (tmp_path / "mine.py").write_text(OWN_WORKLOAD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    script = f"{SEARCH}\ntry: {SEARCHES[search]}\nexcept Begun: pass"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "{'omp_wait_policy': 'passive'}", done.stderr
    assert says(" ".join(done.stderr.split()), "1.60 of 2 cores", "make 1.60", "torch")
    policy = tmp_path / "policy-when-torch-was-loaded"
    assert (policy.read_text() if policy.exists() else PASSIVE) == PASSIVE


@pytest.mark.exhaustive
def test_nothing_is_said_of_others_before_a_wrong_name_is_refused(run_suite, tmp_path, monkeypatch):
    (tmp_path / "busy.py").write_text(BUSY)
    monkeypatch.syspath_prepend(tmp_path)
    done = run_suite("--workload", "lenet-mnits,mine:NET", "-p", "busy", check=False)
    assert "workload 'lenet-mnits' is unknown" in done.stderr
    assert "other processes" not in done.stdout + done.stderr

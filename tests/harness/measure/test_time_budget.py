"""A run ends within its time budget: who gets how much, what is cut, what is left out and when that is known."""

from __future__ import annotations

import os
import re
import shlex
import time
from types import SimpleNamespace

import pytest

from harness.core.cases import Case, CaseSettings
from harness.core.errors import OverBudgetError
from harness.core.profiles import CLEAN, FIRST, Minibatch
from harness.measure import time_budget
from harness.measure.flags import find_flags
from harness.measure.time_budget import TimeBudget, nominal_s, portions, size_of, weight_s
from harness.options import command_of, selection_of
from harness.store.results import ResultsStore
from tests.messages import says
from tests.named_modes import mode_on

SKIPPED = re.compile(r"^SKIPPED \[\d+\] .*?\.py:\d+: (.*)$", re.MULTILINE)
TWO_LINES = 155  # characters of a reason in two lines of a screen of 100 columns, behind the file of the test
SMALL, MIDDLE, LARGE = "lenet-mnist", "resnet18-cifar10-32", "mobilenetv3-gld23k"


def words(text):
    """A text without its line breaks."""
    return " ".join(text.split())


def case(workload=LARGE, **settings):
    return Case("host", workload, mode_on(), 4, "ssd", 16, CaseSettings(**settings))


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(time_budget, "time", found)
    return found


@pytest.fixture
def budget(clock):
    """Five minutes, of which cases have 285 s: the process has begun just now."""
    return TimeBudget(300.0, "5min", clock.now_s)


def run_minibatches(allotment, clock, seconds, phase=CLEAN, count=1):
    for _ in range(count):
        clock.now_s += seconds
        allotment.on_minibatch(Minibatch(0, 0, phase, 0.0, 0.0, 0.0, seconds * 1000))


def test_shares_go_by_what_networks_cost_and_add_up_to_what_is_left():
    cases = [case(SMALL), case(MIDDLE), case(LARGE)]
    left_s, shares_s = 100.0, []
    for portion in portions([weight_s(one) for one in cases]):
        shares_s.append(portion * left_s)
        left_s -= shares_s[-1]
    assert left_s == pytest.approx(0.0)
    assert shares_s == sorted(shares_s)
    assert shares_s[2] > 2 * shares_s[1]


def test_the_largest_network_goes_last_and_those_that_nobody_has_counted_after_it():
    cases = [case("somebodys-own"), case("bert-squad"), case(SMALL), case(LARGE), case(MIDDLE)]
    assert [one.workload for one in sorted(cases, key=size_of)] == [
        SMALL, MIDDLE, LARGE, "bert-squad", "somebodys-own",
    ]  # fmt: skip


def test_a_case_may_take_its_share_beyond_the_least_and_what_others_do_not_need(budget, clock):
    allotment = budget.allot(case(), portion=0.25)
    clock.now_s += 85.0  # preparing, of which no network is to have fewer minibatches
    assert allotment.begin(epoch_minibatches=100) == pytest.approx(0.25 * 200)
    run_minibatches(allotment, clock, 4.0, FIRST)
    run_minibatches(allotment, clock, 4.0, count=10)
    assert not allotment.is_used_up()
    run_minibatches(allotment, clock, 4.0)
    assert allotment.is_used_up()  # 2 s of the share are left, and another minibatch takes 4
    assert budget.allot(case(), portion=1.0).begin(100) == pytest.approx(200 - 48)


def test_a_minibatch_of_46_s_is_known_not_to_fit_by_the_first_of_them(budget, clock):
    allotment = budget.allot(case(), portion=0.5)
    allotment.begin(100)
    clock.now_s += 180.0
    with pytest.raises(OverBudgetError, match=r"mobilenet.* 10 minibatches, .*\(46 s each\).*59 s left"):
        run_minibatches(allotment, clock, 46.0, FIRST)


def test_a_slow_first_minibatch_alone_does_not_leave_a_case_out(budget, clock):
    allotment = budget.allot(case())
    allotment.begin(100)
    clock.now_s += 200.0
    run_minibatches(allotment, clock, 15.0, FIRST)  # workers start: ten of these would take 150 s, and 70 are left
    run_minibatches(allotment, clock, 1.0, count=10)


def test_what_becomes_slow_on_the_way_is_left_out_before_the_time_is_up(budget, clock):
    allotment = budget.allot(case())
    allotment.begin(100)
    run_minibatches(allotment, clock, 3.0, FIRST)
    run_minibatches(allotment, clock, 3.0, count=2)
    with pytest.raises(OverBudgetError, match=r"mobilenet.* more minibatches"):
        run_minibatches(allotment, clock, 46.0, count=8)
    assert budget.left_s() > 0


def test_once_there_are_enough_nothing_is_left_out_any_more(budget, clock):
    allotment = budget.allot(case())
    allotment.begin(100)
    run_minibatches(allotment, clock, 20.0, FIRST)
    run_minibatches(allotment, clock, 20.0, count=10)
    run_minibatches(allotment, clock, 200.0)
    assert budget.left_s() < 0


def test_of_a_profile_of_four_minibatches_four_are_enough(budget, clock):
    allotment = budget.allot(case(minibatches=4))
    allotment.begin(100)
    run_minibatches(allotment, clock, 50.0, FIRST)
    run_minibatches(allotment, clock, 50.0, count=4)


def test_epochs_are_whole_or_left_out(budget, clock):
    allotment = budget.allot(case(minibatches=None, epochs=3))
    allotment.begin(epoch_minibatches=50)
    run_minibatches(allotment, clock, 2.0, FIRST)
    with pytest.raises(OverBudgetError, match="needs 148 more minibatches"):
        run_minibatches(allotment, clock, 2.0, count=2)


def test_the_pace_of_a_smaller_network_leaves_the_large_one_out_before_it_is_prepared(budget, clock):
    budget.allot(case()).refuse_early()  # nothing is known yet
    budget.learn(case(MIDDLE), minibatch_s=8.0)  # beside strangers, instead of 0.2 s
    budget.allot(case()).refuse_early()  # ten of about 45 s; it may also be three times as fast
    clock.now_s += 150.0
    with pytest.raises(OverBudgetError, match="by the networks measured before it"):
        budget.allot(case("vgg11-cifar10")).refuse_early()
    with pytest.raises(OverBudgetError, match="by the networks measured before it"):
        budget.allot(case()).begin(100)
    budget.allot(case("somebodys-own")).refuse_early()


def test_the_pace_of_lenet_says_nothing_of_large_networks(budget):
    budget.learn(case(SMALL), minibatch_s=0.04)  # five times as slow as alone
    assert budget.forecast_s(case()) is None


def test_preparing_ends_when_the_time_is_up(budget, clock):
    lines = []
    report = budget.allot(case()).watched(lines.append)
    report("writing gld23k: 10 of 100 files")
    clock.now_s += 290.0
    with pytest.raises(OverBudgetError, match=r"\(writing gld23k: 20 of 100 files"):
        report("writing gld23k: 20 of 100 files")
    assert len(lines) == 2


def test_work_of_unknown_length_ends_when_its_share_is_used_up(budget, clock):
    report = budget.watched(lambda line: None, "the search was not done yet", portion=0.5)
    clock.now_s += 142.0
    report("profile 3")
    clock.now_s += 1.0
    with pytest.raises(OverBudgetError, match=r"search .*\(profile 4\) .*--time-budget 5min"):
        report("profile 4")


def test_what_is_measured_for_a_time_is_left_out_where_that_is_longer_than_what_is_left(budget, clock):
    idle = Case("host", "idle", mode_on(), 0, "ssd", 1, CaseSettings(minibatches=None, idle_s=60.0), "idle")
    clock.now_s += 200.0
    budget.allot(idle).refuse_early()
    clock.now_s += 40.0
    with pytest.raises(OverBudgetError, match=r"idle .*1 min 0 s.*45 s left of --time-budget 5min"):
        budget.allot(idle).refuse_early()


# -- whole runs, in which a minibatch moves the clock ------------------------------------------------------------------

FAKE_CLOCK = """
import dataclasses, types
from harness import outcome
from harness.measure import time_budget, training_loop
from harness.plan import PLAN
now_s = [0.0]
fake = types.SimpleNamespace(monotonic=lambda: now_s[0], perf_counter=lambda: now_s[0])
outcome.process_age_s = lambda: 0.0
for module in (outcome, time_budget, training_loop):
    module.time = fake
def pytest_unconfigure(config):
    open("ended-after", "w").write(str(now_s[0]))
    plan = config.stash[PLAN]
    if plan.time_budget is not None:
        counted = dataclasses.replace(next(iter(plan.cases.values())), workload="lenet-mnist")
        open("forecast", "w").write(str(plan.time_budget.forecast_s(counted)))
"""
WORKLOADS = """
import torch
from jetwatt import Workload
import fake_clock

def taking(seconds):
    def loss(model, batch):
        fake_clock.now_s[0] += seconds
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    return loss

def net(name, seconds):
    data = lambda: [(torch.ones(4), torch.tensor(0))] * 64
    # counting runs the loss, too: a forward of its own keeps the clock still meanwhile
    return Workload(name, lambda: torch.nn.Linear(4, 2), data, taking(seconds), forward=lambda m, b: m(b[0]))

QUICK, STEADY, SLOW = net("quick", 0.1), net("steady", 2.0), net("slow", 46.0)
"""


SLOW_COLLECTION = """
import pytest
import fake_clock

def pytest_make_collect_report(collector):  # of the files that are read
    fake_clock.now_s[0] += 20.0 * isinstance(collector, pytest.Module)
"""


@pytest.fixture
def fake_time(tmp_path, monkeypatch):
    (tmp_path / "fake_clock.py").write_text(FAKE_CLOCK)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def run_in_time(run_suite, tmp_path, fake_time):
    (tmp_path / "nets.py").write_text(WORKLOADS)

    def run(names, *arguments):
        workloads = ",".join(f"nets:{name}" for name in names)
        done = run_suite(
            "--workload", workloads, "--workers", "0", "--results", "r.sqlite", "-p", "fake_clock", *arguments
        )
        with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
            return done, list(store.profiles()), float((tmp_path / "ended-after").read_text())

    return run


@pytest.mark.training
def test_a_run_beside_strangers_ends_in_time_keeps_what_it_measured_and_says_how_to_run_the_rest(run_in_time):
    done, profiles, seconds = run_in_time(["QUICK", "STEADY", "SLOW"], "--time-budget", "5min", "-rs")
    assert seconds < 300
    assert [one.case.workload for one in profiles] == ["quick", "steady"]
    assert "2 passed, 1 skipped" in done.stdout
    [reason] = SKIPPED.findall(done.stdout)
    assert says(reason, "slow", "10 minibatches", "7 min 40 s", "46 s each")
    assert reason.endswith("; to run it: -k host-slow-maxn-w0-ssd-bs16")
    assert len(reason) <= TWO_LINES
    [command] = re.findall(r"^to run it:\n  (pytest .*)$", done.stdout, re.MULTILINE)
    assert "--time-budget" not in command
    assert command.endswith(" --workers 0 --results r.sqlite -p fake_clock -rs -k host-slow-maxn-w0-ssd-bs16")
    assert says(words(done.stdout), "left out", "time budget", "host-slow-maxn-w0-ssd-bs16")


@pytest.mark.training
def test_a_case_that_was_measured_shows_how_fast_the_machine_is(run_in_time, tmp_path):
    run_in_time(["SLOW"], "--time-budget", "30s")
    assert (tmp_path / "forecast").read_text() == "None"  # it was left out
    run_in_time(["STEADY"], "--time-budget", "5min")
    forecast_s = float((tmp_path / "forecast").read_text())
    assert forecast_s == pytest.approx(2.0 * nominal_s(case(SMALL)))  # an uncounted network: nominally 1 s


@pytest.mark.training
def test_cases_take_fewer_minibatches_but_never_under_ten_and_their_profiles_say_so(run_in_time):
    _, profiles, seconds = run_in_time(["STEADY"], "--batch-size", "4,8,16", "--time-budget", "90s")
    assert seconds < 90
    counts = [sum(one.phase == CLEAN for one in profile.minibatches) for profile in profiles]
    assert len(counts) == 3
    assert all(10 <= count < 40 for count in counts)
    for profile, count in zip(profiles, counts):
        [cut] = [flag for flag in profile.flags if flag.startswith("cut")]
        assert f"cut: {count} of 40 minibatches" in cut
        assert cut.endswith("their share of the run's time budget")
        assert profile.case.settings == CaseSettings()


@pytest.mark.training
@pytest.mark.parametrize(
    "options", [(), ("--benchmark-disable",)], ids=["timed by pytest-benchmark", "not timed by it"]
)
def test_a_share_that_is_too_small_for_ten_still_gives_ten(run_in_time, options):
    words = ("--batch-size", "4,8,16", "--time-budget", "90s", *options)
    _, profiles, seconds = run_in_time(["STEADY", "QUICK"], *words)
    assert seconds < 90
    counts = [sum(one.phase == CLEAN for one in profile.minibatches) for profile in profiles]
    assert counts[:3] == [10, 10, 10]  # the first share is 12.5 s, and ten minibatches take 20
    assert len(counts) == 6
    assert min(counts) >= 10


@pytest.mark.training
def test_a_campaign_may_set_it_and_without_it_nothing_is_cut(run_in_time, tmp_path):
    (tmp_path / "c.toml").write_text('time_budget = "30s"\n[axes]\nworkload = ["nets:STEADY"]\nworkers = [0]\n')
    _, profiles, seconds = run_in_time(["STEADY"], "--campaign", "c.toml")
    assert seconds < 30
    [profile] = profiles
    assert len(profile.counted) < 40
    assert profile.conditions["time_share_s"] > 0
    (tmp_path / "r.sqlite").unlink()
    _, [profile], seconds = run_in_time(["STEADY"])
    assert len(profile.counted) == 40
    assert "time_share_s" not in profile.conditions
    assert not [flag for flag in find_flags(profile) if flag.startswith("cut")]


@pytest.mark.training
def test_what_comes_after_the_time_is_up_is_skipped_before_it_begins(run_in_time):
    done, profiles, _ = run_in_time(["SLOW", "QUICK"], "--time-budget", "46s", "--minibatches", "1", "-rs")
    assert profiles == []
    assert "--time-budget 46s is spent" in done.stdout
    assert "2 skipped" in done.stdout
    assert "[1/2] host-slow" in done.stdout
    assert "[2/2" not in done.stdout
    left_out = "did not suffice: host-slow-maxn-w0-ssd-bs16, host-quick-maxn-w0-ssd-bs16"
    assert says(words(done.stdout), left_out, "-rs", "-k", "pytest ")


def collect_slowly(run_suite, tmp_path, *arguments):
    """A run on a clock that each file moves by 20 s when it is read, of which three fit into the budget."""
    (tmp_path / "slow_collection.py").write_text(SLOW_COLLECTION)
    plugins = ("-p", "fake_clock", "-p", "slow_collection")
    done = run_suite(*plugins, "--device", "host", "--time-budget", "60s", *arguments)
    return done.stdout, float((tmp_path / "ended-after").read_text())


@pytest.mark.training
def test_a_budget_that_ends_during_collection_leaves_the_other_files_unread(run_suite, tmp_path, fake_time):
    stdout, seconds = collect_slowly(run_suite, tmp_path, "--workload", SMALL, "--workers", "0", "-k", "host")
    assert seconds == 60.0
    assert re.search(
        r"SKIPPED \[1\] \S*test_training\.py: --time-budget 60s .*-k test_training\.py$",
        stdout,
        re.M,
    )
    left_out = "left out, because the time budget did not suffice: benchmarks/test_containers.py, "
    assert left_out in words(stdout)
    assert re.search(r"(\S+, ){2}\S+ and \d+ more", words(stdout))
    assert "matches no case" not in stdout


@pytest.mark.training
def test_the_cases_of_the_files_that_were_read_in_time_are_skipped_too(run_suite, tmp_path, fake_time):
    stdout, seconds = collect_slowly(run_suite, tmp_path)
    assert seconds == 60.0
    assert "-k host-resnet18-cifar10-32-maxn-w0-ssd-bs64" in stdout  # of test_batch_size.py
    assert " passed" not in stdout


@pytest.mark.training
def test_a_listing_of_cases_takes_no_notice_of_the_budget(run_suite, tmp_path, fake_time):
    stdout, seconds = collect_slowly(run_suite, tmp_path, "--collect-only", "-q")
    assert seconds > 60.0
    assert "test_training.py::test_training[host-lenet-mnist-maxn-w0-ssd-bs16]" in stdout


@pytest.mark.exhaustive
def test_with_a_time_budget_the_largest_network_runs_last(run_suite):
    words = ("--workload", f"{LARGE},{SMALL},{MIDDLE}", "--workers", "4,0", "--collect-only", "-q")
    names = [
        [line.partition("[host-")[2].partition("-maxn-")[::2] for line in done.stdout.splitlines() if "[host-" in line]
        for done in (run_suite(*words), run_suite(*words, "--time-budget", "5min"))
    ]
    assert [workload for workload, _ in names[0]] == [LARGE, LARGE, SMALL, SMALL, MIDDLE, MIDDLE]
    assert [workload for workload, _ in names[1]] == [SMALL, SMALL, MIDDLE, MIDDLE, LARGE, LARGE]
    assert [rest[:2] for _, rest in names[1]] == ["w4", "w0"] * 3


def test_a_budget_that_is_no_duration_is_refused_with_what_is_one(run_suite):
    done = run_suite("--time-budget", "5 minutes", "--collect-only", check=False)
    assert done.returncode == 4
    assert says(done.stderr + done.stdout, "--time-budget '5 minutes'", "5min")


def test_starting_is_part_of_the_run_and_ending_gets_twice_as_long_in_reserve(clock):
    began_s = clock.now_s
    clock.now_s += 25.0  # Python and pytest, beside strangers
    assert TimeBudget(300.0, "5min", began_s).left_s() == pytest.approx(300 - 25 - 2 * 25)
    assert TimeBudget(100.0, "100s", began_s).left_s() == pytest.approx(100 - 25 - 20)


def test_a_process_knows_when_it_began(tmp_path):
    stat = tmp_path / "stat"
    began_ticks = round((time.clock_gettime(time.CLOCK_BOOTTIME) - 100.0) * os.sysconf("SC_CLK_TCK"))
    stat.write_text(f"1 (a) b) S {' '.join(['0'] * 18)} {began_ticks} 0 0")
    assert 99.9 < time_budget.process_age_s(stat) < 1000
    assert time_budget.process_age_s(tmp_path / "none") == 0.0
    assert time_budget.process_age_s() > 0


def test_the_command_for_a_case_with_an_at_sign_selects_that_case():
    words = ["benchmarks", "--time-budget", "5min", "-k", "lenet", "--device", "sim:orin-agx@2"]
    invocation = SimpleNamespace(args=words)
    config = SimpleNamespace(invocation_params=invocation, getoption=lambda name: "5min")
    command, option = command_of(config), selection_of("sim:orin-agx@2-lenet-mnist-maxn-w0-ssd@20-bs16")
    assert shlex.split(command) == ["pytest", "benchmarks", "--device", "sim:orin-agx@2"]
    assert shlex.split(option) == ["-k", "sim:orin-agx and 2-lenet-mnist-maxn-w0-ssd and 20-bs16"]

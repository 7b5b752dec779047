"""Requirements in a run of pytest: file, mark and fixture, what fails, and what the run states at its end."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jetwatt
from harness.core.errors import NOTHING_COMPARED
from harness.gate import Requirements
from harness.outcome import OUTCOME, Outcome
from tests import warm_pytest
from tests.harness.store.profile_examples import make_profile

MEASURING = """
import pytest


@pytest.mark.require(p95_ms=20, power_w=25)
def test_kept(train):
    train(minibatches=400)


@pytest.mark.require(power_w=5)
def test_broken(profile):
    profile()


@pytest.mark.require(p99_ms=20)
def test_undecided(train):
    train(minibatches=20)


def test_plain(train):
    train(minibatches=400)
"""

FIXTURE = """
import pytest


def test_kept(train, requirements):
    verdicts = requirements.check(train(minibatches=400))
    assert [verdict.status for verdict in verdicts] == ["PASS"]


@pytest.mark.require(samples_per_s=100000)
def test_looks_first(train, requirements):
    profile = train(minibatches=400)
    verdicts = requirements.judge(profile)
    assert [verdict.status for verdict in verdicts][-1] == "FAIL"
"""

POWER = "[[require]]\nworkload = 'lenet*'\npower_w = {}\n"


@pytest.fixture
def own(tmp_path: Path) -> Any:
    """Runs a test file on a simulated board, with a requirements file if it has a text."""

    def run(text: str, *arguments: str, requirements: str = "") -> Any:
        (tmp_path / "test_mine.py").write_text(text)
        words = ["-p", "jetwatt", "--rootdir", ".", "--results", "r.sqlite", "-q", "--device", "sim:orin-agx"]
        if requirements:
            (tmp_path / "need.toml").write_text(requirements)
            words += ["--require", "need.toml"]
        return warm_pytest.run([*words, "test_mine.py", *arguments], tmp_path, {**os.environ, "COLUMNS": "200"})

    return run


@pytest.mark.exhaustive
def test_a_mark_fails_the_test_that_does_not_keep_it_and_no_other(own):
    done = own(MEASURING)
    assert "1 failed, 3 passed" in done.stdout
    assert "FAILED test_mine.py::test_broken" in done.stdout
    assert "power_w: FAIL" in done.stdout
    assert "requirements: FAIL: 1; INCONCLUSIVE: 1; PASS: 2" in done.stdout


@pytest.mark.exhaustive
def test_strictness_also_fails_what_is_undecided(own):
    done = own(MEASURING, "-k", "undecided or plain", "--strict")
    assert "1 failed, 1 passed" in done.stdout
    assert "minibatches, about" in done.stdout


@pytest.mark.exhaustive
def test_what_was_measured_is_judged_also_where_the_test_itself_fails(own):
    failing = MEASURING.replace(
        "def test_plain(train):\n", "def test_plain(train):\n    train()\n    assert False\n", 1
    )
    done = own(failing, "-k", "plain", requirements=POWER.format(25))
    assert done.returncode == 1
    assert "requirements: PASS: 1" in done.stdout
    assert "exit code" not in done.stdout


@pytest.mark.exhaustive
def test_a_file_is_about_every_test_that_measures_a_case_of_it(own):
    kept = own(MEASURING, "-k", "plain", requirements=POWER.format(25))
    assert kept.returncode == 0
    assert "requirements: PASS: 1" in kept.stdout
    assert "jetwatt check need.toml r.sqlite" in kept.stdout
    broken = own(MEASURING, "-k", "plain", requirements=POWER.format(5))
    assert broken.returncode == 1
    assert "require[0] (workload lenet*)" not in broken.stdout  # it was met


@pytest.mark.exhaustive
def test_a_requirement_that_no_case_met_is_listed_and_alone_ends_the_run_with_its_own_code(own):
    other = "[[require]]\nworkers = 3\npower_w = 5\n"
    both = own(MEASURING, "-k", "plain", requirements=POWER.format(25) + other)
    assert both.returncode == 0
    assert "require[1] (workers 3): NO CASE" in both.stdout
    alone = own(MEASURING, "-k", "plain", requirements=other)
    assert alone.returncode == NOTHING_COMPARED
    assert own(MEASURING, "-k", "plain", "--strict", requirements=other).returncode == 1
    assert own(MEASURING, "-k", "plain", "--collect-only", requirements=other).returncode == 0


@pytest.mark.exhaustive
def test_the_fixture_judges_once_and_leaves_the_decision_to_the_test(own):
    done = own(FIXTURE, requirements=POWER.format(25))
    assert done.returncode == 0
    assert "requirements: FAIL: 1; PASS: 2" in done.stdout
    bare = own(FIXTURE, "-k", "first")
    assert bare.returncode == 0


OWN_TRAINING = """
import jetwatt


def train():
    options = {"workload": "my-run", "batch_size": 16, "simulated_workload": "lenet-mnist"}
    with jetwatt.measuring("sim:orin-agx", **options) as run:
        for _ in range(1200):
            run.step()
    return run.profile


def test_required(requirements):
    requirements.check(train())


def test_compared(baseline):
    baseline.check(train())
"""


@pytest.mark.exhaustive
def test_profiles_of_a_training_of_the_tests_own_are_judged_and_counted_at_the_end(own):
    limits = "[[require]]\nworkload = 'my-run'\npower_w = {}\n"
    kept = own(OWN_TRAINING, requirements=limits.format(25))
    assert kept.returncode == 0
    assert "requirements: PASS: 1" in kept.stdout
    assert "no baseline given" in kept.stdout
    assert "r.sqlite" not in kept.stdout  # where nothing is stored
    broken = own(OWN_TRAINING, requirements=limits.format(5))
    assert "1 failed, 1 passed" in broken.stdout
    assert "requirements: FAIL: 1" in broken.stdout


@pytest.mark.parametrize(
    ("mark", "part"),
    [
        pytest.param("p99_mss=20", "did you mean p99_ms?", id="unknown-key"),
        pytest.param("20", "name the limit", id="no-key", marks=pytest.mark.exhaustive),
        pytest.param("power_w=25000", "is it in mW", id="wrong-unit", marks=pytest.mark.exhaustive),
    ],
)
def test_a_wrong_mark_ends_the_collection(own, mark, part):
    done = own(MEASURING.replace("power_w=5", mark))
    assert done.returncode == 2
    assert part in done.stdout
    assert "another exception" not in done.stdout


def test_a_wrong_file_is_a_usage_error_before_anything_is_measured(own, tmp_path):
    done = own(MEASURING, requirements="[[require]]\npower_w = 25000\n")
    assert done.returncode == 4
    assert "power_w of require[0] of need.toml" in done.stderr
    assert not (tmp_path / "r.sqlite").exists()


TAIL = "[[require]]\nworkload = '{}'\np99_ms = 1000\n"
PROFILE = "def test_tail(profile):\n    profile()\n"


@pytest.mark.exhaustive
def test_as_many_minibatches_as_a_tail_takes_are_run_where_asked(own, tmp_path):
    """Of 40 minibatches no p99 is known; without one beyond the limit 1,420 decide."""
    few = own(PROFILE, requirements=TAIL.format("lenet*"))
    assert "requirements: INCONCLUSIVE: 1" in few.stdout
    enough = own(PROFILE, "--enough-minibatches", "--strict", requirements=TAIL.format("lenet*"))
    assert "requirements: PASS: 1" in enough.stdout
    own(PROFILE, "--enough-minibatches", "--minibatches", "1500", requirements=TAIL.format("lenet*"))
    of_another = own(PROFILE, "--enough-minibatches", requirements=TAIL.format("resnet*") + POWER.format(25))
    assert "requirements: NO CASE: 1; PASS: 1" in of_another.stdout
    counts = jetwatt.open_results(tmp_path / "r.sqlite").profiles()["clean_minibatches"].tolist()
    assert counts[1] == pytest.approx(1420, rel=0.01)
    assert counts[2] == 1500
    assert counts[3] == counts[0] < 1000


MARKED = """
import pytest


@pytest.mark.require(p99_ms=1000)
def test_marked(profile):
    profile()


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.require(p99_ms=1000))])
def test_marked_parameter(profile, workers):
    profile()


@pytest.mark.require(p99_ms=1000, workers=1)
def test_marked_for_other_cases(profile):
    profile()


def test_plain(profile):
    profile()
"""


@pytest.mark.exhaustive
def test_marks_of_tests_and_of_parameters_give_their_cases_as_many_minibatches_as_a_tail_takes(own, tmp_path):
    done = own(MARKED, "--enough-minibatches")
    assert "requirements: PASS: 2" in done.stdout
    counts = jetwatt.open_results(tmp_path / "r.sqlite").profiles()["clean_minibatches"].tolist()
    marked, plain_parameter, marked_parameter, of_others = counts  # what is not marked is measured before
    assert marked == pytest.approx(1420, rel=0.01)
    assert marked_parameter == pytest.approx(1420, rel=0.01)
    assert max(plain_parameter, of_others) < 1000


def test_enough_minibatches_without_requirements_are_refused(own):
    done = own(PROFILE, "--enough-minibatches")
    assert done.returncode == 4
    assert "add --require FILE" in done.stderr


def test_without_requirements_the_fixture_judges_nothing_and_says_so():
    config = SimpleNamespace(stash={OUTCOME: Outcome()})
    assert Requirements([], config).check(make_profile()) == []
    assert config.stash[OUTCOME].is_without_requirements


def test_a_mark_of_the_same_name_on_a_test_that_is_not_the_suites_is_left_alone(own):
    other = "import pytest\n\n\n@pytest.mark.require('root')\ndef test_other():\n    pass\n"
    assert own(other).returncode == 0

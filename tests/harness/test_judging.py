"""Claims as tests: which run on which device, what fails or skips them, what is stored; --judge measures nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
from types import SimpleNamespace

import pytest

from harness.__main__ import main
from harness.core.errors import StoreError
from harness.core.terminal import Progress
from harness.judge.claims import store_verdicts, stored_verdicts
from harness.judging import ClaimsOfRun
from harness.outcome import OUTCOME, PROGRESS, Outcome
from harness.store import rows
from harness.store.results import ResultsStore
from tests import warm_pytest
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

pytest.importorskip("scipy")

FAILED, USAGE_ERROR = 1, 4

MINE = """
import pytest
from harness.judge.claims import claim, known

@pytest.mark.parametrize("workers", [0, 4])
def test_measured(profile, workers):
    profile()

@claim("note 1", {claimed})
def test_workers_gain(ratio, value):
    \"\"\"Four workers shorten a minibatch.\"\"\"
    assert {asserted}
"""


FULL_DISK = """
from harness.core.errors import StoreError
from harness.store.results import ResultsStore

def keep_verdicts(self, contents):
    raise StoreError(f"{self.path}: the disk is full")

ResultsStore.keep_verdicts = keep_verdicts
"""

NO_DEVICE = """
from harness.devices import registry

def open_device(name, configuration, root=None):
    raise AssertionError(f"{name} was opened")

registry.open_device = open_device
"""


@pytest.fixture
def own(tmp_path):
    """Runs a test file of one's own that measures two cases of simulated NX and claims something of them."""

    def run(*arguments, claimed="", asserted='ratio("time", workers=(0, 4)) < 1', device="sim:xavier-nx"):
        (tmp_path / "test_mine.py").write_text(MINE.format(claimed=claimed, asserted=asserted))
        # Bytecode of a text of the same length from the same second counts as that of this one.
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        words = ["-p", "jetwatt", "--rootdir", ".", "-rs", "-q", "test_mine.py", *arguments]
        if device:
            words += ["--device", device, "--results", "r.sqlite"]
        return warm_pytest.run(words, tmp_path, {**os.environ, "COLUMNS": "200"})

    return run


def verdicts_in(path):
    with ResultsStore(path, read_only=True) as store:
        return stored_verdicts(store)


@pytest.mark.exhaustive
def test_a_claim_runs_after_what_it_is_about_is_shown_by_name_and_its_verdict_is_stored(own, tmp_path):
    listed = own("--collect-only", "-k", "workers_gain")
    assert "test_mine.py::test_workers_gain[sim:xavier-nx]" in listed.stdout
    done = own()
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert "confirmed (simulated): 1" in done.stdout
    (verdict,) = verdicts_in(tmp_path / "r.sqlite").verdicts
    assert (verdict.takeaway, verdict.device, verdict.verdict) == ("workers_gain", "sim:xavier-nx", "confirmed")
    assert (verdict.section, verdict.says) == ("note 1", "Four workers shorten a minibatch.")
    assert verdict.low < verdict.effect < verdict.high < 1
    assert verdict.above == float("-inf")


@pytest.mark.exhaustive
def test_what_a_simulated_board_contradicts_fails_and_a_shortfall_outside_its_bounds(own):
    wrong = {"asserted": 'ratio("time", workers=(0, 4)) > 1.5'}
    done = own(**wrong)
    assert done.returncode == FAILED
    assert says(done.stdout, "contradicted: workers_gain (paper note 1)", "sim:xavier-nx", "workers 4 / 0")
    assert own(claimed='shortfall=known(0.1, 1.4, "of no account")', **wrong).returncode == 0
    assert own(claimed='shortfall=known(1.3, 1.4, "of no account")', **wrong).returncode == FAILED


@pytest.mark.exhaustive
def test_what_is_undecided_fails_only_where_it_is_asserted(own):
    unsure = {"asserted": "(ratio('time', workers=(0, 4)) / ratio('time', workers=(0, 4))) < 1"}
    assert own(**unsure).returncode == 0
    assert own("--assert-takeaways", **unsure).returncode == FAILED


@pytest.mark.parametrize(
    ("claimed", "asserted", "why"),
    [
        ("boards='nano'", 'value("time") > 0', "claimed of other boards than sim:xavier-nx"),
        ("measured_only='it takes turns'", 'value("time") > 0', "judged on measured profiles only: it takes turns"),
        ("", 'value("warp") > 0', "'warp' is not a quantity"),
        ("", 'ratio("time", workers=(0, 8)) < 1', "sim:xavier-nx has no profiles of the compared cases"),
        (
            "",
            'value("read_again") > 0',
            "no verdict without a sensor: the profiles of sim:xavier-nx have no read_again",
        ),
        ("", '0 < value("time") < 10_000', "a claim is one comparison, and this test makes two"),
        ("", 'value("time")', "neither true nor false"),
        ("", "ratio is not None", "workers_gain compared nothing"),
    ],
)
@pytest.mark.exhaustive
def test_a_claim_is_skipped_with_the_reason_and_fails_where_it_compares_wrongly(own, claimed, asserted, why):
    done = own(claimed=claimed, asserted=asserted)
    assert why in done.stdout
    is_wrong = why.startswith(("'warp'", "a claim is", "neither", "workers_gain"))
    assert done.returncode == (FAILED if is_wrong else 0)
    assert ("SKIPPED" in done.stdout) != is_wrong


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("folder", "is a folder, expected a results file; give a file"),
        ("text", "is not a results file, or its header is damaged: it begins with b'words'; give a results file"),
        ("missing", "there is no results file missing; give an existing one"),
    ],
)
def test_a_file_that_cannot_be_judged_is_refused_with_a_hint_about_it(own, tmp_path, name, what):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("words")
    refused = own("--judge", name)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert what in refused.stderr
    assert "by --results" not in refused.stderr


@pytest.mark.exhaustive
def test_a_stored_file_is_judged_without_measuring_anything(own, tmp_path):
    own()
    with ResultsStore(tmp_path / "r.sqlite") as store:
        of_run = stored_verdicts(store).verdicts
        store.add(make_profile(case={"device": "host"}), ENVIRONMENT, "later")
        assert stored_verdicts(store).newer == 1
        count = len(store)
    (tmp_path / "test_plain.py").write_text("def test_that_is_no_claim():\n    raise AssertionError\n")
    (tmp_path / "conftest.py").write_text(NO_DEVICE)
    done = own("--judge", "r.sqlite", "test_plain.py", device=None)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped, 2 deselected" in done.stdout
    assert says(done.stdout, "host", "no profiles")
    assert "judged: r.sqlite" in done.stdout
    again = verdicts_in(tmp_path / "r.sqlite")
    assert (again.verdicts, again.newer) == (of_run, 0)
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        assert len(store) == count
    assert "1 passed, 1 deselected" in own("--judge", "r.sqlite", "--device", "sim:xavier-nx", device=None).stdout
    assert "matches no case" not in own("--judge", "r.sqlite", "-k", "orin", device=None).stdout


@pytest.mark.exhaustive
def test_what_cannot_be_judged_is_refused_before_anything_runs(own, tmp_path):
    own()
    missing = own("--judge", "no.sqlite", device=None)
    assert missing.returncode == USAGE_ERROR
    assert "there is no results file no.sqlite" in missing.stdout + missing.stderr
    other = own("--judge", "r.sqlite", "--device", "host", device=None)
    assert other.returncode == USAGE_ERROR
    assert "r.sqlite has no profile of host" in other.stdout + other.stderr


def test_a_claim_alone_says_that_nothing_was_measured_and_how_a_file_is_judged(own):
    done = own("-k", "workers_gain")
    assert "no profiles of sim:xavier-nx" in done.stdout
    assert "pytest benchmarks --judge FILE" in done.stdout
    assert "1 skipped, 2 deselected" in done.stdout


@pytest.mark.exhaustive
def test_verdicts_that_cannot_be_stored_are_shown_and_that_they_were_not_is_said(own, tmp_path):
    own()
    before = verdicts_in(tmp_path / "r.sqlite")
    (tmp_path / "conftest.py").write_text(FULL_DISK)
    done = own("--judge", "r.sqlite", device=None, asserted='ratio("time", workers=(0, 4)) < 2')
    assert done.returncode == 0
    assert "confirmed (simulated): 1" in done.stdout
    assert says(done.stdout, "not stored", "r.sqlite", "disk is full")
    assert "the verdicts are stored there" not in done.stdout
    assert verdicts_in(tmp_path / "r.sqlite") == before


@pytest.mark.exhaustive
def test_verdicts_go_when_nothing_in_the_file_speaks_to_the_claim_any_more(own, tmp_path):
    own()
    gone = own("--judge", "r.sqlite", device=None, asserted='ratio("time", workers=(0, 8)) < 1')
    assert "1 skipped" in gone.stdout
    assert verdicts_in(tmp_path / "r.sqlite").verdicts == ()
    own("--judge", "r.sqlite", device=None)
    own("--resume", asserted='ratio("time", workers=(0, 8)) < 1')  # a run leaves what it did not judge alone
    assert len(verdicts_in(tmp_path / "r.sqlite").verdicts) == 1


@pytest.mark.exhaustive
def test_a_test_of_ones_own_takes_statistics_without_being_a_claim(own, tmp_path):
    text = MINE.replace('@claim("note 1", {claimed})', "").format(claimed="", asserted='0 < value("time") < 10_000')
    (tmp_path / "test_other.py").write_text(text)
    words = ["-p", "jetwatt", "--rootdir", ".", "-q", "test_other.py", "--device", "sim:xavier-nx"]
    done = warm_pytest.run([*words, "--results", "r.sqlite"], tmp_path, {**os.environ, "COLUMNS": "200"})
    assert "3 passed" in done.stdout, done.stdout
    assert verdicts_in(tmp_path / "r.sqlite").verdicts == ()


@pytest.mark.exhaustive
def test_the_report_says_how_claims_come_to_be_judged(own, tmp_path, capsys):
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        store.add(make_profile(), ENVIRONMENT, "run")
    assert main(["report", "--results", str(path), "--out", str(tmp_path / "report")]) == 0
    told = f"{path} has no verdicts on the papers' claims: `pytest benchmarks --judge {path}` judges them"
    assert told in capsys.readouterr().out
    assert "has no verdicts" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.exhaustive
def test_a_damaged_verdict_is_named(own, tmp_path):
    own()
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        [(whole, _)] = store.verdicts()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE verdicts SET content = replace(content, 'confirmed', 'contradicted')")
    connection.close()
    with pytest.raises(StoreError, match=r"workers_gain of sim:xavier-nx .*damaged"):
        verdicts_in(path)
    with ResultsStore(path) as store:
        whole = json.dumps({**json.loads(whole), "verdict": "confirmed"})
        for fields in ({"verdict": "splendid"}, {"effect": "1.0"}, {"says": None}, {"n": True}):
            wrong = json.dumps({**json.loads(whole), **fields})
            for content in (wrong, "{}", "[1]", "no JSON"):
                store.keep_verdicts({("sim:xavier-nx", "workers_gain"): content})
                with pytest.raises(StoreError, match="cannot be read"):
                    stored_verdicts(store)
        store_verdicts(store, {("sim:xavier-nx", "workers_gain"): None})
        assert stored_verdicts(store).verdicts == ()


def test_the_profiles_of_a_judged_file_are_read_once(tmp_path, monkeypatch):
    """For the devices, before anything is collected, and for the cases."""
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(make_profile(), ENVIRONMENT, "run")
    read = []
    to_record = rows.to_record
    monkeypatch.setattr(rows, "to_record", lambda number, *rest: read.append(number) or to_record(number, *rest))
    options = {"jetwatt_judge": str(tmp_path / "r.sqlite"), "jetwatt_assert_takeaways": False, "jetwatt_device": None}
    stash = {OUTCOME: Outcome(), PROGRESS: Progress(io.StringIO())}
    run = ClaimsOfRun(SimpleNamespace(getoption=options.get, stash=stash))
    assert run.devices == list(run.cases.devices) == ["host"]
    assert read == [1]

"""Nights: what makes one red, and what is said of it; whole ones on a simulated board: tests/test_workflows.py."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from harness.judge.quantities import QUANTITIES
from tests.messages import says
from tools.night import CRASHED, main

PROJECT = Path(__file__).resolve().parents[2]
STEPS = {"doctor": 0, "restore": 0, "campaign-1": 0, "gates": 0, "baseline": 0, "compare": 0, "history": 0, "pages": 0}


def compared(ratio: float, status: str, figure: str = "minibatch time") -> Dict[str, Any]:
    one = {"name": "overall", "figure": figure, "status": status, "ratio": ratio, "low": ratio, "high": ratio}
    return {"overall": [one], "cases": [{**one, "name": "orin-agx-lenet"}], "changed": [], "environment": []}


def history(status: str = "no difference", differ: Tuple[str, ...] = ()) -> Dict[str, Any]:
    software = {"torch": "2.9.0", "suite_commit": "abc"}
    runs = [
        {"run_id": f"r{day}", "created_at": f"2026-03-{day:02d}T02:14:00", "value": 5, "software": software}
        for day in range(1, 8)
    ]
    change = {**{name: runs[4][name] for name in ("run_id", "created_at")}, "run": 5, "differ": list(differ)}
    changes = [change] if status != "no difference" else []
    return {"series": [{"case_id": "orin-agx-lenet", "status": status, "changes": changes, "runs": runs}]}


@pytest.fixture
def judge(tmp_path, capsys):
    """A function that says what comes of a night: its exit code and the five lines."""

    def judged(*options: str, said: Tuple[str, str] = ("", ""), **found: Any) -> Tuple[int, List[str]]:
        codes = {**STEPS, **found.pop("steps", {})}
        (tmp_path / "steps.tsv").write_text("".join(f"{name}\t{code}\n" for name, code in codes.items()))
        for name, content in {"compare": compared(1.0, "no difference"), "history": history(), **found}.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        if said[0]:
            (tmp_path / f"{said[0]}.txt").write_text(said[1])
        code = main([str(tmp_path), "--name", "orin-agx", *options])
        return code, capsys.readouterr().out.splitlines()

    return judged


def test_a_night_on_which_nothing_failed_is_green(judge):
    code, lines = judge("--strict", "yes", steps={"history": 2, "pages": 1})  # too few runs, and no page
    assert (code, len(lines)) == (0, 5)
    assert says(lines[0], "GREEN: orin-agx: minibatch time", "+0.0 %")
    assert says(lines[2], "changed: nothing", "the same: torch 2.9.0, commit abc")


def test_the_night_names_each_step_as_its_verdict_does(judge, tmp_path, capsys):
    judge(steps={"history": 2})
    assert main([str(tmp_path), "--ended", "history"]) == 0
    assert capsys.readouterr().out == "too few runs\n"


def test_a_step_that_crashed_is_an_error_and_no_verdict(judge, tmp_path, capsys):
    code, lines = judge("--accept", "yes", steps={"history": CRASHED})
    assert (code, lines[0].partition(":")[0]) == (1, "RED by history (error)")


def test_a_summary_that_cannot_be_written_is_an_error(judge, tmp_path, capsys):
    (tmp_path / "summary.md").mkdir()
    assert judge()[0] == 1


def test_a_first_night_says_that_it_was_not_compared(judge):
    assert says(judge(compare={})[1][2], "changed: not compared", "now: torch 2.9.0, commit abc")


def test_software_is_that_of_the_newest_run_also_where_a_series_ended_before(judge):
    document = history()
    ended = document["series"][0]["runs"][0]
    ended = {**ended, "created_at": "2026-03-01T01:00:00", "software": {"torch": "1.0"}}
    document["series"].append({**document["series"][0], "runs": [ended]})
    assert says(judge(history=document)[1][2], "changed: nothing", "the same: torch 2.9.0, commit abc")


def test_each_check_that_fails_makes_it_red(judge):
    for step in STEPS:
        code, lines = judge(steps={step: 1})
        assert (code, lines[0].startswith(f"RED by {step} (")) == ((1, True) if step != "pages" else (0, False)), step


@pytest.mark.parametrize("step", ["baseline", "compare"])
def test_what_is_inconclusive_is_red_where_it_is_strict_and_an_error_always(judge, step):
    assert judge("--strict", "no", steps={step: 2})[0] == 0
    code, lines = judge("--strict", "yes", steps={step: 2})
    assert code == 1
    assert f"RED by {step} (inconclusive" in lines[0]
    assert judge("--strict", "no", steps={step: 2}, said=(f"{step}", "jetwatt: error: no such file"))[0] == 1


@pytest.mark.parametrize(("status", "name"), [(one.worse, one.name) for one in QUANTITIES])
def test_a_red_night_says_what_changed_since_when_and_names_torch(judge, status, name):
    differ = ('kernel: "5.15" -> "6.8"', 'torch: "2.8.0" -> "2.9.0"')
    document = {**compared(1.05, status, name), "changed": [differ[1]]}
    code, lines = judge(steps={"compare": 1, "history": 1}, compare=document, history=history(status, differ))
    assert code == 1
    assert lines[0].startswith(f"RED by compare (worse), history (worse): orin-agx: {name}: {status} (+5.0 %")
    assert says(lines[1], "since: 2026-03-05 02:14 UTC (run 5)", "1 of 1 series")
    assert lines[2] == f"changed: {differ[1]}; {differ[0]}; the same: commit abc"
    assert says(lines[3], "cases: 1 of 1 ", "orin-agx-lenet")


def test_the_new_normal_may_be_slower_but_not_broken(judge):
    slower = {"baseline": 1, "compare": 1, "history": 1}
    assert says(judge("--accept", "yes", steps=slower)[1][0], "GREEN, ", "normal", "orin-agx")
    assert judge("--accept", "yes", steps={**slower, "gates": 1})[0] == 1


def test_requirements_that_nothing_decides_are_red_where_it_is_strict_and_an_error_always(judge):
    table = ("requirements", "| case | verdict |\n")
    assert judge("--strict", "no", steps={"requirements": 2}, said=table)[0] == 0
    code, lines = judge("--strict", "yes", steps={"requirements": 2}, said=table)
    assert (code, lines[0].partition(":")[0]) == (1, "RED by requirements (not decided)")
    misspelt = ("requirements", "jetwatt check: key 'p99' of require[0] is unknown; did you mean p99_ms?\n")
    code, lines = judge("--strict", "no", steps={"requirements": 2}, said=misspelt)
    assert (code, lines[0].partition(":")[0]) == (1, "RED by requirements (error)")


def test_requirements_are_red_also_in_a_night_that_is_accepted_and_their_table_is_in_the_summary(judge, tmp_path):
    table = "| case | verdict |\n"
    code, lines = judge("--accept", "yes", steps={"requirements": 1}, said=("requirements", table))
    assert (code, lines[0].partition(":")[0]) == (1, "RED by requirements (not kept)")
    text = (tmp_path / "summary.md").read_text()
    assert f"<summary>requirements</summary>\n\n{table}" in text
    assert "```" not in text
    assert judge(steps={"requirements": 0})[0] == 0


def test_a_night_without_profiles_is_red(judge, tmp_path):
    judge()
    for name in ("history.json", "compare.json"):
        (tmp_path / name).unlink()
    assert main([str(tmp_path), "--name", "orin-agx"]) == 1


def test_the_summary_shows_what_failed_and_no_markup_of_a_step(judge, tmp_path):
    judge(steps={"campaign-1": 1}, said=("campaign-1", "x\n```\n=== 2 failed, 3 passed in 4 s ===\n"))
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith("# RED by campaign-1 (2 failed, 3 passed)")
    assert text.count("```") == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--devise", "host"], "unknown option --devise"),
        (["--device"], "--device needs a value"),
        (["--repetitions", "0"], "expected a number from 1 on"),
        (["--device", "orin-agx", "--slowdown", "5%"], "--slowdown needs a simulated board"),
        (["--corpus", "none.csv"], "--corpus: no such file"),
        (["--require", "none.toml"], "--require: no such file"),
        (["--python", "none"], "interpreter none not found"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_done(tmp_path, options, complaint):
    command = ["bash", str(PROJECT / "tools" / "nightly.sh"), "--nights", str(tmp_path / "nights"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert not (tmp_path / "nights").exists()


SUITE_OF_A_GREEN_NIGHT = """#!/bin/sh
printf '%s\\n' "$*" >> "$(dirname "$0")/calls"
while [ $# -gt 0 ]; do
    [ "$1" != --results ] || [ -e "$2" ] || echo profiles > "$2"
    shift
done
"""


def test_nights_in_a_folder_with_blanks_are_compared_and_removed(tmp_path):
    suite, nights = tmp_path / "suite of a green night", tmp_path / "meine Nächte"
    suite.write_text(SUITE_OF_A_GREEN_NIGHT)
    suite.chmod(0o755)
    command = [
        "bash",
        str(PROJECT / "tools" / "nightly.sh"),
        "--device",
        "sim:nano",
        "--repetitions",
        "1",
        "--keep",
        "1",
    ]
    command += ["--nights", str(nights), "--python", str(suite), "--gates", "none", "--no-pages"]
    requirements = tmp_path / "was muss.toml"
    requirements.write_text("")
    command += ["--require", str(requirements)]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    kept = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        [night] = nights.iterdir()
        kept.append(night)
    first, second = kept
    assert f"check {requirements} {second}/{second.name}.sqlite --markdown" in (tmp_path / "calls").read_text()
    assert f"compare {first}/{first.name}.sqlite {second}/{second.name}.sqlite " in (tmp_path / "calls").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_nights_are_not_kept_behind_a_link_of_another_user(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "nights").symlink_to(tmp_path / "elsewhere")
    os.lchown(tmp_path / "nights", 12345, 12345)
    command = ["bash", str(PROJECT / "tools" / "nightly.sh"), "--nights", f"{tmp_path}/nights/", "--device", "sim:nano"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, list((tmp_path / "elsewhere").iterdir())) == (2, [])
    assert "is a link of another user" in done.stderr

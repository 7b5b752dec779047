"""`history`: the night of a step is found and no other, by board, and with what else changed then."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any, List, Optional, Sequence

import numpy as np
import pytest

from harness.__main__ import main
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.metrics import summarise
from harness.devices.registry import open_device
from harness.judge.history import FEWEST, CaseSeries, SeriesPoint, judge
from harness.measure.run import run
from harness.report.history import unit_of
from harness.stats.change_points import change_points
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says
from tests.named_modes import mode_on

NIGHTS, STEP, NOISE = 30, 1.05, 0.01


def levels(seed: int, *steps: Any) -> np.ndarray:
    """Nightly times with noise; each step is the night that it begins with, from 1 on, and a factor."""
    values = 100 * np.exp(NOISE * np.random.default_rng(seed).standard_normal(NIGHTS))
    for night, factor in steps:
        values[night - 1 :] *= factor
    return values


def judged(values: Sequence[float], figure: str = "minibatch time", device: str = "orin-agx") -> CaseSeries:
    points = [SeriesPoint(str(place), f"2026-01-{place:02}", value, {}) for place, value in enumerate(values, start=1)]
    [found] = judge([(CaseSeries("case", None, "measured", figure, points, []), device)])
    return found


def nights_of(series: CaseSeries) -> List[int]:
    return [step.at.place + 1 for step in series.steps]


def test_a_step_of_5_percent_is_found_at_its_night_and_no_other_in_95_of_100_seeds():
    found = [judged(levels(seed, (20, STEP))) for seed in range(100)]
    assert sum(nights_of(one) == [20] for one in found) >= 95
    assert sum(one.is_worse for one in found) == 100
    steps = [one.steps[0] for one in found]
    assert sum(step.at.low <= 19 <= step.at.high for step in steps) >= 95
    assert sum(step.change.low < STEP < step.change.high for step in steps) >= 92


def test_nothing_is_found_where_nothing_changed():
    assert sum(bool(judged(levels(seed)).steps) for seed in range(100)) <= 2


@pytest.mark.parametrize(
    ("steps", "nights", "status"),
    [
        ([(20, 1 / STEP)], [20], "faster"),
        ([(10, 1.1), (20, 1 / 1.1)], [10, 20], "faster"),
        ([(15, 1.2), (18, 1 / 1.2)], [15, 18], "faster"),
        ([(30, 1.1)], [30], "slower"),
        ([(15, 1.2), (16, 1 / 1.2)], [], "no difference"),
        ([(20, 1.01)], [], "no difference"),
    ],
    ids=["faster", "there and back", "for three nights", "the newest alone", "an outlier", "below the threshold"],
)
def test_what_kind_of_change_it_is(steps, nights, status):
    found = judged(levels(1, *steps))
    assert (nights_of(found), found.status) == (nights, status)


@pytest.mark.parametrize(("step", "word"), [(1.012, "slower"), (1 / 1.012, "faster")])
def test_a_step_within_the_tolerance_is_a_verdict_and_no_change(step, word):
    values = 100 * np.exp(0.001 * np.random.default_rng(1).standard_normal(NIGHTS))
    values[NIGHTS // 2 :] *= step
    found = judged(values)
    assert (nights_of(found), found.status, found.is_worse) == ([], f"{word}, within the tolerance of 2 %", False)


def test_a_noisy_machine_needs_a_greater_step_and_few_runs_say_nothing():
    assert judged(levels(1, (30, STEP)), device="host").steps == []
    assert judged([100.0, 110.0, 120.0]).status == "too few"
    assert len(judged([100.0] * FEWEST).points) == FEWEST


def test_of_many_series_none_is_cut_by_chance():
    logs = np.log(levels(1, (20, 1.025)))
    assert change_points(logs, NOISE)
    assert not change_points(logs, NOISE, among=10**6)


def scaled(profile: Any, factor: float) -> Any:
    """A profile whose minibatches took so many times as long."""
    names = ("stall_ms", "compute_ms", "e2e_ms")
    minibatches = [one._replace(**{name: factor * getattr(one, name) for name in names}) for one in profile.minibatches]
    aggregates = summarise(minibatches, profile.telemetry, profile.case.batch_size)
    return dataclasses.replace(profile, minibatches=minibatches, aggregates=aggregates)


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Path:
    """30 nightly files of a simulated board; from the 20th on training takes 5 % longer, with another torch."""
    folder = tmp_path_factory.mktemp("pool") / "nights"
    folder.mkdir()
    device = open_device("sim:orin-agx@2", Configuration())
    for night, factor in enumerate(levels(7, (20, STEP)) / 100, start=1):
        with ResultsStore(folder / f"night-{night:02}.sqlite") as store:
            settings = CaseSettings(minibatches=10, seed=night)
            case = Case("sim:orin-agx@2", "lenet-mnist", mode_on("orin-agx"), 4, "ssd", 16, settings)
            profile = scaled(run(case, device), factor)
            profile.conditions["torch"] = "2.9.0" if night >= 20 else "2.8.0"
            store.add(profile, {**ENVIRONMENT, "suite_commit": "abc"}, f"run {night}")
    return folder


def told(capsys: pytest.CaptureFixture, *arguments: Any, code: Optional[int] = 0) -> Any:
    assert main(["history", *map(str, arguments)]) == code
    return capsys.readouterr().out


@pytest.mark.exhaustive
@pytest.mark.long
def test_real_files_name_the_night_the_board_and_the_software(nights, tmp_path, capsys):
    document = json.loads(told(capsys, nights, "--json", code=1))
    time, power = document["series"]
    [step] = time["changes"]
    assert (time["figure"], time["board_instance"], len(time["runs"])) == ("minibatch time", "2", NIGHTS)
    assert (step["run"], step["differ"]) == (20, ['torch: "2.8.0" -> "2.9.0"'])
    assert step["low"] < STEP < step["high"]
    assert (power["figure"], power["changes"]) == ("power", [])
    merged = tmp_path / "all.sqlite"
    files = sorted(map(str, nights.glob("*.sqlite")), reverse=True)
    assert main(["results", "merge", *files, "--out", str(merged)]) == 0
    capsys.readouterr()
    assert json.loads(told(capsys, merged, nights.parent, "--json", code=1)) == document


@pytest.mark.exhaustive
def test_words_and_markdown_say_what_changed_since_when(nights, capsys):
    text = told(capsys, *sorted(nights.glob("*.sqlite")), "--markdown", code=1)
    assert text.startswith("## 1 of 2 series became slower or take more power\n\n- sim:orin-agx@2-lenet-mnist-")
    assert "(run 20 of 30)" in text
    assert '; torch: "2.8.0" -> "2.9.0"' in text
    assert "▁" in text
    few = told(capsys, *sorted(nights.glob("*.sqlite"))[:2], code=2)
    assert says(few, "0 of 2 series", "2 have", "4 runs")


@pytest.mark.exhaustive
def test_earlier_runs_are_left_out_by_a_date_and_a_foreign_file_in_a_folder_is_told(nights, tmp_path, capsys):
    (tmp_path / "other\x1b.db").write_text("hello")
    (tmp_path / "one.sqlite").write_bytes((nights / "night-01.sqlite").read_bytes())
    said = told(capsys, tmp_path, code=2)
    assert r"left out: " in said
    assert "\x1b" not in said
    assert main(["history", str(nights), "--since", "2999-01-01"]) == 2
    assert main(["history", str(nights), "--since", "soon"]) == 2
    assert main(["history", str(tmp_path / "other\x1b.db")]) == 2
    err = capsys.readouterr().err
    assert "no profiles" in err
    assert "2026-01-31" in err
    assert "\x1b" not in err


def test_boards_of_a_type_have_series_of_their_own(tmp_path, capsys):
    for night in range(6):
        with ResultsStore(tmp_path / f"{night}.sqlite") as store:
            for instance, factor in (("orin3", 1.0), ("orin4", 1.1)):
                made = {"case": {"device": "orin-agx"}, "conditions": {"board_instance": instance}}
                store.add(
                    make_profile([factor * 100.0 * math.exp(0.001 * night)] * 20, **made), ENVIRONMENT, f"{night}"
                )
    document = json.loads(told(capsys, tmp_path, "--json"))
    names = {(one["case_id"].partition("-lenet")[0], one["status"], len(one["runs"])) for one in document["series"]}
    assert names == {("orin-agx@orin3", "no difference", 6), ("orin-agx@orin4", "no difference", 6)}


@pytest.mark.parametrize(
    ("span_s", "unit", "shown"),
    [
        (0.0, "seconds", 0.0),
        (119.0, "seconds", 119.0),
        (120.0, "minutes", 2.0),
        (86_400.0, "hours", 24.0),
        (3 * 86_400.0, "days", 3.0),
    ],
)
def test_the_axis_of_time_has_the_unit_of_its_span(span_s, unit, shown):
    name, in_unit = unit_of(span_s)
    assert (name, in_unit(span_s)) == (unit, shown)


@pytest.mark.exhaustive
def test_the_page_shows_each_case_and_runs_nothing(nights, tmp_path, capsys):
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    hostile = "<script>alert(1)</script>"
    with ResultsStore(tmp_path / "night.sqlite") as store:
        told_of = {"board_instance": hostile, "torch": hostile}
        store.add(make_profile(case={"workload": hostile}, conditions=told_of), ENVIRONMENT, "run")
    out = tmp_path / "page.html"
    told(capsys, nights, tmp_path / "night.sqlite", "--out", out, code=1)
    page = out.read_text()
    assert page.count("<section>") == 4
    assert "since run 20" in page
    assert re.search(r"(seconds|minutes) since 20\d\d-", page), "the tests' nights are stored within a moment"
    assert "days since" not in page
    assert "<script" not in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        assert main(["history", "absent", "--out", str(out)]) == 2
    assert "pip install 'jetwatt[report]'" in capsys.readouterr().err

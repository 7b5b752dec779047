"""`make record`: the documents print what the records hold, and the records hold what the commands compute."""

import csv
import re
import shutil

import pytest

from harness.core.errors import CannotRunError, UnknownNameError
from tests.golden import golden_files
from tests.messages import says
from tools import figure_blocks, record, recorded_figures
from tools.figure_blocks import BLOCK, BLOCKS, DOCUMENTS, Records, render, rewrite
from tools.recorded_figures import ERRORS_SAMPLE, PART_OF, PARTS, differences, evaluate, read_record

BLOCKS_OF = {path: [match["name"] for match in BLOCK.finditer(path.read_text(encoding="utf-8"))] for path in DOCUMENTS}
RECORDS = recorded_figures.FOLDER
SHARE = 0.001
"""By which a recomputed figure may differ: other processors and versions of NumPy round differently."""


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if BLOCKS_OF[path]], ids=lambda path: path.name)
def test_figures_of_a_document_are_those_of_the_records(path):
    text = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        assert match[0] == render(match["name"], Records()), f"{path.name}, block {match['name']}: make record, or undo"
    assert text.count("<!-- figures:") == text.count("<!-- end -->") == len(BLOCKS_OF[path])


def test_every_block_is_in_a_document_and_every_record_in_a_block():
    assert sorted(BLOCKS) == sorted({name for names in BLOCKS_OF.values() for name in names})
    records = Records()
    for name in BLOCKS:
        render(name, records)
    assert set(records.read) == set(PART_OF)


def test_what_advise_weighs_agrees_with_the_documented_contest():
    """The same strategies, tables, budgets and seeds: a contest recorded at another time than the other is seen."""
    key = ("strategy", "workload", "profiles")
    documented = {tuple(row[name] for name in key): row for row in read_record(PART_OF["strategies"])}
    with record.APPROACHES.open(encoding="utf-8", newline="") as file:
        weighed = {(row["strategy"], row["target"], row["profiles"]): row for row in csv.DictReader(file)}
    both = weighed.keys() & documented.keys()
    assert {strategy for strategy, _, _ in both} == {"closed-loop", "one-shot", "powertrain", "random"}
    for case in both:
        ours, theirs = weighed[case], documented[case]
        assert float(ours["penalty_mean_pct"]) == pytest.approx(float(theirs["penalty_mean"]), abs=0.006), case
        over, documented_over = float(ours["over_limit_plus1_pct"]), float(theirs["over_limit_plus1_pct"])
        assert over == pytest.approx(documented_over, abs=0.06), case


@pytest.mark.parametrize("error", ["time_mape", "power_mape"])
def test_the_baseline_that_documents_compare_is_the_best_of_them(error):
    rows = [row for row in read_record(PART_OF["predictors"]) if row["modes"] in ("10", "50")]
    errors = {(row["predictor"], row["workload"], row["modes"]): float(row[error] or "nan") for row in rows}
    for (name, *case), value in errors.items():
        if name in ("ridge", "gbr", "random-forest", "decision-tree"):
            assert errors[("mlp", *case)] < value, (name, case)


def test_a_changed_digit_is_seen_and_made_right_again():
    text = "before\n" + render("predictor-errors", Records()) + "after 1.0\n"
    digits = [match.start() for match in re.finditer(r"\d", text)][:-2]
    place = digits[len(digits) // 2]
    changed = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
    assert rewrite(changed) == (text, [])


@pytest.mark.exhaustive
def test_a_record_of_other_figures_changes_each_block_that_prints_it(tmp_path):
    shutil.copytree(RECORDS, tmp_path / "records")
    path = tmp_path / "records" / "strategies.csv"
    rows = path.read_text(encoding="utf-8")
    case = "closed-loop,orin-agx,resnet18-imagenet,training,8,"
    path.write_text(re.sub(rf"{case}[\d.]+,", f"{case}98.76,", rows), encoding="utf-8")
    altered = Records(tmp_path / "records")
    assert "98.8" in render("strategies", altered)
    assert [name for name in BLOCKS if render(name, altered) != render(name, Records())] == ["strategies"]


def test_a_block_without_a_record_is_left_with_the_reason(tmp_path):
    text = "<!-- figures: batch-sizes -->\nas it was\n<!-- end -->\n"
    rewritten, left = rewrite(text, Records(tmp_path))
    assert rewritten == text
    assert len(left) == 1
    assert "make record ONLY=batch-sizes" in left[0]


def test_an_unknown_block_is_refused():
    with pytest.raises(UnknownNameError, match="no block of figures is called errors"):
        rewrite("<!-- figures: errors -->\n<!-- end -->\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(5.25, "5.2"), (0.04, "0.0"), (-0.04, "0.0"), (227.4, "227"), (-21.9, "-21.9"), (float("nan"), "-")],
)
def test_figures_have_a_digit_below_100(value, shown):
    assert figure_blocks.figure(value) == shown


BATCH_SIZES = PART_OF["batch-sizes"]


def test_differences_name_the_case_the_figure_and_both_values():
    recorded = [{"workload": "a", "least_gain": "1.000", "greatest_gain": "2.000"}]
    computed = [
        {"workload": "a", "least_gain": 1.0001, "greatest_gain": 2.1},
        {"workload": "b", "least_gain": 3.0, "greatest_gain": None},
    ]
    assert differences(BATCH_SIZES, recorded, computed) == [
        "a: greatest_gain 2.000 -> 2.100",
        "b: least_gain is 3.000, not recorded",
        "b: greatest_gain is empty, not recorded",
    ]
    assert differences(BATCH_SIZES, recorded, computed[:1], share=0.04) == ["a: greatest_gain 2.000 -> 2.100"]
    assert differences(BATCH_SIZES, recorded, computed[:1], share=0.06) == []


def test_a_cell_of_several_rows_is_refused_where_its_key_names_one():
    frame = Records()["strategies"]
    shown = figure_blocks.cells(frame, {"strategy": "front", "profiles": 50}, figure_blocks.CONTEST_COLUMNS)
    assert [cell.split(" / ")[1] for cell in shown] == ["0", "0", "0"]
    with pytest.raises(CannotRunError, match="rows of a record are for one cell"):
        figure_blocks.cells(frame, {"strategy": "front"}, figure_blocks.CONTEST_COLUMNS)


@pytest.fixture
def own_records(tmp_path, monkeypatch):
    """A folder of records, and no document."""
    monkeypatch.setattr(recorded_figures, "FOLDER", tmp_path)
    monkeypatch.setattr(figure_blocks, "DOCUMENTS", ())
    return tmp_path


@pytest.mark.exhaustive
def test_recording_a_part_writes_it_and_prints_what_changed(own_records, capsys):
    assert record.main(["--only", "batch-sizes"]) == 0
    assert "5 rows, recorded for the first time" in capsys.readouterr().out
    assert read_record(BATCH_SIZES, own_records) == read_record(BATCH_SIZES, RECORDS)
    path = own_records / "batch-sizes.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("bert-squad,1.0", "bert-squad,1.7"), encoding="utf-8")
    assert record.main(["--only", "batch-sizes"]) == 0
    said = capsys.readouterr().out
    assert ", 1 changes\n  bert-squad: least_gain 1.7" in said
    assert read_record(BATCH_SIZES, own_records) == read_record(BATCH_SIZES, RECORDS)


@pytest.mark.exhaustive
def test_recording_a_part_names_the_rows_that_are_not_computed_any_more(own_records, capsys):
    record.main(["--only", "batch-sizes"])
    path = own_records / "batch-sizes.csv"
    path.write_text(path.read_text(encoding="utf-8") + "no-network,1.000,2.000\n", encoding="utf-8")
    capsys.readouterr()
    assert record.main(["--only", "batch-sizes"]) == 0
    printed = capsys.readouterr().out
    assert "1 changes" in printed
    assert says(printed, "no-network", "not computed")
    assert "no-network" not in path.read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_a_record_with_other_columns_is_recorded_anew(own_records, capsys):
    path = own_records / "batch-sizes.csv"
    path.write_text("workload,gain\nlenet-mnist,1.000\n", encoding="utf-8")
    assert record.main(["--only", "batch-sizes"]) == 0
    said = capsys.readouterr().out
    assert says(said, "columns workload, gain", "workload, least_gain, greatest_gain")
    assert read_record(BATCH_SIZES, own_records) == read_record(BATCH_SIZES, RECORDS)


def test_without_measured_tables_a_record_stays_and_the_variable_is_named(own_records, capsys, monkeypatch):
    monkeypatch.setenv("JETWATT_DATA", str(own_records / "nowhere"))
    (own_records / "strategies.csv").write_text("as it was", encoding="utf-8")
    assert record.main(["--only", "strategies"]) == 0
    said = capsys.readouterr().out
    assert says(said, "strategies: left", "orin-agx-training.csv")
    assert "JETWATT_DATA" in said
    assert (own_records / "strategies.csv").read_text(encoding="utf-8") == "as it was"


@pytest.mark.exhaustive
def test_a_part_that_fails_is_named_and_the_others_are_recorded(own_records, capsys, monkeypatch):
    def fail():
        raise CannotRunError("no figure")

    monkeypatch.setitem(record.RECORDERS, "predictors", ((), fail))
    assert record.main(["--only", "predictors,batch-sizes"]) == 1
    assert "predictors: failed: no figure" in capsys.readouterr().out
    assert read_record(BATCH_SIZES, own_records)


@pytest.mark.exhaustive
def test_commands_that_fail_are_named_with_their_exit_code():
    with pytest.raises(CannotRunError, match=r"--corpus nowhere\.csv --target lstm .*exit code 2"):
        recorded_figures.run_jetwatt("evaluate --corpus nowhere.csv --target lstm")
    with pytest.raises(CannotRunError, match=r"no_such_module .*exit code 1"):
        record.run_module("no_such_module")


def test_recording_by_tests_names_the_files_that_changed(tmp_path, monkeypatch):
    for name in ("same", "other"):
        (tmp_path / f"{name}.json").write_text("1", encoding="utf-8")
    monkeypatch.setattr(record, "run_module", lambda *words, **options: (tmp_path / "other.json").write_text("2"))
    assert record.run_pytest(tmp_path, "tests") == ["other.json changed"]


def test_an_unknown_part_is_refused_before_any_work(own_records):
    with pytest.raises(UnknownNameError, match=r"no part is called all.*parts: predictors"):
        record.main(["--only", "batch-sizes,all"])
    assert not list(own_records.iterdir())


def skip_without_tables(part):
    if part.missing:
        pytest.skip(
            f"there is no measured table {', '.join(part.missing)}: JETWATT_DATA names the folder that holds it"
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", [part for part in PARTS if part.compute_sample], ids=lambda part: part.name)
def test_a_sample_of_a_record_computed_anew_is_as_recorded(part):
    skip_without_tables(part)
    computed = part.compute_sample()
    assert computed
    assert differences(part, read_record(part), computed, SHARE) == []


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_prior_that_differs_a_little_shows_in_the_recomputed_figures(tmp_path):
    part = PART_OF["predictors"]
    skip_without_tables(part)
    prior = (recorded_figures.PROJECT / "predictors/models/physical_gp/prior.toml").read_text(encoding="utf-8")
    own = prior.index('[board."orin-agx"]')
    moved, count = re.subn(
        r"^(gpu|scale) = \[(-?[\d.]+),",
        lambda match: f"{match[1]} = [{float(match[2]) + 0.02:.7f},",
        prior[own:],
        count=2,
        flags=re.MULTILINE,
    )
    assert count == 2
    path = tmp_path / "prior.toml"
    path.write_text(prior[:own] + moved, encoding="utf-8")
    computed = evaluate(f"{ERRORS_SAMPLE} --prior {path}")
    changed = differences(part, read_record(part), computed, SHARE)
    assert changed
    assert all(line.startswith("physical-gp ") for line in changed)


def test_golden_files_made_again_change_beyond_rounding_only(tmp_path, monkeypatch):
    monkeypatch.setattr(golden_files, "FILES", tmp_path)
    monkeypatch.setenv(golden_files.REMAKE, "1")
    golden, path = golden_files.Golden({}), tmp_path / "errors.json"
    golden.check("errors", {"time_mape": 10.0})
    first = path.read_text(encoding="utf-8")
    golden.check("errors", {"time_mape": 10.000001})
    assert path.read_text(encoding="utf-8") == first
    golden.check("errors", {"time_mape": 10.1})
    assert "10.1" in path.read_text(encoding="utf-8")

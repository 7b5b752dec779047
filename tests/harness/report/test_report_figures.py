"""Figures of a report: each kind finds its profiles, says its provenance, and carries its data."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from harness.core.pareto import pareto_front
from harness.report.colours import MUTED
from harness.report.figure import Axis, LegendEntry, Mark, Spacing, Value, csv_text, figure_text, panel_of
from harness.report.figures import KINDS
from harness.report.figures.data_sets import thinned
from harness.report.figures.mode_scatters import extremes_of
from harness.report.material import Material
from harness.report.mode_tables import evenly
from harness.report.vega import FEWEST, axis_text, density, draw_panel, figure_svg, specification
from harness.store.frames import common_conditions
from tests.harness.report.sample_results import USUAL

A_SERIES = LegendEntry("a", "#000000")

NEEDS_OTHER_TASKS = {"Inference", "Training and inference together"}
"""The sample has no inference."""

OF_EVALUATIONS = {"Prediction", "Optimisation under power budgets", "Search for a power mode", "Linear regression"}


def copied(material, number, **conditions):
    """A profile's columns with some conditions changed."""
    row = material.frame.loc[number].copy()
    for name, value in conditions.items():
        if name in row.index:
            row[name] = value
    row["comparable"] = {**row["comparable"], **conditions}
    return row


def with_more(material, *rows):
    """The material with more profiles, numbered from 10,000."""
    more = pd.DataFrame(rows).set_axis(range(10_000, 10_000 + len(rows)), axis=0)
    return dataclasses.replace(material, frame=pd.concat([material.frame.astype(object), more.astype(object)]))


def figures_of(material, title):
    return next(kind for kind in KINDS if kind.title == title).make(material)


def assert_panels_compare_like_with_like(material, figures):
    """The profiles of a panel share every comparable condition but those that the panel says it shows."""
    for figure in figures:
        for panel in figure.panels:
            shared = common_conditions(material.frame.loc[list(panel.profiles)], panel.varies)
            assert shared.nunique() <= 1, (figure.name, panel.title)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_a_kind_of_figure_has_units_and_provenance_compares_like_with_like_and_needs_data(kind, material):
    empty = dataclasses.replace(material, frame=material.frame.iloc[:0], corpus=(), predictors=(), strategies=())
    assert kind.make(empty) == []
    figures = kind.make(material)
    assert bool(figures) == (kind.title not in NEEDS_OTHER_TASKS)
    assert_panels_compare_like_with_like(material, figures)
    of_results = [panel for figure in figures for panel in figure.panels if panel.profiles]
    assert all(set(panel.profiles) <= set(material.frame.index) for panel in of_results)
    assert bool(of_results) or kind.title in OF_EVALUATIONS | NEEDS_OTHER_TASKS
    for figure in figures:
        assert figure.provenance.replace("published, ", "") in ("measured", "simulated")
        assert figure.rows
        assert {len(row) for row in figure.rows} == {len(figure.columns)}
        assert "provenance" in figure.columns
        for panel in figure.panels:
            assert all("(" in axis.label for axis in (panel.x, panel.y) if not axis.names), panel
            drawn = {value.series for layer in panel.layers if layer.mark != Mark.DOTS for value in layer.values} - {""}
            assert drawn <= {entry.name for entry in figure.series}, "what is drawn has a colour"


SIZES = ("Parallel loading", "Page cache", "Storage media", "Batch size", "Power modes", "Pareto fronts", "Devices")


@pytest.mark.parametrize("title", SIZES)
def test_epochs_of_data_sets_of_different_sizes_never_meet(title, material):
    """Half of the profiles again, as if run on four times the data: whatever is drawn for a workload is of one size."""
    some = [(row.id, int(material.frame.loc[row.id, "data_samples"])) for row in material.trained()][::2]
    doubled = with_more(material, *(copied(material, number, data_samples=4 * samples) for number, samples in some))
    figures = figures_of(doubled, title)
    assert_panels_compare_like_with_like(doubled, figures)
    for panel in (panel for figure in figures for panel in figure.panels if panel.profiles):
        assert doubled.frame.loc[list(panel.profiles), "data_samples"].nunique() == 1, panel.title


def texts_of(root):
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("spacing", "values", "label"),
    [
        (Spacing.LINEAR, (1, 10), "energy (J)"),
        (Spacing.LOG, (1, 10), "energy (J, logarithmic)"),
        (Spacing.LOG, (0, 10), "energy (J)"),  # no logarithm of 0: drawn linear
        (Spacing.SYMLOG, (-1, 10), "energy (J, logarithmic beyond 5)"),
    ],
    ids=["linear", "log", "log-of-0", "symlog"],
)
def test_an_axis_that_is_not_linear_says_so(spacing, values, label):
    pytest.importorskip("vl_convert")
    points = [Value("a", at, value, "measured") for at, value in enumerate(values)]
    panel, series = panel_of("t", Axis("n (1)"), Axis("energy (J)", spacing), Mark.CURVES, points), [A_SERIES]
    assert f">{label}</text>" in draw_panel(panel, series, "p").svg
    assert ('log", ' in json.dumps(specification(panel, series))) == ("logarithmic" in label)


@pytest.mark.parametrize("count", [2, 12])
def test_the_name_of_a_power_mode_is_not_cut(count):
    pytest.importorskip("vl_convert")
    names = [f"12c-2201.6-1300.5-{3100 + place}" for place in range(count)]
    bars = [Value("a", name, 1.0, "measured") for name in names]
    panel = panel_of("t", Axis("power mode"), Axis("energy (J)"), Mark.BESIDE, bars)
    assert names[0] in draw_panel(panel, [A_SERIES], "p").svg


@pytest.mark.exhaustive
def test_figures_names_are_unique_and_their_svg_is_well_formed_and_says_what_is_simulated(material):
    figures = [figure for kind in KINDS for figure in kind.make(material)]
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures[::4]:
        drawn = [draw_panel(panel, figure.series, str(place)) for place, panel in enumerate(figure.panels)]
        texts = texts_of(ElementTree.fromstring(figure_svg(figure, drawn)))
        assert figure.title in texts
        assert f"provenance: {figure.provenance}" in texts
        assert {axis_text(panel, "x") for panel in figure.panels} - {""} <= set(texts)


def bars_of(provenance, mark=Mark.BESIDE, **more):
    values = [Value("a", "one", 2.0, provenance, 1.5, 2.5, **more)]
    panel = panel_of("bars", Axis("x", names=("one",)), Axis("time (s)"), mark, values)
    return draw_panel(panel, [LegendEntry("a", "#0072b2")], "p").svg


def test_simulated_bars_are_pale_with_dashed_borders_and_disturbed_ones_open_and_grey():
    simulated, measured, disturbed = bars_of("simulated"), bars_of("measured"), bars_of("measured", apart=True)
    assert 'stroke-dasharray="3,2"' in simulated
    assert 'stroke-dasharray="3,2"' not in measured
    assert 'fill="#0072b2"' in measured
    assert f'stroke="{MUTED}"' in disturbed
    assert 'fill="#0072b2"' not in disturbed
    assert 'fill-opacity="0.15"' in bars_of("simulated", Mark.STACKED, apart=True), "its parts are told by a tint"
    assert "one: 2.00 s (1.50 to 2.50); measured" in measured, "what pointing at it says"


def test_a_disturbed_profile_is_drawn_apart_and_is_no_mode_to_recommend(material):
    fastest = min((row for row in material.trained() if row.mode and row.power_mode == "g"), key=lambda row: row.id)
    frame = material.frame.copy()
    frame.loc[fastest.id, "usable"] = False
    disturbed = dataclasses.replace(material, frame=frame)
    (figure,) = figures_of(disturbed, "Power modes")
    apart = {value.x for panel in figure.panels for value in panel.values if value.apart}
    assert apart == {"g"}
    table = next(table for table in disturbed.tables if table.device == "xavier-agx")
    assert (fastest.minibatch_time_ms, fastest.power_mw) in table.disturbed
    assert fastest.id not in table.profiles


def test_bars_and_points_carry_intervals_around_their_figures(material):
    for title in ("Parallel loading", "DVFS", "Baseload", "Extreme modes", "Devices"):
        for figure in figures_of(material, title):
            known = [value for panel in figure.panels for value in panel.values if value.low is not None]
            assert known, figure.name
            for value in known:
                assert value.low < (value.x if isinstance(value.y, str) else value.y) < value.high


def test_devices_stand_over_orin_beside_what_the_papers_say(material):
    (figure,) = (figure for figure in figures_of(material, "Devices") if figure.name == "devices-ratios")
    frame = pd.DataFrame(figure.rows, columns=figure.columns)
    published = frame[frame["provenance"] == "published"]
    assert [*published[["device", "quantity", "low", "high"]].itertuples(index=False, name=None)] == [
        ("xavier-agx", "time", 1.53, 4.485)
    ]
    own = frame[frame["provenance"] != "published"].pivot(index="workload", columns="quantity", values="ratio")
    assert (own["energy"] / own["time"] / own["power"]).tolist() == pytest.approx([1.0] * len(own))
    assert own["time"].between(1.53, 4.485).all()
    assert frame["epoch_min"].max() > 1


def test_a_measured_device_is_never_compared_with_a_simulated_one(material):
    frame = material.frame.copy()
    frame.loc[frame["device"] == "xavier-agx", "provenance"] = "measured"
    names = [figure.name for figure in figures_of(dataclasses.replace(material, frame=frame), "Devices")]
    assert "devices-ratios" not in names


def test_a_workload_has_one_colour_and_a_device_one_marker_in_all_figures(material):
    styles = {}
    for kind in KINDS:
        for figure in kind.make(material):
            for entry in figure.series:
                if entry.name in material.colours:
                    styles.setdefault(entry.name, set()).add(entry.colour)
    assert styles
    assert all(len(colours) == 1 for colours in styles.values())
    assert len(set(material.colours.values())) == len(material.colours)
    assert len(set(material.markers.values())) == len(material.markers)


def test_stacked_bars_are_as_high_as_the_epochs_that_they_stand_for_per_1000_samples(material):
    figure, energy = figures_of(material, "Parallel loading")
    (panel,) = figure.panels
    rows = {str(row.workers): row for row in material.families(material.trained(), "workers")[0].rows}
    assert panel.x.names == ("0", "2", "4")
    assert "per 1,000 samples" in panel.y.label
    stack, totals = panel.layers
    assert (stack.mark, totals.mark) == (Mark.STACKED, Mark.WHISKERS)
    for total in totals.values:
        row = rows[total.x]
        assert total.y == pytest.approx(row.epoch_time_s * 1000 / row.data_samples)
        assert sum(value.y for value in stack.values if value.x == total.x) == pytest.approx(total.y)
    cells = [dict(zip(figure.columns, row)) for row in figure.rows]
    assert all(cell["samples"] == cell["data_samples"] and cell["of"] == "epochs 1 and later" for cell in cells)
    assert [panel.y.label for panel in energy.panels] == ["energy per 1,000 samples (J)", "median power (W)"]
    assert all(value.y > 0 for panel in energy.panels for value in panel.values)


def test_the_baseloads_share_has_a_panel_where_it_is_known_of_several_modes(material):
    assert "resnet18-cifar10: baseload" not in {panel.title for panel in figures_of(material, "Power modes")[0].panels}
    (idle,) = [row for row in material.rows if row.workload == "idle"]
    others = [row for row in material.rows if row.power_mode in ("a", "b")]
    more = [copied(material, idle.id, power_mode=row.power_mode, **row.mode._asdict()) for row in others]
    (figure,) = figures_of(with_more(material, *more), "Power modes")
    (panel,) = [panel for panel in figure.panels if panel.title == "resnet18-cifar10: baseload"]
    assert panel.x.names == ("a", "b", "g")
    assert all(0 < value.y < 100 for value in panel.values)


def test_media_stand_side_by_side_only_with_the_same_medium(material):
    usual = next(row for row in material.rows if row.case == USUAL)
    on_hdd = copied(material, usual.id, storage="hdd")
    (figure,) = figures_of(with_more(material, on_hdd), "Page cache")[:1]
    place = figure.columns.index("storage")
    assert {row[place] for row in figure.rows} == {"ssd"}, "of the hdd nobody measured epochs from a dropped cache"
    assert [panel.title for panel in figure.panels] == ["resnet18-cifar10, ssd"]


def test_a_table_without_the_greatest_mode_has_no_extremes(material):
    table = next(table for table in material.tables if table.device == "xavier-agx")
    kept = table.modes[~table.modes["power_mode"].isin(["g", "maxn"])]
    without = dataclasses.replace(table, modes=kept)
    assert extremes_of(table) is not None
    assert extremes_of(without) is None


def test_strategies_are_violins_of_single_choices_and_bars_in_files_without_them(material):
    (figure,) = figures_of(material, "Optimisation under power budgets")
    panels = {panel.title: panel for panel in figure.panels}
    violins = [layer for layer in panels["time penalty"].layers if layer.mark == Mark.VIOLINS]
    assert [len(value.x) for layer in violins for value in layer.values] == [34, 34, 34]
    assert "power error" in panels
    old = tuple({name: value for name, value in one.items() if name != "by_choice"} for one in material.strategies)
    (figure,) = figures_of(dataclasses.replace(material, strategies=old), "Optimisation under power budgets")
    panels = {panel.title: panel for panel in figure.panels}
    assert [value.x for value in panels["time penalty"].values] == [2.0, 14.0, -20.0]
    assert "power error" not in panels


def test_a_search_costs_profiles_and_what_takes_none_is_none(material):
    (figure,) = figures_of(material, "Search for a power mode")
    assert [series.name for series in figure.series] == ["powertrain", "random"]
    rows = [dict(zip(figure.columns, row)) for row in figure.rows]
    assert all(row["penalty_q1"] < row["penalty_median"] < row["penalty_q3"] for row in rows)


def test_regressions_are_shown_subset_by_subset(material):
    (figure,) = figures_of(material, "Linear regression")
    assert {row[0] for row in figure.rows} == {"linear"}
    assert len(figure.rows) == 3 * 10
    assert all(len(value.x) == 10 for panel in figure.panels for value in panel.values)


def test_violins_are_as_wide_as_their_values_and_keep_to_their_rows(material):
    (figure,) = figures_of(material, "Optimisation under power budgets")
    panel = next(panel for panel in figure.panels if panel.title == "power error")
    drawn = [layer["data"]["values"] for layer in specification(panel, figure.series)["layer"] if "data" in layer]
    outlines = [row for rows in drawn for row in rows if "y2" in row]
    for place, value in enumerate(panel.layers[-1].values):
        own = [row for row in outlines if row["at"] == place]
        assert min(row["x"] for row in own) == pytest.approx(min(value.x))
        assert max(row["x"] for row in own) == pytest.approx(max(value.x))
        assert all(place - 0.5 < row["y"] <= place <= row["y2"] < place + 0.5 for row in own)


def test_a_mode_that_was_watched_for_longer_too_stands_in_the_same_table(material):
    some = [row.id for row in material.trained() if row.power_mode in tuple("abefgh")]
    short = [
        copied(material, one, epochs=None, minibatches=count) for one, count in zip(some, itertools.cycle((40, 200)))
    ]
    empty = dataclasses.replace(material, frame=material.frame.iloc[:0], corpus=())
    (table,) = with_more(empty, *short).tables
    assert len(table.modes) == 6
    assert [one.origin for one in material.tables] == sorted(one.origin for one in material.tables)


def test_a_scatter_is_thinned_says_so_and_keeps_its_front(material):
    table = next(table for table in material.tables if table.origin == "corpus")
    figure = figures_of(material, "Pareto fronts")[0]
    assert len(table.modes) > 1300
    assert f"800 of {len(table.modes)} modes" in figure.caption
    assert len(figure.rows) == len(table.modes), "the CSV file has all"
    drawn = pd.DataFrame(figure.rows, columns=figure.columns)
    front = pareto_front(table.modes["minibatch_time_ms"], table.modes["power_mw"])
    assert {*drawn[drawn["on_time_power_front"] == 1]["power_mw"]} == {*table.modes["power_mw"].iloc[front]}


def test_thinning_keeps_peaks_and_what_must_stay():
    ys = [0.0] * 1000
    ys[437] = 9.0
    xs, kept = thinned(list(range(1000)), ys, 100)
    assert len(xs) <= 100
    assert max(kept) == 9.0
    assert xs == sorted(xs)
    assert {3, 999} <= set(evenly(1000, 50, (3, 999)))
    assert len(evenly(1000, 50, (3, 999))) == 50


def test_a_few_values_have_no_density():
    assert density([1.0, 2.0, 3.0], Spacing.LINEAR) == []
    assert density([1.0] * 50, Spacing.LINEAR) == []
    assert max(share for _, share in density([1.0, 2.0, 2.0, 3.0] * 10, Spacing.SYMLOG)) == 1.0


def test_figures_are_told_with_three_digits_and_a_text_of_a_csv_file_is_no_formula():
    assert [*map(figure_text, (0.0, 0.01234, 12.34, 1234.5, -2.5))] == ["0", "0.0123", "12.3", "1,234", "-2.50"]
    lines = csv_text(("a", "b"), [("=1+1", -2.5), ("@x", 3), ("+y", None), ("-z", -1)]).splitlines()
    assert lines[1:] == ["'=1+1,-2.5", "'@x,3", "'+y,", "'-z,-1"]


@pytest.mark.exhaustive
def test_the_files_beside_the_page_are_what_it_links_to(report, material):
    page = (report / "index.html").read_text()
    for kind in KINDS:
        for figure in kind.make(material):
            for suffix in ("svg", "csv"):
                assert (report / "figures" / f"{figure.name}.{suffix}").is_file()
                assert f'href="figures/{figure.name}.{suffix}"' in page
            with (report / "figures" / f"{figure.name}.csv").open(newline="") as file:
                rows = list(csv.reader(file))
            assert tuple(rows[0]) == figure.columns
            assert len(rows) == len(figure.rows) + 1
    assert (report / "results.csv").is_file()


def test_the_course_of_a_run_has_a_border_where_each_later_epoch_begins(material):
    figures = [
        figure for figure in figures_of(material, "Data-set scaling") if figure.name.startswith("scaling-course")
    ]
    panels = [panel for figure in figures for panel in figure.panels]
    assert panels
    for panel in panels:
        steps = material.store.profile(panel.profiles[0]).minibatches
        begins_s = [step.start_s for before, step in zip(steps, steps[1:]) if step.epoch != before.epoch]
        borders, _ = panel.layers
        assert borders.mark == Mark.RULES
        assert len(begins_s) == 2
        since_first_s = [begin_s - steps[0].start_s for begin_s in begins_s]
        assert [value.x for value in borders.values] == pytest.approx(since_first_s)


def test_variability_is_that_of_epochs_after_the_cold_one(material, monkeypatch):
    """Epoch 0 takes ten times as long as the others; with fewer epochs than a density needs, minibatches are drawn."""

    def with_epochs(count):
        frame = pd.DataFrame([(epoch, 100.0 if epoch == 0 else 10.0 + epoch / 100) for epoch in range(count)] * 5)
        frame = frame.set_axis(["epoch", "e2e_ms"], axis=1).sort_values("epoch").assign(counted=True)
        monkeypatch.setattr(Material, "minibatches", lambda own, row: frame)
        (figure, *_) = figures_of(material, "Variability")
        return dict(zip(figure.columns, figure.rows[0]))

    row = with_epochs(FEWEST + 1)
    assert (row["of"], row["count"]) == ("epochs", FEWEST)
    assert row["median_ms"] == pytest.approx(5 * (10.0 + (FEWEST + 1) / 2 / 100))
    row = with_epochs(FEWEST)
    assert (row["of"], row["count"]) == ("minibatches", 4 * FEWEST)


def test_as_many_minibatches_take_longer_as_the_tail_shows(material):
    figures = figures_of(material, "Slow minibatches")
    drawn = {number for figure in figures for panel in figure.panels for number in panel.profiles}
    by_case = {
        (row.label, row.workload, row.power_mode, row.batch_size, row.clean_minibatches): row
        for row in material.rows
        if row.id in drawn
    }
    seen = 0
    for figure in figures:
        for device, workload, _, power_mode, batch_size, count, share, time_ms, _ in figure.rows:
            steps = material.minibatches(by_case[device, workload, power_mode, batch_size, count])
            times_ms = steps.loc[steps["counted"], "e2e_ms"]
            assert abs((times_ms > time_ms).mean() - share) <= 1 / count
            seen += 1
    assert seen

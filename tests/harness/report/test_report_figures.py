"""Figures of a report: each kind finds its profiles, says its provenance, and carries its data."""

from __future__ import annotations

import csv
import dataclasses
import xml.etree.ElementTree as ElementTree

import pytest

from harness.analysis.pareto import pareto_front
from harness.report.figure import Bar
from harness.report.figures import KINDS
from harness.report.figures.thinning import evenly, thinned
from harness.report.mode_tables import mode_tables
from harness.report.selection import families, newest, trained
from harness.report.svg import figure_svg
from harness.report.violins import density

NEEDS_OTHER_TASKS = {"Inference", "Training and inference together"}
"""The sample has no inference."""


def figures_of(material, title):
    return next(kind for kind in KINDS if kind.title == title).make(material)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_every_kind_of_figure_is_made_where_there_is_data_and_left_out_where_there_is_none(kind, material):
    empty = dataclasses.replace(material, records=(), corpus=(), predictors=(), strategies=())
    assert kind.make(empty) == []
    assert bool(kind.make(material)) == (kind.title not in NEEDS_OTHER_TASKS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_every_figure_has_units_provenance_and_rows_as_wide_as_its_columns(kind, material):
    for figure in kind.make(material):
        assert figure.provenance in ("measured", "simulated")
        assert figure.rows
        assert {len(row) for row in figure.rows} == {len(figure.columns)}
        assert "provenance" in figure.columns
        for panel in figure.panels:
            assert all("(" in axis.label for axis in (panel.x, panel.y) if axis.kind != "category"), panel


def test_figures_names_are_unique_and_their_svg_is_well_formed_and_says_what_is_simulated(material):
    figures = [figure for kind in KINDS for figure in kind.make(material)]
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        root = ElementTree.fromstring(figure_svg(figure))
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert texts.count(figure.provenance) >= len(figure.panels)
        assert f"provenance: {figure.provenance}" in texts
        assert "var(" not in figure_svg(figure), "a colour that only the page knows"


def test_simulated_bars_are_hatched_and_measured_ones_are_not(material):
    simulated = figures_of(material, "Parallel loading")[0]
    measured = figures_of(material, "Optimisation under power budgets")[0]

    def hatched(figure):
        return {mark.hatched for panel in figure.panels for mark in panel.marks if isinstance(mark, Bar)}

    assert hatched(simulated) == {True}
    assert hatched(measured) == {False}
    assert 'fill="url(#hatch)"' in figure_svg(simulated)
    assert 'fill="url(#hatch)"' not in figure_svg(measured)


def test_stacked_bars_are_as_high_as_the_epochs_that_they_stand_for(material):
    (figure,) = figures_of(material, "Parallel loading")
    (panel,) = figure.panels
    by_workers = {
        record.case.workers: record.aggregates["epoch_time_s"]
        for record in families(trained(material.records), "workers", lambda record: record.case.workers)[0].records
    }
    heights = [sum(height for _, height in mark.parts) for mark in panel.marks]
    assert panel.x.categories == ("0", "2", "4")
    assert heights == pytest.approx([by_workers[0], by_workers[2], by_workers[4]])


def test_a_family_differs_in_one_thing_only(material):
    (family,) = families(trained(material.records), "batch_size", lambda record: record.case.batch_size)
    assert family.values == (8, 16, 64)
    same = {dataclasses.replace(record.case, batch_size=16) for record in family.records}
    assert len(same) == 1


def test_media_are_compared_on_the_same_data_with_the_same_workers(material):
    (figure,) = figures_of(material, "Storage media")
    rows = [dict(zip(figure.columns, row)) for row in figure.rows]
    assert {(row["storage"], row["workers"], row["of"]) for row in rows} == {
        *((storage, 0, "epoch 0") for storage in ("ssd", "sd", "hdd")),
        *((storage, 4, "epochs 1 and later") for storage in ("ssd", "sd", "hdd")),
    }
    assert {row["batch_size"] for row in rows} == {16}


def test_of_the_same_conditions_the_newest_profile_counts(material):
    first = material.records[0]
    later = dataclasses.replace(first, id=10_000)
    assert newest([*material.records, later])[-1] is later
    assert len(newest([*material.records, later])) == len(material.records)


def test_baseload_is_told_where_it_was_measured_in_the_same_mode(material):
    (figure,) = figures_of(material, "Power modes")
    place, mode = figure.columns.index("baseload_share_pct"), figure.columns.index("power_mode")
    shares = {row[mode]: row[place] for row in figure.rows}
    assert 0 < shares["g"] < 100, "mode g is MAXN"
    assert shares["a"] is None, "nobody measured the idle state of mode a"


def test_a_scatter_is_thinned_says_so_and_keeps_its_front(material):
    table = next(table for table in mode_tables(material) if table.origin == "corpus")
    figure = figures_of(material, "Pareto fronts")[0]
    assert len(table.modes) > 1300
    assert f"1200 of {len(table.modes)} modes are drawn" in figure.caption
    assert len(figure.rows) == len(table.modes), "the CSV file has all"
    on_front = {
        row[figure.columns.index("power_mw")] for row in figure.rows if row[figure.columns.index("on_time_power_front")]
    }
    assert on_front == {table.power_mw[place] for place in pareto_front(table.time_ms, table.power_mw)}


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
    assert density([1.0, 2.0, 3.0]) == []
    assert density([1.0] * 50) == []
    assert max(share for _, share in density([1.0, 2.0, 2.0, 3.0] * 10)) == 1.0


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

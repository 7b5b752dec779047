"""The papers' figures: what the file holds, and how far off an answer is."""

import re

import pytest

from harness.core.errors import InvalidValueError
from harness.judge.published_figures import FIGURES_FILE, Condition, PublishedFigure, load_figures
from harness.simulation.parameters import SIMULATED_BOARDS, SIMULATED_WORKLOADS
from tests.harness.judge.test_claims_of_benchmarks import with_changed_row
from tools.simulated_answers import IDLE_METRICS, INTERNAL, METRICS, find_modes

pytestmark = pytest.mark.one_python


def figure(value="10", comparator="=", relation="value"):
    least, _, greatest = value.partition("..")
    asked = Condition("orin-agx", "resnet18-imagenet", "default")
    versus = asked if relation in ("ratio", "change") else None
    ends = float(least), float(greatest or least)
    return PublishedFigure("F1", "001", "1", asked, versus, "power", relation, comparator, *ends, "W")


def test_there_are_figures_enough_of_every_board_that_the_papers_trained_on():
    figures = load_figures()
    assert len({(one.fact, one.condition) for one in figures}) >= 150
    assert {"orin-agx", "xavier-agx", "xavier-nx", "nano"} <= {one.condition.device for one in figures}
    assert {one.paper for one in figures} == {"001", "003", "004"}


@pytest.mark.parametrize("one", load_figures(), ids=lambda one: f"{one.fact}-{one.condition.workload}")
def test_a_figure_names_only_what_there_is(one):
    assert re.fullmatch(r"F\d{3,4}", one.fact)
    assert one.metric in METRICS or one.metric in IDLE_METRICS
    assert one.unit in INTERNAL
    assert one.least <= one.greatest
    for condition in filter(None, (one.condition, one.versus)):
        assert condition.workload in ("", *SIMULATED_WORKLOADS)
        assert condition.storage in ("ssd", "sd", "hdd", "emmc")
        assert condition.cache in ("warm", "cold")
        for device in condition.device.split(","):
            assert device in SIMULATED_BOARDS
            assert len(find_modes(device, condition.power_mode).table) > 0


@pytest.mark.parametrize(
    ("one", "answered", "off"),
    [
        (figure("10"), 9.0, -0.1),
        (figure("10..20", "range"), 15.0, 0.0),
        (figure("10..20", "range"), 22.0, 0.1),
        (figure("10..20", "range"), 8.0, -0.2),
        (figure("10", "<"), 3.0, 0.0),
        (figure("10", "<="), 11.0, 0.1),
        (figure("10", ">"), 99.0, 0.0),
        (figure("10", ">"), 9.0, -0.1),
        (figure("-22.3", relation="change"), -25.0, 0.75 / 0.777 - 1.0),
        (figure("0", "~", "change"), 2.0, 0.02),
    ],
)
def test_a_deviation_is_relative_to_the_nearer_end_and_that_of_a_change_of_the_ratio_it_stands_for(one, answered, off):
    assert one.deviation(answered) == pytest.approx(off)


def test_text_of_a_value_shows_how_it_is_meant():
    assert figure("10").value == "10"
    assert figure("10", "<").value == "<10"
    assert figure("10..20", "range").value == "10..20"


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"value": "many"}, "many"),
        ({"workers": "a few"}, "a few"),
        ({"relation": "product"}, "product"),
        ({"comparator": "about"}, "about"),
        ({"relation": "value"}, "compared"),
    ],
)
def test_a_line_that_is_no_figure_is_named(tmp_path, cells, named):
    with pytest.raises(InvalidValueError, match=rf"figures.csv line 2.*{named}"):
        load_figures(with_changed_row(FIGURES_FILE, tmp_path, **cells))


def test_what_a_comparison_does_not_change_is_as_in_the_condition(tmp_path):
    (one,) = load_figures(with_changed_row(FIGURES_FILE, tmp_path, vs_workers="1"))
    assert one.versus == one.condition._replace(power_mode="default", workers=1)

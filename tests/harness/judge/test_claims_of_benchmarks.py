"""The claims of the benchmarks: what each names, and that no statement of the papers is dropped silently."""

from __future__ import annotations

import csv
import inspect
import re
from pathlib import Path

import pandas as pd
import pytest

from harness.core.boards import BOARDS
from harness.core.errors import InvalidValueError
from harness.judge.claims import known
from harness.judge.published_figures import FIGURES_FILE, load_figures
from harness.judge.statistics import STATISTICS
from tests.messages import says
from tools.model_checks import CHECKS, load_statements
from tools.simulated_campaign import papers_claims

CLAIMS = papers_claims()
PROJECT = Path(__file__).resolve().parents[3]

OF_DRIVERS = {"nvidia-geforce-rtx-3090", "nvidia-rtx-a5000"}  # what NVML calls GPUs that are simulated too

BY_HAND = {"mobilenet_hardly_varies_between_boards", "power_settles_within_three_seconds"}
"""Claims that simulated boards agree with because a parameter was set by hand."""


def with_changed_row(file, folder, **cells):
    """A copy of a file of the papers with its first row alone, and some cells of that changed."""
    first = pd.read_csv(file, dtype=str, keep_default_na=False).iloc[:1].assign(**cells)
    first.to_csv(folder / file.name, index=False)
    return folder / file.name


def facts_of(claim):
    return {fact for facts in claim.facts for fact in facts.split("/")}


def test_claims_have_names_of_their_own_and_take_statistics_that_exist():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) > 140
    taken = {name for claim in CLAIMS for name in inspect.signature(claim.test).parameters}
    assert taken == {*STATISTICS, "searched", "until"}
    assert all(claim.says.endswith((".", ").")) and len(claim.says.split()) > 9 for claim in CLAIMS)
    assert all(claim.facts and len(set(claim.facts)) == len(claim.facts) for claim in CLAIMS)
    assert all((PROJECT / "benchmarks" / f"test_{claim.experiment}.py").exists() for claim in CLAIMS)
    assert {board for claim in CLAIMS for board in claim.boards} - set(BOARDS) == OF_DRIVERS


def test_the_page_on_claims_states_how_many_claims_rest_on_fitted_figures():
    page = (PROJECT / "docs" / "claims.md").read_text(encoding="utf-8")
    fitted = sum(bool(claim.fitted) for claim in CLAIMS)
    assert says(page, fitted, f"{len(CLAIMS)} claims")


def test_every_numbered_finding_of_the_papers_is_asked_but_those_that_cannot_be():
    numbered = {
        f"004 5.{part}.{place}" for part, last in enumerate((7, 2, 2, 4, 2, 7), 1) for place in range(1, last + 1)
    }
    numbered |= {f"003 III.{letter}" for letter in ("A", "B.1", "B.2", "C", "D", "E", "F")}
    numbered |= {f"002 II.{place}" for place in range(1, 6)} | {"004 5.6", "004 A"}
    assert numbered - {claim.section for claim in CLAIMS} == {"004 5.4.4", "002 II.3", "002 II.5"}


def test_every_comparison_that_003_and_004_print_of_a_board_is_asked():
    printed = {one.fact for one in load_figures() if one.versus is not None and one.paper in ("003", "004")}
    bounded = {"F724"}  # by caching_shows_on_an_hdd, from below
    assert printed - {fact for claim in CLAIMS for fact in facts_of(claim)} == bounded


def fitted_facts():
    """Figures that a fit reads, and statements that a parameter of the simulation was taken from."""
    with FIGURES_FILE.open(encoding="utf-8", newline="") as file:
        facts = {row["fact"] for row in csv.DictReader(file)}
    for path in (PROJECT / "harness" / "simulation").rglob("*.toml"):
        for origin in re.findall(r'origin = "([^"]*)"', path.read_text(encoding="utf-8")):
            facts.update(re.findall(r"F\d+", origin))
            for first, last in re.findall(r"F(\d+) to F(\d+)", origin):
                facts.update(f"F{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return facts


def test_a_claim_is_marked_where_the_simulation_was_fitted_to_what_it_stands_on():
    facts = fitted_facts()
    to_facts = [claim for claim in CLAIMS if says(claim.fitted, "fitted", claim.section)]
    assert {claim.name for claim in CLAIMS if facts_of(claim) & facts} == {claim.name for claim in to_facts}
    assert {claim.name for claim in CLAIMS if claim.fitted} - {claim.name for claim in to_facts} == BY_HAND


def test_a_shortfall_of_the_simulation_has_bounds_of_its_own_that_are_not_the_papers():
    for claim in CLAIMS:
        if claim.shortfall is not None:
            assert float("-inf") < claim.shortfall.above < claim.shortfall.below < float("inf")
            assert claim.shortfall.why
    with pytest.raises(InvalidValueError, match="is empty"):
        known(1.2, 0.9, "upside down")


def test_what_no_claim_is_about_has_a_check_of_the_model_or_a_reason():
    statements = load_statements()
    assert [one.fact for one in statements if bool(one.check) == bool(one.unchecked)] == []
    assert {one.check for one in statements} - {""} == {check.__name__ for check in CHECKS}
    judged = {fact for claim in CLAIMS for fact in facts_of(claim)}
    assert {one.fact for one in statements} & judged == {"F1029"}  # of the model there is no profile of Wake on LAN
    assert len(judged | {one.fact for one in statements}) > 240

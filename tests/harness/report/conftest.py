"""A report of simulated results, made once for all tests of the report."""

from __future__ import annotations

import pytest

from harness.report.assembly import write_report
from harness.report.material import Material
from harness.store.results import ResultsStore
from tests.harness.report.sample_results import corpus_rows, predictor_results, strategy_results, write_sample


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory):
    """A results file with something for every figure, opened to read."""
    path = write_sample(tmp_path_factory.mktemp("report") / "results.sqlite")
    with ResultsStore(path, read_only=True) as store:
        yield store


@pytest.fixture(scope="session")
def material(sample_store):
    """Everything that a report can be made of."""
    return Material.read(
        sample_store,
        tuple(corpus_rows(2600)),
        tuple(predictor_results()),
        tuple(strategy_results()),
    )


@pytest.fixture(scope="session")
def report(material, tmp_path_factory):
    """The folder of a report with every figure."""
    out = tmp_path_factory.mktemp("report") / "out"
    write_report(material, out, ())
    return out


MARKUP = "</title></script><img src=x onerror='window.hacked=1'>"


@pytest.fixture(scope="session")
def hostile_report(sample_store, tmp_path_factory):
    """A report in which every text of the corpus, the evaluations and the profiles' names is markup too."""
    corpus = [{**row, "workload": MARKUP, "device": f"orin-agx{MARKUP}"} for row in corpus_rows(40)]
    hostile = Material.read(
        sample_store,
        tuple(corpus),
        tuple({**one, "target": MARKUP, "predictor": MARKUP, "provenance": MARKUP} for one in predictor_results()),
        tuple({**one, "strategy": MARKUP, "device": MARKUP, "provenance": MARKUP} for one in strategy_results()),
    )
    for name in ("device_model", "flags", "power_definition"):
        hostile.frame[name] = MARKUP
    hostile.frame["flag_list"] = [(f"power-unsettled: {MARKUP}",)] * len(hostile.frame)
    out = tmp_path_factory.mktemp("hostile") / "out"
    write_report(hostile, out, ())
    return out

"""A report of simulated results, made once for all tests of the report."""

from __future__ import annotations

import dataclasses

import pytest

from harness.judge.case_frame import pooled, read_frame
from harness.judge.claims import judge, store_verdicts, stored_verdicts
from harness.judge.verdict import Verdict
from harness.report.assembly import write_report
from harness.report.material import Material
from harness.store.results import ResultsStore
from tests.harness.report.sample_results import corpus_rows, predictor_results, strategy_results, write_sample
from tools.simulated_campaign import papers_claims


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory):
    """A results file with something for every figure, opened to read."""
    path = write_sample(tmp_path_factory.mktemp("report") / "results.sqlite")
    with ResultsStore(path) as store:
        verdicts = [*judge(pooled(read_frame(store)), papers_claims()), OF_DEVICES]
        store_verdicts(store, {(verdict.device, verdict.takeaway): verdict for verdict in verdicts})
    with ResultsStore(path, read_only=True) as store:
        yield store


@pytest.fixture(scope="session")
def material(sample_store):
    """Everything that a report can be made of."""
    return Material.read(sample_store, tuple(corpus_rows(2600)), tuple(predictor_results()), tuple(strategy_results()))


@pytest.fixture(scope="session")
def report(material, tmp_path_factory):
    """The folder of a report with every figure."""
    out = tmp_path_factory.mktemp("report") / "out"
    write_report(material, out, ())
    return out


OF_DEVICES = Verdict(
    "cross_device", "orin_trains_faster_than_xavier", "004 5.1.7", "AGX Xavier takes longer.", "sim:xavier-agx",
    "confirmed", 2.0, 1.9, 2.1, 1.53, 4.485, "time, here / on orin-agx", "lenet-mnist", 3, "simulated", None,
    quantity="time", against="orin-agx",
)  # fmt: skip
"""A verdict on how devices compare, of which the sample has no two profiles."""

TOLD = ("experiment", "takeaway", "section", "says", "device", "meaning", "case", "between_runs", "apart", "fitted")
"""The texts of a verdict."""

MARKUP = "</title></script><img src=x onerror='window.hacked=1'>"


def marked(value, *kept):
    """Plain values with markup behind every text, but those under the keys `kept`, which decide what is drawn."""
    if isinstance(value, str):
        return value + MARKUP
    if isinstance(value, dict):
        return {name: one if name in kept else marked(one, *kept) for name, one in value.items()}
    return type(value)(marked(one, *kept) for one in value) if isinstance(value, (list, tuple)) else value


@pytest.fixture(scope="session")
def hostile_report(sample_store, tmp_path_factory):
    """A report in which every text of the results file, the corpus and the evaluations is markup too."""
    folder = tmp_path_factory.mktemp("hostile")
    with ResultsStore(folder / f"{MARKUP.replace('/', '')}.sqlite") as store:
        for profile in sample_store.profiles():
            texts = {
                name: marked(getattr(profile.case, name)) for name in ("device", "workload", "power_mode", "storage")
            }
            told = {name: marked(getattr(profile.telemetry, name)) for name in ("missing", "notes")}
            foreign = dataclasses.replace(
                profile, case=dataclasses.replace(profile.case, **texts), conditions=marked(profile.conditions),
                flags=["throttled: by heat" + MARKUP, MARKUP], telemetry=dataclasses.replace(profile.telemetry, **told),
            )  # fmt: skip
            store.add(foreign, {"host_name": MARKUP, "jetwatt": MARKUP, MARKUP: MARKUP}, MARKUP)
        whole = stored_verdicts(sample_store).verdicts
        said = [one._replace(**{name: getattr(one, name) + MARKUP for name in TOLD}) for one in whole]
        store_verdicts(store, {(one.device, one.takeaway): one for one in said})
        evaluations = marked(tuple(predictor_results()), "sampling"), marked(tuple(strategy_results()))
        hostile = Material.read(store, marked(tuple(corpus_rows(40)), "task"), *evaluations)
        write_report(hostile, folder / "out", (store.path,))
    return folder / "out"

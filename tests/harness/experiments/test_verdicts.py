"""Take-aways against profiles: what speaks to them, and what follows."""

from __future__ import annotations

import csv
import dataclasses

import pytest

from harness.cases import Case, Settings
from harness.configuration import Configuration
from harness.devices.registry import open_device
from harness.experiments import verdicts
from harness.experiments.evidence import COLD, WARM, evidence_of, pooled
from harness.experiments.software_versions import version_effects
from harness.experiments.takeaways import TAKEAWAYS
from harness.experiments.verdicts import verdicts_of
from harness.experiments.view import View
from harness.results.store import ResultsStore
from harness.simulation.figures import FIGURES_FILE

pytest.importorskip("scipy")

MOBILENET = "mobilenetv3-gld23k"


def simulated(device, **fields):
    settings = fields.pop("settings", Settings(minibatches=60))
    usual = {"workload": MOBILENET, "power_mode": "maxn", "workers": 4, "storage": "ssd", "batch_size": 16}
    case = Case(device, settings=settings, **{**usual, **fields})
    return open_device(device, Configuration()).profile(case, lambda line: None)


def slowed(profile, factor, **conditions):
    """The same profile of a machine that takes so many times as long."""
    minibatches = [
        one._replace(stall_ms=one.stall_ms * factor, compute_ms=one.compute_ms * factor, e2e_ms=one.e2e_ms * factor)
        for one in profile.minibatches
    ]
    return dataclasses.replace(profile, minibatches=minibatches, conditions={**profile.conditions, **conditions})


def by_name(found):
    return {one.takeaway: one for one in found}


def test_take_aways_have_names_of_their_own_and_facts_that_are_known():
    assert len({takeaway.name for takeaway in TAKEAWAYS}) == len(TAKEAWAYS) > 60
    facts = set()
    for name in ("claims.csv", "figures.csv"):
        with FIGURES_FILE.with_name(name).open(encoding="utf-8", newline="") as file:
            facts |= {row["fact"] for row in csv.DictReader(file)}
    assert [fact for takeaway in TAKEAWAYS for fact in takeaway.facts if fact not in facts] == []
    assert all(takeaway.says.endswith((".", ").")) for takeaway in TAKEAWAYS)


def test_profiles_that_hold_to_a_take_away_confirm_it_and_others_contradict_it():
    none, four = simulated("sim:xavier-agx", workers=0), simulated("sim:xavier-agx", workers=4)
    found = by_name(verdicts_of(map(evidence_of, (none, four))))["workers_shorten_epochs"]
    assert (found.verdict, found.must_hold, found.is_violated) == ("confirmed", True, False)
    assert found.low < found.effect < found.high < 1.0
    turned = by_name(verdicts_of(map(evidence_of, (none, slowed(four, 4.0)))))["workers_shorten_epochs"]
    assert (turned.verdict, turned.is_violated) == ("contradicted", True)
    assert "xavier-agx" in turned.text
    assert "004 5.1.3" in turned.text


def test_a_measured_machine_may_leave_a_take_away_undecided():
    profile = dataclasses.replace(simulated("sim:xavier-agx", workers=0), provenance="measured")
    other = dataclasses.replace(profile, case=dataclasses.replace(profile.case, workers=4))
    found = by_name(verdicts_of(map(evidence_of, (profile, slowed(other, 1.03)))))["workers_shorten_epochs"]
    assert (found.verdict, found.is_violated) == ("undecided", False)


def test_a_simulated_board_that_the_paper_did_not_speak_of_is_not_asked():
    found = by_name(verdicts_of(evidence_of(simulated("sim:orin-nano", workers=workers)) for workers in (0, 4)))
    assert "workers_cost_no_energy" not in found
    assert "workers_hide_stalls" not in found  # needs one worker


def test_cold_and_warm_epochs_are_told_apart():
    settings = Settings(minibatches=None, epochs=2, cache="cold", data_scale=0.05)
    evidence = evidence_of(simulated("sim:xavier-agx", workers=0, storage="hdd", settings=settings))
    assert evidence.figures["stall", COLD].value > evidence.figures["stall", WARM].value
    assert len(evidence.epochs_s) == 1


def test_runs_of_a_case_speak_together_and_only_with_the_latest_software():
    first = simulated("sim:xavier-agx")
    second = simulated("sim:xavier-agx", settings=Settings(minibatches=60, seed=1))
    (together,) = pooled(map(evidence_of, (first, second)))
    between = sorted(evidence_of(one).figures["time", WARM].value for one in (first, second))
    assert between[0] < together.figures["time", WARM].value < between[1]
    newer = slowed(second, 2.0, torch="9.0")
    (latest,) = pooled(map(evidence_of, (first, newer)))
    assert latest.figures["time", WARM].value > 1.5 * between[1]


def test_small_default_data_give_way_to_data_of_a_size_that_was_asked_for():
    cold = Settings(minibatches=None, epochs=2, cache="cold")
    profiles = [
        simulated("sim:xavier-agx", settings=dataclasses.replace(cold, data_scale=scale)) for scale in (None, 0.1)
    ]
    view = View("sim:xavier-agx", pooled(map(evidence_of, profiles)))
    assert [one.case.settings.data_scale for one in view.evidence] == [0.1]


def test_verdicts_come_from_a_results_file(tmp_path):
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for workers in (0, 4):
            store.add(simulated("sim:xavier-agx", workers=workers), {}, "run")
        found = verdicts(store)
    assert found
    assert {one.provenance for one in found} == {"simulated"}
    assert "workers_raise_power" in by_name(found)


def test_versions_of_software_are_compared_case_by_case(tmp_path):
    profile = simulated("sim:xavier-agx")
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.add(slowed(profile, 1.0, torch="1.12"), {}, "old")
        assert version_effects(store) == []
        store.add(slowed(profile, 1.4, torch="2.0"), {}, "new")
        (effect,) = version_effects(store)
    assert (effect.before, effect.after) == ({"torch": "1.12"}, {"torch": "2.0"})
    assert effect.ratio.low < 1.4 < effect.ratio.high
    assert "torch 1.12 to 2.0" in effect.text

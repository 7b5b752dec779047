"""False alarms of gates: nights are independent, and a night that did change is no false alarm of a silent tool."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tools import false_alarms as module
from tools.false_alarms import WORKLOADS, false_alarms, judge_requirements, simulate_night
from tools.recorded_figures import PART_OF, read_record

pytestmark = pytest.mark.one_python


def slower(night, factor):
    """A night whose minibatches take longer, as after an update."""
    profiles = []
    for profile in night:
        minibatches = [each._replace(e2e_ms=each.e2e_ms * factor) for each in profile.minibatches]
        time_ms = profile.aggregates["minibatch_time_ms"] * factor
        aggregates = {**profile.aggregates, "minibatch_time_ms": time_ms}
        profiles.append(dataclasses.replace(profile, minibatches=minibatches, aggregates=aggregates))
    return tuple(profiles)


def test_nights_are_of_one_case_each_with_noise_of_its_own():
    nights = [simulate_night(number) for number in range(4)]
    medians = np.array(
        [[np.median([each.e2e_ms for each in profile.counted]) for profile in night] for night in nights]
    )
    assert len({tuple(profile.case for profile in night) for night in nights}) == 1
    assert np.unique(medians, axis=0).shape == (4, len(WORKLOADS))
    logs = np.log(medians)
    assert (logs.std(axis=0) > 1e-3).all()  # the noise between runs, which one profile with noise added lacks


@pytest.mark.exhaustive
def test_a_change_turns_every_gate_red(monkeypatch):
    """The last nights of the series are 10 % slower: each gate that is silent on unchanged software sees that."""
    whole = module.simulate_night
    monkeypatch.setattr(module, "NIGHTS_OF_SERIES", 10)
    unchanged = {row["gate"]: row for row in false_alarms(10)}
    monkeypatch.setattr(
        module, "simulate_night", lambda number: slower(whole(number), 1.1) if number >= 7 else whole(number)
    )
    changed = {row["gate"]: row for row in false_alarms(10)}
    for gate in ("compare", "baseline check", "history"):
        assert changed[gate]["red_pct"] > unchanged[gate]["red_pct"], gate
        assert changed[gate]["alarms_pct"] > unchanged[gate]["alarms_pct"], gate


@pytest.mark.exhaustive
def test_requirements_far_from_the_truth_never_fail(monkeypatch):
    nights = [simulate_night(number) for number in range(3)]
    true_limits = module.true_limits
    at_the_truth = judge_requirements(nights)

    def generous(profiles, place):
        origin = true_limits(profiles, place)
        requirement = origin.requirement
        limits = {"p95_ms": 2 * requirement.p95_ms, "power_w": 2 * requirement.power_w}
        return module.requirement_from(limits, "case")

    monkeypatch.setattr(module, "true_limits", generous)
    far = judge_requirements(nights)
    assert far.alarms == 0
    assert far.significant > at_the_truth.significant  # they are decided, as kept


def test_the_recorded_shares_are_at_most_the_level():
    rows = {row["gate"]: row for row in read_record(PART_OF["false-alarms"])}
    assert {"compare", "baseline check", "history", "requirements"} == set(rows)
    for row in rows.values():
        assert int(row["nights"]) >= 50
        assert float(row["alarms_pct"]) <= 5

"""A campaign's experiments on simulated boards without pytest: profiles for claims to be judged by."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from harness.core.boards import own_media
from harness.core.campaigns import expand, load_campaign
from harness.core.cases import DEFAULT_IDLE_S, IDLE, IDLE_STATES, TRAINING, Case
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError
from harness.core.mode_texts import MAXN
from harness.core.profiles import Profile
from harness.devices.registry import open_device
from harness.devices.simulated import copies
from harness.judge.claims import Claim, claims_in
from harness.measure.idle import idle_cases
from harness.measure.run import check, run

BASELOAD = "baseload"  # the experiment whose cases are idle states
VARIABILITY, REPETITIONS = "variability", 3  # its cases are repeated with a seed each, as its benchmark does
PAPERS_BOARDS = ("xavier-agx", "xavier-nx", "nano", "orin-agx", "rtx-3090", "a5000", "raspberry-pi-5")


BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def papers_claims() -> Tuple[Claim, ...]:
    """The claims of the suite's benchmarks."""
    return claims_in(BENCHMARKS)


class SimulatedCampaign:
    """The cases of the experiments that claims are judged by, on the simulated boards that these are about."""

    def __init__(self, campaign: str = "paper") -> None:
        self._device = functools.lru_cache(maxsize=None)(lambda name: open_device(name, Configuration()))
        self._campaign = load_campaign(campaign)
        about: Dict[str, List[str]] = {}
        for claim in papers_claims():
            about.setdefault(claim.experiment, []).extend(claim.boards)
        cases: Dict[Case, None] = {}
        for experiment, boards in about.items():
            cases.update(dict.fromkeys(self._cases_of(experiment, [one for one in PAPERS_BOARDS if one in boards])))
        self.cases = [case for case in cases if case.task in (TRAINING, IDLE)]

    def profiles(self) -> Iterator[Profile]:
        for case in self.cases:
            try:
                check(case, self._device(case.device))
            except CannotRunError:
                continue
            yield self.profile(case)

    def profile(self, case: Case) -> Profile:
        """The profile of a case; the same each time but for when it began."""
        return run(case, self._device(case.device))

    def _cases_of(self, experiment: str, asked: Sequence[str]) -> List[Case]:
        sweeps = []
        for sweep in self._campaign.experiments.get(experiment, ()):
            for board in asked:
                if not sweep.boards or board in sweep.boards:
                    devices, media = copies(f"sim:{board}", sweep.instances), own_media(board, sweep.axes["storage"])
                    axes = {**sweep.axes, "device": devices, "storage": media}
                    sweeps.append(dataclasses.replace(sweep, axes=axes))
        found = expand(sweeps, lambda name, workload, text: self._device(name).power_modes(text, workload))
        if experiment == VARIABILITY:
            return [
                dataclasses.replace(case, settings=dataclasses.replace(case.settings, seed=seed))
                for case in found
                for seed in range(REPETITIONS)
            ]
        if experiment != BASELOAD:
            return found
        boards = [self._device(f"sim:{board}") for board in asked]
        at_maxn = [
            dataclasses.replace(found[0], device=board.name, power_mode=named_mode(board, MAXN)) for board in boards
        ]
        return [*idle_cases(at_maxn, DEFAULT_IDLE_S, {}), *idle_cases(found, DEFAULT_IDLE_S, {}, IDLE_STATES[:1])]

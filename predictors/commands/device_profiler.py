"""A device as a profiler: what a strategy asks for is measured there, and kept in a results file.

The only module by which a strategy reaches a device: a board, a simulated board or a replayed corpus alike.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from harness.cases import Case
from harness.devices.protocol import Device
from harness.devices.replay import ReplayDevice
from harness.errors import CannotRunError
from harness.power_modes import PowerMode
from harness.profiles import Profile
from harness.results.conditions import comparable_conditions, key
from harness.results.store import ResultsStore
from harness.units import ms_to_s
from predictors.metrics import profiling_seconds
from predictors.strategies.protocol import Candidates, Measured


class DeviceProfiler:
    """Profiles candidates on a device; with a results file, what it holds already is not measured again."""

    def __init__(
        self,
        device: Device,
        case: Case,
        modes: Sequence[Tuple[str, PowerMode]],
        *,
        batch_sizes: Optional[Sequence[int]] = None,
        store: Optional[ResultsStore] = None,
        environment: Optional[Mapping[str, Any]] = None,
        run_id: str = "",
        resume: bool = False,
        needs_power: bool = True,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Profile on a device that is held by the caller.

        Args:
            device: where to measure.
            case: what to measure; its power mode and batch size are replaced by the candidates'.
            modes: what may be chosen, each with the name it has in a case.
            batch_sizes: what may be chosen of these; None for the case's own.
            store: where profiles are kept.
            environment: goes with them.
            run_id: goes with them.
            resume: take a profile of the same conditions from `store` instead of measuring again.
            needs_power: whether a profile without power is refused; else its power is NaN.
            report: takes lines of progress while a profile runs.
        """
        self.task = case.task
        self.resumed = 0
        self.taken: Dict[int, Measured] = {}
        self._device = device
        self._case = case
        self._names = [name for name, _ in modes]
        sizes = tuple(batch_sizes or (case.batch_size,))
        rows = np.array([(*mode, size) for _, mode in modes for size in sizes], dtype=np.int64)
        self.candidates = Candidates(rows[:, :4], rows[:, 4])
        self._per_mode = len(sizes)
        self._store = store
        self._environment = dict(environment or {})
        self._run_id = run_id
        self._stored = _stored_numbers(store) if store is not None and resume else {}
        self._needs_power = needs_power
        self._report = report

    def case(self, index: int) -> Case:
        """The case that profiles a candidate."""
        return dataclasses.replace(
            self._case,
            power_mode=self._names[index // self._per_mode],
            batch_size=int(self.candidates.batch_size[index]),
        )

    def profile(self, index: int) -> Measured:
        """Measure a candidate, or take its profile from the results file; once in the life of this profiler.

        Raises:
            CannotRunError: the device cannot run it, or gives no power.
            HarnessError: it could not be measured.
        """
        if index not in self.taken:
            self.taken[index] = self._measure(self.case(index))
        return self.taken[index]

    def _measure(self, case: Case) -> Measured:
        self._device.check(case)
        conditions = self._device.conditions(case, self._report)
        number = self._stored.get(key(comparable_conditions(conditions, case, self._device.provenance)))
        if number is not None and self._store is not None:
            profile = self._store.profile(number)
            self.resumed += 1
        else:
            profile = self._device.profile(case, self._report)
            if self._store is not None:
                self._store.add(profile, self._environment, self._run_id)
        return figures_of(profile, self._needs_power)


def modes_of(device: Device, workload: str) -> List[Tuple[str, PowerMode]]:
    """Every power mode that a workload can be profiled in, each with its name: of a replayed corpus, what it holds."""
    of = {"workload": workload} if isinstance(device, ReplayDevice) else {}
    return device.power_modes("all", **of)


def figures_of(profile: Profile, needs_power: bool = True) -> Measured:
    """Minibatch time, power and what the profile took; power is NaN where it is not needed and was not measured.

    Raises:
        CannotRunError: what is needed was not measured.
    """
    time_ms, power_mw = (profile.aggregates.get(name) for name in ("minibatch_time_ms", "power_mw"))
    if power_mw is None and not needs_power:
        power_mw = float("nan")
    if time_ms is None or power_mw is None:
        missing = "minibatch time" if time_ms is None else "power"
        raise CannotRunError(
            f"{profile.case.id} gave no {missing}: {profile.conditions.get('power_definition', 'too few minibatches')}",
            "choose power modes on a device that measures power; `python -m harness doctor` says what this one has",
        )
    return Measured(time_ms, power_mw, _seconds(profile, time_ms))


def _seconds(profile: Profile, time_ms: float) -> float:
    """From the start of telemetry to the end of the last minibatch; of a replayed profile, what it would take."""
    if not profile.minibatches:
        return profiling_seconds(np.array(time_ms))
    last = profile.minibatches[-1]
    starts: List[float] = [series.times_s[0] for series in profile.telemetry.series.values() if series.times_s]
    return last.start_s + ms_to_s(last.e2e_ms) - min([profile.minibatches[0].start_s, *starts])


def _stored_numbers(store: ResultsStore) -> Dict[str, int]:
    """The newest profile of each comparable conditions."""
    return {record.key: record.id for record in store.records()}

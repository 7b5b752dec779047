"""`sim:BOARD`: a simulated board, which runs cases in virtual time; nothing is trained or written."""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from harness.core.capability import Capability
from harness.core.cases import (
    CONCURRENT,
    DVFS,
    IDLE,
    INFERENCE,
    INSTANCE_MARK,
    INTERLEAVED,
    LOGGING,
    QUIET,
    QUIET_READINGS,
    STATIC,
    TRAINING,
    Case,
    Mix,
    case_duration_s,
    concurrent_conditions,
    parts_of,
    workers_and_storage,
)  # fmt: skip
from harness.core.device import Identity
from harness.core.errors import CannotRunError, HarnessError, UnknownNameError
from harness.core.frequency_residency import clock_use
from harness.core.metrics import POWER_CHANNEL, summarise, summarise_concurrent, summarise_idle
from harness.core.mode_texts import NamedModes
from harness.core.power_modes import NamedMode, PowerMode, PowerModeSpace
from harness.core.profiles import Minibatch, Profile, Telemetry
from harness.core.terminal import available_hint
from harness.core.transitions import RecordedTransition
from harness.core.units import BYTES_PER_GIB, mw_to_w, share_to_percent, w_to_mw
from harness.devices import raspberry_pi
from harness.simulation.parameters import (
    BOARD_FILES,
    PHYSICS_FILE,
    SIMULATED_BOARDS,
    SIMULATED_WORKLOADS,
    WORKLOAD_FILES,
    WorkloadParameters,
    board_and_instance,
    load_board_parameters,
    load_workload_parameters,
    scaled_workload,
)
from harness.simulation.transition import run_transition
from harness.simulation.virtual_run import (
    SimulatedBoard,
    VirtualData,
    run_idle,
    run_interleaved,
    run_training,
    virtual_data,
)
from harness.workloads import get_workload
from harness.workloads.counting import counted_alone, describe, memory_alone
from harness.workloads.data.data_set import IN_MEMORY
from harness.workloads.failures import own_code_failed
from harness.workloads.forward_work import KEPT_BYTES
from harness.workloads.workload import BF16_WHERE_THERE_IS

PREFIX = "sim:"
PAPERS_BATCH_SIZE = 16  # 001 sec. 2.3
MEDIA = ("ssd", "sd", "hdd", "emmc")  # storage that the model knows
TOO_LARGE = {
    "xavier-nx": {"resnet18-cifar10": 1},
    "nano": {"resnet18-cifar10": 1},
    raspberry_pi.NAME: raspberry_pi.TOO_LARGE,
}
"""Board to workloads that the papers could not run on it, and the smallest batch size that failed (H12; 004 sec. 4.3;
001's appendix). Memory needs of other workloads are not published."""

# Power-on time of every simulated board: a date on which nothing was really measured.
BEGINNING = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
# The result of a run: further conditions, minibatches, telemetry and aggregates.
Yielded = Tuple[Dict[str, Any], Sequence[Minibatch], Telemetry, Dict[str, Optional[float]]]
_IDLE_STATES = {(LOGGING, STATIC): "logging", (QUIET, STATIC): "clean", (QUIET, DVFS): "dvfs"}


def copies(name: str, count: int) -> Tuple[str, ...]:
    """The names of `count` instances of a simulated board, the board itself first; an instance has no further ones."""
    further = () if INSTANCE_MARK in name else range(1, count)
    return (name, *(f"{name}{INSTANCE_MARK}{number}" for number in further))


class SimulatedDevice:
    provenance = "simulated"
    clocks_only_fall = False  # every case runs on a freshly booted board
    slowdown = 0.0  # injected slowdown, as a share

    def __init__(self, text: str) -> None:
        """`text` is `BOARD` or `BOARD@INSTANCE`; `BOARD` alone is instance 0."""
        board, self._instance = board_and_instance(text)
        if board not in SIMULATED_BOARDS:
            names = [PREFIX + name for name in SIMULATED_BOARDS]
            raise UnknownNameError(f"board {board!r} is not simulated", available_hint(PREFIX + board, names))
        self.name = PREFIX + text
        self.board_instance = text.partition(INSTANCE_MARK)[2] or None
        self._board = load_board_parameters(board)
        self._spec = self._board.spec
        self._now_s = 0.0

    def identity(self) -> Identity:
        return Identity(f"{self._spec.product} (simulated)", self._specification())

    def _specification(self, *further: Path) -> Dict[str, Any]:
        digest = hashlib.sha256()
        for file in (PHYSICS_FILE, BOARD_FILES[self._spec.name], *further):
            digest.update(file.read_bytes())
        return {
            "board": self._spec.name,
            "instance": self._instance,
            "memory_gib": round(self._spec.ram_bytes / BYTES_PER_GIB),
            "parameters": digest.hexdigest()[:16],
        }

    def power_mode_space(self) -> PowerModeSpace:
        return self._spec.power_mode_space()

    def power_modes(self, text: str, workload: str = "") -> NamedModes:
        return self._spec.power_modes(text)

    @property
    def settable_limits_mw(self) -> Tuple[int, ...]:
        """The power limits of a discrete GPU, ascending; empty for other boards."""
        return self._spec.power_limits_mw

    def capabilities(self) -> List[Capability]:
        simulated = Capability("simulate", True, f"time and power of {', '.join(SIMULATED_WORKLOADS)}")
        limits = self.settable_limits_mw
        if not limits:
            return [simulated]
        allowed = f"{mw_to_w(limits[0]):g} to {mw_to_w(limits[-1]):g} W"
        return [simulated, Capability("set a power limit", True, f"{allowed}, simulated")]

    def check(self, case: Case) -> None:
        if case.task == CONCURRENT:
            mix = Mix.parse(case.workload)
            if mix.way != INTERLEAVED:
                raise CannotRunError(
                    f"{self.name} simulates interleaved training and inference only, not {mix.name}: the cost of"
                    " overlapping them on a board is nowhere published",
                    "measure it: device='host', or a board",
                )
            if mix.inference_mode and case.settings.switching_ms is None:
                raise CannotRunError(
                    f"{mix.name} changes the power mode, and the cost of that on {self.name} is nowhere published",
                    "give the cost of a change in ms (switching_ms=), or one power mode for both",
                )
            for part in parts_of(case):
                self.check(part)
        if case.task in (IDLE, CONCURRENT):
            return
        self._check_limit(case.settings.power_limit_w)
        media = [medium for medium in MEDIA if medium in self._spec.storage]
        _, storage = workers_and_storage(case)
        if storage not in media:
            what = f"{self.name} has no storage {storage!r}"
            raise CannotRunError(what, f"available: {', '.join(media)}; simulated boards have no read limits (@)")
        smallest_refused = TOO_LARGE.get(self._spec.name, {}).get(case.workload, case.batch_size + 1)
        if case.batch_size >= smallest_refused:
            batches = f" with batches of {case.batch_size}" if smallest_refused > 1 else " at any batch size"
            workload = load_workload_parameters(case.workload)
            workers = workload.default_workers
            needed = self._peak_bytes(workload, PAPERS_BATCH_SIZE, workers, TRAINING) / BYTES_PER_GIB
            raise CannotRunError(
                f"{case.workload}{batches} does not fit into the {self._spec.ram_bytes / BYTES_PER_GIB:.0f} GiB of "
                f"{self.name}: the papers ran out of memory there, where the system holds about "
                f"{self._board.system_bytes / BYTES_PER_GIB:.1f} GiB, and batches of {PAPERS_BATCH_SIZE} with "
                f"{workers} workers need about {needed:.1f} GiB",
                "use a board with more memory; what other networks need is not published, and never refused here",
            )
        data = self._data(case)
        if data.per_pass * (case.settings.epochs or 2) < 2:  # the first minibatch never counts
            what = f"{data.samples} samples of {case.workload} make too few batches of {case.batch_size}"
            raise CannotRunError(what, "a larger data_scale=, more epochs=, or a smaller batch_size=")

    def peak_memory_bytes(self, case: Case) -> float:
        """The peak memory that a memory limit is compared with: of the network, its batches and its workers.

        Profiles do not have it: it is a rough sum for rehearsals, of which only the batches are counted (`KEPT_BYTES`).
        """
        workers, _ = workers_and_storage(case)
        return self._peak_bytes(_workload(case.workload)[0], case.batch_size, workers, case.task)

    def _peak_bytes(self, workload: WorkloadParameters, batch_size: int, workers: int, task: str) -> float:
        sample_bytes = workload.input_bytes if task == INFERENCE else _kept_bytes(workload.name)
        return workload.model_bytes + workers * self._board.worker_bytes + batch_size * sample_bytes

    def _check_limit(self, limit_w: Optional[float]) -> None:
        limits = self.settable_limits_mw
        if limit_w is not None and limits and not limits[0] <= w_to_mw(limit_w) <= limits[-1]:
            allowed = f"allowed: {mw_to_w(limits[0]):g} to {mw_to_w(limits[-1]):g} W"
            raise CannotRunError(f"{self.name} does not accept a power limit of {limit_w:g} W", allowed)

    def _limit_mw(self, case: Case) -> Optional[int]:
        """The power limit of a case, by default the greatest; None if the board has none."""
        limit_w = case.settings.power_limit_w
        if limit_w is not None:
            return round(w_to_mw(limit_w))
        return max(self.settable_limits_mw, default=None)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        yield

    def apply(self, mode: PowerMode) -> PowerMode:
        self._spec.any_release_space().check(mode)
        return mode

    def conditions(self, case: Case) -> Dict[str, Any]:
        identity = self.identity()
        mode = case.power_mode.mode
        board = {
            "device_model": identity.model,
            "device_specification": identity.specification,
            "board": self._spec.name,
            "power_mode": mode._asdict(),
            "power_mode_name": case.power_mode.name,
            "tpc_mask": self._tpc_mask(case.power_mode.name),
            "dvfs": "off" if case.settings.clocks == STATIC else "on",
            "torch": None,
        }
        if self.settable_limits_mw:
            board["gpu_power_limit_mw"] = self._limit_mw(case)
        if self.slowdown:  # recorded as a version of torch, so that only `--by torch` compares it with other profiles
            slower = f"every minibatch made {share_to_percent(self.slowdown):g} % slower (--slowdown)"
            board.update(injected_slowdown=self.slowdown, torch=slower)
        if case.task == IDLE:
            return board
        if case.task == CONCURRENT:
            served = parts_of(case)[1]
            inference_mode = served.power_mode.mode
            training, inference = (
                self._conditions_of_training(part, part_mode)
                for part, part_mode in zip(parts_of(case), (mode, inference_mode))
            )
            conditions = {**board, **concurrent_conditions(training, inference)}
            if inference_mode != mode:
                own_mode = {"power_mode": inference_mode._asdict(), "power_mode_name": served.power_mode.name}
                conditions["inference"].update(own_mode)
            return conditions
        return {**board, **self._conditions_of_training(case, mode)}

    def _conditions_of_training(self, case: Case, mode: PowerMode) -> Dict[str, Any]:
        data = self._data(case)
        _, scaled_from, of_own = _workload(case.workload)
        return {
            **of_own,
            "device_specification": self._specification(WORKLOAD_FILES[scaled_from or case.workload]),
            "threads": mode.cpu_cores,
            "accelerator": f"{'cpu' if self._board.cpu_lanes else self._spec.gpu.name} (simulated)",
            "data_source": "virtual",
            "data_samples": data.samples,
            "data_scale": data.scale,
            "data_bytes": data.byte_count,
            "data_in_memory": data.byte_count == 0,
            "storage_medium": {"kind": case.storage if data.byte_count else IN_MEMORY},
            "storage_is_default_place": False,
        }

    def _data(self, case: Case) -> VirtualData:
        workload, trained = _workload(case.workload)[0], get_workload(case.workload)
        samples = round(workload.samples) if trained.is_own else trained.data_set.default_samples
        settings, (workers, _) = case.settings, workers_and_storage(case)
        return virtual_data(
            self._board, workload, case.batch_size, workers, settings.cache, samples, settings.data_scale
        )

    def _tpc_mask(self, name: str) -> int:
        """The mask of GPU clusters that a preset switches off; 0 for a mode given in full."""
        masks = (preset.tpc_pg_mask for preset in self._spec.presets if preset.name.lower() == name.lower())
        return next(masks, 0) or 0

    def _in_mode_of(self, case: Case) -> SimulatedBoard:
        tpcs, mask = self._spec.gpu.tpcs, self._tpc_mask(case.power_mode.name)
        share = 1.0 if not tpcs else 1.0 - bin(mask & ((1 << tpcs) - 1)).count("1") / tpcs
        mode = self.apply(case.power_mode.mode)
        return SimulatedBoard(self._board, self._instance, mode, share, self.slowdown, self._limit_mw(case))

    def profile(self, case: Case) -> Profile:
        run = {IDLE: self._idle, CONCURRENT: self._interleave}.get(case.task, self._train)
        conditions, minibatches, telemetry, aggregates = run(case)
        conditions = {
            **self.conditions(case),
            **conditions,
            "power_source": "simulation",
            "power_definition": telemetry.notes[POWER_CHANNEL],
        }
        started_at = (BEGINNING + datetime.timedelta(seconds=self._now_s)).isoformat(timespec="milliseconds")
        self._now_s += next(iter(telemetry.series.values())).times_s[-1]
        return Profile(case, self.provenance, conditions, minibatches, telemetry, aggregates, [], started_at)

    def change_mode(self, case: Case, to: PowerMode, before_s: float, after_s: float) -> RecordedTransition:
        """What is recorded around a change from a case's mode to another while it trains, so long before and after."""
        boards = self._in_mode_of(case), self._in_mode_of(case.in_mode(NamedMode(to.name, to)))
        end_s = before_s + after_s
        workload = _workload(case.workload)[0]
        minibatches, series = run_transition(boards, workload, case, self._data(case), before_s, end_s)
        return RecordedTransition(before_s, None, minibatches, series)

    def _train(self, case: Case) -> Yielded:
        epochs, data = case.settings.epochs, self._data(case)
        minibatches, telemetry = run_training(self._in_mode_of(case), _workload(case.workload)[0], case, data)
        conditions = {
            "cache_method": "simulated",
            "cache_residency_before": data.before,
            "cache_residency_after": float(data.held(len(minibatches))[-1]),
        }
        if not data.byte_count:
            conditions = {"cache_method": IN_MEMORY, "cache_residency_before": None, "cache_residency_after": None}
        elif epochs is not None:
            conditions["cache_residency_by_epoch"] = [data.before, *[data.later] * (epochs - 1)]
        aggregates = summarise(minibatches, telemetry, case.batch_size, whole_epochs=epochs is not None)
        return conditions, minibatches, telemetry, aggregates

    def _interleave(self, case: Case) -> Yielded:
        parts = [(part, _workload(part.workload)[0], self._data(part)) for part in parts_of(case)]
        boards = [self._in_mode_of(part) for part, _, _ in parts]
        (both, training, inference), minibatches, telemetry = run_interleaved(boards, case, parts)
        samples = parts[0][2].samples
        aggregates = summarise_concurrent(both, telemetry.series, case.batch_size, (training, inference), samples)
        return {}, minibatches, telemetry, aggregates

    def _idle(self, case: Case) -> Yielded:
        state = _IDLE_STATES.get((case.workload, case.settings.clocks))
        if state is None:
            raise CannotRunError(f"idle state {case.workload!r} is not simulated", "give the log of a meter")
        board, idle_s = self._in_mode_of(case), case_duration_s(case)
        interval_s = case.settings.interval_s if state == "logging" else idle_s / QUIET_READINGS
        telemetry = run_idle(board, case, state, interval_s)
        conditions = {
            "logging": "on" if state == "logging" else f"the power sensor alone, every {interval_s:g} s",
            "clean_process": True,
            "clock_use": clock_use(telemetry, board.mode, 0.0, idle_s),
        }
        return conditions, [], telemetry, summarise_idle(telemetry, 0.0, idle_s)


@functools.lru_cache(maxsize=None)
def _kept_bytes(name: str) -> float:
    """Memory that training takes for each sample of a batch."""
    kept = KEPT_BYTES.get(name)
    return memory_alone(get_workload(name)).sample_bytes if kept is None else kept


@functools.lru_cache(maxsize=None)
def _workload(name: str) -> Tuple[WorkloadParameters, str, Dict[str, Any]]:
    """Parameters of a workload, the papers' workload that they are scaled from (empty for one of these), conditions."""
    if name in SIMULATED_WORKLOADS:
        return load_workload_parameters(name), "", {}
    workload = get_workload(name)
    if workload.precision not in ("fp32", BF16_WHERE_THERE_IS) or workload.compile or workload.channels_last:
        what = f"simulated boards train in fp32, without torch.compile and channels-last; {name} requires otherwise"
        raise CannotRunError(what, "measure it: device='host', or a board")
    try:
        counted, data = counted_alone(workload)
    except HarnessError:
        raise
    except Exception as error:
        raise own_code_failed(f"workload {name}", error) from error
    samples = data.samples if workload.is_own else workload.real_samples
    parameters, scaled_from = scaled_workload(
        name,
        samples=samples,
        files=round(len(data.files) / data.samples * samples),
        dataset_bytes=data.bytes if workload.is_own else workload.data_set.real_bytes,
        input_bytes=counted.input_bytes,
        flops_forward=counted.flops_forward,
        kernels_forward=counted.kernels_forward,
        parameters=counted.parameters,
    )
    return parameters, scaled_from, {**describe(workload, counted, "fp32"), "scaled_from": scaled_from}

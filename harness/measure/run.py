"""Runs a case on a device: with the device's own minibatches (simulated, replayed), else with this suite's torch loops.

    check       refuses what cannot run here, before anything is touched
    conditions  prepares the data set, and returns the conditions before anything is measured
    run         power mode -- page cache -- telemetry -- minibatches -- aggregates -- flags

A case of the task `idle` has neither workload nor data, one of the task `concurrent` has two of each.
"""

from __future__ import annotations

import dataclasses
import platform
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, cast

from harness.board.containers import container_facts, lack_of_shared_memory
from harness.board.control_groups import ReadLimit, reads_held
from harness.board.disk import describe
from harness.board.page_cache import PageCache, residency
from harness.board.socket_meter import MOST_MW, SOCKET, SocketMeter
from harness.board.thermal import refuse_heat
from harness.core import cases, metrics
from harness.core.cases import Case, Mix, concurrent_conditions, parse_storage, parts_of, workers_and_storage
from harness.core.configuration import Configuration
from harness.core.device import Device, RealDevice, Report, is_self_profiling, limits_of
from harness.core.errors import CannotRunError, ControlError, DoesNotFitError, HarnessError, SourceUnavailableError
from harness.core.profiles import Minibatch, Profile
from harness.core.units import ms_to_s, mw_to_w
from harness.devices.host import METER_HINT, source_capability
from harness.measure.child_processes import check_sockets
from harness.measure.concurrent import measure_concurrent
from harness.measure.contention import wait_policy
from harness.measure.flags import find_flags, stretch
from harness.measure.idle import METER_LOG, measure_idle
from harness.measure.peak_memory import PeakMemory, bytes_before
from harness.measure.recording import Instruments, Recorder, attribute, own_threshold
from harness.measure.rounds import Rounds, run_rounds
from harness.measure.time_budget import Allotment
from harness.workloads import get_workload
from harness.workloads.counting import MemoryFloor, count_memory, counted_once
from harness.workloads.counting import describe as describe_workload
from harness.workloads.data.data_set import IN_MEMORY, PreparedData
from harness.workloads.failures import worker_start_method
from harness.workloads.optional_packages import require
from harness.workloads.workload import Workload

RESIDENT_SHARE = 0.999  # with this share of the data set in the page cache, it need not be read to warm it


@dataclasses.dataclass(frozen=True)
class Bench:
    """A case with its workload and data, which idle cases lack; `beside` is the inference of a mix."""

    case: Case
    workload: Optional[Workload]
    data: Optional[PreparedData]
    conditions: Dict[str, Any]
    samples: Any = None  # the data set as the DataLoader takes it
    beside: Optional[Bench] = None

    @property
    def directory(self) -> Path:
        """The folder on whose medium block I/O is recorded: that of the data set, else the working directory."""
        return Path.cwd() if self.data is None or self.data.directory is None else self.data.directory


_benches: weakref.WeakKeyDictionary[Device, Bench] = weakref.WeakKeyDictionary()
"""The bench of each device's last case: its data set is prepared once, for `conditions` and `run`."""


def check(case: Case, device: Device) -> None:
    """Refuse, before anything is touched, a case that cannot run, or lacks storage, permission or torch."""
    device.check(case)
    trained = parts_of(case)[0] if case.task == cases.CONCURRENT else case
    if device.provenance != "replayed" and trained.task == cases.TRAINING:
        smallest = get_workload(trained.workload).smallest_batch
        if trained.batch_size < smallest:
            what = f"{trained.workload} cannot train on batches of {trained.batch_size}"
            raise CannotRunError(f"{what}, batch normalisation needs {smallest}", f"batch_size={smallest} or more")
    if case.settings.power_limit_w is not None and not limits_of(device):
        raise CannotRunError(f"the power limit of {device.name} cannot be set", "omit power_limit_w=")
    if is_self_profiling(device):
        return
    machine = cast(RealDevice, device)
    if case.task == cases.IDLE:
        if case.workload in dict(cases.IDLE_STATES):  # others are recorded by a meter
            refuse_without_power(machine)
        return
    workers, storage = workers_and_storage(case)
    if workers:
        check_sockets()
    limit_bytes_per_s = parse_storage(storage).limit_bytes_per_s
    if limit_bytes_per_s is not None and case.task == cases.CONCURRENT:
        raise CannotRunError("a concurrent case has no read limit", "use a storage without @, or another task")
    directory = machine.configuration.data_directory(storage)
    if limit_bytes_per_s is not None:
        ReadLimit(str(machine.root)).on_disk_under(str(directory), limit_bytes_per_s)
    if case.settings.cache in cases.DROPPED:
        dropping = PageCache(str(machine.root)).available()
        if not dropping.available:
            raise ControlError(dropping.detail, dropping.hint)
    training = require("harness.measure.training_loop")
    if case.task == cases.CONCURRENT:
        _check_way(Mix.parse(case.workload), machine)
    if machine.gpu_uuid:
        training.use_gpu(machine.gpu_uuid)


def refuse_without_power(machine: RealDevice) -> None:
    """CannotRunError if the device's power sensor gives no total now: an idle case has no other figure."""
    specs = [spec for spec in machine.telemetry_sources(Path.cwd()) if spec.name == machine.power_source]
    for spec in specs:
        power = source_capability(spec, str(machine.root))
        if not power.available:
            hint = f"{power.hint}; or give" if power.hint and power.hint != METER_HINT else "give"
            raise CannotRunError(f"no power sensor: {power.detail}", f"{hint} a meter's log: {METER_LOG}")


def conditions(case: Case, device: Device, report: Report) -> Dict[str, Any]:
    """The conditions before measuring, which `--resume` compares; prepares the data set."""
    own = device.conditions(case)
    return own if is_self_profiling(device) else {**bench_of(case, cast(RealDevice, device), report).conditions, **own}


def run(
    case: Case,
    device: Device,
    report: Report = lambda line: None,
    rounds: Rounds = run_rounds,
    meter: Optional[SocketMeter] = None,
    allotment: Optional[Allotment] = None,
    memory_limit_bytes: Optional[float] = None,
) -> Profile:
    """Measure a case on a device that the caller holds, under the case's power mode.

    `rounds` runs the minibatches that count; the whole duration of an idle or concurrent case is one of them, and
    self-profiling devices do not use it. `meter` measures power at the plug meanwhile. `allotment` is the case's part
    of the run's time budget. A case that takes more than `memory_limit_bytes` ends after the minibatch that shows it.

    Raises:
        OverMemoryLimitError: the case took more than the limit.
        OverBudgetError: the case does not fit into the time budget.
        OverheatedError: a sensor rose above its limit; there is no profile of an unfinished case.
        UnwatchedError: no temperature is reported any more; the same.
    """
    if is_self_profiling(device):
        profile = device.profile(case)
        return dataclasses.replace(profile, flags=profile.flags or find_flags(profile))
    machine = cast(RealDevice, device)
    bench = bench_of(case, machine, report)
    report(f"    power mode: {case.power_mode.name}")
    in_effect, instruments = Instruments.of_case(case, machine, bench.directory)
    bench = dataclasses.replace(bench, conditions={**bench.conditions, **in_effect, **own_threshold(machine)})
    if case.task == cases.IDLE:
        profile = measure_idle(case, bench.conditions, instruments, report, rounds)
    elif case.task == cases.CONCURRENT:
        profile = measure_concurrent(bench, machine, instruments, report, rounds)
    else:
        profile = _measure(bench, instruments, report, rounds, allotment, memory_limit_bytes)
    if meter is not None:
        profile = metered(profile, meter)
    if allotment is not None and profile.minibatch_time_ms is not None:
        allotment.learn(ms_to_s(profile.minibatch_time_ms))
    return attribute(profile, machine)


SOCKET_SHARES = (0.95, 100.0)
"""Plausible power at the plug as a share of the module's; outside, the unit or the device is wrong."""


def metered(profile: Profile, meter: SocketMeter) -> Profile:
    """A profile with the samples of a socket meter; if these are implausible, with the reason instead."""
    spans = [(epoch.start_s, epoch.end_s) for epoch in metrics.epoch_sums(profile.counted)] or [stretch(profile)]
    telemetry = profile.telemetry
    try:
        samples = meter.during(spans[0][0], spans[-1][1])
        figures = metrics.summarise_socket(samples.series, spans)
        plug_mw, module_mw = figures["socket_power_mw"], profile.aggregates["power_mw"]
        if plug_mw and module_mw and not SOCKET_SHARES[0] <= plug_mw / module_mw <= SOCKET_SHARES[1]:
            raise SourceUnavailableError(
                f"it shows {mw_to_w(plug_mw):.4g} W at the plug, the module alone {mw_to_w(module_mw):.4g} W",
                "check the unit of its columns power_w and power_mw, and that it is this device's plug",
            )
    except HarnessError as error:
        missing = {**telemetry.missing, SOCKET: f"{meter.path.name}: {error}"}
        return dataclasses.replace(profile, telemetry=dataclasses.replace(telemetry, missing=missing))
    module_peak_mw = profile.aggregates.get("power_peak_mw")
    most_mw = min(MOST_MW, SOCKET_SHARES[1] * module_peak_mw) if module_peak_mw else MOST_MW
    samples = samples.possible(most_mw)
    figures = metrics.summarise_socket(samples.series, spans)
    missing = {SOCKET: f"{meter.path.name}: {samples.missing}"} if samples.missing else {}
    telemetry = dataclasses.replace(
        telemetry,
        series={**telemetry.series, SOCKET: samples.series},
        missing={**telemetry.missing, **missing},
        notes={**telemetry.notes, SOCKET: f"the whole device at its plug, as recorded in {meter.path.name}"},
    )
    return dataclasses.replace(profile, telemetry=telemetry, aggregates={**profile.aggregates, **figures})


def _check_way(mix: Mix, machine: RealDevice) -> None:
    """Refuse streams without CUDA, and a change of power mode that is irreversible on this device."""
    if mix.way == cases.STREAMS and require("harness.measure.training_loop").accelerator().type != "cuda":
        raise CannotRunError(f"torch has no CUDA streams on {machine.name}", f"use the way {cases.PROCESSES}")
    if mix.inference_mode and machine.clocks_only_fall:
        raise CannotRunError(f"clocks of {machine.name} may not rise again", "one power mode for both")


def least_memory(case: Case, device: Device, report: Report) -> Optional[MemoryFloor]:
    """The memory that a case cannot do without; None on a device that runs its own minibatches.

    Raises what `conditions` raises: it prepares the data set.
    """
    if is_self_profiling(device):
        return None
    training = require("harness.measure.training_loop")
    bench = bench_of(case, cast(RealDevice, device), report)
    workload = bench.workload
    assert workload is not None, "only an idle case lacks it"
    what = (workload, bench.samples, case.task == cases.TRAINING, training.precision_of(workload))
    with training.failures_explained(f"counting the memory of {case.workload}", workload.is_own):
        try:
            floor = count_memory(*what)
        except Exception:
            if training.accelerator().type == "cpu":
                raise
            floor = count_memory(*what, training.accelerator().type)
    before_bytes = bytes_before(training.torch)  # with everything that counting has loaded
    contents = f"this process, {floor.contents}" if before_bytes else floor.contents
    return MemoryFloor(before_bytes + floor.fixed_bytes, floor.sample_bytes, contents)


def bench_of(case: Case, machine: RealDevice, report: Report) -> Bench:
    """The bench of a case; prepared once, even if requested several times in a row."""
    bench = _benches.get(machine)
    if bench is None or bench.case != case:
        bench = _benches[machine] = make_ready(case, machine.configuration, machine.root, report)
    return bench


def make_ready(case: Case, configuration: Configuration, root: Path, report: Report) -> Bench:
    if case.task == cases.IDLE:
        return Bench(case, None, None, {"python": platform.python_version()})
    if case.task == cases.CONCURRENT:
        training, inference = (make_ready(part, configuration, root, report) for part in parts_of(case))
        conditions = concurrent_conditions(training.conditions, inference.conditions)
        return dataclasses.replace(training, case=case, conditions=conditions, beside=inference)
    training = require("harness.measure.training_loop")
    workload, (workers, storage) = get_workload(case.workload), workers_and_storage(case)
    directory = configuration.data_directory(storage)
    settings, place = case.settings, configuration.place(storage)
    is_there = place is not None and workload.has_real_data(place)  # on the storage under test
    with training.failures_explained(workload.name, workload.is_own):
        data = workload.prepare(
            directory, place if is_there else configuration.data_root, settings.data_scale, settings.seed, report
        )
        samples = workload.build_data_set(data, settings.seed)
        counted = counted_once(workload, samples, training.accelerator().type)
        made_of = describe_workload(workload, counted, training.precision_of(workload))
    lack = lack_of_shared_memory(workers, counted.input_bytes * case.batch_size)
    if lack is not None:  # torch may wait forever for a batch that could not be sent
        what = f"{workers} workers with batches of {case.batch_size} of {case.workload}"
        raise DoesNotFitError(f"{what} {lack[0]}", lack[1])
    medium = {"kind": IN_MEMORY}
    if data.directory is not None:
        medium = describe(str(data.directory), str(root))._asdict()
    container = container_facts(str(root))
    conditions = {
        **made_of,
        "accelerator": training.accelerator_name(),
        "torch": training.torch.__version__,
        "cuda": training.torch.version.cuda,
        **wait_policy(),
        "python": platform.python_version(),
        **({"worker_start_method": worker_start_method()} if workers else {}),
        "data_source": data.source,
        "data_samples": data.samples,
        "data_scale": data.scale,
        "data_bytes": data.bytes,
        "data_in_memory": data.in_memory,
        "storage_medium": medium,
        "storage_is_default_place": configuration.is_default_place(storage),
        **({"container": container} if container else {}),
    }
    _refuse_data_elsewhere(data, place, storage, root)
    per_epoch = data.samples // case.batch_size
    if per_epoch == 0 or per_epoch * (settings.epochs or 2) < 2:  # the first minibatch never counts
        raise CannotRunError(
            f"{data.samples} samples of {case.workload} make too few batches of {case.batch_size}",
            "a larger data_scale=, more epochs=, or a smaller batch_size=",
        )
    return Bench(case, workload, data, conditions, samples)


def _refuse_data_elsewhere(data: PreparedData, place: Optional[Path], storage: str, root: Path) -> None:
    """Refuse a case that names a storage on which its data set is not."""
    if place is None or data.directory is None or data.directory.stat().st_dev == place.stat().st_dev:
        return
    here, there = (describe(str(path), str(root)).device for path in (data.directory, place))
    if here is None or here != there:
        raise CannotRunError(
            f"the data set is in {data.directory}, not on storage {storage!r} ({place})",
            "copy it to that storage, or omit data_root= to write one there; for your own data set, give its folder",
        )


def _measure(
    bench: Bench,
    instruments: Instruments,
    report: Report,
    rounds: Rounds,
    allotment: Optional[Allotment] = None,
    memory_limit_bytes: Optional[float] = None,
) -> Profile:
    training = require("harness.measure.training_loop")
    case, workload, data = bench.case, bench.workload, bench.data
    assert workload is not None, "only an idle case lacks it"
    assert data is not None, "only an idle case lacks it"
    settings, files, root = case.settings, data.files, instruments.root
    workers, storage = workers_and_storage(case)
    training.torch.set_num_threads(bench.conditions["threads"])
    conditions = {**bench.conditions, "temperature_limits_c": dict(instruments.limits_c)}
    residency_by_epoch: List[Optional[float]] = []
    cache = PageCache(str(root))

    def before_epoch(epoch: int) -> None:
        if epoch and settings.cache == "drop-each-epoch":
            cache.drop()
        residency_by_epoch.append(residency(files, str(root)).share)

    def on_minibatch(minibatch: Minibatch) -> None:
        refuse_heat(recorder.sampler, instruments.limits_c)
        if memory_limit_bytes is not None:
            recorder.memory.refuse_more(memory_limit_bytes, recorder.sampler)
        place = f"epoch {minibatch.epoch} of {settings.epochs}, " if settings.epochs else ""
        report(f"    {place}minibatch {minibatch.index} ({minibatch.phase}), {minibatch.e2e_ms:.0f} ms")
        if allotment is not None:
            allotment.on_minibatch(minibatch)

    with training.failures_explained(f"{case.workload} with batches of {case.batch_size}", workload.is_own):
        what = (workload, bench.samples, case.batch_size, workers, settings.seed)
        limit_bytes_per_s = parse_storage(storage).limit_bytes_per_s
        if limit_bytes_per_s is not None:  # libraries load some 90 MB at their first step, and that is not the data
            report("    rehearsing")
            training.LOOPS[case.task](*what).rehearse()
        recorder = Recorder(instruments, settings.interval_s, PeakMemory(training.torch, root))
        trainer = training.LOOPS[case.task](*what)
        report(f"    page cache: {settings.cache}")
        conditions["cache_method"] = set_cache(settings.cache, files, trainer.read_once, root)
        conditions["cache_residency_before"] = residency(files, str(root)).share
        training.torch.manual_seed(settings.seed)  # warming the cache drew random numbers
        limit = reads_held(limit_bytes_per_s, bench.directory, case.device, str(root))
        # The sampler starts first, so that it does not wait for the disk. Workers start in the loop and inherit it.
        with recorder, limit as held_bytes_per_s:
            conditions["storage_limit_bytes_per_s"] = held_bytes_per_s
            refuse_heat(recorder.sampler, instruments.limits_c)
            if allotment is not None:
                conditions["time_share_s"] = round(allotment.begin(data.samples // case.batch_size), 1)
            trainer.patience.report = report
            limits_s = [settings.limit_s, conditions.get("time_share_s")]
            trainer.patience.limit_s = min((limit_s for limit_s in limits_s if limit_s is not None), default=None)
            if settings.epochs is not None:
                minibatches = training.profile_epochs(trainer, settings.epochs, before_epoch, on_minibatch, rounds)
            else:
                watch = recorder.power_watch()
                minibatches = training.profile_minibatches(
                    trainer,
                    settings.minibatches,
                    watch.has_settled,
                    watch.is_enough,
                    on_minibatch,
                    settings.limit_s,
                    rounds,
                    None if allotment is None else allotment.is_used_up,
                )
            recorder.stop()
        if case.task == cases.TRAINING:
            conditions["first_loss"], conditions["last_loss"] = trainer.losses()
    conditions["cache_residency_after"] = residency(files, str(root)).share
    if residency_by_epoch:
        conditions["cache_residency_by_epoch"] = residency_by_epoch
    profile = recorder.profile(case, conditions, minibatches)
    samples_per_s = profile.aggregates["samples_per_s"]
    if samples_per_s and workload.tokens_per_sample:
        profile.aggregates["tokens_per_s"] = samples_per_s * workload.tokens_per_sample
    return profile


def set_cache(state: str, files: Sequence[Path], read_once: Callable[[], str], root: Path = Path("/")) -> str:
    """Bring the page cache into a state; `read_once` reads the data set. Both return a description of the method."""
    if not files:
        return IN_MEMORY
    cache = PageCache(str(root))
    if state in cases.DROPPED:
        return cache.drop()
    if state == "evicted":
        cache.evict(files)
        return "posix_fadvise(DONTNEED) on the files of the data set"
    if state == "as-is":
        return "left as it was"
    share = residency(files, str(root)).share
    if share is not None and share >= RESIDENT_SHARE:
        return "resident already"
    return read_once()

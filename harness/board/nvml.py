"""A discrete NVIDIA GPU, by the driver's own library (NVML): who it is, what it draws, its clocks, its power limit.

Power is the growth of the GPU's own energy counter (Volta and later). Older GPUs report sampled power only: by the
driver's description a mean over the last second on some, the value of the moment on others, and recent ones were seen
to look for a part of each period only ("Part-time Power Measurements", SC 2024). Which one it was is in the record.

No function of NVML returns which clocks are locked. Only this process remembers what it locked; after a killed run,
restoring unlocks them. Clocks that an administrator had locked before are therefore unlocked after a run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from harness.board import privileges, rapl
from harness.board.bounded_reads import bounded, unread, watched
from harness.board.cpu import parse_process_stat
from harness.board.kernel_file import read_text
from harness.board.knob import Knob, KnobSpec
from harness.board.power_rails import TOTAL
from harness.board.source import Counters, Reading, Source, add_sum, possible_mw
from harness.core.errors import (
    CannotRunError,
    ControlError,
    DependencyError,
    HarnessError,
    SourceUnavailableError,
    UnknownNameError,
)
from harness.core.units import mhz_to_khz, mw_to_w, percent_to_share

GPU_POWER, CPU_POWER = "power_gpu_mw", "power_cpu_mw"
ENERGY = "energy counter of the GPU"  # in the list of what is missing
OTHERS = "gpu_other_processes"

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_TEMPERATURE = 0  # nvmlTemperatureSensors_t: the chip
# external causes of clocks below the requested ones (nvmlClocksEventReasons)
_SLOWDOWNS = {"hw_slowdown": 0x08, "sw_thermal": 0x20, "hw_thermal": 0x40, "power_brake": 0x80}
_POWER_CAP = 0x04  # the power limit holds clocks down: what a limit is for

# channel to the function of NVML that has it, its arguments, and what makes the channel's value of the answer
_FIELDS: Dict[str, Tuple[str, Tuple[int, ...], Callable[[Any], float]]] = {
    "gpu_khz": ("GetClockInfo", (_SM,), mhz_to_khz),
    "gpu_mem_khz": ("GetClockInfo", (_MEMORY,), mhz_to_khz),
    "temperature_gpu_c": ("GetTemperature", (_TEMPERATURE,), float),
    "gpu_load_share": ("GetUtilizationRates", (), lambda used: percent_to_share(used.gpu)),
    "gpu_memory_used_bytes": ("GetMemoryInfo", (), lambda memory: memory.used),
    "fan_gpu_share": ("GetFanSpeed", (), percent_to_share),
}

# what the helper calls the clocks, to what NVML calls locking and unlocking them
_LOCKS = {
    "gpu-clocks": ("SetGpuLockedClocks", "ResetGpuLockedClocks"),
    "memory-clocks": ("SetMemoryLockedClocks", "ResetMemoryLockedClocks"),
}
FREE = "free"  # clocks that are not locked

ORDER_S = 10.0  # most that setting something takes; a call about a GPU that fell off its bus may never end
START_S = 60.0  # without its persistence mode the driver starts every GPU first


class DiscreteGpu:
    """One GPU. Figures that it does not have are None; OSError if it should answer and does not."""

    def __init__(self, library: ModuleType, index: int) -> None:
        self._library = library
        self.index = index
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self.name = str(self.ask("GetName"))
        self.uuid = str(self.ask("GetUUID"))

    @property
    def is_jetsons(self) -> bool:
        """Whether it is the GPU of a Jetson, which newer releases of NVML list: `Orin (nvgpu)`."""
        return "(nvgpu)" in self.name

    def mig_uuids(self) -> List[str]:
        """The UUIDs of its MIG instances, `MIG-...`; none where it is not split."""
        mode = self.ask_or_none("GetMigMode")
        if not mode or not mode[0]:
            return []
        uuids = []
        for index in range(self.ask_or_none("GetMaxMigDeviceCount") or 0):
            try:
                instance = self._library.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, index)
                uuids.append(str(self._library.nvmlDeviceGetUUID(instance)))
            except self._library.NVMLError:  # not every index has an instance
                continue
        return uuids

    @property
    def is_split(self) -> bool:
        mode = self.ask_or_none("GetMigMode")
        return bool(mode and mode[0])

    @property
    def slug(self) -> str:
        """Its name as part of a case's id: `nvidia-geforce-rtx-3090`."""
        return re.sub("[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def ask(self, function: str, *arguments: Any) -> Any:
        """The result of `nvmlDevice<function>` for this GPU; None if its driver or the GPU does not support it."""
        call = functools.partial(getattr(self._library, f"nvmlDevice{function}"), self._handle, *arguments)
        try:
            return bounded(f"nvmlDevice{function} of GPU {self.index}", call)
        except (self._library.NVMLError_NotSupported, self._library.NVMLError_FunctionNotFound):
            return None
        except self._library.NVMLError as error:
            raise OSError(f"nvmlDevice{function}: {error}") from error

    def ask_or_none(self, function: str, *arguments: Any) -> Any:
        """As `ask`, of what a run can do without."""
        try:
            return self.ask(function, *arguments)
        except OSError:
            return None

    def ask_setting(self, function: str, *arguments: Any) -> Any:
        """As `ask`, of what is set; a ControlError if the GPU should answer and does not."""
        try:
            return self.ask(function, *arguments)
        except OSError as error:
            raise ControlError(f"{self.name} refuses: {error}") from error

    def order(self, function: str, *arguments: int) -> None:
        call = functools.partial(getattr(self._library, f"nvmlDevice{function}"), self._handle, *arguments)
        try:
            watched(call, ORDER_S, f"nvmlDevice{function}")
        except (self._library.NVMLError, OSError) as error:
            raise ControlError(f"{self.name} refuses {function} {arguments}: {error}") from error

    def describe(self) -> Dict[str, Any]:
        memory, capability = self.ask_or_none("GetMemoryInfo"), self.ask_or_none("GetCudaComputeCapability")
        ecc = self.ask_or_none("GetEccMode")
        return {
            "gpu": self.name,
            "gpu_memory_bytes": None if memory is None else int(memory.total),
            "compute_capability": None if capability is None else ".".join(map(str, capability)),
            "ecc": None if ecc is None else bool(ecc[0]),
        }

    @property
    def driver(self) -> Optional[str]:
        version = self._version("Driver")
        return None if version is None else str(version)

    def _version(self, of: str) -> Any:
        """A version that NVML reports of the system; None if it does not."""
        try:
            return getattr(self._library, f"nvmlSystemGet{of}Version")()
        except self._library.NVMLError:
            return None

    def software(self) -> str:
        version = self._version("CudaDriver")
        cuda = "unknown" if version is None else f"{version // 1000}.{version % 1000 // 10}"
        pcie = self.ask_or_none("GetCurrPcieLinkGeneration"), self.ask_or_none("GetCurrPcieLinkWidth")
        link = "" if None in pcie else f", PCIe {pcie[0]} x{pcie[1]} now"
        return f"driver {self.driver or 'unknown'}, CUDA {cuda}{link}"

    def clocks_khz(self) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
        """The clocks of GPU (at its fastest memory clock: it knows most there) and memory, ascending, if listed."""
        memory = sorted(self.ask_setting("GetSupportedMemoryClocks") or ())
        graphics = sorted(set(self.ask_setting("GetSupportedGraphicsClocks", memory[-1]) or ())) if memory else []
        return tuple(map(mhz_to_khz, graphics)), tuple(map(mhz_to_khz, memory))

    def most_mw(self) -> float:
        """More than it can draw, peaks included: twice its greatest power limit."""
        limits_mw = [*(self.ask_or_none("GetPowerManagementLimitConstraints") or ())]
        limits_mw.append(self.ask_or_none("GetPowerManagementLimit") or 0)
        return min(PEAK * max(limits_mw) or MOST_GPU_MW, MOST_GPU_MW)

    def power_limits_mw(self) -> Optional[Tuple[int, int]]:
        range_mw = self.ask_setting("GetPowerManagementLimitConstraints")
        return None if range_mw is None else (int(range_mw[0]), int(range_mw[1]))


def power_limits_text(limits_mw: Tuple[int, int]) -> str:
    least_mw, most_mw = limits_mw
    return f"{mw_to_w(least_mw):g} to {mw_to_w(most_mw):g} W"


@functools.lru_cache(maxsize=None)
def find_gpus() -> Tuple[DiscreteGpu, ...]:
    """Every GPU of the driver that answers, queried once; CannotRunError or DependencyError if there is none."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError as error:
        raise DependencyError(f"pynvml cannot be imported: {error}", "`pip install nvidia-ml-py`") from error
    try:
        watched(library.nvmlInit, START_S, "NVIDIA's driver")
    except (library.NVMLError, OSError) as error:
        raise CannotRunError(
            f"there is no NVIDIA GPU to be used here: {error}",
            "NVIDIA's driver has to be loaded; a container needs the NVIDIA runtime (`--gpus all`)",
        ) from error
    try:
        count = library.nvmlDeviceGetCount()
    except library.NVMLError as error:
        raise CannotRunError(f"the NVIDIA driver does not list its GPUs: {error}") from error
    gpus = []
    lost = {}
    for index in range(count):
        try:
            gpus.append(DiscreteGpu(library, index))
        except (library.NVMLError, OSError) as error:  # it fell off its bus: the others can be used
            lost[f"GPU {index}"] = str(error)
    unread.update(lost)
    if not gpus:
        why = "; ".join(lost.values()) or "it lists none"
        raise CannotRunError(f"no GPU of the NVIDIA driver answers: {why}", "`nvidia-smi` shows what it sees")
    return tuple(gpus)


def find_gpu(which: str = "") -> DiscreteGpu:
    """The GPU of an index, a UUID (its beginning will do) or a slug; without one, the first that CUDA may use."""
    if not which:
        return visible_gpus()[0].gpu
    gpus = [gpu for gpu in find_gpus() if not gpu.is_jetsons]
    if which.isdecimal():
        matching = [gpu for gpu in gpus if gpu.index == int(which)]
    else:
        matching = [gpu for gpu in gpus if gpu.uuid.lower().startswith(which.lower()) or gpu.slug == which]
    if len(matching) != 1:
        listed = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus) or "none"
        raise UnknownNameError(f"there is no one GPU {which!r} here", f"available: {listed}")
    return matching[0]


VISIBLE = "CUDA_VISIBLE_DEVICES"


class VisibleGpu(NamedTuple):
    gpu: DiscreteGpu
    uuid: str  # by which CUDA knows it: the GPU's, or that of its MIG instance


def visible_gpus(text: Optional[str] = None) -> List[VisibleGpu]:
    """The GPUs that CUDA may use, in its order; `text` is by default that of `CUDA_VISIBLE_DEVICES`.

    An index there counts as NVML's, which is CUDA's own with CUDA_DEVICE_ORDER=PCI_BUS_ID or GPUs that are alike.

    Raises:
        CannotRunError: it hides every GPU, or names one that is not here.
    """
    gpus = [gpu for gpu in find_gpus() if not gpu.is_jetsons]
    text = os.environ.get(VISIBLE) if text is None else text
    if text is None:
        if not gpus:
            raise CannotRunError("there is no discrete NVIDIA GPU here", "device='host' measures this machine")
        return [VisibleGpu(gpu, gpu.uuid) for gpu in gpus]
    visible: List[VisibleGpu] = []
    for word in (word.strip() for word in text.split(",")):
        match = _named_by_cuda(word, gpus)
        if match is None:  # CUDA ignores what follows
            break
        visible.append(match)
    if not visible:
        listed = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus) or "none"
        raise CannotRunError(f"{VISIBLE}={text} leaves no GPU to train on", f"name one, or unset it; here: {listed}")
    return visible


def _named_by_cuda(word: str, gpus: Sequence[DiscreteGpu]) -> Optional[VisibleGpu]:
    """The GPU of an index, a UUID's beginning, `MIG-UUID`, or `MIG-GPU-UUID/1/0` as older drivers have it."""
    if word.isdecimal():
        return next((VisibleGpu(gpu, gpu.uuid) for gpu in gpus if gpu.index == int(word)), None)
    matching = [VisibleGpu(gpu, gpu.uuid) for gpu in gpus if word and gpu.uuid.startswith(word)]
    if word.startswith("MIG-"):
        parent = word[len("MIG-") :].partition("/")[0]
        matching = [VisibleGpu(gpu, word) for gpu in gpus if gpu.uuid == parent or word in gpu.mig_uuids()]
    return matching[0] if len(matching) == 1 else None


def setting_for(uuid: str, given: Optional[str]) -> Optional[str]:
    """What CUDA_VISIBLE_DEVICES has to be for the GPU or MIG instance `uuid` to be CUDA's first.

    None if it stays as `given`. CannotRunError if that hides the GPU.
    """
    visible = [uuid] if given is None else [one.uuid for one in visible_gpus(given)]
    if uuid not in visible:
        hint = "device='nvidia-gpu' takes the GPU that it names, or unset it"
        raise CannotRunError(f"{VISIBLE}={given} hides the GPU {uuid}", hint)
    return uuid if given is None or visible[0] != uuid else None


def needed_setting(uuid: str) -> Optional[str]:
    """As `setting_for`, of the environment now; None for an empty `uuid`."""
    return setting_for(uuid, os.environ.get(VISIBLE)) if uuid else None


@contextlib.contextmanager
def visible_to_programs(uuid: str) -> Iterator[None]:
    """Have programs that are started in the block use a GPU, as their first; nothing is changed for an empty `uuid`."""
    given, needed = os.environ.get(VISIBLE), needed_setting(uuid)
    if needed is None:
        yield
        return
    os.environ[VISIBLE] = needed
    try:
        yield
    finally:
        del os.environ[VISIBLE]
        os.environ.update({} if given is None else {VISIBLE: given})


_SHARED = "MIG splits this GPU: its power is that of all instances, so there is no total of the one that trains"

STEADY, FAR = 0.2, 2.0  # shares: how equal sampled power has to be, and how far off a counter is not believed

COMPARED_S = 0.5  # the shortest window that is compared: some counters move ten times a second only

PEAK = 2.0  # how far a short mean may lie above the greatest limit
MOST_GPU_MW = 3_000_000.0  # twice the largest GPU of 2025: the bound of one that tells no power limit


def _lack_of_counter(gpu: DiscreteGpu) -> str:
    """Why power cannot come from a GPU's energy counter; empty if it can."""
    try:
        energy_mj = gpu.ask("GetTotalEnergyConsumption")
    except OSError as error:
        return f"the energy counter cannot be read: {error}"
    if energy_mj is None:
        return "it has no energy counter"
    return "" if energy_mj > 0 else "its energy counter stands at 0"


class NvmlSource:
    def __init__(self, gpu: DiscreteGpu, root: str, pid: int, cpu: Optional[Source], why_no_cpu: str) -> None:
        self._gpu, self._root, self._pid, self._cpu = gpu, root, pid, cpu
        self._energy = Counters()
        self._most_mw = gpu.most_mw()
        self._is_split = gpu.is_split
        self._why_sampled = _lack_of_counter(gpu)  # what is wrong with the energy counter; empty if nothing is
        self._counter_trouble = ""  # of the last reading
        self._sampled_before_mw: Optional[float] = None
        self._is_compared = False
        means = f"mean since the sample before, from the GPU's energy counter; sampled power if {ENERGY} is missing"
        if self._why_sampled:
            means = "sampled power: what span of time one value is the mean of, NVML does not say"
            means += f"; {self._why_sampled}"
        if self._is_split:
            means += f"; {_SHARED}"
        self.notes = {"nvml": f"{gpu.name}, {gpu.software()}", GPU_POWER: means, OTHERS: "by the driver's list"}
        if cpu is None:
            self.notes[TOTAL] = f"{GPU_POWER} ({means}) alone, without the CPU: {why_no_cpu}"
        else:
            self.notes[CPU_POWER] = cpu.notes[TOTAL]
            self.notes[TOTAL] = f"sum of {GPU_POWER} ({means}) and {CPU_POWER} ({cpu.notes[TOTAL]})"

    def read(self, now_s: float) -> Reading:
        reading = Reading({}, {})
        readers: Dict[str, Callable[[], Dict[str, float]]] = {
            GPU_POWER: functools.partial(self._power, now_s),
            "throttle_gpu_hw_slowdown_state": self._slowdowns,
            OTHERS: self._others,
        }
        readers.update((channel, functools.partial(self._field, channel)) for channel in _FIELDS)
        for channel, read in readers.items():
            try:
                reading.values.update(read())
            except (OSError, ValueError) as error:
                reading.failed[channel] = str(error)
        if self._counter_trouble:
            reading.failed[ENERGY] = f"{self._counter_trouble}; sampled power was taken"
        if self._is_split:  # kept, as that of the whole GPU
            reading.failed[TOTAL] = _SHARED
        parts = [GPU_POWER]
        if self._cpu is not None:
            parts.append(CPU_POWER)
            values, failed = self._cpu.read(now_s)
            named = {name: CPU_POWER if name == TOTAL else name for name in (*values, *failed)}
            reading.values.update((named[name], value) for name, value in values.items())
            reading.failed.update((named[name], why) for name, why in failed.items())
        is_read = all(part in reading.values or part in reading.failed for part in parts)
        if is_read and not self._is_split:  # a first reading has neither
            add_sum(reading, TOTAL, parts)
        return reading

    def _power(self, now_s: float) -> Dict[str, float]:
        """The mean by the energy counter; where that cannot be, sampled power, with the reason."""
        self._counter_trouble = ""
        if self._why_sampled:
            return {GPU_POWER: self._sampled_mw()}
        try:
            growth = self._energy.growth(now_s, {GPU_POWER: self._energy_mj()})
            if growth is None:
                return {}
            window_s, grown_mj = growth
            if grown_mj[GPU_POWER] <= 0:
                stands = "stands still" if grown_mj[GPU_POWER] == 0 else "was reset"
                raise ValueError(f"the energy counter of the GPU {stands}")
            power_mw = possible_mw(grown_mj[GPU_POWER] / window_s, self._most_mw)
            if window_s >= COMPARED_S:
                self._compare_once(power_mw)
        except (OSError, ValueError) as error:
            self._counter_trouble = str(error)
            return {GPU_POWER: self._sampled_mw()}
        return {GPU_POWER: power_mw}

    def _energy_mj(self) -> float:
        value = self._gpu.ask("GetTotalEnergyConsumption")
        if value is None:
            raise ValueError(f"{self._gpu.name} has no energy counter")
        return float(value)

    def _sampled_mw(self) -> float:
        value = self._gpu.ask("GetPowerUsage")
        if value is None:
            raise ValueError(f"{self._gpu.name} has no sampled power")
        if value <= 0:
            raise ValueError(f"{self._gpu.name} reports {value} mW, and a GPU that runs draws more")
        return possible_mw(float(value), self._most_mw)

    def _compare_once(self, power_mw: float) -> None:
        """Compare the counter with sampled power, in the first window at whose ends that was the same.

        A counter that is far off is not read again: some drivers' was seen to stand, or to count in another unit.
        """
        if self._is_compared:
            return
        try:
            before_mw, now_mw = self._sampled_before_mw, self._sampled_mw()
        except (OSError, ValueError):  # nothing to compare with
            self._is_compared = True
            return
        self._sampled_before_mw = now_mw
        if before_mw is None or abs(now_mw - before_mw) > STEADY * now_mw:
            return
        self._is_compared = True
        if not now_mw / FAR <= power_mw <= now_mw * FAR:
            by_counter, sampled = mw_to_w(power_mw), mw_to_w(now_mw)
            self._why_sampled = (
                f"by its energy counter the GPU draws {by_counter:.4g} W, by sampled power {sampled:.4g} W"
            )
            raise ValueError(self._why_sampled)

    def _field(self, channel: str) -> Dict[str, float]:
        """The value of a channel; none where the GPU or its driver does not support it."""
        function, arguments, convert = _FIELDS[channel]
        answer = self._gpu.ask(function, *arguments)
        return {} if answer is None else {channel: float(convert(answer))}

    def _slowdowns(self) -> Dict[str, float]:
        reasons = self._gpu.ask("GetCurrentClocksThrottleReasons")
        if reasons is None:
            return {}
        states = {f"throttle_gpu_{name}_state": float(bool(reasons & bit)) for name, bit in _SLOWDOWNS.items()}
        return {**states, "gpu_power_capped_share": float(bool(reasons & _POWER_CAP))}

    def _others(self) -> Dict[str, float]:
        pids = [process.pid for process in self._gpu.ask("GetComputeRunningProcesses") or ()]
        others = [pid for pid in pids if not self._is_own(pid)]
        if pids and others == pids:
            raise ValueError("the driver lists processes, and not this one: a container has numbers of its own")
        return {OTHERS: float(len(others))}

    def _is_own(self, pid: int) -> bool:
        """Whether that is who trains or was started by it: training and inference may have a process each."""
        while pid not in (0, self._pid):
            parent = 0
            with contextlib.suppress(OSError, ValueError):  # it has ended, or is another user's (proc(5), hidepid)
                parent = parse_process_stat(read_text(os.path.join(self._root, "proc", str(pid), "stat")))[0]
            pid = parent
        return pid > 0


def open_source(root: str, gpu: str = "", pid: int = 0) -> NvmlSource:
    """The GPU of an index or UUID, and the CPU of `root` by RAPL if it is readable; `pid` is the training process."""
    try:
        device = find_gpu(gpu)
    except HarnessError as error:
        raise SourceUnavailableError(error.what, error.hint) from error
    try:
        return NvmlSource(device, root, pid, rapl.open_source(root), "")
    except SourceUnavailableError as error:
        return NvmlSource(device, root, pid, None, str(error))


class GpuSettings(Knob):
    """A GPU's power limit in mW, and the clocks in MHz that it is locked to: of GPU and memory, or `free`."""

    name = "GPU clocks and power limit"
    topic = "set GPU clocks and power limit"
    sets_in_steps = True  # locked clocks cannot be read, so after a kill they are always unlocked

    def __init__(self, root: str, gpu: str = "") -> None:
        self._root = root
        self._gpu = find_gpu(gpu)
        self._spec = KnobSpec("nvml", {"gpu": self._gpu.uuid})
        self._locked: Any = FREE  # or [least and greatest of the GPU, memory] in MHz, the last 0 where it has no other

    def usable(self) -> str:
        if self._gpu.is_split:
            raise ControlError(f"MIG splits {self._gpu.name}: its clocks are those of all instances", "they stay free")
        privileges.check(self._root, f"clocks of {self._gpu.name} are root's to set")
        self.read()  # what cannot be saved is not set
        limits_mw = self._gpu.power_limits_mw()
        graphics, memory = self._gpu.clocks_khz()
        if limits_mw is None and not graphics and not memory:
            raise ControlError(f"{self._gpu.name} lists no clocks and has no power limit", "they stay as they are")
        text = "no power limit" if limits_mw is None else f"power limit {power_limits_text(limits_mw)}"
        return f"{len(graphics)} GPU clocks, {len(memory)} memory clocks, {text}"

    def read(self) -> Dict[str, Any]:
        return {"power_limit_mw": self._gpu.ask_setting("GetPowerManagementLimit"), "clocks_mhz": self._locked}

    def apply(self, value: Dict[str, Any]) -> None:
        *gpu_mhz, memory_mhz = (0,) if value["clocks_mhz"] == FREE else value["clocks_mhz"]
        self._lock("gpu-clocks", gpu_mhz)
        self._lock("memory-clocks", [memory_mhz, memory_mhz] if memory_mhz else [])
        self._locked = value["clocks_mhz"]
        limit_mw = value["power_limit_mw"]
        if limit_mw == self._gpu.ask_setting("GetPowerManagementLimit"):
            return
        if privileges.needed(self._root):
            privileges.call("gpu", self._gpu.uuid, "power-limit", f"{mw_to_w(limit_mw):g}")
        else:
            self._gpu.order("SetPowerManagementLimit", limit_mw)

    def _lock(self, which: str, mhz: Sequence[int]) -> None:
        """Lock clocks between two, or unlock them; many GPUs cannot lock their memory's, so cannot unlock it."""
        if privileges.needed(self._root):
            act = privileges.call if mhz or which == "gpu-clocks" else privileges.ask
            act("gpu", self._gpu.uuid, which, ",".join(map(str, mhz)) or "reset")
        elif mhz:
            self._gpu.order(_LOCKS[which][0], *mhz)
        else:
            self._gpu.ask_setting(_LOCKS[which][1])

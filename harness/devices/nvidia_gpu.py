"""`nvidia-gpu`: this machine with one of its discrete NVIDIA GPUs, whose clocks are part of the power mode."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from harness.board.knob import Knob
from harness.board.lock import locked
from harness.board.nvml import FREE, GpuSettings, find_gpu, find_gpus, power_limits_text, visible_gpus
from harness.board.source import SourceSpec
from harness.core.capability import Capability
from harness.core.cases import DVFS, STATIC, Case
from harness.core.configuration import Configuration
from harness.core.device import Identity, name_mode
from harness.core.errors import CannotRunError, ControlError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace
from harness.core.units import khz_to_mhz, w_to_mw
from harness.devices.host import HostDevice

NAME = "nvidia-gpu"
LIMIT_STEP_MW = 25_000  # between power limits to choose from, as in Zeus (NSDI 2023)


class NvidiaGpuDevice(HostDevice):
    """Named after the GPU. The CPU side is that of `host`; GPU clocks that this user may not set stay free."""

    power_source = "nvml"

    def __init__(self, which: str, configuration: Configuration, root: Path = Path("/")) -> None:
        super().__init__(configuration, root)
        visible = None if which else visible_gpus()[0]
        self._gpu = visible.gpu if visible else find_gpu(which)
        alike = sum(gpu.name == self._gpu.name for gpu in find_gpus())
        self.name = self._gpu.slug if alike == 1 else f"{self._gpu.slug}:{self._gpu.index}"
        self.gpu_uuid = visible.uuid if visible else self._gpu.uuid  # of the GPU or MIG instance that torch trains on
        own = hashlib.sha256(f"jetwatt {self._gpu.uuid}".encode()).hexdigest()[:12]
        self.board_instance = configuration.board_instance or own
        self._knob = GpuSettings(str(root), self._gpu.uuid)
        self._usual_limit_mw: Optional[int] = None  # as it was before the run
        self._limit_mw: Optional[int] = None  # requested by the case

    def identity(self) -> Identity:
        host = super().identity()
        return Identity(self._gpu.name, {"cpu": host.model, **host.specification, **self._gpu.describe()})

    def power_mode_space(self) -> PowerModeSpace:
        host = super().power_mode_space()
        graphics, memory = self._gpu.clocks_khz() if self._sets_gpu else ((), ())
        return PowerModeSpace(host.cpu_cores, host.cpu_khz, graphics or (UNKNOWN_KHZ,), memory or (UNKNOWN_KHZ,))

    @functools.cached_property
    def settable_limits_mw(self) -> Tuple[int, ...]:
        """Power limits from the least to the greatest that NVML accepts; none if this user may not set them."""
        limits = self._gpu.power_limits_mw() if self._sets_gpu else None
        if limits is None:
            return ()
        least_mw, most_mw = limits
        first_mw = -(-least_mw // LIMIT_STEP_MW) * LIMIT_STEP_MW
        return tuple(sorted({least_mw, *range(first_mw, most_mw + 1, LIMIT_STEP_MW), most_mw}))

    @functools.cached_property
    def _sets_gpu(self) -> bool:
        """Whether this user may set GPU clocks; determined once, as it runs sudo for users other than root."""
        return self._knob.available().available

    def capabilities(self) -> List[Capability]:
        gpu = Capability("know the GPU", True, f"{self._gpu.name}, {self._gpu.software()}")
        return [gpu, *super().capabilities(), self._knob.available()]

    def telemetry_sources(self, data_directory: Path) -> List[SourceSpec]:
        sources = super().telemetry_sources(data_directory)
        pid = sources[0].options["pid"]
        nvml = SourceSpec(self.power_source, {"gpu": self._gpu.uuid, "pid": pid})
        return [nvml if source.name == self.power_source else source for source in sources]

    def check(self, case: Case) -> None:
        limit_w = case.settings.power_limit_w
        if (limit_w is not None or case.settings.clocks == DVFS) and not self._sets_gpu:
            settable = self._knob.available()
            raise ControlError(settable.detail, settable.hint)
        limits_mw = None if limit_w is None else self._gpu.power_limits_mw()
        if limit_w is not None and not (limits_mw and limits_mw[0] <= w_to_mw(limit_w) <= limits_mw[1]):
            able = "none: its limit is fixed"
            if limits_mw is not None:
                able = power_limits_text(limits_mw)
            raise CannotRunError(f"{self._gpu.name} does not accept a power limit of {limit_w:g} W", f"allowed: {able}")

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Also hold the host, whose CPUs feed the GPU."""
        self._usual_limit_mw = self._read_limit_mw()
        with locked(HostDevice.name), super().session():
            yield

    def knobs(self) -> List[Knob]:
        return [*super().knobs(), *([self._knob] if self._sets_gpu else [])]

    def apply(self, mode: PowerMode, clocks: str = STATIC) -> PowerMode:
        applied = super().apply(mode, clocks)
        if not self._sets_gpu:
            return applied
        gpu_mhz, memory_mhz = (round(khz_to_mhz(khz)) for khz in mode[2:])
        graphics, memory = self._gpu.clocks_khz()
        least_mhz = round(khz_to_mhz(graphics[0])) if clocks == DVFS and graphics else gpu_mhz
        limit_mw = self._limit_mw or self._usual_limit_mw
        lock = [least_mhz, gpu_mhz, memory_mhz if len(memory) > 1 else 0] if graphics else FREE
        self._knob.set({"power_limit_mw": limit_mw, "clocks_mhz": lock})
        return applied

    def _describe(self, case: Case, mode: PowerMode) -> Dict[str, Any]:
        held = {"dvfs": "on" if case.settings.clocks == DVFS else "off"} if self._sets_gpu else {}
        return {
            **super()._describe(case, mode),
            **held,
            "driver": self._gpu.driver,
            "gpu_power_limit_mw": self._read_limit_mw(),
        }

    def _read_limit_mw(self) -> Optional[int]:
        """The power limit now; None if the GPU has none, or does not tell the one that stays as it is."""
        try:
            limit_mw: Optional[int] = self._knob.read()["power_limit_mw"]
        except ControlError:
            if self._sets_gpu:
                raise
            return None
        return limit_mw

    def as_found(self, case: Case) -> Dict[str, Any]:
        """As of the host, with the highest clocks of the GPU if this user may set them; locked ones cannot be read."""
        found = super().as_found(case)
        space = self.power_mode_space()
        mode = PowerMode(**found["power_mode"])._replace(gpu_khz=space.gpu_khz[-1], mem_khz=space.mem_khz[-1])
        return {**found, "power_mode": mode._asdict(), "power_mode_name": name_mode(self, mode).name}

    def _moves_clocks(self) -> bool:
        return True

    def set_case(self, case: Case) -> Dict[str, Any]:
        limit_w = case.settings.power_limit_w
        self._limit_mw = None if limit_w is None else round(w_to_mw(limit_w))
        return super().set_case(case)

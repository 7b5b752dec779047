"""What a board is, off-board: cores, clocks, memory, rails, stock power modes; values that a spec file fills."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Tuple

from harness.core.errors import CannotRunError
from harness.core.mode_texts import MAXN, parse_power_modes
from harness.core.power_modes import PowerMode, PowerModeSpace


@dataclasses.dataclass(frozen=True)
class CpuCluster:
    """CPU cores that share a clock.

    Attributes:
        name: of the cluster's PARAM in nvpmodel files.
        cores: numbers of its cores; the first is the one whose cpufreq path the PARAM has.
    """

    name: str
    cores: Tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The GPU.

    Attributes:
        name: of its chip, as in its sysfs path.
        architecture: Maxwell, Pascal, Volta, Ampere, ...
        cuda_cores: those that the module has.
        tensor_cores: those that the module has.
        tpcs: texture processing clusters that the bits of `TPC_PG_MASK` stand for; None where there is no such mask.
    """

    name: str
    architecture: str
    cuda_cores: int
    tensor_cores: int
    tpcs: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Memory:
    """Main memory, shared by CPU and GPU on all boards; `bandwidth_bytes_per_s` is the data sheet's peak."""

    bytes: int
    technology: str
    bus_bits: int
    bandwidth_bytes_per_s: int


@dataclasses.dataclass(frozen=True)
class ClockLists:
    """The clocks known off-board, ascending; what the board itself lists always wins over these.

    Attributes:
        cpu_khz, gpu_khz, mem_khz: the lists that the papers' counts of power modes are of, where there are such counts;
            empty where nothing is known.
        newer_gpu_khz: what later releases list instead of `gpu_khz`; empty where that is the same or not known.
        incomplete: names of the lists that are known to lack clocks, or were not seen on this very board.
    """

    cpu_khz: Tuple[int, ...] = ()
    gpu_khz: Tuple[int, ...] = ()
    mem_khz: Tuple[int, ...] = ()
    newer_gpu_khz: Tuple[int, ...] = ()
    incomplete: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Preset:
    """A power mode of the stock nvpmodel file: a core count and caps.

    Attributes:
        id: its number, which differs between boards and releases; modes are addressed by name.
        name: as `nvpmodel -q` says it.
        cpu_cores: cores online.
        cpu_khz, gpu_khz, mem_khz: caps as the file has them, which need not be allowed clocks; None is no cap.
        tpc_pg_mask: GPU clusters that are off, one a bit: at equal clocks such a mode is slower and draws less.
            None where the file says nothing of it.
    """

    id: int
    name: str
    cpu_cores: int
    cpu_khz: Optional[int] = None
    gpu_khz: Optional[int] = None
    mem_khz: Optional[int] = None
    tpc_pg_mask: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Rails:
    """Power rails as the board's sensors label them.

    Attributes:
        labels: all of them.
        total: those whose sum is the module's total power.
        note: what is to be known of that sum.
    """

    labels: Tuple[str, ...]
    total: Tuple[str, ...]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class BoardSpec:
    """One module of a board family.

    Attributes:
        name: of the family, as in the corpus (`orin-agx`).
        variant: which module, or which software that changes its modes (`64gb`, `32gb`, `super`).
        product: in words.
        part_numbers: of the module, as in the device tree's `compatible`.
        part_number_prefix: what every part number of the family begins with; empty where families share it.
        models: parts of the device tree's `model` that only this family has.
        marks: parts of `model` or `compatible` that tell this variant from others with its part number.
        peak_power_mw: the greatest power of the module.
        storage: media that it can have: emmc, sd, ssd (NVMe), hdd (USB), esata.
        cpu_name, cpu_clusters, gpu, memory, clocks, rails: as their types say.
        presets: the stock power modes.
        default_preset: the one it starts with; empty where not known.
        papers_mode: the preset that the papers take as their default; empty where they had no such board.
        clocks_only_fall: whether CPU and GPU clocks can only be lowered without a reboot; None where nobody said.
        gpu_cap_rounds_up: whether a preset's GPU cap means the next allowed clock above it instead of below.
        named_modes: modes that a paper names, as it prints them.
    """

    name: str
    variant: str
    product: str
    part_numbers: Tuple[str, ...]
    models: Tuple[str, ...]
    peak_power_mw: int
    storage: Tuple[str, ...]
    cpu_name: str
    cpu_clusters: Tuple[CpuCluster, ...]
    gpu: Gpu
    memory: Memory
    clocks: ClockLists
    rails: Rails
    presets: Tuple[Preset, ...] = ()
    part_number_prefix: str = ""
    marks: Tuple[str, ...] = ()
    default_preset: str = ""
    papers_mode: str = ""
    clocks_only_fall: Optional[bool] = None
    gpu_cap_rounds_up: bool = False
    named_modes: Tuple[Tuple[str, PowerMode], ...] = ()

    @property
    def cpu_cores(self) -> int:
        """How many CPU cores the module has."""
        return sum(len(cluster.cores) for cluster in self.cpu_clusters)

    def power_mode_space(self) -> PowerModeSpace:
        """The power modes known off-board: every core count, with the clocks of the lists.

        Raises:
            CannotRunError: nothing is known of a clock.
        """
        return self._space(self.clocks.gpu_khz)

    def any_release_space(self) -> PowerModeSpace:
        """The clocks of every known release together: what a mode that is named in full, or a preset, may have.

        Raises:
            CannotRunError: nothing is known of a clock.
        """
        return self._space(tuple(sorted({*self.clocks.gpu_khz, *self.clocks.newer_gpu_khz})))

    def _space(self, gpu_khz: Tuple[int, ...]) -> PowerModeSpace:
        lists = {"CPU": self.clocks.cpu_khz, "GPU": gpu_khz, "memory": self.clocks.mem_khz}
        missing = [name for name, clocks in lists.items() if not clocks]
        if missing:
            raise CannotRunError(
                f"the {', '.join(missing)} clocks of {self.name} are not known off-board", "run this on the board"
            )
        return PowerModeSpace(tuple(range(1, self.cpu_cores + 1)), *lists.values())

    def preset_mode(self, preset: Preset) -> PowerMode:
        """The power mode that a preset's caps come to.

        A cap means the greatest allowed clock not above it; a GPU cap where `gpu_cap_rounds_up` the least not below.
        No cap means the greatest clock. Clocks are those of every known release: caps are written for the newest.

        Raises:
            CannotRunError: nothing is known of a clock.
        """
        space = self.any_release_space()
        return PowerMode(
            preset.cpu_cores,
            _below(preset.cpu_khz, space.cpu_khz),
            (_above if self.gpu_cap_rounds_up else _below)(preset.gpu_khz, space.gpu_khz),
            _below(preset.mem_khz, space.mem_khz),
        )

    def modes_by_name(self) -> Dict[str, PowerMode]:
        """`maxn`, every mode that a paper names and every preset, as modes that are allowed.

        Raises:
            CannotRunError: nothing is known of a clock.
        """
        space = self.power_mode_space()
        return {
            MAXN: space.greatest,
            **{name: space.nearest(mode) for name, mode in self.named_modes},
            **{preset.name: self.preset_mode(preset) for preset in self.presets},
        }

    def power_modes(self, text: str, seed: int = 0) -> List[Tuple[str, PowerMode]]:
        """The modes that a `--power-mode` value stands for on this board, each with its name.

        Raises:
            CannotRunError: nothing is known of a clock.
            UnknownNameError, InvalidValueError: `text` is no mode of this board; says what is.
        """
        return parse_power_modes(
            text, self.power_mode_space(), self.modes_by_name(), self.any_release_space(), seed=seed
        )

    @property
    def gap(self) -> str:
        """What is not known of the clocks, in a sentence; empty where the lists are complete."""
        if not self.clocks.incomplete:
            return ""
        names = ", ".join(self.clocks.incomplete)
        return f"{self.name} ({self.variant}): {names} as known off-board may lack clocks, the board itself tells them"


def _below(cap: Optional[int], allowed: Tuple[int, ...]) -> int:
    return max((khz for khz in allowed if cap is None or khz <= cap), default=allowed[0])


def _above(cap: Optional[int], allowed: Tuple[int, ...]) -> int:
    return allowed[-1] if cap is None else min((khz for khz in allowed if khz >= cap), default=allowed[-1])

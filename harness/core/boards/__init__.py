"""The boards: a TOML file of facts each, for planning off-board, for test trees and for identifying a board."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import msgspec

from harness.core.cases import parse_storage
from harness.core.configuration import DEFAULT_STORAGE, SECOND_STORAGE, Configuration
from harness.core.device_types import (
    BOARDS_FOLDER,
    EMULATED,
    brought_type,
    brought_types,
    is_brought,
    package_of,
    warn_of,
)
from harness.core.errors import CannotRunError, HarnessError, InvalidValueError, UnknownNameError
from harness.core.files import read_toml, typed
from harness.core.mode_texts import DEFAULT, MAXN, NamedModes, parse_power_modes
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace, is_in_full, parse_power_mode
from harness.core.terminal import available_hint
from harness.core.units import mhz_to_khz

if TYPE_CHECKING:
    from harness.core.device import Device

BOARDS: Dict[str, Path] = {path.stem: path for path in sorted(BOARDS_FOLDER.glob("*.toml"))}
"""The suite's own boards, by their name in the corpus; `board_names` has those of packages too."""


PEAK_OF_INPUT, PEAK_OF_MODULE = 2.0, 3.0
"""How far a reading may lie above the limit of the input, and above the module's peak power, to be believed: short
peaks lie above a mean, and some rails feed the carrier too."""


class CpuCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str  # of the cluster's PARAM in nvpmodel files
    cores: Tuple[int, ...]  # numbers of its cores; the first is the one whose cpufreq path the PARAM has


class Cpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    clusters: Tuple[CpuCluster, ...]


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str  # of its chip, as in its sysfs path
    architecture: str  # Maxwell, Pascal, Volta, Ampere, ..
    cuda_cores: int  # those that the module has
    tensor_cores: int  # those that the module has
    tpcs: Optional[int] = None  # clusters that the bits of `TPC_PG_MASK` stand for; None if there is no such mask


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What training computes in: shared by CPU and GPU, or a discrete GPU's own; bandwidth is the data sheet's peak."""

    bytes: int
    technology: str
    bus_bits: int
    bandwidth_bytes_per_s: int
    host_bytes: int = 0  # RAM of the machine that a discrete GPU is in


class ClockLists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clocks for planning off-board, ascending; the lists of the board itself take precedence."""

    # as the papers count power modes; empty if unknown, 0 alone if the clock is not part of a power mode
    cpu_khz: Tuple[int, ...] = ()
    gpu_khz: Tuple[int, ...] = ()
    mem_khz: Tuple[int, ...] = ()
    newer_gpu_khz: Tuple[int, ...] = ()  # list of later releases, if it differs
    older_gpu_khz: Tuple[int, ...] = ()  # list of earlier releases, if it differs
    incomplete: Tuple[str, ...] = ()  # names of lists that may lack clocks, or were not read on this very board


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A power mode of the stock nvpmodel file: a core count and caps."""

    id: int  # its number, which differs between boards and releases; modes are addressed by name
    name: str  # as `nvpmodel -q` prints it
    cpu_cores: int  # cores online
    cpu_khz: Optional[int] = None  # caps as the file has them, which need not be allowed clocks; None is no cap
    gpu_khz: Optional[int] = None
    mem_khz: Optional[int] = None
    tpc_pg_mask: Optional[int] = None  # GPU clusters that are off, one per bit; None if the file has no such line


class Rails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Power rails as the board's sensors label them."""

    labels: Tuple[str, ...]  # all of them
    total: Tuple[str, ...]  # those whose sum is the module's total power
    note: str = ""  # a remark on that sum
    # part of a simulation's power (base, cpu, gpu, memory) to the real device's channel; empty if it is its own
    parts: Dict[str, str] = msgspec.field(default_factory=dict)


class BoardSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One module of a board family."""

    name: str  # of the family, as in the corpus (`orin-agx`)
    variant: str  # which module, or which software that changes its modes (`64gb`, `32gb`, `super`)
    product: str  # in words
    part_numbers: Tuple[str, ...]  # of the module, as in the device tree's `compatible`
    models: Tuple[str, ...]  # parts of the device tree's `model` that only this family has
    peak_power_mw: int  # the greatest power of the module
    storage: Tuple[str, ...]  # media that it can have: emmc, sd, ssd (NVMe), hdd (USB), esata
    cpu: Cpu  # clusters of cores
    gpu: Gpu  # name, cores, peak rates
    memory: Memory  # size and bandwidth
    clocks: ClockLists  # allowed CPU, GPU and memory clocks, also of other releases
    rails: Rails  # power rails, and those that the total is made of
    presets: Tuple[Preset, ...] = ()  # the stock power modes
    input_limit_mw: int = 0  # the maximum input of the module or its kit's supply; 0 if no source states it
    part_number_prefix: str = ""  # what every part number of the family begins with; empty if families share it
    marks: Tuple[str, ...] = ()  # parts of `model` or `compatible` that tell it from others with its part number
    default_preset: str = ""  # the one it boots with; empty if unknown
    papers_mode: str = ""  # the preset that the papers take as their default; empty if they had no such board
    default_storage: str = "ssd"  # medium of the papers' data; the boot medium if they had no such board
    power_limits_mw: Tuple[int, ...] = ()  # that a discrete GPU can be set to, for planning without it; empty if none
    clocks_only_fall: Optional[bool] = None  # whether raising CPU and GPU clocks takes a reboot; None if no source
    gpu_cap_rounds_up: bool = False  # whether a preset's GPU cap means the next allowed clock above it instead of below
    # modes that a paper names, as it prints them: cores, and the MHz of CPU, GPU and memory
    named_mhz: Dict[str, Tuple[int, float, float, float]] = msgspec.field(name="named_modes", default_factory=dict)

    @property
    def cpu_cores(self) -> int:
        """CPU cores of all clusters."""
        return sum(len(cluster.cores) for cluster in self.cpu.clusters)

    @property
    def ram_bytes(self) -> int:
        """Memory of the CPU, which a Jetson's GPU shares."""
        return self.memory.host_bytes or self.memory.bytes

    @property
    def most_mw(self) -> float:
        """More than its supply gives, peaks included: a reading above is an error of the sensor."""
        return max(PEAK_OF_INPUT * self.input_limit_mw, PEAK_OF_MODULE * self.peak_power_mw)

    @property
    def is_jetson(self) -> bool:
        """Whether it is a Jetson module."""
        return bool(self.part_numbers)

    @property
    def named_modes(self) -> Dict[str, PowerMode]:
        """The modes that a paper names, as it prints them, which need not be allowed ones."""
        return {name: PowerMode(cores, *map(mhz_to_khz, mhz)) for name, (cores, *mhz) in self.named_mhz.items()}

    def configured(self, configuration: Configuration) -> Configuration:
        """The configuration with the working directory on the board's own medium if it has no SSD."""
        if DEFAULT_STORAGE in self.storage:
            return configuration
        return dataclasses.replace(configuration, default_storage=self.default_storage)

    def power_mode_space(self) -> PowerModeSpace:
        """Power modes for planning off-board: any core count, listed clocks; `CannotRunError` if a list is empty."""
        return self._space(self.clocks.gpu_khz)

    def any_release_space(self) -> PowerModeSpace:
        """The clocks of all releases together: allowed for a mode given in full and for presets."""
        lists = (self.clocks.gpu_khz, self.clocks.newer_gpu_khz, self.clocks.older_gpu_khz)
        return self._space(tuple(sorted({khz for clocks in lists for khz in clocks})))

    @property
    def lists_every_clock(self) -> bool:
        """Whether there is a list of clocks for each dimension; those of some boards were never seen."""
        return all((self.clocks.cpu_khz, self.clocks.gpu_khz, self.clocks.mem_khz))

    def _space(self, gpu_khz: Tuple[int, ...]) -> PowerModeSpace:
        lists = {"CPU": self.clocks.cpu_khz, "GPU": gpu_khz, "memory": self.clocks.mem_khz}
        missing = ", ".join(name for name, clocks in lists.items() if not clocks)
        if missing:
            raise CannotRunError(
                f"the {missing} clocks of {self.name} are not known off-board", "run this on the board"
            )
        return PowerModeSpace(tuple(range(1, self.cpu_cores + 1)), *lists.values())

    def preset_mode(self, preset: Preset) -> PowerMode:
        """The mode of a preset: its caps, as clocks that the board has."""
        caps = (preset.cpu_cores, preset.cpu_khz, preset.gpu_khz, preset.mem_khz)
        return self.any_release_space().at_caps(caps, self.gpu_cap_rounds_up)

    def modes_by_name(self) -> Dict[str, PowerMode]:
        """`maxn`, every mode that a paper names and every preset, as modes that are allowed."""
        space = self.power_mode_space()
        return {
            MAXN: space.greatest,
            **{name: space.nearest(mode) for name, mode in self.named_modes.items()},
            **{preset.name: self.preset_mode(preset) for preset in self.presets},
        }

    def power_modes(self, text: str, seed: int = 0) -> NamedModes:
        """The modes of a `--power-mode` value on this board, each with its name; in full it needs no list of clocks."""
        if not self.lists_every_clock and is_in_full(text):
            mode = parse_power_mode(text, PowerMode(1, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ))
            if not 1 <= mode.cpu_cores <= self.cpu_cores:
                raise InvalidValueError(f"{text}: cpu_cores is {mode.cpu_cores}", f"allowed: 1 to {self.cpu_cores}")
            return [(text, mode)]
        space, named = self.power_mode_space(), self.modes_by_name()
        if self.papers_mode:
            named[DEFAULT] = named[self.papers_mode]
        return parse_power_modes(text, space, named, self.any_release_space(), seed=seed)

    @property
    def gap(self) -> str:
        """A sentence on clock lists that may be incomplete; empty if all are complete."""
        names = ", ".join(self.clocks.incomplete)
        gap = f"{self.name} ({self.variant}): off-board lists {names} may lack clocks, the board has them all"
        return gap if names else ""


def type_of(device: str) -> str:
    """The type in a device's name: `orin-agx` of `sim:orin-agx@2`; the name itself without prefix and instance."""
    return device.rpartition(":")[2].partition("@")[0]


def board_of(device: Device) -> str:
    """The board that a device is or represents; empty if it is not a board."""
    name = getattr(device, "board", None) or type_of(device.name)
    name = name[len(EMULATED) :] if name.startswith(EMULATED) else name
    return name if is_board(name) else ""


def is_board(name: str) -> bool:
    """Whether there are facts of a board of that name, of the suite's own or of a package's."""
    if name in BOARDS:
        return True
    if not is_brought(name):
        return False
    try:
        return brought_type(name).facts is not None
    except HarnessError as error:
        warn_of(error)
        return False


def board_names() -> List[str]:
    """The boards with facts: the suite's, then those of packages; one with a wrong file is left out."""
    names = list(BOARDS)
    for name, kind in brought_types().items():
        if kind.facts is None:
            continue
        try:
            for variant in known_variants(name):
                load_board(name, variant)
            names.append(name)
        except HarnessError as error:
            warn_of(error)
    return names


def board_meant(name: str) -> str:
    """The board that has the words of a name, in any order: `Jetson AGX Orin` is orin-agx; empty if there is none."""
    words = set(re.findall(r"[a-z0-9]+", name.lower())) - {"jetson", "nvidia"}
    return next((board for board in board_names() if set(board.split("-")) == words), "")


def known_variants(name: str) -> List[str]:
    """The variants of a board, the default one first."""
    content = _content(name)
    return [content["variant"], *content.get("variants", {})]


@functools.lru_cache(maxsize=None)
def load_board(name: str, variant: str = "") -> BoardSpec:
    """The facts of a board by its name in the corpus (`orin-agx`) and variant (`32gb`; by default the papers').

    The file's top level is the default variant, a table `[variants.NAME]` what differs, its tables key by key.
    """
    content = _content(name)
    variants = known_variants(name)
    if variant and variant not in variants:
        raise UnknownNameError(f"variant {variant!r} of {name} is unknown", available_hint(variant, variants))
    table = {key: value for key, value in content.items() if key != "variants"}
    if variant not in ("", variants[0]):
        table = _overlaid(table, {**content["variants"][variant], "variant": variant})
    table["clocks"] = {key: _expanded(entries) for key, entries in table.get("clocks", {}).items()}
    table["power_limits_mw"] = _expanded(table.get("power_limits_mw", ()))
    return typed({**table, "name": name}, BoardSpec, f"board file {_facts_file(name)}{_whose(name)}")


def find_board(compatible: Sequence[str], model: str = "") -> Optional[BoardSpec]:
    """The board with this `compatible` and `model` in `/proc/device-tree`; None if it is none of these.

    The part number decides: a carrier takes several modules, and `model` may name a different one than is installed.
    """
    here, model = " ".join(compatible).lower(), model.lower()
    modules = [load_board(name, variant) for name in board_names() for variant in known_variants(name)]
    exact = [
        spec
        for spec in modules
        if any(number in here for number in spec.part_numbers) and all(mark in f"{here} {model}" for mark in spec.marks)
    ]
    if exact:
        return max(exact, key=lambda spec: len(spec.marks))
    families = [load_board(name) for name in board_names()]
    by_prefix = [spec for spec in families if spec.part_number_prefix and spec.part_number_prefix in here]
    by_model = [spec for spec in families if any(part.lower() in model for part in spec.models)]
    return next(iter([*by_prefix, *by_model]), None)


def own_media(board: str, media: Sequence[str]) -> Tuple[str, ...]:
    """Storage media for a board; if it has no SSD, its default medium replaces `ssd` (004 sec. 4.4: SD on Nano)."""
    spec = load_board(board) if is_board(board) else None
    if spec is None or DEFAULT_STORAGE in spec.storage:
        return tuple(media)
    named = [medium.partition("@") for medium in media]
    own = (spec.default_storage if medium == DEFAULT_STORAGE else medium for medium, _, _ in named)
    return tuple(dict.fromkeys(medium + "".join(limit) for medium, (_, *limit) in zip(own, named)))


def default_medium(board: str, configuration: Configuration) -> str:
    """The storage medium of a board if none was requested: `ssd` if it has one or its path is configured."""
    return DEFAULT_STORAGE if configuration.place(DEFAULT_STORAGE) else own_media(board, [DEFAULT_STORAGE])[0]


def check_media(names: Sequence[str], configuration: Configuration) -> None:
    """Refuse storage that neither the configuration nor any board has; one that this machine lacks passes."""
    own = {*configuration.storage, configuration.default_storage, SECOND_STORAGE}
    for medium in (parse_storage(name).medium for name in names):
        if medium in own:
            continue
        known = sorted(own.union(*(load_board(board).storage for board in board_names())))
        if medium not in known:
            hint = (
                f"{available_hint(medium, known)}; of another medium give the folder: --storage {medium}=/mount/point"
            )
            raise UnknownNameError(f"storage {medium!r} is unknown", hint)


@functools.lru_cache(maxsize=None)
def _content(name: str) -> Dict[str, Any]:
    try:
        content = read_toml(_facts_file(name))
    except InvalidValueError as error:
        raise InvalidValueError(f"board file{_whose(name)}: {error.what}", error.hint) from error
    if "variant" not in content:
        raise InvalidValueError(f"board file {_facts_file(name)}{_whose(name)} names no variant", 'variant = "8gb"')
    return content


def _facts_file(name: str) -> Path:
    if name in BOARDS:
        return BOARDS[name]
    facts = brought_type(name).facts if is_brought(name) else None
    if facts is None:
        raise UnknownNameError(f"board {name!r} is unknown", available_hint(name, board_names()))
    return Path(facts)


def _whose(name: str) -> str:
    return "" if name in BOARDS else f" of package {package_of(name)}"


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> Dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = _overlaid(below[key], value) if both else value
    return merged


def _expanded(entries: Sequence[Any]) -> List[Any]:
    """A list of clocks with its ranges `{ from, to, step }`, both ends included, written out."""
    clocks: List[Any] = []
    for entry in entries:
        clocks += range(entry["from"], entry["to"] + 1, entry["step"]) if isinstance(entry, dict) else [entry]
    return clocks

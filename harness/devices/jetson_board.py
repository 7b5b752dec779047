"""The Jetson board at a root, and the power modes it lists; where its spec file differs, the board takes precedence."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from harness.board.cpu import CpuOnline
from harness.board.cpu_clocks import CpuFrequency
from harness.board.emc import Emc
from harness.board.gpu import GpuFrequency
from harness.board.kernel_file import text_of
from harness.board.nvpmodel_conf import Conf
from harness.board.nvpmodel_modes import Limits, online_cores, to_power_mode
from harness.board.privileged import OWN_CONF
from harness.core.boards import BOARDS, BoardSpec, find_board, known_variants, load_board
from harness.core.environment import l4t_release
from harness.core.errors import ControlError
from harness.core.files import read_toml
from harness.core.mode_texts import DEFAULT
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace, clock_at_cap
from harness.core.units import hz_to_khz

UNKNOWN_BOARD = "jetson"  # name of a Tegra board without a spec file: everything comes from discovery


class Board(NamedTuple):
    compatible: Tuple[str, ...]  # of the device tree: `nvidia,p3737-0000+p3701-0005`, ..., `nvidia,tegra234`
    model: str  # of the device tree; empty if it has none
    l4t: Optional[str]  # the release of Jetson Linux, `36.4.3`; None if unknown
    spec: Optional[BoardSpec]  # facts of such boards; None if there are none

    @property
    def name(self) -> str:
        return self.spec.name if self.spec else UNKNOWN_BOARD

    @property
    def product(self) -> str:
        return self.spec.product if self.spec else self.model or "Tegra board of unknown make"

    @property
    def part_number(self) -> Optional[str]:
        """Of the module; `compatible` has carrier and module, `nvidia,p3737-0000+p3701-0005`, or the module alone."""
        carrier_first = sorted(self.compatible, key=lambda text: "+" not in text)
        in_each = (re.findall(r"p\d{4}-\d{4}", text) for text in carrier_first)
        return next((numbers[-1] for numbers in in_each if numbers), None)

    @property
    def jetpack(self) -> Optional[str]:
        return jetpack_of(self.l4t)


@functools.lru_cache(maxsize=None)
def jetpack_of(l4t: Optional[str]) -> Optional[str]:
    """The JetPack version of a release of L4T; None if `jetpacks.toml` does not list it."""
    return read_toml(Path(__file__).with_name("jetpacks.toml")).get(l4t or "")


def read_board(root: Path) -> Optional[Board]:
    compatible = device_tree_strings(root / "proc/device-tree/compatible")
    if not any(text.startswith("nvidia,tegra") for text in compatible):
        return None
    model = next(iter(device_tree_strings(root / "proc/device-tree/model")), "")
    return Board(compatible, model, l4t_release(root), find_board(compatible, model))


def device_tree_strings(path: Path) -> Tuple[str, ...]:
    return tuple(part for part in text_of(str(path)).split("\0") if part)


class LiveSpace(NamedTuple):
    space: PowerModeSpace  # the values of each dimension
    differences: List[str]  # deviations from the spec file, and what the board does not report; a sentence each


def read_space(root: str, spec: Optional[BoardSpec], holds_thor: bool = False) -> LiveSpace:
    """The power mode space of the board under `root`: cores, and clocks of its CPU clusters, GPU and memory."""
    cores = tuple(range(1, len(CpuOnline(root).cpus()) + 1)) or (1,)
    policies = CpuFrequency(root).policies()
    cpu_khz = tuple(sorted({khz for policy in policies for khz in policy.levels_khz or (policy.highest_khz,)}))
    gpus = GpuFrequency(root, holds_thor).gpus()
    gpu_khz = tuple(sorted({hz_to_khz(level) for gpu in gpus for level in gpu.levels_hz}))
    try:
        mem_khz, why_not = tuple(Emc(root, holds_thor).levels_khz()), "the board has no table of them"
    except ControlError as error:
        mem_khz, why_not = (), error.what
    differences: List[str] = []
    if spec is not None:
        clocks = spec.clocks
        differences += _compare("CPU cores", cores[-1:], [(spec.cpu_cores,)])
        differences += _compare("CPU clocks", cpu_khz, [clocks.cpu_khz])
        differences += _compare("GPU clocks", gpu_khz, [clocks.gpu_khz, clocks.newer_gpu_khz, clocks.older_gpu_khz])
        if mem_khz:
            differences += _compare("memory clocks", mem_khz, [clocks.mem_khz])
        elif clocks.mem_khz:
            mem_khz = clocks.mem_khz
            differences.append(f"memory clocks are taken from the spec file: {why_not}")
    unknown = (UNKNOWN_KHZ,)
    return LiveSpace(PowerModeSpace(cores, cpu_khz or unknown, gpu_khz or unknown, mem_khz or unknown), differences)


def _compare(what: str, live: Sequence[int], expected: Sequence[Sequence[int]]) -> List[str]:
    lists = [tuple(values) for values in expected if values]
    if not lists or tuple(live) in lists:
        return []
    nearest = min(lists, key=lambda values: len(set(values) ^ set(live)))
    parts = []
    for verb, values in (("has", set(live) - set(nearest)), ("lacks", set(nearest) - set(live))):
        listed = [str(value) for value in sorted(values)]
        if len(listed) > 6:
            parts.append(f"it {verb} {listed[0]} ... {listed[-1]} ({len(listed)} values)")
        elif listed:
            parts.append(f"it {verb} {', '.join(listed)}")
    return [f"{what} differ from the spec file: {', '.join(parts)}"]


def named_modes(space: PowerModeSpace, conf: Optional[Conf], spec: Optional[BoardSpec]) -> Dict[str, PowerMode]:
    """All modes of the board's own nvpmodel conf, and those that a paper names; every device has `maxn` anyway."""
    named = {name: space.nearest(mode) for name, mode in spec.named_modes.items()} if spec else {}
    up = spec is not None and spec.gpu_cap_rounds_up  # on most boards a cap means the greatest clock not above it
    if conf is not None:
        named.update((model.name, space.at_caps(to_power_mode(conf, model), up)) for model in conf.models)
    if spec and spec.papers_mode in named:
        named[DEFAULT] = named[spec.papers_mode]
    return named


def foreign_conf(root: Path, board: Board, conf: Conf) -> str:
    """Why a conf is that of another board; empty if nothing says so.

    By the part number in the name of its file, by cores that it switches on and that are not here, and by modes that
    are those of another board's facts.
    """
    file = (root / OWN_CONF).resolve().name
    what = f"the nvpmodel conf {file} is not this board's, {board.product} ({board.part_number or board.name})"
    module = re.search(r"p\d{4}", file)
    if module and board.part_number and not board.part_number.startswith(module[0]):
        return f"{what}: it is for {module[0]}"
    here = CpuOnline(str(root)).cpus()
    switched_on = {core for model in conf.models for core in online_cores(conf, model) or ()}
    absent = sorted(switched_on - set(here)) if here else []
    if absent:
        return f"{what}: it switches on cores {', '.join(map(str, absent))}, and there are {len(here)}"
    if board.spec is None:
        return ""
    modes = [(model.name, to_power_mode(conf, model)) for model in conf.models]
    own = {variant: load_board(board.spec.name, variant) for variant in known_variants(board.spec.name)}
    if modes in [_preset_limits(spec) for spec in own.values()]:
        return ""
    families = [name for name in BOARDS if name != board.spec.name and load_board(name).is_jetson]
    others = (load_board(name, variant) for name in families for variant in known_variants(name))
    like = next((spec for spec in others if modes and modes == _preset_limits(spec)), None)
    return f"{what}: its modes are those of {like.product}" if like else ""


def _preset_limits(spec: BoardSpec) -> List[Tuple[str, Limits]]:
    return [
        (preset.name, Limits(preset.cpu_cores, preset.cpu_khz, preset.gpu_khz, preset.mem_khz))
        for preset in spec.presets
    ]


def is_rounded(mode: PowerMode, limits: Limits, space: PowerModeSpace) -> bool:
    """Whether a mode that was read back fits a conf's caps: each clock is a neighbour of its cap."""
    neighbours = (  # which of the two a driver takes differs between boards and releases
        {clock_at_cap(cap, allowed, up) for up in (False, True)}
        for cap, allowed in zip(limits[1:], space.dimensions[1:])
    )
    return limits.cpu_cores in (None, mode.cpu_cores) and all(khz in near for khz, near in zip(mode[1:], neighbours))

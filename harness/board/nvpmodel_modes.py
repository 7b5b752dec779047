"""nvpmodel's modes: the power mode of each, a custom mode for any power mode, and the stock modes of a board.

The stock conf of a board that is not here comes from what its spec file says; on the board, its own conf wins.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from harness.board.nvpmodel_conf import CLOCK, Conf, PowerModel, Setting, parse
from harness.core.boards import BoardSpec
from harness.core.errors import InvalidValueError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.units import HZ_PER_KHZ, hz_to_khz

CPU_ONLINE, GPU, EMC, MIN_FREQ, MAX_FREQ = "CPU_ONLINE", "GPU", "EMC", "MIN_FREQ", "MAX_FREQ"
TPC_POWER_GATING, TPC_PG_MASK, MASK = "TPC_POWER_GATING", "TPC_PG_MASK", "_PG_MASK"
GPU_POWER_CONTROL_ENABLE, GPU_POWER_CONTROL_DISABLE = "GPU_POWER_CONTROL_ENABLE", "GPU_POWER_CONTROL_DISABLE"

_NO_LIMIT = -1  # nvpmodel takes it as INT_MAX
_UNCAPPED = (_NO_LIMIT, 0, 2**31 - 1, 2**63 - 1)  # 0: what the EMC cap takes for no cap
_TX2_DENVER = {"CPU_DENVER": (1, 2)}  # the only cluster whose cores lie between those of another


class Limits(NamedTuple):
    cpu_cores: Optional[int]
    cpu_khz: Optional[int]
    gpu_khz: Optional[int]
    mem_khz: Optional[int]


class Cluster(NamedTuple):
    """The PARAM of a CPU clock, and the cores that run at it (empty if the conf does not name them)."""

    param: str
    cores: Tuple[int, ...]


def to_power_mode(conf: Conf, model: PowerModel) -> Limits:
    """The power mode that a mode of a conf sets; its CPU clock is the highest that an online core may run at."""
    online = online_cores(conf, model)
    set_here = {setting.param for setting in model.settings}
    caps = [
        _cap(model, cluster.param)
        for cluster in clusters(conf)
        if (cluster.param in set_here if online is None or not cluster.cores else set(cluster.cores) & set(online))
    ]
    cluster_caps_khz = [cap for cap in caps if cap is not None]
    gpu_hz, mem_hz = _cap(model, GPU), _cap(model, EMC)
    return Limits(
        cpu_cores=None if online is None else len(online),
        cpu_khz=max(cluster_caps_khz) if cluster_caps_khz and len(cluster_caps_khz) == len(caps) else None,
        gpu_khz=None if gpu_hz is None else hz_to_khz(gpu_hz),
        mem_khz=None if mem_hz is None else hz_to_khz(mem_hz),
    )


def tpc_mask(model: PowerModel) -> Optional[int]:
    """The TPCs of the GPU that a mode switches off, a bit for each; None if it does not set them."""
    return _number(model, TPC_POWER_GATING, TPC_PG_MASK)


def masks(model: PowerModel) -> Dict[str, str]:
    """Every power-gating mask that a mode sets (`TPC_PG_MASK`, `FBP_PG_MASK`): changing one takes a reboot."""
    return {setting.argument: setting.value for setting in model.settings if setting.argument.endswith(MASK)}


def online_cores(conf: Conf, model: PowerModel) -> Optional[List[int]]:
    """The cores that a mode leaves on, ascending; None if it does not mention cores."""
    values = {setting.argument: setting.value for setting in model.settings if setting.param == CPU_ONLINE}
    if not values:
        return None
    switches = _switches(conf)  # one that is not named is on: core 0 of the TX2, which cannot be switched
    return sorted(core for core in {0, *switches} if values.get(switches.get(core, "")) != "0")


def clusters(conf: Conf) -> List[Cluster]:
    """The CPU clocks of a conf with their cores: from the first, which its path names, up to the first of the next."""
    first_cores: Dict[str, int] = {}  # to its first core
    for param in conf.params:
        paths = (argument.path for argument in param.arguments)
        matches = (re.search(r"/cpu(\d+)/cpufreq/|/cpufreq/policy(\d+)/", path) for path in paths)
        core = next((int(match[1] or match[2]) for match in matches if match), None)
        if core is not None and (conf.cores is None or core in conf.cores):
            first_cores[param.name] = core
    between = {name: cores for name, cores in _TX2_DENVER.items() if name in first_cores}
    taken = {core for cores in between.values() for core in cores}
    starts = [core for name, core in first_cores.items() if name not in between]
    listed = []
    for name, start in sorted(first_cores.items(), key=lambda item: item[1]):
        end = min((other for other in starts if other > start), default=None)
        reach = [core for core in sorted({0, *_switches(conf)}) if core >= start and (end is None or core < end)]
        listed.append(Cluster(name, between.get(name) or tuple(core for core in reach if core not in taken)))
    declared = {param.name for param in conf.params}
    settings = [setting for model in conf.models for setting in model.settings]
    undeclared = dict.fromkeys(setting.param for setting in settings if setting.param not in declared)
    return listed + [Cluster(name, ()) for name in undeclared if name.startswith("CPU_") and name != CPU_ONLINE]


def custom_conf(
    conf: Conf, booted: str, mode: PowerMode, name: str, *, model_id: Optional[int] = None, alone: bool = False
) -> Conf:
    """A conf with a mode `name` for a power mode, made from the mode that the board booted with.

    The mode copies the masks of that one, so that no reboot is needed, its caps of the other clocks (DLA, PVA, ...) and
    the order of its lines; `UNKNOWN_KHZ` leaves a clock as it has it. `alone` leaves out the other modes.
    """
    base = conf.model(booted)
    if not re.fullmatch(r"\w+", name, re.ASCII):
        raise InvalidValueError(f"{name!r} cannot be the name of an nvpmodel mode", "use letters, digits and _")
    if not alone and any(model.name == name for model in conf.models):
        raise InvalidValueError(f"this conf has a mode {name} already", "choose another name")
    if model_id is None:
        model_id = 1 + max(model.id for model in conf.models)
    elif any(model.id == model_id for model in conf.models):
        raise InvalidValueError(f"this conf has a mode with ID {model_id} already", "choose another ID")
    custom = PowerModel(model_id, name, tuple(_custom_settings(conf, base, mode)), base.attributes)
    if alone:
        return conf._replace(models=(custom,), default=model_id)
    return conf._replace(models=(*conf.models, custom))


def _custom_settings(conf: Conf, base: PowerModel, mode: PowerMode) -> List[Setting]:
    """The base's settings, with those of the cores and of the three clocks replaced in place."""
    for param, khz in ((GPU, mode.gpu_khz), (EMC, mode.mem_khz)):
        if khz != UNKNOWN_KHZ and conf.param(param) is None:
            raise InvalidValueError(f"this conf has no PARAM {param}, so power mode {mode.name} cannot be set with it")
    every_cluster, switches = clusters(conf), _switches(conf)
    if mode.cpu_khz != UNKNOWN_KHZ and not every_cluster:
        raise InvalidValueError(f"this conf has no CPU clock, so power mode {mode.name} cannot be set with it")
    cores = [core for cluster in every_cluster for core in cluster.cores]
    cores += [core for core in sorted({0, *switches}) if core not in cores]
    if not 1 <= mode.cpu_cores <= len(cores):
        what = f"{mode.cpu_cores} CPU cores of power mode {mode.name} are not possible with this conf"
        raise InvalidValueError(what, f"it has 1 to {len(cores)}")
    online = cores[: mode.cpu_cores]  # cluster by cluster from core 0 on
    cpu_lines: List[Setting] = []
    for cluster in every_cluster:
        if not cluster.cores or set(cluster.cores) & set(online):
            cpu_lines += _clock(conf, base, cluster.param, mode.cpu_khz, every_cluster)
    groups = {
        (CPU_ONLINE,): [
            *(Setting(CPU_ONLINE, switch, str(int(core in online))) for core, switch in switches.items()),
            *(one for one in base.settings if one.param == CPU_ONLINE and one.argument not in switches.values()),
        ],
        tuple(cluster.param for cluster in every_cluster): cpu_lines,
        (GPU,): _clock(conf, base, GPU, mode.gpu_khz * HZ_PER_KHZ),
        (EMC,): _clock(conf, base, EMC, mode.mem_khz * HZ_PER_KHZ),
    }
    settings = list(base.settings)
    for params, lines in groups.items():
        place = _place(settings, params, list(groups))
        before, after = (
            [one for one in part if one.param not in params] for part in (settings[:place], settings[place:])
        )
        settings = [*before, *lines, *after]
    return settings


def _place(settings: Sequence[Setting], params: Tuple[str, ...], groups: Sequence[Tuple[str, ...]]) -> int:
    """Where the lines of a group belong: where it has lines now, else before the groups that follow it, else last."""
    follow = {param for group in groups[groups.index(params) + 1 :] for param in group}
    if params != (EMC,):  # nvpmodel's own confs cap the memory after the GPU is let go, everything else before
        follow.add(GPU_POWER_CONTROL_DISABLE)
    here = (index for index, setting in enumerate(settings) if setting.param in params)
    next_group = (index for index, setting in enumerate(settings) if setting.param in follow)
    return next(here, next(next_group, len(settings)))


def _clock(conf: Conf, base: PowerModel, param: str, maximum: int, alike: Sequence[Cluster] = ()) -> List[Setting]:
    """The base's lines of a clock with another maximum; of a clock that it keeps off, those of one that is `alike`."""
    lines = [setting for setting in base.settings if setting.param == param]
    for other in alike:
        if not lines:
            copies = [setting._replace(param=param) for setting in base.settings if setting.param == other.param]
            lines = [setting for setting in copies if conf.declares(setting)]
    if maximum == UNKNOWN_KHZ:
        return lines
    if not any(_is(MAX_FREQ, setting) for setting in lines):
        lines.append(Setting(param, MAX_FREQ, ""))
    return [
        setting._replace(value=str(maximum))
        if _is(MAX_FREQ, setting) or (_is(MIN_FREQ, setting) and not 0 <= _whole_number(base, setting) <= maximum)
        else setting
        for setting in lines
    ]


def _is(argument: str, setting: Setting) -> bool:
    """Whether a setting sets this argument, or its twin for the next kernel."""
    return setting.argument in (argument, f"{argument}_KNEXT")


def _switches(conf: Conf) -> Dict[int, str]:
    """The argument of each core that is there: the conf of AGX Orin 32GB declares four more, which no mode names."""
    set_here = {one.argument: "" for model in conf.models for one in model.settings if one.param == CPU_ONLINE}
    param = conf.param(CPU_ONLINE)
    named = {argument.name: argument.path for argument in param.arguments} if param else set_here
    switches: Dict[int, str] = {}
    for name, path in named.items():
        match = re.search(r"/cpu(\d+)/online$", path) or re.fullmatch(r"CORE_(\d+)", name)
        if match and (int(match[1]) in conf.cores if conf.cores is not None else name in set_here or not set_here):
            switches.setdefault(int(match[1]), name)
    return switches


def _cap(model: PowerModel, param: str) -> Optional[int]:
    """The maximum that a mode sets for a clock, in the unit of its file; None if it does not cap it."""
    caps = (_number(model, param, argument) for argument in (MAX_FREQ, f"{MAX_FREQ}_KNEXT"))
    cap = next((cap for cap in caps if cap is not None), None)
    return None if cap in _UNCAPPED else cap


def _number(model: PowerModel, param: str, argument: str) -> Optional[int]:
    value = model.value(param, argument)
    return None if value is None else _whole_number(model, Setting(param, argument, value))


def _whole_number(model: PowerModel, setting: Setting) -> int:
    if not re.fullmatch(r"-?\d{1,20}|0[xX][0-9a-fA-F]{1,16}", setting.value, re.ASCII):
        what = f"power mode {model.name}: {' '.join(setting)!r} is not understood"
        raise InvalidValueError(what, "expected: a whole number at its end")
    return int(setting.value, 16 if setting.value[:2].lower() == "0x" else 10)


# -- stock modes -------------------------------------------------------------------------------------------------------

# how a stock conf falls short of the board's own
STOCK_GAPS = "the paths are those of one release of L4T; minima of the CPU clock and caps of DLA and PVA are missing"

_CPUS = "/sys/devices/system/cpu"
_DEVFREQ = {  # the GPU's devfreq directory on L4T r32 or, for ga10b, r35
    "gm20b": "/sys/devices/gpu.0/devfreq/57000000.gpu",
    "gp10b": "/sys/devices/17000000.gp10b/devfreq/17000000.gp10b",
    "gv11b": "/sys/devices/17000000.gv11b/devfreq/17000000.gv11b",
    "ga10b": "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b",
}
_DEVFREQ_NEXT = {  # on the last release for the board: r35, r36
    "gv11b": "/sys/devices/17000000.gv11b/devfreq_dev",
    "ga10b": "/sys/devices/platform/17000000.gpu/devfreq_dev",
}


def stock_conf(spec: BoardSpec) -> Conf:
    if not spec.presets or spec.gpu.name not in _DEVFREQ:
        what = f"the nvpmodel conf of {spec.name} is available on the board only"
        raise InvalidValueError(what, "take the board's own: --base /etc/nvpmodel.conf")
    has_mask = any(preset.tpc_pg_mask is not None for preset in spec.presets)
    lines = _stock_params(spec, has_mask)
    for preset in spec.presets:  # in the order of NVIDIA's files; clusters without an online core have no lines
        lines.append(f"< POWER_MODEL ID={preset.id} NAME={preset.name} >")
        online = [core for cluster in spec.cpu.clusters for core in cluster.cores][: preset.cpu_cores]
        lines += [f"{CPU_ONLINE} CORE_{core} {int(core in online)}" for core in range(spec.cpu_cores)]
        lines += [f"{TPC_POWER_GATING} {TPC_PG_MASK} {preset.tpc_pg_mask or 0}"] if has_mask else []
        lines.append(f"{GPU_POWER_CONTROL_ENABLE} GPU_PWR_CNTL_EN on")
        limits = {cluster.name: preset.cpu_khz for cluster in spec.cpu.clusters if set(cluster.cores) & set(online)}
        limits[GPU] = None if preset.gpu_khz is None else preset.gpu_khz * HZ_PER_KHZ
        for param, maximum in limits.items():
            lines += [f"{param} {MIN_FREQ} 0", f"{param} {MAX_FREQ} {_NO_LIMIT if maximum is None else maximum}"]
        lines.append(f"{GPU_POWER_CONTROL_DISABLE} GPU_PWR_CNTL_DIS auto")
        lines.append(f"{EMC} {MAX_FREQ} {(preset.mem_khz or 0) * HZ_PER_KHZ}")
    default = next((preset.id for preset in spec.presets if preset.name == spec.default_preset), spec.presets[0].id)
    return parse("\n".join([*lines, f"< PM_CONFIG DEFAULT={default} >"])).conf


def _stock_params(spec: BoardSpec, has_mask: bool) -> List[str]:
    is_orin = spec.gpu.name == "ga10b"
    old, new = _DEVFREQ[spec.gpu.name], _DEVFREQ_NEXT.get(spec.gpu.name, "")
    switches = {f"CORE_{core}": f"{_CPUS}/cpu{core}/online" for core in range(spec.cpu_cores)}
    lines = _param("FILE", CPU_ONLINE, switches, {})
    gpu_files = [
        (GPU_POWER_CONTROL_ENABLE, "GPU_PWR_CNTL_EN", "power/control"),
        (GPU_POWER_CONTROL_DISABLE, "GPU_PWR_CNTL_DIS", "power/control"),
    ]
    if has_mask:
        gpu_files.insert(0, (TPC_POWER_GATING, TPC_PG_MASK, "tpc_pg_mask"))
    for name, argument, file in gpu_files:
        # moved with the kernel of r36
        newer = {argument: f"/sys/devices/platform/gpu.0/{file}"} if is_orin else {}
        lines += _param("FILE", name, {argument: f"/sys/devices/gpu.0/{file}"}, newer)
    for cluster in spec.cpu.clusters:
        folder = f"{_CPUS}/cpu{cluster.cores[0]}/cpufreq"
        names = {"FREQ_TABLE": "scaling_available_frequencies", MAX_FREQ: "scaling_max_freq"}
        paths = {argument: f"{folder}/{name}" for argument, name in {**names, MIN_FREQ: "scaling_min_freq"}.items()}
        lines += _param(CLOCK, cluster.name, paths, paths)
    files = {"FREQ_TABLE": "available_frequencies", MAX_FREQ: "max_freq", MIN_FREQ: "min_freq"}
    newer = {argument: f"{new}/{file}" for argument, file in files.items()} if new else {}
    lines += _param(CLOCK, GPU, {argument: f"{old}/{file}" for argument, file in files.items()}, newer)
    cap = "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
    newer = {MAX_FREQ: "/sys/kernel/nvpmodel_clk_cap/emc" if is_orin else cap}
    return [*lines, *_param(CLOCK, EMC, {MAX_FREQ: cap}, newer)]


def _param(kind: str, name: str, paths: Mapping[str, str], newer_paths: Mapping[str, str]) -> List[str]:
    """A section; `newer_paths` are those of kernels after 4.9."""
    lines = [f"{argument} {path}" for argument, path in paths.items()]
    lines += [f"{argument}_KNEXT {path}" for argument, path in newer_paths.items()]
    return [f"< PARAM TYPE={kind} NAME={name} >", *lines]

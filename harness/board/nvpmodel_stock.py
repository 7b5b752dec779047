"""The nvpmodel conf of a board that is not here, from what its spec file says; on the board, its own conf wins."""

from __future__ import annotations

from typing import Dict, List, Optional

from harness.board.nvpmodel_conf import CLOCK, Argument, Conf, Param, PowerModel, Setting
from harness.board.nvpmodel_modes import (
    CPU_ONLINE,
    EMC,
    GPU,
    GPU_POWER_CONTROL_DISABLE,
    GPU_POWER_CONTROL_ENABLE,
    MAX_FREQ,
    MIN_FREQ,
    TPC_PG_MASK,
    TPC_POWER_GATING,
)
from harness.core.boards import BoardSpec, Preset
from harness.core.errors import InvalidValueError
from harness.core.units import HZ_PER_KHZ

UNKNOWN = "the paths are those of one release of L4T, minima of the CPU clock and caps of DLA and PVA are not known"
"""How such a conf falls short of the board's own."""

_FREQ_TABLE = "FREQ_TABLE"
_POWER_ON, _POWER_OFF = "GPU_PWR_CNTL_EN", "GPU_PWR_CNTL_DIS"
_EMC_CAP = "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"

# nvpmodel takes an argument's twin with this ending on kernels after 4.9.
_NEXT = "_KNEXT"
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
    """A conf with the board's stock modes.

    Raises:
        InvalidValueError: its stock modes or its GPU's path are not known off-board.
    """
    if not spec.presets or spec.gpu.name not in _DEVFREQ:
        raise InvalidValueError(
            f"the nvpmodel conf of {spec.name} is not known off-board",
            "take the board's own: --base /etc/nvpmodel.conf",
        )
    default = next((preset.id for preset in spec.presets if preset.name == spec.default_preset), spec.presets[0].id)
    return Conf(tuple(_params(spec)), tuple(_model(spec, preset) for preset in spec.presets), default)


def _params(spec: BoardSpec) -> List[Param]:
    cores = range(spec.cpu_cores)
    params = [Param("FILE", CPU_ONLINE, tuple(Argument(_switch(n), f"{_cpu(n)}/online") for n in cores))]
    if _has_mask(spec):
        params.append(_gpu_file(spec, TPC_POWER_GATING, TPC_PG_MASK, "tpc_pg_mask"))
    params.append(_gpu_file(spec, GPU_POWER_CONTROL_ENABLE, _POWER_ON, "power/control"))
    params.append(_gpu_file(spec, GPU_POWER_CONTROL_DISABLE, _POWER_OFF, "power/control"))
    for cluster in spec.cpu.clusters:
        directory = f"{_cpu(cluster.cores[0])}/cpufreq"
        files = {
            _FREQ_TABLE: "scaling_available_frequencies",
            MAX_FREQ: "scaling_max_freq",
            MIN_FREQ: "scaling_min_freq",
        }
        params.append(_clock(cluster.name, files, directory, directory))
    files = {_FREQ_TABLE: "available_frequencies", MAX_FREQ: "max_freq", MIN_FREQ: "min_freq"}
    params.append(_clock(GPU, files, _DEVFREQ[spec.gpu.name], _DEVFREQ_NEXT.get(spec.gpu.name)))
    cap = Argument(MAX_FREQ, _EMC_CAP)
    newer = "/sys/kernel/nvpmodel_clk_cap/emc" if _is_orin(spec) else _EMC_CAP
    params.append(Param(CLOCK, EMC, (cap, Argument(MAX_FREQ + _NEXT, newer))))
    return params


def _model(spec: BoardSpec, preset: Preset) -> PowerModel:
    """A preset's settings in the order of NVIDIA's files; clusters without an online core have no lines."""
    online = [core for cluster in spec.cpu.clusters for core in cluster.cores][: preset.cpu_cores]
    settings = [Setting(CPU_ONLINE, _switch(core), str(int(core in online))) for core in range(spec.cpu_cores)]
    if _has_mask(spec):
        settings.append(Setting(TPC_POWER_GATING, TPC_PG_MASK, str(preset.tpc_pg_mask or 0)))
    settings.append(Setting(GPU_POWER_CONTROL_ENABLE, _POWER_ON, "on"))
    for cluster in spec.cpu.clusters:
        if set(cluster.cores) & set(online):
            settings += _limits(cluster.name, preset.cpu_khz)
    settings += _limits(GPU, None if preset.gpu_khz is None else preset.gpu_khz * HZ_PER_KHZ)
    settings.append(Setting(GPU_POWER_CONTROL_DISABLE, _POWER_OFF, "auto"))
    settings.append(Setting(EMC, MAX_FREQ, str((preset.mem_khz or 0) * HZ_PER_KHZ)))
    return PowerModel(preset.id, preset.name, tuple(settings))


def _limits(param: str, maximum: Optional[int]) -> List[Setting]:
    return [Setting(param, MIN_FREQ, "0"), Setting(param, MAX_FREQ, "-1" if maximum is None else str(maximum))]


def _clock(name: str, files: Dict[str, str], directory: str, next_directory: Optional[str]) -> Param:
    arguments = [Argument(argument, f"{directory}/{file}") for argument, file in files.items()]
    if next_directory is not None:
        arguments += [Argument(argument + _NEXT, f"{next_directory}/{file}") for argument, file in files.items()]
    return Param(CLOCK, name, tuple(arguments))


def _gpu_file(spec: BoardSpec, name: str, argument: str, file: str) -> Param:
    arguments = [Argument(argument, f"/sys/devices/gpu.0/{file}")]
    if _is_orin(spec):  # moved with the kernel of r36
        arguments.append(Argument(argument + _NEXT, f"/sys/devices/platform/gpu.0/{file}"))
    return Param("FILE", name, tuple(arguments))


def _is_orin(spec: BoardSpec) -> bool:
    return spec.gpu.name == "ga10b"


def _has_mask(spec: BoardSpec) -> bool:
    return any(preset.tpc_pg_mask is not None for preset in spec.presets)


def _switch(core: int) -> str:
    return f"CORE_{core}"


def _cpu(core: int) -> str:
    return f"/sys/devices/system/cpu/cpu{core}"

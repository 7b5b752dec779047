"""The nvpmodel file of a tree: the board's stock modes, with the paths and the spelling of its release."""

from __future__ import annotations

from typing import Dict, Iterator, List

from boards.clock_files import EMC_CAP
from boards.layouts import Layout
from boards.plan import Plan
from boards.processor_files import CPU
from harness.core.boards import BoardSpec, Preset
from harness.core.units import HZ_PER_KHZ

CPU_FLOOR_KHZ = {"tegra194": 1_190_400, "tegra234": 729_600}
"""Lowest CPU clock of the stock modes, where it is above the hardware's."""

DECLARED_TOO = {"orin-agx-32gb": range(8, 12)}
"""Cores that a stock conf declares, that none of its modes names, and that the module does not have."""

GPU_FLOOR_HZ = {"xavier-agx": 318_750_000}


def conf_text(plan: Plan, layout: Layout, spec: BoardSpec) -> str:
    """The file. On Orin its EMC section is spelled without the usual blank."""
    default = next(preset.id for preset in spec.presets if preset.name == spec.default_preset)
    lines = ["# Power modes of this board.", ""]
    for head, arguments in _params(plan, layout, spec):
        lines += [head, *arguments, ""]
    for preset in spec.presets:
        lines += [f"< POWER_MODEL ID={preset.id} NAME={preset.name} >", *_settings(plan, layout, spec, preset), ""]
    return "\n".join([*lines, "# the mode of the first boot, mandatory", f"< PM_CONFIG DEFAULT={default} >", ""])


def _param(kind: str, name: str, paths: Dict[str, str], twins: bool = False) -> tuple:
    """A section; with `twins`, each path once more under the name that newer kernels look at."""
    lines = [f"{argument} /{path}" for argument, path in paths.items()]
    lines += [f"{argument}_KNEXT /{path}" for argument, path in paths.items()] if twins else []
    return f"< PARAM TYPE={kind} NAME={name} >", lines


def _params(plan: Plan, layout: Layout, spec: BoardSpec) -> Iterator[tuple]:
    device, twins = layout.gpu_device, layout.release.major in (35, 36)
    cores = [core for core in range(spec.cpu_cores) if f"{CPU}/cpu{core}/online" in plan.controls]
    cores += list(DECLARED_TOO.get(layout.board, ()))
    yield _param("FILE", "CPU_ONLINE", {f"CORE_{core}": f"{CPU}/cpu{core}/online" for core in cores})
    for mask in layout.masks:
        yield _param("FILE", _gating(mask), {mask.upper(): f"{device}/{mask}"})
    yield _param("FILE", "GPU_POWER_CONTROL_ENABLE", {"GPU_PWR_CNTL_EN": f"{device}/power/control"})
    yield _param("FILE", "GPU_POWER_CONTROL_DISABLE", {"GPU_PWR_CNTL_DIS": f"{device}/power/control"})
    for cluster in spec.cpu.clusters:
        folder = f"{CPU}/cpu{min(cluster.cores)}/cpufreq"
        names = {"FREQ_TABLE": "scaling_available_frequencies", "MAX_FREQ": "scaling_max_freq"}
        names["MIN_FREQ"] = "scaling_min_freq"
        yield _param("CLOCK", cluster.name, {key: f"{folder}/{name}" for key, name in names.items()}, twins)
    names = {"FREQ_TABLE": "available_frequencies", "MAX_FREQ": "max_freq", "MIN_FREQ": "min_freq"}
    old = {key: f"{layout.gpu_devfreq}/{name}" for key, name in names.items()}
    if layout.release.major == 36:  # the older kernel's paths stand there still, and lead nowhere
        gone = "sys/devices/17000000.ga10b/devfreq/17000000.ga10b"
        head, lines = _param("CLOCK", "GPU", {key: f"{gone}/{name}" for key, name in names.items()})
        twin = "sys/devices/platform/17000000.gpu/devfreq_dev"
        yield head, lines + [f"{key}_KNEXT /{twin}/{name}" for key, name in names.items()]
    else:
        yield _param("CLOCK", "GPU", old, twins)
    cap = plan.places["emc"][2]
    head, lines = _param("CLOCK", "EMC", {"MAX_FREQ": cap}, twins)
    if layout.release.major == 36:
        lines[0] = f"MAX_FREQ /{EMC_CAP}"
    yield (head.replace("< PARAM", "<PARAM") if layout.soc == "tegra234" else head), lines
    for engine, path in plan.places["engines"]:
        yield _param("CLOCK", engine, {"MAX_FREQ": path}, twins)
    if layout.board == "xavier-nx":
        yield _over_current_limits(layout)


def _gating(mask: str) -> str:
    return mask.upper().replace("_PG_MASK", "_POWER_GATING")


def _over_current_limits(layout: Layout) -> tuple:
    device = f"{layout.release.platform}/{layout.chips[0].bus}/{layout.chips[0].address}"
    if layout.iio:
        paths = {limit: f"{device}/iio:device0/{limit.lower()}_current_limit_0" for limit in ("WARN", "CRIT")}
        return _param("FILE", "VDDIN_OC_LIMIT", paths)
    lines = [f"{limit} /{device}/hwmon curr1_{node}" for limit, node in (("WARN", "max"), ("CRIT", "crit"))]
    return "< PARAM TYPE=HWMON NAME=VDDIN_OC_LIMIT >", lines


def _hz(khz: object, free: int) -> int:
    return free if khz is None else khz * HZ_PER_KHZ


def _settings(plan: Plan, layout: Layout, spec: BoardSpec, preset: Preset) -> List[str]:
    """In the order of the stock files: cores, masks, GPU on, clocks, GPU released, memory, engines."""
    online = preset_cores(spec, preset)
    lines = []
    for core in range(spec.cpu_cores):
        if f"{CPU}/cpu{core}/online" in plan.controls:
            lines.append(f"CPU_ONLINE CORE_{core} {int(core in online)}")
    for mask in layout.masks:
        value = 0 if mask.startswith("fbp") else preset.tpc_pg_mask
        lines.append(f"{_gating(mask)} {mask.upper()} {value}")
    lines.append("GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on")
    floor = CPU_FLOOR_KHZ.get(layout.soc, 0)
    for cluster in spec.cpu.clusters:
        if set(cluster.cores) & set(online):  # clusters that are off have no lines
            cap = -1 if preset.cpu_khz is None else preset.cpu_khz
            lines += [
                f"{cluster.name} MIN_FREQ {min(floor, cap) if cap > 0 else floor}",
                f"{cluster.name} MAX_FREQ {cap}",
            ]
    lines += [f"GPU MIN_FREQ {GPU_FLOOR_HZ.get(layout.board, 0)}", f"GPU MAX_FREQ {_hz(preset.gpu_khz, -1)}"]
    lines.append("GPU_POWER_CONTROL_DISABLE GPU_PWR_CNTL_DIS auto")
    lines.append(f"EMC MAX_FREQ {_hz(preset.mem_khz, 0)}")
    lines += [f"{engine} MAX_FREQ -1" for engine, _ in plan.places["engines"]]
    if layout.board == "xavier-nx":
        lines += ["VDDIN_OC_LIMIT WARN 3000", "VDDIN_OC_LIMIT CRIT 5000"]
    return lines


def preset_cores(spec: BoardSpec, preset: Preset) -> List[int]:
    """The cores that are on: cluster by cluster, from the first."""
    cores = [core for cluster in spec.cpu.clusters for core in cluster.cores]
    return cores[: preset.cpu_cores]

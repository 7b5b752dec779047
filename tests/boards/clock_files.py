"""The GPU's devfreq node and the memory clock's files, at the places of the release."""

from __future__ import annotations

from boards.clock_lists import THOR_NVD_KHZ
from boards.layouts import Layout
from boards.plan import Plan
from harness.core.boards import BoardSpec
from harness.core.units import HZ_PER_KHZ

DEVFREQ_CLASS = "sys/class/devfreq"
EMC_CAP = "sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
CLOCK_CAPS = "sys/kernel/nvpmodel_clk_cap"  # since r36
BPMP = "sys/kernel/debug/bpmp/debug"
BWMGR = "sys/kernel/debug/tegra_bwmgr"
OVERRIDE = "sys/kernel/debug/clk/override.emc"

_GOVERNORS = ["wmark_active", "wmark_simple", "nvhost_podgov", "userspace", "performance", "simple_ondemand"]
_SWITCH = ["0", "1"]
_DLAS = [(number, part) for number in (0, 1) for part in ("CORE", "FALCON")]


def add_gpu(plan: Plan, layout: Layout, spec: BoardSpec) -> None:
    """The GPU, and a second devfreq device that is none."""
    device = layout.gpu_device
    nodes = [layout.gpu_devfreq]
    if not layout.gpu_node:
        nodes.append(f"{device}/devfreq/gpu-nvd-0")
    plan.places["gpu"] = [nodes, f"{device}/load"]
    for node in nodes:
        table_khz = THOR_NVD_KHZ if node.endswith("gpu-nvd-0") else spec.clocks.gpu_khz
        _add_devfreq(plan, node, device, [khz * HZ_PER_KHZ for khz in table_khz], up=spec.gpu_cap_rounds_up)
    plan.show(f"{device}/load")
    plan.control(f"{device}/power/control", "auto", "choice", of=["on", "auto"])
    if layout.gpu_node:
        plan.raw[f"{device}/of_node/name"] = f"{layout.gpu_node}\0".encode()
        plan.raw[f"{device}/of_node/compatible"] = f"nvidia,{spec.gpu.name}\0".encode()
        plan.control(f"{device}/railgate_enable", 1, "choice", of=_SWITCH)
        if layout.release.major < 39:  # since then its governor does that
            plan.control(f"{device}/enable_3d_scaling", 1, "choice", of=_SWITCH)
        plan.links[f"{device}/devfreq_dev"] = layout.gpu_devfreq
    for mask in layout.masks:
        plan.control(f"{device}/{mask}", 0, "mask", fixed=layout.fixed_mask)
    for link in layout.gpu_links:
        plan.links[link] = device
    plan.places["masks"] = [f"{device}/{mask}" for mask in layout.masks]
    vic = f"{layout.release.platform}/13e40000.host1x/15340000.vic"
    _add_devfreq(plan, f"{vic}/devfreq/15340000.vic", vic, [115_200_000, 729_600_000], up=False)
    plan.raw[f"{vic}/of_node/name"] = b"vic\0"


def _add_devfreq(plan: Plan, node: str, device: str, table_hz: list, up: bool) -> None:
    name = node.rpartition("/")[2]
    plan.links[f"{DEVFREQ_CLASS}/{name}"] = node
    plan.links[f"{node}/device"] = device
    plan.show(f"{node}/available_frequencies", " ".join(map(str, table_hz)))
    plan.show(f"{node}/available_governors", " ".join(_GOVERNORS))
    plan.show(f"{node}/cur_freq", table_hz[0])
    plan.show(f"{node}/target_freq", table_hz[0])
    plan.show(f"{node}/name", name)
    plan.control(f"{node}/governor", "nvhost_podgov", "choice", of=_GOVERNORS)
    plan.control(f"{node}/min_freq", table_hz[0], "minimum", table=table_hz, other=f"{node}/max_freq", up=up)
    plan.control(f"{node}/max_freq", table_hz[-1], "maximum", table=table_hz, other=f"{node}/min_freq", up=up)


def add_memory_clock(plan: Plan, layout: Layout, spec: BoardSpec) -> None:
    """Who sets the memory clock differs with the chip: the BPMP, tegra_bwmgr, or a devfreq device."""
    table_hz = [khz * HZ_PER_KHZ for khz in spec.clocks.mem_khz]
    lowest, highest = table_hz[0], table_hz[-1]
    plan.places["emc_table"] = table_hz
    if layout.emc == "devfreq":
        node = "sys/devices/platform/bwmgr/devfreq/bwmgr"
        _add_devfreq(plan, node, node.rpartition("/devfreq/")[0], table_hz, up=False)
        plan.control(f"{node}/governor", "bpmp-bwmgr", "choice", of=["bpmp-bwmgr", "performance"])
        plan.show(f"{node}/available_governors", "bpmp-bwmgr performance")
        plan.controls[f"{node}/max_freq"]["zero_is_none"] = True
        cap = f"{node}/max_freq"  # of nvpmodel's modes
        if layout.release.major < 39:
            cap = f"{CLOCK_CAPS}/emc"
            plan.control(cap, highest, "memory_cap", highest=highest)
        plan.places["emc"] = ["", "", cap, f"{node}/cur_freq"]
        plan.places["emc_activity"] = [plan.show(f"{BPMP}/actmon/mc_all_avg_activity")]
        return
    if layout.release.major >= 36:
        cap = f"{CLOCK_CAPS}/emc"
        plan.control(cap, highest, "memory_cap", highest=highest)
    else:
        cap = EMC_CAP
        plan.control(cap, 0, "number")
    if layout.emc == "tegra_bwmgr":
        plan.show(f"{BWMGR}/emc_min_rate", lowest)
        plan.show(f"{BWMGR}/emc_max_rate", highest)
        plan.show(f"{OVERRIDE}/clk_rate", lowest)
        plan.control(f"{OVERRIDE}/clk_update_rate", lowest, "memory_rate", table=table_hz)
        plan.control(f"{OVERRIDE}/clk_state", 0, "choice", of=_SWITCH)
        plan.places["emc"] = [f"{OVERRIDE}/clk_state", f"{OVERRIDE}/clk_update_rate", cap, f"{OVERRIDE}/clk_rate"]
    else:
        clock = f"{BPMP}/clk/emc"
        plan.show(f"{clock}/min_rate", lowest)
        plan.show(f"{clock}/max_rate", highest)
        plan.control(f"{clock}/rate", lowest, "memory_rate", table=table_hz)
        plan.control(f"{clock}/state", 1, "choice", of=_SWITCH)
        plan.control(f"{clock}/mrq_rate_locked", 0, "choice", of=_SWITCH)
        for khz in spec.clocks.mem_khz:
            plan.show(f"{BPMP}/emc/tables/regular/{khz}/index", spec.clocks.mem_khz.index(khz))
        plan.places["emc"] = [f"{clock}/mrq_rate_locked", f"{clock}/rate", cap, f"{clock}/rate"]
    activity = (
        "sys/kernel/debug/cactmon/mc_all" if layout.release.major >= 35 else "sys/kernel/actmon_avg_activity/mc_all"
    )
    plan.places["emc_activity"] = [plan.show(activity)]


def add_engine_caps(plan: Plan, layout: Layout, spec: BoardSpec) -> None:
    """Caps of the DLAs and the PVA, where the chip has them and the module uses them."""
    host1x = {"tegra194": "13e10000.host1x", "tegra234": "13e40000.host1x"}.get(layout.soc)
    plan.places["engines"] = []
    if host1x is None or layout.board.startswith("orin-nano"):
        return
    pva = ["PVA0_VPS0"] if layout.soc == "tegra194" else ["PVA0_VPS", "PVA0_AXI"]
    for param, device in (
        *((f"DLA{number}_{part}", f"158{number * 4 + 8:x}0000.nvdla{number}") for number, part in _DLAS),
        *((name, "16000000.pva0") for name in pva),
    ):
        name = param.lower().replace("pva0_axi", "pva0_cpu_axi")
        path = f"{layout.release.platform}/{host1x}/{device}/acm/clk_cap/{name}"
        if layout.release.major >= 36:
            path = f"{layout.release.platform}/13e00000.host1x/{device}/clk_cap/{name}"
        plan.control(path, 1_600_000_000, "number")
        plan.places["engines"].append([param, path])

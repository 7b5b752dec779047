"""The CPU's files: cores, topology, idle states, and a cpufreq policy for each cluster."""

from __future__ import annotations

from boards.layouts import Layout
from boards.plan import Plan
from harness.core.boards import BoardSpec

CPU = "sys/devices/system/cpu"
GOVERNORS = "interactive conservative ondemand userspace powersave performance schedutil"
STATES = ("WFI", "c7")

_PARTS = {"tegra210": "0xd07", "tegra186": "0xd07", "tegra194": "0x004", "tegra234": "0xd42", "tegra264": "0xd83"}


def add_processor(plan: Plan, layout: Layout, spec: BoardSpec) -> None:
    """Every core online, every cluster free to run at any of its clocks."""
    last = spec.cpu_cores - 1
    for name in ("online", "present", "possible"):
        plan.show(f"{CPU}/{name}", f"0-{last}")
    plan.show(f"{CPU}/offline", "")
    table = spec.clocks.cpu_khz
    plan.places["clusters"] = []
    for number, cluster in enumerate(spec.cpu.clusters):
        first = min(cluster.cores)
        policy = f"{CPU}/cpufreq/policy{first}"
        cores = " ".join(map(str, cluster.cores))
        plan.places["clusters"].append([policy, list(cluster.cores)])
        for name, text in {
            "related_cpus": cores,
            "affected_cpus": cores,
            "cpuinfo_min_freq": table[0],
            "cpuinfo_max_freq": table[-1],
            "cpuinfo_cur_freq": table[0],
            "cpuinfo_transition_latency": 300000,
            "scaling_cur_freq": table[0],
            "scaling_available_frequencies": " ".join(map(str, table)),
            "scaling_available_governors": GOVERNORS,
            "scaling_driver": layout.soc.replace("tegra234", "tegra194") + "_cpufreq",
        }.items():
            plan.show(f"{policy}/{name}", text)
        limits = {"minimum": f"{policy}/scaling_min_freq", "maximum": f"{policy}/scaling_max_freq"}
        plan.control(limits["minimum"], table[0], "minimum", table=list(table), other=limits["maximum"], up=False)
        plan.control(limits["maximum"], table[-1], "maximum", table=list(table), other=limits["minimum"], up=False)
        plan.control(f"{policy}/scaling_governor", "schedutil", "choice", of=GOVERNORS.split())
        for core in cluster.cores:
            _add_core(plan, layout, core, number, policy)
    plan.files["proc/cpuinfo"] = "\n\n".join(_cpuinfo(layout, spec, core) for core in range(spec.cpu_cores))


def _add_core(plan: Plan, layout: Layout, core: int, cluster: int, policy: str) -> None:
    folder = f"{CPU}/cpu{core}"
    if core or layout.board != "tx2":  # core 0 of the TX2 cannot be switched, and its conf has no line for it
        plan.control(f"{folder}/online", 1, "online", core=core)
    plan.links[f"{folder}/cpufreq"] = policy
    plan.show(f"{folder}/topology/core_id", core)
    plan.show(f"{folder}/topology/physical_package_id", cluster)
    plan.show(f"{folder}/topology/thread_siblings_list", core)
    for number, state in enumerate(STATES):
        plan.show(f"{folder}/cpuidle/state{number}/name", state)
        plan.control(f"{folder}/cpuidle/state{number}/disable", 0, "choice", of=["0", "1"])


def _cpuinfo(layout: Layout, spec: BoardSpec, core: int) -> str:
    return "\n".join(
        [
            f"processor\t: {core}",
            f"model name\t: {spec.cpu.name}",
            "BogoMIPS\t: 62.50",
            "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp",
            "CPU implementer\t: 0x41",
            "CPU architecture: 8",
            "CPU variant\t: 0x0",
            f"CPU part\t: {_PARTS[layout.soc]}",
            "CPU revision\t: 1",
        ]
    )

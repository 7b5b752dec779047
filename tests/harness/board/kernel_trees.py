"""Trees as boards have them, and a kernel that refuses what a kernel refuses, for tests of the knobs."""

from __future__ import annotations

import contextlib
import os

from harness.core.errors import ControlError

CPU = "sys/devices/system/cpu"
DEVFREQ = "sys/class/devfreq"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
LEVELS_KHZ = (115200, 729600, 1497600, 2201600)
GPU_LEVELS_HZ = (114750000, 306000000, 1300500000)


def cpus(count, offline=()):
    """CPUs with a switch each; CPU 0 shows one too, as some kernels do."""
    return {f"{CPU}/cpu{cpu}/online": int(cpu not in offline) for cpu in range(count)}


def policy(number, cpus, limits=None, governor="schedutil", levels=LEVELS_KHZ):
    lowest, highest = limits or (levels[0], levels[-1])
    files = {
        "related_cpus": cpus,
        "cpuinfo_min_freq": levels[0],
        "cpuinfo_max_freq": levels[-1],
        "scaling_available_frequencies": " ".join(map(str, levels)),
        "scaling_min_freq": lowest,
        "scaling_max_freq": highest,
        "scaling_governor": governor,
        "scaling_available_governors": "performance schedutil userspace",
    }
    return {f"{CPU}/cpufreq/policy{number}/{name}": content for name, content in files.items()}


def gpu(tree, name="17000000.ga10b", of_node="ga10b", limits=(306000000, 1300500000), place="platform/17000000.gpu"):
    """A GPU behind the link that devfreq shows it by."""
    real = f"sys/devices/{place}/devfreq/{name}"
    files = {
        "available_frequencies": " ".join(map(str, GPU_LEVELS_HZ)),
        "min_freq": limits[0],
        "max_freq": limits[1],
        "governor": "nvhost_podgov",
        "available_governors": "nvhost_podgov userspace performance",
    }
    tree.write({f"{real}/{file}": content for file, content in files.items()})
    tree.write({f"sys/devices/{place}/of_node/name": f"{of_node}\0"})
    tree.link(f"{real}/device", tree.path / f"sys/devices/{place}")
    tree.link(f"{DEVFREQ}/{name}", tree.path / real)


def emc(lock=0, rate=2133000000, cap=0):
    return {
        f"{EMC}/rate": rate,
        f"{EMC}/min_rate": 204000000,
        f"{EMC}/max_rate": 3199000000,
        f"{EMC}/mrq_rate_locked": lock,
        f"{EMC}/state": 1,
        **{f"sys/kernel/debug/bpmp/debug/emc/tables/regular/{khz}/x": 0 for khz in (204000, 665600, 2133000, 3199000)},
        "sys/kernel/nvpmodel_emc_cap/emc_iso_cap": cap,
    }


_OPPOSITES = {
    "scaling_min_freq": ("scaling_max_freq", lambda value, other: value <= other),
    "scaling_max_freq": ("scaling_min_freq", lambda value, other: value >= other),
    "min_freq": ("max_freq", lambda value, other: value <= other),
    "max_freq": ("min_freq", lambda value, other: value >= other),
}


def _has_online_cpu(policy):
    switches = os.path.join(policy, "../../cpu{}/online")
    with open(os.path.join(policy, "related_cpus")) as file:
        cpus = file.read().split()
    for cpu in cpus:
        with open(switches.format(cpu)) as file:
            if file.read().strip() == "1":
                return True
    return False


@contextlib.contextmanager
def kernel(monkeypatch):
    """Writes of the knobs meet a kernel; yields the (path, value) pairs that it took.

    It holds minimum <= maximum, keeps CPU 0, and takes nothing for policies whose CPUs are all offline.
    """
    from harness.board import cpu, emc, fan, governor, kernel_file

    written = []
    plain_write = kernel_file.write

    def write(path, value, hint=None):
        folder, name = os.path.split(path)
        opposite, holds = _OPPOSITES.get(name, (None, None))
        refused = ControlError(f"writing {value} to {path} was refused: Invalid argument")
        if opposite and not holds(int(value), kernel_file.read_int(os.path.join(folder, opposite))):
            raise refused
        if path.endswith("cpu0/online") and int(value) == 0:
            raise refused
        if "/cpufreq/policy" in path and not _has_online_cpu(folder):
            raise refused
        plain_write(path, value)
        written.append((path, value))

    with monkeypatch.context() as patch:
        for module in (cpu, emc, fan, governor, kernel_file):
            patch.setattr(module, "write", write)
        yield written

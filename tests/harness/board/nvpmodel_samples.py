"""Conf files as boards carry them, written for these tests, with the quirks of each; and what their modes stand for."""

from __future__ import annotations

from typing import NamedTuple

CPU = "/sys/devices/system/cpu"
FREE = -1  # "no limit" of a CLOCK


def _cores(count):
    lines = [f"CORE_{core} {CPU}/cpu{core}/online" for core in range(count)]
    return ["< PARAM TYPE=FILE NAME=CPU_ONLINE >", *lines, ""]


def _clock(name, files, next_kernel=None):
    """A clock's PARAM; with the paths of a newer kernel where there are any."""
    lines = [f"{argument} {path}" for argument, path in files.items()]
    lines += [f"{argument}_KNEXT {path}" for argument, path in (next_kernel or {}).items()]
    return [f"< PARAM TYPE=CLOCK NAME={name} >", *lines, ""]


def _cpu(core):
    directory = f"{CPU}/cpu{core}/cpufreq"
    return {
        "FREQ_TABLE": f"{directory}/scaling_available_frequencies",
        "MAX_FREQ": f"{directory}/scaling_max_freq",
        "MIN_FREQ": f"{directory}/scaling_min_freq",
    }


def _devfreq(directory):
    return {
        "FREQ_TABLE": f"{directory}/available_frequencies",
        "MAX_FREQ": f"{directory}/max_freq",
        "MIN_FREQ": f"{directory}/min_freq",
    }


def _file(name, argument, path, next_path=None):
    twin = [f"{argument}_KNEXT {next_path}"] if next_path else []
    return [f"< PARAM TYPE=FILE NAME={name} >", f"{argument} {path}", *twin, ""]


def _gpu_power(directory="/sys/devices/gpu.0", next_directory=None):
    following = next_directory and f"{next_directory}/power/control"
    return [
        *_file("GPU_POWER_CONTROL_ENABLE", "GPU_PWR_CNTL_EN", f"{directory}/power/control", following),
        *_file("GPU_POWER_CONTROL_DISABLE", "GPU_PWR_CNTL_DIS", f"{directory}/power/control", following),
    ]


EMC_CAP = {"MAX_FREQ": "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"}
BANNER = ["# Power modes of this board.", "", "###########", "# PARAMS  #", "###########", ""]


class Mode(NamedTuple):
    """A mode as a board's manual gives it: cores and kHz, None for no cap."""

    id: int
    name: str
    cores: int
    cpu: int = None
    gpu: int = None
    mem: int = None
    mask: int = None


def _khz(value):
    return FREE if value is None else value


def _hz(value, free=FREE):
    return free if value is None else value * 1000


def _mode(mode, total, cluster, cpu_min, gpu_min, head=(), tail=(), blanks=" "):
    """A mode's lines in the order of NVIDIA's files; only clusters with an online core have clock lines."""
    name, size = cluster
    lines = [f"< POWER_MODEL ID={mode.id} NAME={mode.name} >"]
    lines += [f"CPU_ONLINE CORE_{core} {int(core < mode.cores)}" for core in range(total)]
    lines += [f"TPC_POWER_GATING TPC_PG_MASK {mode.mask}"] if mode.mask is not None else []
    lines += [*head, "GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on"]
    for number in range(-(-mode.cores // size)):
        param = name.format(number)
        lines += [f"{param} MIN_FREQ{blanks}{cpu_min}", f"{param} MAX_FREQ {_khz(mode.cpu)}"]
    lines += [f"GPU MIN_FREQ{blanks}{gpu_min}", f"GPU MAX_FREQ {_hz(mode.gpu)}"]
    lines += ["GPU_POWER_CONTROL_DISABLE GPU_PWR_CNTL_DIS auto", f"EMC MAX_FREQ {_hz(mode.mem, free=0)}"]
    return [*lines, *tail, ""]


ORIN_AGX_MODES = (
    Mode(0, "MAXN", 12, mask=0),
    Mode(1, "MODE_15W", 4, 1113600, 408000, 2133000, mask=248),
    Mode(2, "MODE_30W", 8, 1728000, 612000, mask=240),
    Mode(3, "MODE_50W", 12, 1497600, 816000, mask=0),
)


def orin_agx():
    """AGX Orin, L4T r35: three clusters, DLA and PVA caps, paths for the next kernel."""
    lines = [*BANNER, *_cores(12), *_file("TPC_POWER_GATING", "TPC_PG_MASK", "/sys/devices/gpu.0/tpc_pg_mask")]
    lines += _gpu_power()
    for number in range(3):
        lines += _clock(f"CPU_A78_{number}", _cpu(4 * number), _cpu(4 * number))
    old, new = (
        _devfreq("/sys/devices/17000000.ga10b/devfreq/17000000.ga10b"),
        _devfreq("/sys/devices/17000000.ga10b/devfreq_dev"),
    )
    lines += [*_clock("GPU", old, new), "<PARAM TYPE=CLOCK NAME=EMC >", f"MAX_FREQ {EMC_CAP['MAX_FREQ']}", ""]
    for unit in ("DLA0_CORE", "DLA0_FALCON", "PVA0_VPS"):
        lines += _clock(unit, {"MAX_FREQ": f"/sys/devices/platform/13e40000.host1x/acm/clk_cap/{unit.lower()}"})
    lines += ["# MODES", ""]
    for mode in ORIN_AGX_MODES:
        caps = [FREE] * 3 if mode.name == "MAXN" else [614400000, 294400000, 512000000]
        tail = [f"{unit} MAX_FREQ {cap}" for unit, cap in zip(("DLA0_CORE", "DLA0_FALCON", "PVA0_VPS"), caps)]
        lines += _mode(mode, 12, ("CPU_A78_{}", 4), 729600, 0, tail=tail)
    return "\n".join([*lines, "# the mode of the first boot", "< PM_CONFIG DEFAULT=2 >", ""])


XAVIER_AGX_MODES = (
    Mode(0, "MAXN", 8, mask=0),
    Mode(1, "MODE_10W", 2, 1200000, 520000, 1065600, mask=5),
    Mode(3, "MODE_30W_ALL", 8, 1200000, 900000, 1600000, mask=0),
    Mode(7, "MODE_15W_DESKTOP", 4, 2188800, 670000, 1331200, mask=0),
)


def xavier_agx():
    """AGX Xavier, L4T r32: four clusters, minima above 0 for the GPU too, IDs with gaps, a fan section, CRLF."""
    lines = [*BANNER, *_cores(8), *_file("TPC_POWER_GATING", "TPC_PG_MASK", "/sys/devices/gpu.0/tpc_pg_mask")]
    lines += _gpu_power()
    for number in range(4):
        lines += _clock(f"CPU_DENVER_{number}", _cpu(2 * number))
    lines += _clock("GPU", _devfreq("/sys/devices/17000000.gv11b/devfreq/17000000.gv11b"))
    lines += [*_clock("EMC", EMC_CAP), *_clock("CVNAS", {"MAX_FREQ": "/sys/kernel/nvpmodel_emc_cap/nafll_cvnas"})]
    for mode in XAVIER_AGX_MODES:
        lines += _mode(mode, 8, ("CPU_DENVER_{}", 2), 1200000, 318750000, tail=["CVNAS MAX_FREQ 576000000"])
    return "\r\n".join([*lines, "< PM_CONFIG DEFAULT=7 >", "< FAN_CONFIG DEFAULT=quiet >", ""])


XAVIER_NX_MODES = (
    Mode(0, "MODE_15W_2CORE", 2, 1907200, 1109250, 1600000, mask=1),
    Mode(2, "MODE_15W_6CORE", 6, 1420800, 1109250, 1600000, mask=1),
    Mode(8, "MODE_20W_6CORE", 6, 1420800, 1109250, 1866000, mask=1),
)


def xavier_nx():
    """Xavier NX, L4T r35: over-current limits of type HWMON, whose lines have a third word; tabs."""
    lines = [*BANNER, *_cores(6), *_file("TPC_POWER_GATING", "TPC_PG_MASK", "/sys/devices/gpu.0/tpc_pg_mask")]
    lines += _gpu_power()
    for number in range(3):
        lines += _clock(f"CPU_DENVER_{number}", _cpu(2 * number))
    lines += _clock("GPU", _devfreq("/sys/devices/17000000.gv11b/devfreq/17000000.gv11b"))
    lines += [*_clock("EMC", EMC_CAP), "< PARAM TYPE=HWMON NAME=VDDIN_OC_LIMIT >"]
    for argument, node in (("WARN", "curr1_max"), ("CRIT", "curr1_crit")):
        lines += [f"{argument}\t/sys/devices/platform/c250000.i2c/i2c-7/7-0040/hwmon\t{node}"]
    for mode in XAVIER_NX_MODES:
        limits = ["VDDIN_OC_LIMIT WARN 3000", "VDDIN_OC_LIMIT CRIT 5000"]
        lines += ["", *_mode(mode, 6, ("CPU_DENVER_{}", 2), 1190400, 0, tail=limits, blanks="\t")]
    return "\n".join([*lines, "< PM_CONFIG DEFAULT=2 >"])


ORIN_NANO_MODES = (
    Mode(0, "15W", 6, 1497600, 612000, 2133000, mask=240),
    Mode(1, "25W", 6, 1344000, 918000, 3199000, mask=240),
    Mode(2, "MAXN_SUPER", 6, mask=240),
    Mode(3, "7W", 4, 960000, 408000, 2133000, mask=252),
)


def orin_nano():
    """Orin Nano, L4T r36, super modes: two masks, twins of all paths for the next kernel, no blank after `<`."""
    lines = [*BANNER, *_cores(6)]
    for what in ("FBP", "TPC"):
        file = f"{what.lower()}_pg_mask"
        paths = f"/sys/devices/gpu.0/{file}", f"/sys/devices/platform/gpu.0/{file}"
        lines += _file(f"{what}_POWER_GATING", f"{what}_PG_MASK", *paths)
    lines += _gpu_power(next_directory="/sys/devices/platform/gpu.0")
    for number in range(2):
        lines += _clock(f"CPU_A78_{number}", _cpu(4 * number), _cpu(4 * number))
    old, new = "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b", "/sys/devices/platform/17000000.gpu/devfreq_dev"
    lines += [*_clock("GPU", _devfreq(old), _devfreq(new)), "<PARAM TYPE=CLOCK NAME=EMC >"]
    lines += [
        "MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
        "MAX_FREQ_KNEXT /sys/kernel/nvpmodel_clk_cap/emc",
        "",
    ]
    for mode in ORIN_NANO_MODES:
        lines += _mode(mode, 6, ("CPU_A78_{}", 4), 729600, 0, head=["FBP_POWER_GATING FBP_PG_MASK 2"])
    return "\n".join([*lines, "< PM_CONFIG DEFAULT=1 >", ""])


NANO_MODES = (Mode(0, "MAXN", 4), Mode(1, "5W", 2, 918000, 640000, 1600000))


def nano():
    """Nano, L4T r32: one cluster without a number, no masks, double blanks, remarks at the ends of lines."""
    lines = [*BANNER, *_cores(4), *_gpu_power(), *_clock("CPU_A57", _cpu(0), _cpu(0))]
    lines += [*_clock("GPU", _devfreq("/sys/devices/gpu.0/devfreq/57000000.gpu")), *_clock("EMC", EMC_CAP, EMC_CAP)]
    for mode in NANO_MODES:
        lines += _mode(mode, 4, ("CPU_A57", 4), 0, 0, blanks="  ")
    return "\n".join([*lines, "< PM_CONFIG DEFAULT=0 >"]).replace("640000000", "640000000\t# next is 614400000")


SAMPLES = {
    "orin-agx": (orin_agx(), ORIN_AGX_MODES, "MODE_30W"),
    "xavier-agx": (xavier_agx(), XAVIER_AGX_MODES, "MODE_15W_DESKTOP"),
    "xavier-nx": (xavier_nx(), XAVIER_NX_MODES, "MODE_15W_6CORE"),
    "orin-nano": (orin_nano(), ORIN_NANO_MODES, "25W"),
    "nano": (nano(), NANO_MODES, "MAXN"),
}
"""By board: the file, its modes, the default among them."""

TX2 = "\n".join(
    [
        "< PARAM TYPE=FILE NAME=CPU_ONLINE >",
        *(f"CORE_{core} {CPU}/cpu{core}/online" for core in range(1, 6)),
        *_clock("CPU_A57", _cpu(0)),
        *_clock("CPU_DENVER", _cpu(1)),
        *_clock("GPU", _devfreq("/sys/devices/17000000.gp10b/devfreq/17000000.gp10b")),
        *_clock("EMC", EMC_CAP),
        "< POWER_MODEL ID=0 NAME=MAXN >",
        *(f"CPU_ONLINE CORE_{core} 1" for core in range(1, 6)),
        *(f"{param} {limit}" for param in ("CPU_A57", "CPU_DENVER") for limit in ("MIN_FREQ 0", "MAX_FREQ -1")),
        *("GPU MIN_FREQ 0", "GPU MAX_FREQ -1", "EMC MAX_FREQ 0"),
        "< POWER_MODEL ID=3 NAME=MAXP_CORE_ARM >",
        *("CPU_ONLINE CORE_1 0", "CPU_ONLINE CORE_2 0"),
        *(f"CPU_ONLINE CORE_{core} 1" for core in range(3, 6)),
        *("CPU_A57 MIN_FREQ 0", "CPU_A57 MAX_FREQ 2000000", "GPU MIN_FREQ 0", "GPU MAX_FREQ 1120000000"),
        *("EMC MAX_FREQ 1600000000", "< PM_CONFIG DEFAULT=3 >"),
    ]
)
"""TX2: core 0 cannot be switched and has no line; the second cluster's cores lie between those of the first."""

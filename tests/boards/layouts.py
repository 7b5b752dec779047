"""Which boards run which releases of L4T, and where each pair has its files: paths differ in almost every pair.

Sources: NVIDIA's developer guides for GPU, EMC, rails; NVIDIA's tegra_oc and tegra23x_oc drivers for over-current
counters; lists of sysfs paths and outputs of jetson_clocks, nvpmodel and tegrastats that users of such boards
published.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple


class Release(NamedTuple):
    """A release of L4T: the two parts of its version, its kernel, and where the kernel has platform devices."""

    major: int
    revision: str
    kernel: str
    platform: str


RELEASES = {
    "r32.7": Release(32, "7.4", "4.9.337-tegra", "sys/devices"),
    "r35.4": Release(35, "4.1", "5.10.120-tegra", "sys/devices/platform"),
    "r36.4": Release(36, "4.3", "5.15.148-tegra", "sys/devices/platform/bus@0"),
    "r38.2": Release(38, "2.0", "6.8.12-tegra", "sys/devices/platform/bus@0"),
    "r39.2": Release(39, "2.0", "6.8.12-1021-tegra", "sys/devices/platform/bus@0"),
}

BOARDS: Dict[str, Tuple[str, ...]] = {
    "nano": ("r32.7",),
    "tx2": ("r32.7",),
    "xavier-agx": ("r32.7", "r35.4"),
    "xavier-nx": ("r32.7", "r35.4"),
    "orin-agx": ("r35.4", "r36.4", "r39.2"),
    "orin-agx-32gb": ("r35.4", "r36.4"),
    "orin-nx": ("r35.4", "r36.4"),
    "orin-nano": ("r35.4", "r36.4"),
    "orin-nano-super": ("r36.4",),  # since JetPack 6.2
    "thor": ("r38.2",),
}
"""The releases of each board."""

PAIRS = tuple((board, l4t) for board, releases in BOARDS.items() for l4t in releases)

VARIANTS = {"orin-agx-32gb": ("orin-agx", "32gb"), "orin-nano-super": ("orin-nano", "super")}
"""Spec file and variant of the boards that are no spec file of their own."""


class Chip(NamedTuple):
    """A power monitor: driver, folder of its bus (below the platform's), address, label of each channel.

    An INA238 has one channel and no label.
    """

    driver: str
    bus: str
    address: str
    labels: Tuple[str, ...]


class Layout(NamedTuple):
    """Where a board has what under a release; paths without a leading slash.

    Attributes:
        compatible, model: of the device tree.
        conf: the name of its nvpmodel file.
        soc: the chip, `tegra234`.
        gpu_device, gpu_devfreq: the real folders.
        gpu_node: the name of the GPU's node in the device tree; empty where it has none.
        gpu_links: other ways to the device's folder.
        masks: files of the GPU's folder that take a power-gating mask.
        emc: who sets the memory clock: `bpmp`, `tegra_bwmgr` or `devfreq`.
        chips: the power monitors.
        iio: they are IIO devices of the driver ina3221x, else hwmon ones of ina3221.
        fan: `target_pwm` (one folder) or `pwm1` (hwmon).
        zones: the thermal zones' types.
        dark_zones: those among them that are switched off, and cannot be read.
        throttles: the cooling devices that are on while the board throttles.
        over_current: the end of the event counters' names, and how many there are.
        fixed_mask: the kernel keeps a power-gating mask of 0, whatever the modes say. Orin Nano Super is built so by
            default; other boards of it show the mask of their modes, and change between modes without a reboot.
        inactive_policy_is_gone: a CPU cluster that is off has no cpufreq folder; else it stays and refuses writes.
    """

    board: str
    l4t: str
    compatible: Tuple[str, ...]
    model: str
    conf: str
    soc: str
    gpu_device: str
    gpu_devfreq: str
    gpu_node: str
    gpu_links: Tuple[str, ...]
    masks: Tuple[str, ...]
    emc: str
    chips: Tuple[Chip, ...]
    iio: bool
    fan: str
    zones: Tuple[str, ...]
    dark_zones: Tuple[str, ...]
    throttles: Tuple[str, ...]
    over_current: Tuple[str, int]
    fixed_mask: bool
    inactive_policy_is_gone: bool

    @property
    def release(self) -> Release:
        return RELEASES[self.l4t]


class _Family(NamedTuple):
    soc: str
    carrier: str
    part: str
    models: Dict[str, str]
    conf: str
    chips: Tuple[Chip, ...]


_INA = "ina3221"
_IN_CPU_SOC = ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
_ORIN_AGX_CHIPS = (
    Chip(_INA, "c240000.i2c/i2c-1", "1-0040", ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")),
    Chip(_INA, "c240000.i2c/i2c-1", "1-0041", ("NC", "VDDQ_VDD2_1V8AO", "NC")),
)
_ORIN_SMALL_CHIPS = (Chip(_INA, "c240000.i2c/i2c-1", "1-0040", _IN_CPU_SOC),)
_ORIN_AGX_MODELS = {
    "r35.4": "Jetson AGX Orin Developer Kit",
    **dict.fromkeys(["r36.4", "r39.2"], "NVIDIA Jetson AGX Orin Developer Kit"),
}
_REFERENCE = "NVIDIA Jetson {} Engineering Reference Developer Kit"

_FAMILIES = {
    "nano": _Family(
        "tegra210",
        "p3449-0000-b00",
        "p3448-0000-b00",
        {"r32.7": "NVIDIA Jetson Nano Developer Kit"},
        "nvpmodel_t210_jetson-nano",
        (Chip(_INA, "50000000.host1x/546c0000.i2c/i2c-6", "6-0040", ("POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU")),),
    ),
    "tx2": _Family(
        "tegra186",
        "p2597-0000",
        "p3310-1000",
        {"r32.7": "quill"},
        "nvpmodel_t186",
        (
            Chip(_INA, "3160000.i2c/i2c-0", "0-0040", ("VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_4V0_WIFI")),
            Chip(_INA, "3160000.i2c/i2c-0", "0-0041", ("VDD_IN", "VDD_SYS_CPU", "VDD_SYS_DDR")),
        ),
    ),
    "xavier-agx": _Family(
        "tegra194",
        "p2822-0000",
        "p2888-0004",
        {"r32.7": "Jetson-AGX", "r35.4": "Jetson-AGX"},
        "nvpmodel_t194",
        (
            Chip(_INA, "c240000.i2c/i2c-1", "1-0040", ("GPU", "CPU", "SOC")),
            Chip(_INA, "c240000.i2c/i2c-1", "1-0041", ("CV", "VDDRQ", "SYS5V")),
        ),
    ),
    "xavier-nx": _Family(
        "tegra194",
        "p3509-0000",
        "p3668-0000",
        dict.fromkeys(["r32.7", "r35.4"], "NVIDIA Jetson Xavier NX Developer Kit"),
        "nvpmodel_t194_p3668",
        (Chip(_INA, "c250000.i2c/i2c-7", "7-0040", _IN_CPU_SOC),),
    ),
    "orin-agx": _Family(
        "tegra234", "p3737-0000", "p3701-0005", _ORIN_AGX_MODELS, "nvpmodel_p3701_0000", _ORIN_AGX_CHIPS
    ),
    "orin-agx-32gb": _Family(
        "tegra234", "p3737-0000", "p3701-0004", _ORIN_AGX_MODELS, "nvpmodel_p3701_0004", _ORIN_AGX_CHIPS
    ),
    "orin-nx": _Family(
        "tegra234",
        "p3768-0000",
        "p3767-0000",
        {"r35.4": "NVIDIA Orin NX Developer Kit", "r36.4": _REFERENCE.format("Orin NX")},
        "nvpmodel_p3767_0000",
        _ORIN_SMALL_CHIPS,
    ),
    "orin-nano": _Family(
        "tegra234",
        "p3768-0000",
        "p3767-0005",
        {"r35.4": "NVIDIA Orin Nano Developer Kit", "r36.4": _REFERENCE.format("Orin Nano")},
        "nvpmodel_p3767_0003",
        _ORIN_SMALL_CHIPS,
    ),
    "orin-nano-super": _Family(
        "tegra234",
        "p3768-0000",
        "p3767-0005-super",
        {"r36.4": _REFERENCE.format("Orin Nano") + " Super"},
        "nvpmodel_p3767_0003_super",
        _ORIN_SMALL_CHIPS,
    ),
    "thor": _Family(
        "tegra264",
        "p4071-0000",
        "p3834-0008",
        {"r38.2": "NVIDIA Jetson AGX Thor Developer Kit"},
        "nvpmodel_p3834_0008",
        (
            Chip(_INA, "810c640000.i2c/i2c-2", "2-0040", ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0")),
            Chip("ina238", "810c640000.i2c/i2c-2", "2-0044", ("VIN",)),
        ),
    ),
}

_ZONES = {  # type without its ending
    "nano": ("AO", "CPU", "GPU", "PLL"),
    "tx2": ("BCPU", "MCPU", "GPU", "PLL"),
    "xavier-agx": ("CPU", "GPU", "AUX", "AO"),
    "xavier-nx": ("CPU", "GPU", "AUX", "AO"),
    "orin": ("CPU", "GPU", "CV0", "CV1", "CV2", "SOC0", "SOC1", "SOC2", "tj"),
    "thor": ("cpu", "gpu", "soc012", "soc345", "tj"),
}


def _gpu(board: str, soc: str, release: Release) -> Tuple[str, str, str, Tuple[str, ...]]:
    """Device, devfreq folder, node name and links of the GPU."""
    if soc == "tegra264":
        device = "sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0"
        return device, f"{device}/devfreq/gpu-gpc-0", "", ()
    name = {"tegra210": "57000000.gpu", "tegra186": "17000000.gp10b", "tegra194": "17000000.gv11b"}.get(soc)
    if name is None:
        name = "17000000.ga10b" if release.major == 35 else "17000000.gpu"
    # below bus@0 since r36, before that at the top on these kernels
    folder = release.platform if release.major >= 36 else "sys/devices"
    device = f"{folder}/{name}"
    links = ["sys/devices/gpu.0", *([] if release.major == 32 else ["sys/devices/platform/gpu.0"])]
    links += [] if release.major == 32 else [f"sys/devices/platform/{name}"]
    return device, f"{device}/devfreq/{name}", name.partition(".")[2], tuple(links)


def layout_of(board: str, l4t: str) -> Layout:
    """Where a board has its files under a release."""
    if (board, l4t) not in PAIRS:
        raise ValueError(f"{board} with L4T {l4t}: there are {', '.join(f'{b} {r}' for b, r in PAIRS)}")
    family, release = _FAMILIES[board], RELEASES[l4t]
    device, devfreq, node, links = _gpu(board, family.soc, release)
    orin = family.soc == "tegra234"
    ending = "-thermal" if release.major >= 36 else "-therm"
    zones = [f"{zone}{ending}" for zone in _ZONES["orin" if orin else board]]
    if release.major >= 36:
        zones = [zone.lower() for zone in zones]
    if board in ("tx2", "xavier-agx", "orin-agx", "orin-agx-32gb") and release.major < 36:
        zones += ["Tboard_tegra", "Tdiode_tegra"]
    if release.major == 32:
        zones += ["PMIC-Die", "thermal-fan-est"]
    masks = {"tegra194": ("tpc_pg_mask",), "tegra234": ("tpc_pg_mask", "fbp_pg_mask"), "tegra264": ("gpu_pg_mask",)}
    alerts = ("cpu-balanced", "gpu-balanced") if board == "nano" else ("cpu-throttle-alert", "gpu-throttle-alert")
    counters = {"tegra210": ("", 0), "tegra186": ("irq_cnt", 6), "tegra194": ("irq_cnt", 6)}
    part = family.part.replace("-super", "")
    return Layout(
        board=board,
        l4t=l4t,
        compatible=(
            f"nvidia,{family.carrier}+{family.part}",
            *([f"nvidia,{part}"] if orin else []),
            f"nvidia,{family.soc}",
        ),
        model=family.models[l4t],
        conf=family.conf,
        soc=family.soc,
        gpu_device=device,
        gpu_devfreq=devfreq,
        gpu_node=node,
        gpu_links=links,
        masks=masks.get(family.soc, ()),
        emc="tegra_bwmgr" if family.soc == "tegra210" else "devfreq" if release.major >= 38 else "bpmp",
        chips=family.chips,
        iio=release.major == 32,
        fan="target_pwm" if release.major == 32 else "pwm1",
        zones=tuple(zones),
        dark_zones=tuple(zone for zone in zones if zone.lower().startswith("cv")),
        throttles=alerts,
        over_current=counters.get(family.soc, ("event_cnt", 3)),
        fixed_mask=board == "orin-nano-super",
        inactive_policy_is_gone=release.major == 32,
    )

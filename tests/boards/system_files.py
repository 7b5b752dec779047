"""Who the board is, its memory and its disks: the files of /proc and /etc."""

from __future__ import annotations

from boards.layouts import Layout
from boards.plan import Plan
from harness.core.boards import BoardSpec

DEVICE_TREE = "proc/device-tree"

_BOARD_WORDS = {"nano": "t210ref", "tx2": "t186ref"}  # in nv_tegra_release, until r35


def add_identity(plan: Plan, layout: Layout, spec: BoardSpec) -> None:
    """L4T release, device tree, kernel version."""
    release = layout.release
    word = "generic" if release.major >= 36 else _BOARD_WORDS.get(layout.board, "t186ref")
    variant = f"\n# KERNEL_VARIANT: {'oot' if release.major >= 36 else 'nv-5.10'}" if release.major > 32 else ""
    plan.files["etc/nv_tegra_release"] = (
        f"# R{release.major} (release), REVISION: {release.revision}, GCID: 38968081, BOARD: {word}, EABI: aarch64, "
        f"DATE: Wed Jan  8 01:49:37 UTC 2025{variant}"
    )
    for folder in (DEVICE_TREE, "sys/firmware/devicetree/base"):
        plan.raw[f"{folder}/model"] = f"{layout.model}\0".encode()
        plan.raw[f"{folder}/compatible"] = "".join(f"{text}\0" for text in layout.compatible).encode()
        plan.raw[f"{folder}/serial-number"] = b"1420000000000\0"
    part = spec.part_numbers[-1][1:].replace("-", "")
    plan.files["etc/board_part_number"] = f"699-1{part[:4]}-{part[4:]}-500 M.0"
    plan.files["proc/version"] = f"Linux version {release.kernel} (build@host) (aarch64-gcc) #1 SMP PREEMPT"
    plan.files["proc/sys/kernel/osrelease"] = release.kernel
    plan.files["proc/uptime"] = "1000.00 4000.00"
    plan.files["proc/loadavg"] = "0.10 0.10 0.10 1/300 2000"


def add_memory(plan: Plan, spec: BoardSpec) -> None:
    """Memory as the kernel counts it: some of it belongs to the firmware."""
    total = int(spec.memory.bytes * 0.96) // 1024
    sizes = {
        "MemTotal": total,
        "MemFree": total // 2,
        "MemAvailable": total * 3 // 4,
        "Buffers": total // 100,
        "Cached": total // 5,
        "SwapCached": 0,
        "SwapTotal": total // 2,
        "SwapFree": total // 2,
        "Dirty": 16,
        "Shmem": 5000,
        "SReclaimable": 50000,
        "NvMapMemFree": 0,
        "NvMapMemUsed": 1000,
    }
    plan.files["proc/meminfo"] = "\n".join(f"{name + ':':<16}{size:>8} kB" for name, size in sizes.items())
    plan.files["proc/buddyinfo"] = "Node 0, zone   Normal " + " ".join(["1"] * 10 + ["400"])
    plan.control("proc/sys/vm/drop_caches", 0, "choice", of=["1", "2", "3", "4"])


def add_storage(plan: Plan, layout: Layout, spec: BoardSpec) -> None:
    """The disk that the system lies on, and an NVMe disk at /mnt/ssd where the board can have one."""
    disks = [("179", "mmcblk0", "mmcblk0p1", f"{layout.release.platform}/3460000.sdhci/mmc_host/mmc0/mmc0:0001/block")]
    mounts = ["24 0 179:1 / / rw,relatime shared:1 - ext4 /dev/mmcblk0p1 rw"]
    if "ssd" in spec.storage:
        disks.append(("259", "nvme0n1", "nvme0n1p1", "sys/devices/pci0004:00/0004:00:00.0/0004:01:00.0/nvme/nvme0"))
        mounts.append("40 24 259:1 / /mnt/ssd rw,relatime shared:20 - ext4 /dev/nvme0n1p1 rw")
    lines = []
    for major, disk, partition, folder in disks:
        plan.show(f"{folder}/{disk}/queue/rotational")
        plan.show(f"{folder}/{disk}/size", 62521344)
        if disk == "mmcblk0":
            plan.show(f"{folder}/{disk}/device/type", "MMC" if "emmc" in spec.storage else "SD")
        plan.show(f"{folder}/{disk}/{partition}/partition", 1)
        for minor, name, path in ((0, disk, f"{folder}/{disk}"), (1, partition, f"{folder}/{disk}/{partition}")):
            plan.links[f"sys/dev/block/{major}:{minor}"] = path
            plan.links[f"sys/class/block/{name}"] = path
            lines.append(f"{major:>4} {minor:>7} {name} 2000 100 160000 900 1500 50 80000 700 0 800 1600 0 0 0 0")
    mounts.append("30 24 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw")
    plan.files["proc/diskstats"] = "\n".join(lines)
    plan.files["proc/self/mountinfo"] = "\n".join(mounts)

"""The environment of a run: everything about machine and software that travels with each figure."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import socket
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Optional

import harness

PACKAGES = (
    "torch", "torchvision", "ultralytics", "ultralytics-opencv-headless", "transformers", "numpy", "pillow",
    "scikit-learn", "jetson-stats", "pytest", "pytest-benchmark",
)  # fmt: skip
VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
"""Environment variables that change how fast training runs."""


LONGEST_CPU_NAME = 32
_CPU_NAME_FILLERS = re.compile(r"\((R|TM)\)| (CPU|Processor)\b| @ .*", re.IGNORECASE)


def describe_environment(root: Path = Path("/")) -> Dict[str, Any]:
    """Plain values by name; what this machine does not report is left out. Imports no package."""
    facts: Dict[str, Optional[Any]] = {
        "jetwatt": harness.__version__,
        "suite_commit": suite_commit(),
        "host_name": socket.gethostname(),
        "os": _first_match(root / "etc/os-release", r'^PRETTY_NAME="?([^"\n]*)'),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu_model": cpu_model(root),
        "logical_cpus": os.cpu_count(),
        "memory_bytes": memory_bytes(root),
        "hypervisor": "yes" if _first_match(root / "proc/cpuinfo", r"^flags\s*:.*\b(hypervisor)\b") else None,
        "cpu_governor": _first_match(root / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor", r"(\S+)"),
        "board": _first_match(root / "proc/device-tree/model", r"([^\0\n]+)"),
        "l4t": l4t_release(root),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := package_version(name)) is not None},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    return {name: value for name, value in facts.items() if value is not None}


def slurm_job() -> Dict[str, Any]:
    """The Slurm job that this runs in, and how often it was queued again and began anew; empty outside of one."""
    restarts = os.environ.get("SLURM_RESTART_COUNT", "")
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        return {}
    return {"slurm_job": job, "slurm_restarts": int(restarts) if restarts.isdecimal() else 0}


def requeued_job() -> str:
    """The number of the Slurm job that this runs in if it was queued again: what it has measured before counts."""
    job = slurm_job()
    return job["slurm_job"] if job.get("slurm_restarts") else ""


def package_version(name: str) -> Optional[str]:
    """The installed version of a distribution, None if it is not installed; does not import it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cpu_model(root: Path = Path("/")) -> Optional[str]:
    """The CPU in words: the model name on x86, else the board's model from the device tree."""
    return _first_match(root / "proc/cpuinfo", r"^model name\s*:\s*(.+)$") or _first_match(
        root / "proc/device-tree/model", r"([^\0\n]+)"
    )


def short_cpu_model(root: Path = Path("/")) -> str:
    """The CPU for a message, in 32 characters at most: `Intel Xeon` of `Intel(R) Xeon(R) Processor @ 2.80GHz`."""
    model = cpu_model(root)
    if model is None:
        return "a CPU of unknown make"
    name = " ".join(_CPU_NAME_FILLERS.sub("", model).split())
    return name if len(name) <= LONGEST_CPU_NAME else f"{name[: LONGEST_CPU_NAME - 3].rstrip()}..."


def memory_bytes(root: Path = Path("/")) -> Optional[int]:
    kib = _first_match(root / "proc/meminfo", r"^MemTotal:\s*(\d+) kB")
    return int(kib) * 1024 if kib else None


def usable_cpus() -> int:
    """How many CPUs this process may use; all of the machine where the system does not limit a process (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def board_instance(root: Path = Path("/")) -> Optional[str]:
    """A hash of the serial number, else of the machine id (which records leave out); None if there is neither."""
    for name in ("proc/device-tree/serial-number", "etc/machine-id"):
        identifier = _first_match(root / name, r"([^\0\s]+)")
        if identifier and identifier != "uninitialized" and identifier.strip("0"):
            return hashlib.sha256(f"jetwatt {identifier}".encode()).hexdigest()[:12]
    return None


def l4t_release(root: Path = Path("/")) -> Optional[str]:
    """The release of Jetson Linux, such as `36.4.0`; None on a machine that is no Jetson."""
    path = root / "etc/nv_tegra_release"
    major, minor = _first_match(path, r"# R(\d+)"), _first_match(path, r"REVISION: ([\d.]+)")
    return f"{major}.{minor}" if major and minor else None


def _first_match(path: Path, pattern: str) -> Optional[str]:
    if not path.is_file():  # opening a pipe would wait
        return None
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1).strip() if match else None


def import_path() -> Path:
    """The folder from which Python imports this suite: a clone, or the site-packages of an installation.

    The module has another name in an installation, `jetwatt.harness`, one folder deeper.
    """
    return Path(harness.__file__).absolute().parents[harness.__name__.count(".") + 1]


def suite_commit() -> Optional[str]:
    """The commit of this suite, with `+` where the tree differs from it; None without a checkout of its own."""
    if not (Path(__file__).resolve().parents[2] / ".git").exists():
        return None  # installed, perhaps inside an unrelated checkout
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None


def without_changes(commit: str) -> str:
    """A commit of `suite_commit` without the mark of a tree that differs from it."""
    return commit.rstrip("+")

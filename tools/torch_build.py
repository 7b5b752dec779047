"""Installs torch's CPU build where it serves, before everything else: `python -m tools.torch_build [BUILD] [INDEX]`.

What pip gives on x86-64 brings 5.3 GB of CUDA packages along. On a machine without an NVIDIA GPU, torch and torchvision
alone are taken from PyTorch's CPU index, if that answers; all other packages come from where pip takes them. BUILD is
`cpu` or `default`. The interpreter is that of the environment; no package is needed.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import List, Optional, Sequence

from tools import pip_in_lines

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
CPU, DEFAULT = "cpu", "default"
INDEX = "https://download.pytorch.org/whl/cpu"
ANSWER_S = 3.0
PACKAGES = ("torch", "torchvision")
HOW_TO_CHOOSE = "TORCH=cpu or TORCH=default chooses, TORCH_INDEX=URL names another index"


def has_nvidia_gpu(root: Path = Path("/")) -> bool:
    """Whether a driver or a PCI device of NVIDIA is there; WSL has a device of its own for any GPU."""
    if (root / "proc/driver/nvidia").exists() or (root / "dev/dxg").exists():
        return True
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):  # a display controller
            return True
    return False


def answers(index: str, limit_s: float = ANSWER_S) -> bool:
    """Whether an index has a page for torch, and sends it within the limit."""
    answered: List[bool] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(f"{index.rstrip('/')}/torch/", timeout=limit_s) as page:
                answered.append(page.status == 200)
        except (OSError, ValueError):
            answered.append(False)

    # Looking up a name has no timeout of its own.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(limit_s)
    return answered == [True]


def pip_command(index: str, *options: str) -> List[str]:
    """Installs both packages from an index, in the versions of constraints.txt, and nothing that they need."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-c", str(CONSTRAINTS), "--no-deps"]
    return [*pip, "--index-url", index, *options, *PACKAGES]


def installed_build() -> Optional[str]:
    """`cpu` or `default`; None without torch. Asks another process, in which nothing is cached."""
    ask = "from importlib.metadata import version; print(version('torch'))"
    done = subprocess.run([sys.executable, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode:
        return None
    return CPU if done.stdout.strip().endswith("+cpu") else DEFAULT


def main(arguments: Sequence[str]) -> int:
    """Decide, say so, and install. Ends with another code than 0 only if `cpu` was asked for and cannot be had."""
    choice, index = ([*arguments, "", ""])[:2]
    index = index or INDEX
    if choice not in ("", CPU, DEFAULT):
        print(f"error: TORCH is {choice}, expected cpu or default", file=sys.stderr)
        return 2
    if installed_build() is not None:
        if choice not in ("", installed_build()):
            print(f"error: another build of torch than TORCH={choice} is installed: make clean first", file=sys.stderr)
            return 1
        return 0
    if choice == DEFAULT:
        print("torch: what pip gives, as TORCH=default says")
        return 0
    if choice == "" and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return 0  # what pip gives there has no CUDA, or is meant for the GPU
    if choice == "" and has_nvidia_gpu():
        print(f"torch: what pip gives, with CUDA for this machine's NVIDIA GPU; {HOW_TO_CHOOSE}")
        return 0
    why = "as TORCH=cpu says" if choice else "as this machine has no NVIDIA GPU"
    if choice == "" and not answers(index):
        what = f"torch: what pip gives, with 5.3 GB of CUDA: {index} did not answer within {ANSWER_S:.0f} s"
        print(f"{what}; {HOW_TO_CHOOSE}")
        return 0
    print(f"torch: the CPU build from {index}, {why}; {HOW_TO_CHOOSE}", flush=True)
    code = pip_in_lines.run(pip_command(index))
    if code and choice == "":
        print("torch: what pip gives, as the CPU build could not be installed")
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The systemctl of a tree: knows the service nvfancontrol, which sets the fan since r35."""

from __future__ import annotations

from typing import List

from boards.kernel import Kernel

SERVICE = "nvfancontrol"
INACTIVE, UNKNOWN = 3, 5


def main(root: str, arguments: List[str]) -> int:
    kernel = Kernel(root)
    words = [word for word in arguments if not word.startswith("-")]
    if len(words) != 2 or words[1].replace(".service", "") != SERVICE or not kernel.state()["has_fan_service"]:
        print(f"Unit {words[-1] if words else ''} could not be found.")
        return UNKNOWN
    if words[0] in ("is-active", "status"):
        runs = kernel.state()["fan_service"]
        print(f"{'   Active: ' if words[0] == 'status' else ''}{'active' if runs else 'inactive'}")
        return 0 if runs else INACTIVE
    kernel.set_fan_service(words[0] == "start")
    return 0

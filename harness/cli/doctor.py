"""`doctor`: what this machine can measure and control, and what it would need for the rest."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List

from harness.board import privileges
from harness.board.disk import discover
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import Capability, Device
from harness.core.environment import describe_environment, package_version
from harness.core.errors import DependencyError, InvalidValueError
from harness.core.terminal import format_table
from harness.core.units import BYTES_PER_GIB
from harness.devices.registry import local_board, open_device
from harness.workloads.optional_packages import require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", help="the device to look at (default: the board, where there is one, else host)")
    add("--root", type=Path, default=Path("/"), help="where /sys, /proc and /etc are looked for")
    add("--config", type=Path, default=Path(FILE_NAME), help=f"places file (default: {FILE_NAME})")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--sudoers", action="store_true", help="print what lets this user change the machine, and how to take it back")


def run(arguments: argparse.Namespace) -> int:
    if arguments.sudoers:
        print(format_sudoers())
        return 0
    if not arguments.root.is_dir():
        raise InvalidValueError(f"--root {arguments.root} is no folder", "name the one that holds sys, proc and etc")
    configuration = load_configuration(arguments.config)
    board = None if arguments.device else local_board(configuration, arguments.root)
    device = board or open_device(arguments.device or "host", configuration, arguments.root)
    findings = examine(device, arguments.root)
    if arguments.json:
        json.dump(findings, sys.stdout, indent=2)
        print()
    else:
        print(format_findings(findings))
    return 0


def examine(device: Device, root: Path) -> Dict[str, Any]:
    """Everything `doctor` says, as plain values."""
    identity = device.identity()
    space = device.power_mode_space()
    storage_root = str(root) if device.provenance == "measured" else "/"  # an emulated board trains on this machine
    return {
        "device": device.name,
        "model": identity.model,
        "specification": identity.specification,
        "environment": describe_environment(root),
        "power_modes": {"count": len(space), "greatest": space.greatest.name},
        "capabilities": [_as_json(capability) for capability in [*training_capabilities(), *device.capabilities()]],
        "storage": [{"name": name, **medium._asdict()} for name, medium in discover(storage_root)],
    }


def _as_json(capability: Capability) -> Dict[str, Any]:
    names = {"hint": "way_out"}  # as `--json` has always called it
    return {names.get(name, name): value for name, value in capability._asdict().items()}


def training_capabilities() -> List[Capability]:
    """Whether networks can be trained here, and on what."""
    try:
        accelerator = require("harness.measure.training_loop").accelerator_name()
        torch = Capability("training", True, f"torch {package_version('torch')} on {accelerator}")
    except DependencyError as error:
        torch = Capability("training", False, error.what, error.hint)
    return [torch, *(_package(*package) for package in _OPTIONAL)]


_OPTIONAL = (
    ("torchvision", "image workloads"),
    ("ultralytics-opencv-headless", "YOLO workloads"),
    ("transformers", "BERT workloads"),
)


def _package(name: str, needed_for: str) -> Capability:
    version = package_version(name) or (package_version("ultralytics") if name.startswith("ultralytics") else None)
    if version is None:
        return Capability(needed_for, False, f"{name} is not installed", "make install")
    return Capability(needed_for, True, f"{name} {version}")


def format_findings(findings: Dict[str, Any]) -> str:
    """The findings as text: who this is, what works, what does not and what it takes, where data can lie."""
    specification = ", ".join(
        f"{name} {value}" for name, value in findings["specification"].items() if value is not None
    )
    modes = findings["power_modes"]
    lines = [
        f"{findings['device']}: {findings['model']} ({specification})",
        f"power modes: {modes['count']}, the greatest is {modes['greatest']}",
        "",
        format_table(
            ["", "what", "how it stands"],
            [
                ["yes" if found["available"] else "no", found["name"], found["detail"]]
                for found in findings["capabilities"]
            ],
        ),
    ]
    wanted = [found for found in findings["capabilities"] if not found["available"] and found["way_out"]]
    if wanted:
        lines += ["", "To have the rest:", *(f"  {found['name']}: {found['way_out']}" for found in wanted)]
    lines += ["", "Storage found here, as --storage takes it:"]
    lines += [f"  {_describe_medium(medium)}" for medium in findings["storage"]] or [
        "  none that this user may write to"
    ]
    return "\n".join(lines)


def format_sudoers() -> str:
    """The sudo rule, the commands that install it with what it allows, and those that undo them."""
    why_not = privileges.closed()
    return "\n".join(
        [
            "# What needs root goes through one helper with a fixed list of operations. This rule allows it:",
            f"#   {privileges.sudo_rule()}",
            f"# Now: {'installed and allowed' if why_not is None else why_not}",
            "",
            "# To install it, also after an update of the suite:",
            *privileges.install_commands(),
            "",
            "# To remove it, with what it has kept:",
            *(f"#   {command}" for command in privileges.removal_commands()),
        ]
    )


def _describe_medium(medium: Dict[str, Any]) -> str:
    spins = {True: "rotational", False: "not rotational", None: "rotational or not: not told"}[medium["rotational"]]
    free = medium["free_bytes"] / BYTES_PER_GIB
    return (
        f"{medium['name']}={medium['mount_point']}  ({medium['transport'] or 'transport not told'}, {spins}, "
        f"{medium['filesystem']}, {free:.1f} GiB free)"
    )

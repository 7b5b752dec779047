"""`doctor`: what this machine can measure and control, and what it would need for the rest."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List

from harness.board import privileges
from harness.board.containers import lack_of_shared_memory
from harness.board.disk import discover
from harness.cli.options import output_file
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import Capability, Device
from harness.core.environment import describe_environment, package_version
from harness.core.errors import CannotRunError, DependencyError, InvalidValueError
from harness.core.terminal import format_table
from harness.core.units import BYTES_PER_GIB
from harness.devices.board_record import record, root_of
from harness.devices.registry import capabilities_of_packages, local_board, open_device
from harness.workloads.optional_packages import require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", help="the device to look at (default: the board, where there is one, else host)")
    add(
        "--root",
        "--device-root",
        type=Path,
        default=Path("/"),
        help="where /sys, /proc and /etc are looked for; or a file of --record",
    )
    add("--config", type=Path, default=Path(FILE_NAME), help=f"places file (default: {FILE_NAME})")
    add("--json", action="store_true", help="print JSON instead of text")
    add(
        "--record",
        type=output_file,
        metavar="board.tar.gz",
        help="write what the kernel and its tools show of this board or host, to send: read-only, without names and "
        "serial numbers; `pytest benchmarks --device-root board.tar.gz` runs on it",
    )
    add("--record-seconds", type=float, default=60.0, metavar="S", help="how long tegrastats is recorded (default: 60)")
    add("--sudoers", action="store_true", help="print what lets this user change the machine, and how to take it back")


def run(arguments: argparse.Namespace) -> int:
    if arguments.sudoers:
        print(format_sudoers())
        return 0
    arguments.root = root_of(arguments.root)
    if not arguments.root.is_dir():
        raise InvalidValueError(f"--root {arguments.root} is no folder", "name the one that holds sys, proc and etc")
    configuration = load_configuration(arguments.config)
    board = None if arguments.device else local_board(configuration, arguments.root)
    device = board or open_device(arguments.device or "host", configuration, arguments.root)
    if arguments.record:
        sources = getattr(device, "telemetry_sources", lambda folder: [])(Path.cwd())
        count = record(arguments.record, arguments.root, sources, arguments.record_seconds)
        print(f"{arguments.record}: {count} files of {device.name}; look through it before you send it")
        return 0
    findings = examine(device, arguments.root)
    print(json.dumps(findings, indent=2) if arguments.json else format_findings(findings))
    return 0


def examine(device: Device, root: Path) -> Dict[str, Any]:
    identity = device.identity()
    space = device.power_mode_space()
    storage_root = str(root) if device.provenance == "measured" else "/"  # an emulated board trains on this machine
    return {
        "device": device.name,
        "model": identity.model,
        "specification": identity.specification,
        "environment": describe_environment(root),
        "power_modes": {"count": len(space), "greatest": space.greatest.name},
        "capabilities": [
            {"name": one.name, "available": one.available, "detail": one.detail, "way_out": one.hint}
            for one in [
                *training_capabilities(getattr(device, "gpu_uuid", "")),
                *device.capabilities(),
                *capabilities_of_packages(),
            ]
        ],
        "storage": [{"name": name, **medium._asdict()} for name, medium in discover(storage_root)],
    }


def training_capabilities(gpu_uuid: str = "") -> List[Capability]:
    """Whether networks can be trained here, on what (on the GPU that is named, where one is), and which of them."""
    try:
        training = require("harness.measure.training_loop")
        if gpu_uuid:
            training.use_gpu(gpu_uuid)
        torch = Capability("training", True, f"torch {package_version('torch')} on {training.accelerator_name()}")
    except (CannotRunError, DependencyError) as error:
        torch = Capability("training", False, error.what, error.hint)
    found = [torch]
    for packages, needed_for in (
        (("torchvision",), "image workloads"),
        (("ultralytics-opencv-headless", "ultralytics"), "YOLO workloads"),
        (("transformers",), "BERT workloads"),
    ):
        installed = [f"{packages[0]} {version}" for version in map(package_version, packages) if version]
        if installed:
            found.append(Capability(needed_for, True, installed[0]))
        else:
            found.append(Capability(needed_for, False, f"{packages[0]} is not installed", "make install"))
    # Containers often have too little shared memory for batches of the papers' size.
    topic, whose = "hand over batches of DataLoader workers", "4 workers with batches of 16 pictures of 224 x 224"
    lack = lack_of_shared_memory(4, 16 * 3 * 224 * 224 * 4)
    told = (True, f"/dev/shm is enough for {whose}") if lack is None else (False, f"{whose} {lack[0]}", lack[1])
    return [*found, Capability(topic, *told)]


def format_findings(findings: Dict[str, Any]) -> str:
    specification = ", ".join(
        f"{name} {value}" for name, value in findings["specification"].items() if value is not None
    )
    modes = findings["power_modes"]
    rows = [["yes" if one["available"] else "no", one["name"], one["detail"]] for one in findings["capabilities"]]
    lines = [
        f"{findings['device']}: {findings['model']} ({specification})",
        f"power modes: {modes['count']}, the greatest is {modes['greatest']}",
        "",
        format_table(["", "what", "how it stands"], rows),
    ]
    wanted = [found for found in findings["capabilities"] if not found["available"] and found["way_out"]]
    if wanted:
        lines += ["", "To have the rest:", *(f"  {found['name']}: {found['way_out']}" for found in wanted)]
    lines += ["", "Storage found here, as --storage takes it:"]
    for medium in findings["storage"]:
        kind = {True: "rotational", False: "not rotational", None: "rotational or not: not told"}[medium["rotational"]]
        lines.append(
            f"  {medium['name']}={medium['mount_point']}  ({medium['transport'] or 'transport not told'}, {kind}, "
            f"{medium['filesystem']}, {medium['free_bytes'] / BYTES_PER_GIB:.1f} GiB free)"
        )
    if not findings["storage"]:
        lines.append("  none that this user may write to")
    return "\n".join(lines)


def format_sudoers() -> str:
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

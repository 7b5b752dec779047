"""`doctor`: what a device can measure and control here, and what it would need for the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from harness.board import privileged
from harness.board.bounded_reads import unanswered, unread
from harness.board.containers import lack_of_shared_memory
from harness.board.disk import discover
from harness.core.capability import Capability
from harness.core.configuration import FILE_NAME, Configuration, load_configuration
from harness.core.device import Device
from harness.core.environment import describe_environment, package_version
from harness.core.errors import CannotRunError, DependencyError, InvalidValueError
from harness.core.terminal import WIDTH, format_table, shown, wrap
from harness.core.units import BYTES_PER_GIB
from harness.devices.board_record import root_of
from harness.devices.registry import capabilities_of_packages, local_board, open_device
from harness.workloads.optional_packages import require


def doctor(
    device: Optional[str] = None, *, root: Union[str, Path] = "/", config: Union[str, Path] = FILE_NAME
) -> Dict[str, Any]:
    """What `jetwatt doctor --json` prints: identity, environment, capabilities with what they lack, storage.

    Args:
        device: the device to examine; None for the board if there is one, else `host`.
        root: the folder of /sys, /proc and /etc; or a file of `doctor --record`.
        config: file with the directories of storage media and data sets.

    Raises:
        HarnessError: the device does not exist, or `root` is not a folder.
    """
    folder = root_of(Path(root))
    if not folder.is_dir():
        raise InvalidValueError(
            f"root={str(folder)!r} is not a folder", "give the folder that contains sys, proc and etc"
        )
    return examine(device_to_examine(device, load_configuration(Path(config)), folder), folder)


def device_to_examine(device: Optional[str], configuration: Configuration, root: Path) -> Device:
    """The device of that name; by default the board if there is one, else the host."""
    board = None if device else local_board(configuration, root)
    return board or open_device(device or "host", configuration, root)


def examine(device: Device, root: Path) -> Dict[str, Any]:
    identity = device.identity()
    space = device.power_mode_space()
    storage_root = str(root) if device.provenance == "measured" else "/"  # an emulated board trains on this machine
    capabilities = [
        *training_capabilities(getattr(device, "gpu_uuid", "")),
        *device.capabilities(),
        *capabilities_of_packages(),
    ]
    capabilities += unread_files(root, [each.detail for each in capabilities])
    return {
        "device": device.name,
        "model": identity.model,
        "specification": identity.specification,
        "environment": describe_environment(root),
        "power_modes": {"count": len(space), "greatest": space.greatest.name},
        "capabilities": [
            {"name": each.name, "available": each.available, "detail": each.detail, "way_out": each.hint}
            for each in capabilities
        ],
        "storage": [{"name": name, **medium._asdict()} for name, medium in discover(storage_root)],
    }


def unread_files(root: Path, details: Sequence[str]) -> List[Capability]:
    """A line for files below `root` that no detail names, and that did not answer or could not be read."""
    unread.update(privileged.unread)
    below = os.path.join(os.path.abspath(root), "")
    files = {path: why for path, why in unanswered(details).items() if os.path.abspath(path).startswith(below)}
    if not files:
        return []
    return [Capability("read every file", False, "; ".join(f"{path}: {why}" for path, why in files.items()))]


def training_capabilities(gpu_uuid: str = "") -> List[Capability]:
    """Whether networks can be trained here, on which accelerator (`gpu_uuid` selects one), and which of them."""
    try:
        training = require("harness.measure.training_loop")
        if gpu_uuid:
            training.use_gpu(gpu_uuid)
        torch = Capability("training", True, f"torch {package_version('torch')} on {training.accelerator_name()}")
    except (CannotRunError, DependencyError) as error:
        torch = Capability("training", False, error.what, error.hint)
    capabilities = [torch]
    for packages, needed_for in (
        (("torchvision",), "image workloads"),
        (("ultralytics-opencv-headless", "ultralytics"), "YOLO workloads"),
        (("transformers",), "BERT workloads"),
    ):
        installed = [f"{packages[0]} {version}" for version in map(package_version, packages) if version]
        if installed:
            capabilities.append(Capability(needed_for, True, installed[0]))
        else:
            capabilities.append(Capability(needed_for, False, f"{packages[0]} is not installed", "make install"))
    # Containers often have too little shared memory for batches of the papers' size.
    topic, whose = "hand over batches of DataLoader workers", "4 workers with batches of 16 pictures of 224 x 224"
    lack = lack_of_shared_memory(4, 16 * 3 * 224 * 224 * 4)
    outcome = (True, f"/dev/shm is enough for {whose}") if lack is None else (False, f"{whose} {lack[0]}", lack[1])
    return [*capabilities, Capability(topic, *outcome)]


def format_findings(findings: Dict[str, Any]) -> str:
    specification = ", ".join(
        f"{name} {value}" for name, value in findings["specification"].items() if value is not None
    )
    modes = findings["power_modes"]
    capabilities = findings["capabilities"]
    rows = [["yes" if each["available"] else "no", each["name"], each["detail"]] for each in capabilities]
    lines = [
        wrap(f"{findings['device']}: {findings['model']} ({specification})", indent="  "),
        f"power modes: {modes['count']}, the greatest is {modes['greatest']}",
        "",
        format_table(["", "what", "status"], rows, width=WIDTH),
    ]
    repairable = [each for each in capabilities if not each["available"] and each["way_out"]]
    if repairable:
        names: Dict[str, List[str]] = {}
        for each in repairable:
            names.setdefault(each["way_out"], []).append(each["name"])
        lines += ["", "To get the rest:"]
        for way_out, same in names.items():
            lines.append(wrap(shown(f"  {', '.join(same)}: {way_out}"), indent="    "))
    lines += ["", "Storage found here, as --storage takes it:"]
    for medium in findings["storage"]:
        kind = {True: "rotational", False: "not rotational", None: "unknown whether rotational"}[medium["rotational"]]
        lines.append(
            f"  {medium['name']}={medium['mount_point']}  ({medium['transport'] or 'transport unknown'}, {kind}, "
            f"{medium['filesystem']}, {medium['free_bytes'] / BYTES_PER_GIB:.1f} GiB free)"
        )
    if not findings["storage"]:
        lines.append("  none that this user may write to")
    return "\n".join(lines)

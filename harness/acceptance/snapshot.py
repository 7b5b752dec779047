"""The board as an owner would find it: every setting, `--show`, services, mounts and the root folder, to compare."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List

from harness.acceptance.context import AcceptanceContext
from harness.board.bounded_process import run_bounded
from harness.board.kernel_file import path_below, read_setting, read_text, text_of
from harness.board.privileged import BOOT_ID, KINDS, STATE, SYSTEMCTL, SYSTEMCTL_TIMEOUT_S, nodes
from harness.core.errors import ControlError, HarnessError

SERVICES = ("nvfancontrol", "nvpmodel", "jtop", "nvzramconfig")
UNSET = "(not there)"
MOVING = ("emc-rate", "emc-override-rate")
"""Kinds of files whose value follows the load; the memory's knob has them where they are settings."""


def snapshot(context: AcceptanceContext) -> Dict[str, Dict[str, Any]]:
    """Values by part and name, as JSON has them; the same of an untouched board, also after a reboot."""
    values = {
        "setting": dict(_settings(context)),
        "file": dict(_files(context)),
        "service": dict(_services(context.root)),
        "mount": dict(_mounts(context.root)),
        "folder": dict(_folders(context.root)),
    }
    return json.loads(json.dumps(values))  # the state on disk has lists in the place of tuples


def _settings(context: AcceptanceContext) -> Iterator[Any]:
    """Every knob of the device, by its name; `jetson_clocks` has what `--show` prints."""
    for knob in getattr(context.device, "knobs", list)():
        if knob.outlives_process:
            try:
                yield knob.name, knob.read()
            except ControlError as error:
                yield knob.name, f"cannot be read: {error.what}"


def _files(context: AcceptanceContext) -> Iterator[Any]:
    """Each kernel file that the suite may write, and each that the board's nvpmodel conf names."""
    root = str(context.root)
    for name, kind in KINDS.items():
        if kind.is_value is None or name in (*MOVING, "page-cache"):
            continue
        for path in nodes(kind, root).values():
            try:
                yield os.path.relpath(path, root), read_setting(path)
            except ControlError:
                continue  # of a cluster that is offline
    if context.control is None or context.control.conf is None:
        return
    for param in context.control.conf.params:
        for argument in param.arguments:
            try:
                yield argument.path.lstrip("/"), read_text(path_below(root, argument.path))
            except (HarnessError, OSError):
                continue  # not on this release, or a folder of a HWMON entry


def _services(root: Path) -> Iterator[Any]:
    systemctl = root / SYSTEMCTL
    if not systemctl.exists():
        return
    for name in SERVICES:
        done = run_bounded([str(systemctl), "is-active", name], timeout_s=SYSTEMCTL_TIMEOUT_S)
        yield name, done.output.strip()


def _mounts(root: Path) -> Iterator[Any]:
    """Media and whether they are read-only; the kernel mounts `/` read-only after an error."""
    for line in text_of(str(root / "proc/mounts")).splitlines():
        device, place, kind, options, *_ = [*line.split(), *[""] * 4]
        if device.startswith("/dev/"):
            yield place, f"{device} {kind} {options.split(',')[0]}"


def _folders(root: Path) -> Iterator[Any]:
    """What lies in `/` and in the suite's folder: NVIDIA's script once left a file in `/`."""
    for place in (root, root / STATE):
        try:
            names = sorted(os.listdir(place))
        except OSError:
            names = []
        yield f"/{STATE}" if place != root else "/", names


def differences(before: Dict[str, Dict[str, Any]], after: Dict[str, Dict[str, Any]]) -> List[str]:
    """What is not as before, a sentence each."""
    different = []
    for part, values in before.items():
        now = after.get(part, {})
        for name in dict.fromkeys([*values, *now]):
            was, is_now = values.get(name, UNSET), now.get(name, UNSET)
            if was != is_now:
                different.append(f"{part} {name}: {_short(was)} before, {_short(is_now)} now")
    return different


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def boot_of(root: Path) -> str:
    """What identifies the boot: the kernel's id, or when it booted."""
    boot_id = text_of(str(root / BOOT_ID))
    if boot_id:
        return boot_id
    lines = text_of(str(root / "proc/stat")).splitlines()
    return next((line for line in lines if line.startswith("btime")), "")

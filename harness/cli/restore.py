"""`restore`: restore a device after a killed run or a power cut."""

from __future__ import annotations

import argparse
from typing import List

from harness.board.saved_state import left_behind, restore, saved_root
from harness.core.errors import ControlError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="the device to restore (default: every device with a saved state)")


def run(arguments: argparse.Namespace) -> int:
    devices = [arguments.device] if arguments.device else left_behind()
    if not devices:
        print("nothing to restore: no run left a saved state")
    failed: List[str] = []
    for device in devices:
        root = saved_root(device)
        try:
            names = restore(device)
        except ControlError as error:
            if len(devices) == 1:
                raise
            failed.append(device)
            print(f"{device}: NOT restored, its files are below {root or 'an unknown root'}: {error.what}")
            continue
        print(f"{device}: restored {', '.join(names)}" if names else f"{device}: no saved state")
    if failed:
        raise ControlError(
            f"{len(failed)} of {len(devices)} devices are not restored: {', '.join(failed)}",
            "mend what is said of each above, then restore it with --device NAME; an emulated board is restored by "
            "the command that emulates it",
        )
    return 0

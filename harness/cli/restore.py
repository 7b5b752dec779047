"""`restore`: restore a device after a killed run or a power cut."""

from __future__ import annotations

import argparse
from typing import List

from harness.board.jetson_clocks import refuse_stored_clocks
from harness.board.saved_state import default_state_dir, left_behind, left_behind_of, restore, saved_root
from harness.core.errors import ControlError, UnknownNameError
from harness.core.terminal import available_hint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="the device to restore (default: every device with a saved state)")


def run(arguments: argparse.Namespace) -> int:
    devices = left_behind_of(arguments.device) if arguments.device else left_behind()
    if arguments.device and not devices and left_behind():
        what = f"no run on {arguments.device!r} left a saved state in {default_state_dir()}"
        raise UnknownNameError(what, available_hint(arguments.device, left_behind()))
    if not devices:
        refuse_stored_clocks("/")
        print(f"nothing to restore: no run left a saved state in {default_state_dir()}")
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
        print(f"{device}: restored {', '.join(names)}" if names else f"{device}: restored by another call meanwhile")
    if failed:
        raise ControlError(
            f"{len(failed)} of {len(devices)} devices are not restored: {', '.join(failed)}",
            "mend what is said of each above, then restore it with --device NAME; an emulated board is restored by "
            "the command that emulates it",
        )
    return 0

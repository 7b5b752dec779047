"""`restore`: restore a device after a killed run or a power cut."""

from __future__ import annotations

import argparse

from harness.board.saved_state import left_behind, restore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="the device to restore (default: every device with a saved state)")


def run(arguments: argparse.Namespace) -> int:
    devices = [arguments.device] if arguments.device else left_behind()
    if not devices:
        print("nothing to restore: no run left a saved state")
    for device in devices:
        names = restore(device)
        print(f"{device}: restored {', '.join(names)}" if names else f"{device}: no saved state")
    return 0

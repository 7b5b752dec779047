"""`restore`: put a device back as it was, after a run that was killed or a power cut."""

from __future__ import annotations

import argparse

from harness.board.saved_state import left_behind, restore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="the device to put back (default: every one that has a saved state)")


def run(arguments: argparse.Namespace) -> int:
    devices = [arguments.device] if arguments.device else left_behind()
    if not devices:
        print("nothing to restore: no run left a saved state behind")
    for device in devices:
        names = restore(device)
        print(f"{device}: {', '.join(names)} as before" if names else f"{device}: no saved state")
    return 0

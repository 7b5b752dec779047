"""`doctor`: what this machine can measure and control, and how to enable the rest."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Optional, Sequence

from harness.acceptance.context import COMMAND
from harness.acceptance.page import exit_code, format_page
from harness.acceptance.runner import accept
from harness.board import privileges
from harness.cli.options import output_file
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.device import is_real
from harness.core.errors import InvalidValueError
from harness.core.terminal import shown
from harness.devices.board_record import record, root_of
from harness.measure.doctor import device_to_examine, doctor, format_findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit code with --accept: 0 no line of the acceptance test fails; 1 one does"
    add = parser.add_argument
    add("--device", help="the device to examine (default: the board if this is one, otherwise host)")
    add(
        "--root",
        "--device-root",
        type=Path,
        default=Path("/"),
        help="the folder with /sys, /proc and /etc; or a file of --record",
    )
    paths = f"configuration file: paths of storage media and data sets (default: {FILE_NAME})"
    add("--config", type=Path, default=Path(FILE_NAME), help=paths)
    add("--json", action="store_true", help="print JSON instead of text")
    add(
        "--record",
        type=output_file,
        metavar="board.tar.gz",
        help="write what the kernel and its tools report of this board or host, to share: read-only, without names and "
        "serial numbers; `pytest benchmarks --device-root board.tar.gz` runs on it",
    )
    add("--record-seconds", type=float, default=60.0, metavar="S", help="duration of recorded tegrastats (default: 60)")
    add(
        "--accept",
        nargs="?",
        const="continue",
        choices=["continue", "again"],
        help="the acceptance test of a real board: ten lines, PASS or FAIL with evidence, in about twenty minutes; "
        "it goes on where an earlier call was left, `--accept=again` starts over (docs/jetson.md)",
    )
    add("--no-reboot", action="store_true", help="with --accept: leave out the power cut and what follows a reboot")
    add(
        "--socket-meter",
        type=Path,
        metavar="meter.csv",
        help="with --accept: compare the rails with a meter at the plug",
    )
    add(
        "--accept-scale",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="with --accept: a rehearsal, all times multiplied by SHARE; its page is marked",
    )
    add(
        "--sudoers",
        action="store_true",
        help="print the rule that lets this user change the machine, and how to remove it",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.sudoers:
        print(format_sudoers())
        return 0
    if arguments.accept:
        return _accept(arguments)
    arguments.root = root_of(arguments.root)
    if not arguments.root.is_dir():
        raise InvalidValueError(f"--root {arguments.root} is not a folder", "name the one with sys, proc and etc")
    if arguments.record:
        device = device_to_examine(arguments.device, load_configuration(arguments.config), arguments.root)
        sources = device.telemetry_sources(Path.cwd()) if is_real(device) else []
        count = record(arguments.record, arguments.root, sources, arguments.record_seconds)
        print(f"{arguments.record}: {count} files of {device.name}; review it before you share it")
        return 0
    findings = doctor(arguments.device, root=arguments.root, config=arguments.config)
    print(json.dumps(findings, indent=2) if arguments.json else format_findings(findings))
    return 0


def _accept(arguments: argparse.Namespace) -> int:
    findings = accept(
        arguments.device,
        root=arguments.root,
        config=arguments.config,
        start_over=arguments.accept == "again",
        reboots=not arguments.no_reboot,
        socket_meter=arguments.socket_meter,
        scale=arguments.accept_scale,
        command=continuing_command(sys.argv, getattr(sys.modules["__main__"], "__spec__", None)),
        report=lambda line: print(shown(line), file=sys.stderr, flush=True),
    )
    print(json.dumps(findings, indent=2) if arguments.json else format_page(findings))
    return exit_code(findings)


def continuing_command(words: Sequence[str], spec: Optional[ModuleSpec]) -> str:
    """The command that goes on with an acceptance test: as it was typed, without starting over.

    Args:
        words: `sys.argv`.
        spec: of the module that `python -m` runs; None of a script.
    """
    program, *rest = words
    if "doctor" not in rest:
        return COMMAND  # called from Python
    start = [os.path.basename(program)]
    if spec is not None:
        start = ["python", "-m", spec.name[: -len(".__main__")] if spec.name.endswith(".__main__") else spec.name]
    goes_on = " ".join(map(shlex.quote, [*start, *rest]))
    return re.sub(r"--accept[= ](again|continue)(?= |$)", "--accept", goes_on)


def format_sudoers() -> str:
    why_not = privileges.closed()
    return "\n".join(
        [
            "# Operations that need root go through a helper with a fixed list of them. This rule allows it:",
            f"#   {privileges.sudo_rule()}",
            f"# Now: {'installed and allowed' if why_not is None else why_not}",
            "",
            "# To install it, also after an update of the suite:",
            *privileges.install_commands(),
            "",
            "# To remove it, with its stored files:",
            *(f"#   {command}" for command in privileges.removal_commands()),
        ]
    )

"""The command `jetwatt COMMAND`: all commands of `python -m harness` and `python -m predictors`."""

from __future__ import annotations

from typing import List, Optional, Tuple

from harness.cli import COMMANDS as MEASURING
from harness.cli.command_line import CommandEntry, run_as_program, run_command
from predictors.cli import COMMANDS as PREDICTING

EXTENDED = {"report": "jetwatt.cli.report"}  # commands of the harness that also use predictors here, and their modules

COMMANDS: Tuple[CommandEntry, ...] = (
    *(command._replace(module=EXTENDED.get(command.name, command.module)) for command in MEASURING),
    *PREDICTING,
)


def main(argv: Optional[List[str]] = None) -> int:
    description = "Measure, predict and choose: DNN training on power-limited edge devices."
    return run_command("jetwatt", description, COMMANDS, argv, grouped=True)


def start() -> None:
    run_as_program(main)

"""The command line: `python -m predictors COMMAND`."""

from __future__ import annotations

from typing import List, Optional

from harness.cli.command_line import run_as_program, run_command
from predictors.cli import COMMANDS


def main(argv: Optional[List[str]] = None) -> int:
    """Run a command and return its exit code."""
    description = "Predict time and power of all power modes from a few profiled ones, and recommend one."
    return run_command("python -m predictors", description, COMMANDS, argv)


if __name__ == "__main__":
    run_as_program(main)

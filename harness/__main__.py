"""The command line: `python -m harness COMMAND`."""

from __future__ import annotations

from typing import List, Optional

from harness.cli import COMMANDS
from harness.cli.command_line import run_as_program, run_command


def main(argv: Optional[List[str]] = None) -> int:
    description = "Measure DNN training on this machine and keep the records. Cases are run by `pytest benchmarks`."
    return run_command("python -m harness", description, COMMANDS, argv)


if __name__ == "__main__":
    run_as_program(main)

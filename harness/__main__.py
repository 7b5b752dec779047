"""The command line: `python -m harness COMMAND`."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Callable, List, NamedTuple, Optional

from harness import doctor, modes, nvpmodel_conf_command, restore
from harness.comparison import command as comparison
from harness.errors import HarnessError
from harness.importing import command as importing
from harness.report import command as report_command
from harness.results import commands
from harness.simulation import command as simulation_command
from harness.simulation import corpus_command

REFUSED = 2


class Command(NamedTuple):
    """One command: what it is for, its arguments, and what runs it and returns the exit code."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


COMMANDS = (
    Command("doctor", doctor.HELP, doctor.add_arguments, doctor.run),
    Command("modes", modes.HELP, modes.add_arguments, modes.run),
    Command(
        "nvpmodel-conf", nvpmodel_conf_command.HELP, nvpmodel_conf_command.add_arguments, nvpmodel_conf_command.run
    ),
    Command("restore", restore.HELP, restore.add_arguments, restore.run),
    Command("export", "write results as a corpus table", commands.add_export_arguments, commands.export),
    Command("import", importing.HELP, importing.add_arguments, importing.run),
    Command("corpus", corpus_command.HELP, corpus_command.add_arguments, corpus_command.run),
    Command("simulation", simulation_command.HELP, simulation_command.add_arguments, simulation_command.run),
    Command("report", report_command.HELP, report_command.add_arguments, report_command.run),
    Command("baseline", "record medians, or check against them", commands.add_baseline_arguments, commands.baseline),
    Command("compare", comparison.HELP, comparison.add_arguments, comparison.run),
)


def main(argv: Optional[List[str]] = None) -> int:
    """Run a command; an error that the user can act on is printed without a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m harness",
        description="Measure DNN training on this machine and keep the records. Cases are run by `pytest benchmarks`.",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except HarnessError as error:
        print(f"{parser.prog} {arguments.command}: {error}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends a command quietly
    sys.exit(main())

"""`python -m harness simulation ...`: what can be done with simulated boards, a module each."""

from __future__ import annotations

import argparse

from harness.cli import simulation_fit as fit_command
from harness.cli import simulation_validate as validation_command

HELP = "fit simulated boards to the papers and measured tables, or check them against these"

SUBCOMMANDS = {"fit": fit_command, "validate": validation_command}
"""Modules with `HELP`, `add_arguments` and `run`, as the commands of `harness.__main__` have them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    subparsers = parser.add_subparsers(dest="simulation_command", metavar="COMMAND", required=True)
    for name, module in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(subparser)
        subparser.set_defaults(run_simulation=module.run)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    return arguments.run_simulation(arguments)

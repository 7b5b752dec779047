"""The command line: `python -m predictors COMMAND`."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Callable, List, NamedTuple, Optional

from harness.errors import HarnessError
from predictors.commands import advise, concurrent, evaluate, fit, predict, published, recommend, scenario, strategies

REFUSED = 2


class Command(NamedTuple):
    """One command: what it is for, its arguments, and what runs it and returns the exit code."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


COMMANDS = (
    Command("evaluate", evaluate.HELP, evaluate.add_arguments, evaluate.run),
    Command("scenario", scenario.HELP, scenario.add_arguments, scenario.run),
    Command("published", published.HELP, published.add_arguments, published.run),
    Command("fit", fit.HELP, fit.add_arguments, fit.run),
    Command("predict", predict.HELP, predict.add_arguments, predict.run),
    Command("strategies", strategies.HELP, strategies.add_arguments, strategies.run),
    Command("recommend", recommend.HELP, recommend.add_arguments, recommend.run),
    Command("concurrent", concurrent.HELP, concurrent.add_arguments, concurrent.run),
    Command("advise", advise.HELP, advise.add_arguments, advise.run),
)


def main(argv: Optional[List[str]] = None) -> int:
    """Run a command; an error that the user can act on is printed without a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m predictors",
        description="From some profiled power modes to time and power of all, and to the mode to use.",
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

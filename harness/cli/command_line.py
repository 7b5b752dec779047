"""What both command lines share: commands by name, and errors without a traceback."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Callable, List, NamedTuple, NoReturn, Optional, Sequence

from harness.core.errors import HarnessError

REFUSED = 2
INTERRUPTED = 130


class Command(NamedTuple):
    """One command: what it is for, its arguments, and what runs it and returns the exit code."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def run_command(prog: str, description: str, commands: Sequence[Command], argv: Optional[List[str]] = None) -> int:
    """Run the command that the arguments name; an error that the user can act on is printed in a line.

    Args:
        prog: how the program is called.
        description: what it is for.
        commands: what it knows.
        argv: the arguments; None for those of this process.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except HarnessError as error:
        print(f"{prog} {arguments.command}: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:  # whatever was held is put back by now
        print(f"{prog} {arguments.command}: interrupted", file=sys.stderr)
        return INTERRUPTED


def run_as_program(main: Callable[[], int]) -> NoReturn:
    """Run a program's `main` and end this process; `| head` ends it quietly."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())

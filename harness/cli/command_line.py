"""The shared command line of `jetwatt`, `python -m harness` and `python -m predictors`.

A command is a module with `add_arguments(parser)` and `run(arguments)`, which returns the exit code. It is imported
when the command is called, so that `--help` of a program imports none.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import keyword
import os
import re
import signal
import sys
import textwrap
import traceback
import warnings
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    TextIO,
    Tuple,
    Type,
)

import harness
from harness.core.errors import HarnessError, in_options
from harness.core.notes import NoteWarning
from harness.core.terminal import nearest_word, options_meant, shown

REFUSED = 2
CRASHED = 70  # of a fault of the suite, or a full disk: 1, Python's own, would mean a verdict
INTERRUPTED = 130

MEASURE, RESULTS, PREDICT, CHOOSE, BOARD = "measure", "results", "predict", "choose", "board"

GROUPS: Dict[str, str] = {
    MEASURE: "simulated profiles; `pytest benchmarks` measures",
    RESULTS: "tables, pages and comparisons of results",
    PREDICT: "time and power of modes that were not measured",
    CHOOSE: "the power mode that meets a budget",
    BOARD: "capabilities of this board, and restoring it",
}
"""The groups of commands, in the order of a program's `--help`."""


class CommandEntry(NamedTuple):
    name: str
    group: str
    help: str
    module: str


def commands_in(package: str, *entries: Tuple[str, str, str]) -> Tuple[CommandEntry, ...]:
    """Commands from their name, group and help; a module is named as its command (`import_` for the keyword)."""
    return tuple(
        CommandEntry(name, group, text, f"{package}.{name.replace('-', '_')}{'_' * keyword.iskeyword(name)}")
        for name, group, text in entries
    )


class _CommandParser(argparse.ArgumentParser):
    """The parser of a command, which imports the command's module when it parses.

    Unknown arguments are its errors, not the program's, so that the usage shown is the command's.
    """

    def __init__(self, *args: Any, command: Optional[CommandEntry] = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.suggest_on_error = False  # Python 3.15 would suggest too, in words of its own
        self._command = command
        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._command is not None:
            module, self._command = importlib.import_module(self._command.module), None
            module.add_arguments(self)
            self.set_defaults(run=module.run)
        self._words = args
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """End with argparse's message, and the option, or the value of it, that a misspelt one is nearest to."""
        unknown_choice = _UNKNOWN_CHOICE.search(message)
        if unknown_choice:
            choices = [choice.strip("' ") for choice in unknown_choice[2].split(",")]
            choice_meant = nearest_word(unknown_choice[1], choices)
            super().error(f"{message}; did you mean {choice_meant}?" if choice_meant else message)
        options = _OPTION.findall(self.format_usage())
        in_full = [
            word for word in self._words if not any(option.startswith(word.partition("=")[0]) for option in options)
        ]
        meant = options_meant(in_full, options)
        super().error(f"{message}; {meant}" if meant else message)


def options_by_argument(parser: argparse.ArgumentParser) -> Dict[str, str]:
    """The option of each argument of a command and its actions, by the argument's name in Python."""
    options: Dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                options.update(options_by_argument(own))
        elif action.option_strings:
            options[action.dest] = action.option_strings[-1]
    return options


_OPTION = re.compile(r"--[a-z][a-z-]*")
_UNKNOWN_CHOICE = re.compile(r"invalid choice: '(.+)' \(choose from (.+)\)")


def run_command(
    prog: str,
    description: str,
    commands: Sequence[CommandEntry],
    argv: Optional[List[str]] = None,
    grouped: bool = False,
) -> int:
    """Run the command that the arguments name; return its exit code. `grouped` lists the commands by group."""
    words = sys.argv[1:] if argv is None else argv
    command = next((word for word in words if not word.startswith("-")), "")
    parser, parsers = _program_parser(prog, description, commands, grouped)
    names = [known_command.name for known_command in commands]
    if words[:1] == [command] and command not in names:
        meant = nearest_word(command, names)
        parser.error(f"there is no command {command}{meant and f'; did you mean {meant}?'}")
    try:
        arguments = parser.parse_args(words)
        with notes_printed(options_by_argument(parsers[command])):
            return arguments.run(arguments)
    except HarnessError as error:
        options = options_by_argument(parsers[command]) if command in parsers else {}
        print(f"{prog} {command}: {shown(in_options(str(error), options))}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:  # all changes are restored by now
        print(f"{prog} {command}: interrupted", file=sys.stderr)
        return INTERRUPTED


@contextlib.contextmanager
def notes_printed(options: Mapping[str, str]) -> Iterator[None]:
    """Print the notes of calls on standard error, each when it is given, in the words of options."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", NoteWarning)
        show_others = warnings.showwarning

        def show(message: Any, category: Type[Warning], *rest: Any, **further: Any) -> None:
            if not issubclass(category, NoteWarning):
                show_others(message, category, *rest, **further)
                return
            print(f"note: {shown(in_options(str(message), options))}", file=sys.stderr)

        warnings.showwarning = show
        yield


def _program_parser(
    prog: str, description: str, commands: Sequence[CommandEntry], grouped: bool
) -> Tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of a program, and those of its commands by name."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--version", action="version", version=f"jetwatt {harness.__version__}")
    listed = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_CommandParser)
    for command in commands:
        if grouped:  # the list below shows its help
            listed.add_parser(command.name, description=command.help, command=command)
        else:
            listed.add_parser(command.name, description=command.help, command=command, help=command.help)
    if grouped:
        lines, width = [], max(len(command.name) for command in commands) + 2
        for group, meaning in GROUPS.items():
            lines += ["", f"{group}: {meaning}"]
            for command in commands:
                if command.group == group:
                    lines += textwrap.wrap(
                        f"  {command.name:<{width}}{command.help}", 100, subsequent_indent=" " * (width + 2)
                    )
        listed.help = "see below"
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.description = textwrap.fill(description, 100)
        parser.epilog = "\n".join([*lines[1:], "", "`COMMAND --help` lists the options of a command."])
    return parser, listed.choices


def run_as_program(main: Callable[[], int]) -> NoReturn:
    """Run a program's `main` and end this process; `| head` ends it quietly."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        try:
            code = main()
        finally:
            if sys.stdout is not None:  # it is None if the caller closed it
                sys.stdout.flush()  # a full disk shows here, also for the help, which ends `main`
    except Exception as error:
        code = CRASHED
        with contextlib.suppress(OSError):
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                print(f"error: {error.strerror}: make room on the disk", file=sys.stderr)
            else:
                traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            _drop_unwritten(stream)
    sys.exit(code)


def _drop_unwritten(stream: Optional[TextIO]) -> None:
    """Drop what a full disk did not take: Python would try again when it ends, and end with 120."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

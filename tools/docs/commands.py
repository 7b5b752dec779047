"""Reference pages of the commands: each option and exit code, from the parsers themselves."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Sequence

from harness.board import privileged
from harness.cli.command_line import GROUPS, INTERRUPTED, REFUSED, CommandEntry
from jetwatt.cli import COMMANDS
from tools.docs.calls import call_of
from tools.docs.markdown import UndocumentedError, block, code, escape, sentence, table, terms

PROJECT = Path(__file__).resolve().parents[2]
USAGE_WIDTH = 76
EXIT_CODES = re.compile(r"exit codes?([^:]*): (.*?)(?=\. Example|$)", re.DOTALL)
BOTH_PROGRAMS = (
    "`jetwatt` has all commands. In a clone, `python -m harness` has those that measure, read results and set boards, "
    "`python -m predictors` those that predict and choose, under the same names and with the same options."
)


class Action(NamedTuple):
    """A command without further subcommands, such as `fleet submit`, or `doctor`."""

    name: str
    parser: argparse.ArgumentParser
    help: str


def parser_of(command: CommandEntry) -> argparse.ArgumentParser:
    """The parser of a command, as the program makes it."""
    parser = argparse.ArgumentParser(prog=f"jetwatt {command.name}", description=command.help, add_help=False)
    importlib.import_module(command.module).add_arguments(parser)
    return parser


def actions_of(command: CommandEntry) -> Iterator[Action]:
    """A command's own parser first, then those of its subcommands."""
    parser = parser_of(command)
    yield Action(command.name, parser, command.help)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, subparser in action.choices.items():
                yield Action(f"{command.name} {name}", subparser, helps.get(name, ""))


def pages() -> Dict[str, str]:
    """The list of commands, and a page for each."""
    listed = ["# Commands\n", sentence(BOTH_PROGRAMS), ""]
    for group, meaning in GROUPS.items():
        rows = [
            (f"[`{command.name}`]({page_of(command)}.md)", escape(command.help))
            for command in COMMANDS
            if command.group == group
        ]
        listed += [
            f"## {group.capitalize()}\n",
            sentence(escape(meaning)),
            "",
            table(("command", "what it does"), rows),
        ]
    toctree = ["```{toctree}", ":hidden:", "", *map(page_of, COMMANDS), "```"]
    written = {"commands": "\n".join([*listed, *toctree]) + "\n"}
    for command in COMMANDS:
        written[page_of(command)] = command_page(list(actions_of(command)))
    return written


def page_of(command: CommandEntry) -> str:
    """The name of a command's page."""
    return f"command-{command.name}"


def command_page(actions: Sequence[Action]) -> str:
    """A page for a command and its subcommands."""
    parts = []
    for depth, action in enumerate(actions):
        parts.append(f"{'#' if depth == 0 else '##'} jetwatt {action.name}\n")
        parts.append(description_of(action))
        if depth == 0 and len(actions) > 1:
            parts.append(
                ", ".join(f"[{one.name}](#jetwatt-{one.name.replace(' ', '-')})" for one in actions[1:]) + "\n"
            )
            continue
        parts.append(f"{call_of(action.name)}\n")
        parts.append(block(usage_of(action.parser)))
        parts.append(terms(options_of(action)))
        if action.parser.epilog:
            parts.append(prose(action.parser.epilog) + "\n")
    return "\n".join(parts)


def description_of(action: Action) -> str:
    """What a command does.

    Raises:
        UndocumentedError: it has neither a description nor a line in its program's list.
    """
    text = action.parser.description or action.help
    if not text:
        raise UndocumentedError(f"`{action.name}` has no description")
    return prose(text) + "\n"


def prose(text: str) -> str:
    """Paragraphs of a description; indented lines stay as they are."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.splitlines()
        if any(line.startswith("  ") for line in lines):
            parts.append(block(paragraph))
        else:
            parts.append(sentence(escape(paragraph)) + "\n")
    return "\n".join(parts)


def usage_of(parser: argparse.ArgumentParser) -> str:
    """The usage line, with the short spelling of the program."""
    formatter = argparse.HelpFormatter(parser.prog, width=USAGE_WIDTH)
    formatter.add_usage(parser.usage, [a for a in parser._actions if a.dest != "help"],
                        parser._mutually_exclusive_groups, prefix="")  # fmt: skip
    return formatter.format_help().strip()


def options_of(action: Action) -> List[Sequence[str]]:
    """Each argument and option with its meaning.

    Raises:
        UndocumentedError: one has no help.
    """
    formatter = argparse.HelpFormatter(action.parser.prog)
    rows: List[Sequence[str]] = []
    silent: List[str] = []
    for argument in action.parser._actions:
        is_shown = argument.help != argparse.SUPPRESS
        if not is_shown or isinstance(argument, (argparse._SubParsersAction, argparse._HelpAction)):
            continue
        if argument.option_strings:
            name = formatter._format_action_invocation(argument)
        else:
            name = formatter._metavar_formatter(argument, argument.dest)(1)[0]
        if not argument.help:
            silent.append(name)
            continue
        required = " (required)" if argument.option_strings and argument.required else ""
        rows.append((code(name) + required, sentence(escape(formatter._expand_help(argument)))))
    if silent:
        raise UndocumentedError(f"`{action.name}` has no help for {', '.join(silent)}")
    return rows


def scripts_page() -> str:
    """The nightly script by its own usage text, and the privileged helper by its module's."""
    title, _, rest = (inspect.getdoc(privileged) or "").partition("\n\n")
    requests, _, about = rest.partition("\n\n")
    return "\n".join(
        [
            "# Scripts\n",
            "## tools/nightly.sh\n",
            "A night of a board, or of a fleet, for any CI; [Nightly runs](ci.md) shows it at work.\n",
            block(nightly_usage()),
            "## The privileged helper\n",
            f"{escape(title)}\n",
            block(textwrap.dedent(requests)),
            table(("kind", "files", "allows"), helper_kinds()),
            f"{escape(about)}\n",
            f"{escape(helper_statuses())}\n",
        ]
    )


def nightly_usage() -> str:
    """What `tools/nightly.sh --help` prints."""
    script = (PROJECT / "tools" / "nightly.sh").read_text(encoding="utf-8")
    return script.partition("<< 'END'\n")[2].partition("\nEND\n")[0]


def helper_kinds() -> List[Sequence[str]]:
    """The kinds of files that the privileged helper reads or writes."""
    return [
        (code(name), code(f"/{kind.pattern}"), "reading" if kind.is_value is None else "reading, writing")
        for name, kind in privileged.KINDS.items()
    ]


def helper_statuses() -> str:
    """The exit statuses of the privileged helper with their numbers."""
    numbers = (privileged.DONE, privileged.FAILED, privileged.REFUSED, privileged.TIMED_OUT)
    tree = ast.parse(inspect.getsource(privileged))
    constants = [
        node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    texts = [constant.value for constant in constants if isinstance(constant.value, str)]
    [statuses] = [text for text in texts if text.startswith("Exit statuses: ")]
    meanings = statuses.partition(": ")[2].rstrip(".").split("; ")
    return "Exit statuses: " + "; ".join(f"{number} {meaning}" for number, meaning in zip(numbers, meanings)) + "."


def exit_codes_page() -> str:
    """What every command ends with, from the ends of their `--help`."""
    own = []
    for command in COMMANDS:
        for action in actions_of(command):
            for match in EXIT_CODES.finditer(action.parser.epilog or ""):
                condition, meanings = match[1].strip(), " ".join(match[2].split())
                name = f"[`{action.name}`]({page_of(command)}.md)" + (f" {escape(condition)}" if condition else "")
                own.append((name, escape(meanings)))
    of_nights = nightly_usage().rpartition("exit code: ")[2]
    own.append(("[`tools/nightly.sh`](scripts.md)", escape(of_nights)))
    own.append(("[privileged helper](scripts.md)", escape(helper_statuses().partition(": ")[2])))
    common = [
        ("0", "Done."),
        (str(REFUSED), "Refused, or wrong usage: a line on standard error has the reason and what to do."),
        (str(INTERRUPTED), "Interrupted (Ctrl-C), after what was changed has been restored."),
    ]
    return "\n".join(
        [
            "# Exit codes\n",
            "Every command ends with one of these codes; some of them give 1 and 2 a meaning of their own, below.\n",
            table(("code", "meaning"), common),
            "`pytest benchmarks` ends with pytest's own codes: 0 all passed, 1 a test failed, 2 interrupted, "
            "3 internal error, 4 wrong usage, 5 no test selected.\n",
            table(("command", "codes of its own"), own),
        ]
    )

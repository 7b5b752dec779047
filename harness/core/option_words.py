"""Errors of a call in the words of a command line: its options in the place of arguments."""

from __future__ import annotations

import re
from typing import Mapping, Match


def in_options(text: str, options: Mapping[str, str]) -> str:
    """An error of a call in the words of its command.

    Errors write an argument as `power_w=` or `profiles=15`, or begin with its name and value, as in `power_w is -5`;
    each becomes the option, with its value: `--power-budget`, `--profiles 15`. Names of no option stay as they are.
    """

    def option_of(written: Match[str]) -> str:
        name, value = written.groups()
        is_value = _ENDS_WITH_OPTION.search(written.string[: written.start()])  # as in `--set workload=NAME`
        if name not in options or is_value:
            return written[0]
        is_flag = value in ("", "True")
        return options[name] if is_flag else f"{options[name]} {value.strip(QUOTES)}"

    begins = _BEGINS_WITH_ARGUMENT.match(text)
    if begins and begins[1] in options:
        text = options[begins[1]] + text[begins.end(1) :]
    return _ARGUMENT.sub(option_of, text)


QUOTES = "'\""
_BEGINS_WITH_ARGUMENT = re.compile(r"([a-z]\w*) is (?:[-\d'\"\[]|nan|inf)")
_ARGUMENT = re.compile(r"\b([a-z]\w*)=('[^']*'|\"[^\"]*\"|[\w.-]*)")
_ENDS_WITH_OPTION = re.compile(r"(?:^|\s)--[a-z-]+ ['\"]?$")

"""The errors of this suite, each with thing, value, what was expected and a hint; and how a command words them."""

from __future__ import annotations

import re
from typing import Mapping, Match, Optional

NOTHING_COMPARED = 6
"""The exit code of a run with `--baseline` or `--require` that judged nothing by it; pytest's own end with 5."""


class HarnessError(Exception):
    """An error that a user can act on: `what` is wrong, with value and expectation, and a `hint` that may be empty."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint


class UnknownNameError(HarnessError):
    """A device, workload, power mode, campaign or axis value that does not exist; the hint lists the available ones."""


class InvalidValueError(HarnessError):
    """A value outside the allowed range or form."""


class CannotRunError(HarnessError):
    """A valid case that this machine cannot run now; pytest turns it into a skip with this text as its reason."""


class DoesNotFitError(CannotRunError):
    """A case that needs more memory than available; larger batches do not fit either, in any power mode."""


class OverMemoryLimitError(DoesNotFitError):
    """A batch size that is predicted to need more memory than the limit, or took more: `peak_bytes`, if measured."""

    def __init__(self, what: str, hint: str = "", peak_bytes: Optional[float] = None) -> None:
        super().__init__(what, hint)
        self.peak_bytes = peak_bytes


class OverBudgetError(CannotRunError):
    """A case that does not fit into the remaining time budget of the run; it is skipped and nothing is stored."""


class ProcessEndedError(HarnessError):
    """A process of a case that ended without a result, perhaps by a crash; the test fails."""


class ControlError(HarnessError):
    """A setting that was refused, did not take effect (read-back differs), or needs a permission."""


class OverheatedError(HarnessError):
    """A device above its temperature limit; the run ends, all is restored."""


class UnwatchedError(HarnessError):
    """A device under load whose temperature is not reported any more; the run ends, all is restored."""


class SourceUnavailableError(HarnessError):
    """A telemetry source that does not exist here or is not readable; recorded as missing, never as zero."""


class DataSetError(HarnessError):
    """A data set that is incomplete, damaged, or does not fit on its medium."""


class WorkloadError(HarnessError):
    """A user's own workload whose code fails; the message has file, line and the original error."""


class StoreError(HarnessError):
    """A results file that cannot be opened, read or written."""


class DependencyError(HarnessError):
    """An optional dependency that is not installed; the hint names the extra that brings it."""


class NotFittedError(HarnessError):
    """A predictor that was used before it was fitted."""


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

"""The errors this suite raises: each names the thing, the value, what was expected, and a hint."""

from __future__ import annotations

from typing import Optional

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

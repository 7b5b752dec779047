"""The errors this suite raises: each names the thing, the value, what was expected, and a hint."""

from __future__ import annotations


class HarnessError(Exception):
    """An error that a user can act on: `what` is wrong, with value and expectation, and a `hint` that may be empty."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint


class UnknownNameError(HarnessError):
    """A device, workload, power mode, campaign or axis value that does not exist; the message lists the known ones."""


class InvalidValueError(HarnessError):
    """A value of the right name but outside what it may be."""


class CannotRunError(HarnessError):
    """A valid case that this machine cannot run now; pytest turns it into a skip with this text as its reason."""


class DoesNotFitError(CannotRunError):
    """A case that needs more memory than there is: nor does a greater batch fit, in whatever power mode."""


class OverBudgetError(CannotRunError):
    """A case that does not fit into what is left of the run's time budget; it is left out, and nothing of it stored."""


class ProcessEndedError(HarnessError):
    """A process that a case runs in, and that ended, by a crash perhaps, before it answered: the test fails."""


class ControlError(HarnessError):
    """A knob that was refused, that did not take (read-back differs), or that needs a permission."""


class OverheatedError(HarnessError):
    """A device that is hotter than it may be, or whose heat is not seen any more: the run ends, all is put back."""


class SourceUnavailableError(HarnessError):
    """A telemetry source that is not on this machine or may not be read; recorded as missing, never as zero."""


class DataSetError(HarnessError):
    """A data set that is incomplete, damaged, or does not fit on its medium."""


class WorkloadError(HarnessError):
    """A user's own workload whose code fails; names the file, the line and what it said."""


class StoreError(HarnessError):
    """A results file that cannot be opened, read or written."""


class DependencyError(HarnessError):
    """An optional dependency that is not installed; the hint names the extra that brings it."""


class NotFittedError(HarnessError):
    """A predictor that is asked before it has learned."""

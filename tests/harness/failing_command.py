"""A rehearsed command that fails in some power modes."""

from __future__ import annotations

from harness.measure.command import CommandFailedError
from harness.measure.command_device import CommandDevice


def failing_in(monkeypatch, fails):
    """Let a rehearsed command fail in the power modes for whose names `fails` is true; returns those that were run."""
    profile, tried = CommandDevice.profile, []

    def may_fail(device, case):
        tried.append(case.power_mode.name)
        if fails(case.power_mode.name):
            raise CommandFailedError("no-such-program ended with exit code 7", "mend it", 7, ["no memory left"])
        return profile(device, case)

    monkeypatch.setattr(CommandDevice, "profile", may_fail)
    return tried

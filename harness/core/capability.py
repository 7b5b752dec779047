"""What a device can or cannot do now, and what it would need. Imports nothing: the sampler's process loads it."""

from __future__ import annotations

from typing import NamedTuple


class Capability(NamedTuple):
    """One thing a device can or cannot measure or control; a line of `harness doctor`."""

    name: str  # the feature (`power`, `page cache`, ...)
    available: bool  # whether it works now, for this user
    detail: str  # how it works, or why it does not
    hint: str = ""  # what to grant or install to have it; empty if it works or never can

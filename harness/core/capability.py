"""What a device can or cannot do now, and what it would take. Imports nothing: the sampler's process loads it."""

from __future__ import annotations

from typing import NamedTuple


class Capability(NamedTuple):
    """One thing a device can or cannot measure or control; a line of `harness doctor`.

    Attributes:
        name: what it is (`power`, `page cache`, ...).
        available: whether it works now, for this user.
        detail: how it works, or why it does not.
        hint: what to grant or install to have it; empty where it works or never can.
    """

    name: str
    available: bool
    detail: str
    hint: str = ""

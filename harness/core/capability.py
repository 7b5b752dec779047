"""What a device can or cannot do now, and what it would take."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Capability:
    """One thing a device can or cannot measure or control; a line of `harness doctor`.

    Attributes:
        name: what it is (`power`, `page cache`, ...).
        available: whether it works now, for this user.
        detail: how it works, or why it does not.
        way_out: what to grant or install to have it; empty where it works or never can.
    """

    name: str
    available: bool
    detail: str
    way_out: str = ""

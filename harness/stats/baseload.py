"""What of a device's energy it would have drawn anyhow: the baseload (M13; 004 sec. 5.6.2)."""

from __future__ import annotations

from typing import NamedTuple

from harness.core.errors import InvalidValueError
from harness.core.units import mws_to_mwh


class Load(NamedTuple):
    """Energy of an epoch in two parts, in mWh, and the baseload's share of it, 0 to 1."""

    baseload_mwh: float
    incremental_mwh: float
    baseload_share: float


def split_load(energy_mwh: float, idle_mw: float, epoch_s: float) -> Load:
    """Baseload is power in the idle state (i) x epoch time, incremental load what is left (004 sec. 5.6.2).

    Where training draws less than the idle state did, the incremental load is below 0: noise, or another state.

    `idle_mw` is the power in idle state (i): static clocks, telemetry on.

    Raises:
        InvalidValueError: the energy is not above 0.
    """
    if not energy_mwh > 0:
        raise InvalidValueError(f"energy must be above 0 mWh, got {energy_mwh}")
    baseload_mwh = mws_to_mwh(idle_mw * epoch_s)
    return Load(baseload_mwh, energy_mwh - baseload_mwh, baseload_mwh / energy_mwh)

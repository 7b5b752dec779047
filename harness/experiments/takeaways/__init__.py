"""Every take-away, by the experiment that measures what it needs."""

from __future__ import annotations

from typing import Tuple

from harness.experiments.takeaway import Takeaway
from harness.experiments.takeaways import (
    batch_size,
    cross_device,
    idle,
    page_cache,
    power_modes,
    scaling,
    storage_media,
    variability,
    workers,
)

TAKEAWAYS: Tuple[Takeaway, ...] = (
    *workers.TAKEAWAYS,
    *page_cache.TAKEAWAYS,
    *storage_media.TAKEAWAYS,
    *batch_size.TAKEAWAYS,
    *scaling.TAKEAWAYS,
    *variability.TAKEAWAYS,
    *power_modes.DVFS_TAKEAWAYS,
    *idle.TAKEAWAYS,
    *power_modes.TAKEAWAYS,
    *cross_device.TAKEAWAYS,
)
"""All of them, in the order of the papers' sections."""

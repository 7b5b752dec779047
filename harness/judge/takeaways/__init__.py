"""Every take-away, by the experiment that measures what it needs."""

from __future__ import annotations

from typing import Tuple

from harness.judge.takeaway import Takeaway
from harness.judge.takeaways import (
    baseload_share,
    batch_size,
    cross_device,
    dvfs,
    idle,
    one_resource,
    page_cache,
    power_modes,
    profile_length,
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
    *dvfs.TAKEAWAYS,
    *idle.TAKEAWAYS,
    *power_modes.TAKEAWAYS,
    *one_resource.TAKEAWAYS,
    *baseload_share.TAKEAWAYS,
    *cross_device.TAKEAWAYS,
    *profile_length.TAKEAWAYS,
)
"""All of them, in the order of the papers' sections."""

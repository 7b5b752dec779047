"""Tables made from the physical form itself, with parameters and noise drawn from a seed."""

from __future__ import annotations

import numpy as np

from harness.core.power_modes import PowerModeSpace
from predictors.models.physical_gp.prior import any_board
from predictors.models.physical_gp.response import PARAMETERS, features, log_response
from predictors.profiles import Profiles
from predictors.settings import Settings

SPACE = PowerModeSpace(
    (2, 4, 8, 12),
    (268_800, 576_000, 1_036_800, 1_651_200, 2_201_600),
    (114_750, 318_750, 624_750, 930_750, 1_300_500),
    (204_000, 665_600, 2_133_000, 3_199_000),
)
"""400 modes."""


def make_table(seed, *, workload="made", device="made-board", task="training", batch_size=16, noise=0.01, spread=0.5):
    """A table of all modes of `SPACE`; tables of one device share what a board has."""
    random = np.random.default_rng(seed)
    belief = any_board()
    theta = belief.mean + spread * belief.sd * random.normal(size=len(belief.mean))
    board = np.random.default_rng(sum(device.encode()))
    for name in ("scale", "base", "mem_idle", "core_idle"):
        place = PARAMETERS.index(name)
        theta[place] = belief.mean[place] + belief.sd[place] * board.normal()
    modes = np.array(list(SPACE), dtype=np.int64)
    sizes = np.broadcast_to(batch_size, len(modes)).astype(np.int64)
    rows = Settings.of(modes, sizes, task)
    logs = log_response(theta, features(rows)) + noise * random.normal(size=2 * len(modes))
    time_ms, power_mw = 1000 * np.exp(logs.reshape(2, -1))
    return Profiles.at(rows, time_ms, power_mw, device=device, workload=workload, provenance="simulated")

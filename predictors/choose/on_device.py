"""What a search on a device knows beyond its profiles, without loading what measures: its profiler, power peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional, cast

from predictors.strategies.protocol import History
from predictors.strategies.recommendation import Recommendation

if TYPE_CHECKING:
    from predictors.choose.device_profiler import DeviceProfiler

MEDIAN = 50.0  # of the times of minibatches, in %


class PowerPeak(NamedTuple):
    """The greatest power sample of a profile."""

    peak_mw: float
    window_s: Optional[float]  # interval of the samples: much shorter peaks are missed
    exceeded: str  # the limits of board and supply that it exceeds, or empty


def profiler_of(history: History) -> DeviceProfiler:
    """The device of a search that runs on one."""
    assert hasattr(history.profiler, "device"), "its profiles come from a table"
    return cast("DeviceProfiler", history.profiler)


def peak_of(recommendation: Recommendation) -> Optional[PowerPeak]:
    return profiler_of(recommendation.history).peaks.get(recommendation.choice.index)

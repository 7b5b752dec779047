"""What searches on a device have in common, without loading what measures: board, storage, profiler, power peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, cast

from harness.core.boards import is_board, type_of
from harness.core.campaigns import check_media, default_medium
from harness.core.configuration import DEFAULT_STORAGE, Configuration
from harness.core.device import Device
from predictors.choose.job import Job
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


def board_of(device: Device) -> str:
    """The board that a device is or represents; empty if it is not a board."""
    name = getattr(device, "board", None) or type_of(device.name)
    name = name[len("emulated-") :] if name.startswith("emulated-") else name
    return name if is_board(name) else ""


def storage_of(job: Job, device: Device, configuration: Configuration, report: Callable[[str], None]) -> str:
    """The medium of a job's data set, by default `ssd` or the board's own; a medium that is unknown is refused."""
    if job.storage is not None:
        if device.provenance != "replayed":
            check_media([job.storage], configuration)
        return job.storage
    storage = default_medium(board_of(device), configuration)
    if storage != DEFAULT_STORAGE:
        report(f"storage {storage}: {device.name} has no {DEFAULT_STORAGE}")
    return storage

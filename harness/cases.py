"""A case: what is asked of a device, from its six axes and the settings of the run."""

from __future__ import annotations

import dataclasses
from typing import Optional

from harness.errors import InvalidValueError

AXES = ("device", "workload", "power_mode", "workers", "storage", "batch_size")
"""The parametrized axes, in the order in which they stand in a case's id."""

CACHE_STATES = ("cold", "evicted", "warm", "as-is", "drop-each-epoch")
"""What is done to the page cache before a case.

`cold` drops the whole cache (privileged), `evicted` drops the data set's own pages (any user may), `warm` reads the
data set once through the DataLoader, `as-is` does nothing, `drop-each-epoch` is `cold` before every epoch.
"""

DROPPED = ("cold", "drop-each-epoch")
"""Cache states that need the right to drop the whole page cache."""

DEFAULT_MINIBATCHES = 40  # PowerTrain sec. 2.5: fewer give no 1-s power sample in fast modes


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a case is measured; the same for all cases of a sweep.

    Attributes:
        minibatches: clean minibatches to record; None where whole epochs are asked for.
        epochs: epochs to run, epoch 0 included; None where minibatches are asked for.
        cache: one of `CACHE_STATES`.
        data_scale: data-set size as a share of the real sample count; None for the data set's own small default.
        interval_s: telemetry interval asked for, in seconds.
        seed: seeds weights, sampling order and the written data sets.
    """

    minibatches: Optional[int] = DEFAULT_MINIBATCHES
    epochs: Optional[int] = None
    cache: str = "warm"
    data_scale: Optional[float] = None
    interval_s: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values that cannot be measured."""
        if (self.minibatches is None) == (self.epochs is None):
            raise InvalidValueError("a case is measured for a number of minibatches or of epochs, one of the two")
        for name in ("minibatches", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidValueError(f"{name} must be at least 1, got {value}")
        if self.cache not in CACHE_STATES:
            raise InvalidValueError(f"cache state {self.cache!r} is unknown", f"known: {', '.join(CACHE_STATES)}")
        if self.data_scale is not None and not self.data_scale > 0:
            raise InvalidValueError(f"data_scale must be above 0, got {self.data_scale}")
        if self.cache == "drop-each-epoch" and self.epochs is None:
            raise InvalidValueError("cache state drop-each-epoch needs epochs", "give epochs, or the cache state cold")
        if not self.interval_s > 0:
            raise InvalidValueError(f"interval_s must be above 0, got {self.interval_s}")


@dataclasses.dataclass(frozen=True)
class Case:
    """One point of device x workload x power mode x workers x storage x batch size, and how it is measured.

    Attributes:
        device: name of a device as given to `--device`.
        workload: name of a workload.
        power_mode: the power mode as the device names it (`maxn`, `2c`, `12c-2201.6-1300.5-3199`).
        workers: `num_workers` of the DataLoader.
        storage: name of a storage medium.
        batch_size: samples per minibatch.
        settings: how it is measured.
        task: `training` or `inference`.
    """

    device: str
    workload: str
    power_mode: str
    workers: int
    storage: str
    batch_size: int
    settings: Settings = Settings()
    task: str = "training"

    def __post_init__(self) -> None:
        """Refuse counts that make no minibatch."""
        if self.workers < 0:
            raise InvalidValueError(f"workers must be 0 or more, got {self.workers}")
        if self.batch_size < 1:
            raise InvalidValueError(f"batch_size must be at least 1, got {self.batch_size}")

    @property
    def id(self) -> str:
        """Stable and readable: `host-resnet18-cifar10-maxn-w4-ssd-bs16`.

        `-CACHE` follows where the cache state is not warm, `-xSCALE` where a data scale was asked for.
        """
        parts = [self.device, self.workload, self.power_mode, f"w{self.workers}", self.storage, f"bs{self.batch_size}"]
        if self.settings.cache != "warm":
            parts.append(self.settings.cache)
        if self.settings.data_scale is not None:
            parts.append(f"x{self.settings.data_scale:g}")
        return "-".join(parts)

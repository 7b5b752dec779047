"""`recommend`: profile a few power modes on a device and name the one that meets a goal best."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Sequence, Union

from harness.core.cases import DEFAULT_MINIBATCHES, Case, Settings
from harness.core.configuration import FILE_NAME, load_configuration
from harness.core.terminal import Progress
from harness.devices.registry import open_device
from harness.store.results import ResultsStore
from predictors.cli.recommend import recommend_mode
from predictors.search.device_profiler import workers_of, workload_name
from predictors.search.recommendation_report import format_recommendation, plain_recommendation
from predictors.strategies.goals import within
from predictors.strategies.recommendation import Recommendation

if TYPE_CHECKING:
    import pandas as pd


def recommend(
    device: str,
    *,
    workload: str,
    power_w: Optional[float] = None,
    time_ms: Optional[float] = None,
    strategy: str = "closed-loop",
    profiles: int = 15,
    batch_size: Union[int, Sequence[int]] = 16,
    workers: Optional[int] = None,
    storage: str = "ssd",
    minibatches: int = DEFAULT_MINIBATCHES,
    seed: int = 0,
    results: Union[str, Path, None] = None,
) -> Answer:
    """Search on a device as the command `jetwatt recommend` does.

    Args:
        device: `sim:orin-agx`, `host`, a board's name on that board, or `replay:CORPUS.csv`.
        workload: one of the suite's, or your own as `module:NAME`.
        power_w: greatest module power; the time is to be the least.
        time_ms: greatest minibatch time; the power is to be the least. With both limits, the energy of a minibatch.
        strategy: how to search: `closed-loop`, `mdbs`, `presets` or another of docs/strategies.md.
        profiles: power modes that may be profiled.
        batch_size: samples per minibatch; several to choose from, by time per sample. The batch size changes how a
            network learns.
        workers: of the DataLoader; None for as many as the papers ran it with, 4, or 0 for YOLO.
        storage: medium of the data set.
        minibatches: per profile.
        seed: the same seed begins with the same modes.
        results: a file that keeps the profiles.

    A `CannotRunError` says that the device is not here, or tells no power.
    """
    sizes = [batch_size] if isinstance(batch_size, int) else list(batch_size)
    goal, opened = within(power_w, time_ms, len(sizes) > 1), open_device(device, load_configuration(Path(FILE_NAME)))
    settings = Settings(minibatches=minibatches, seed=seed)
    name = workload_name(workload, opened)
    case = Case(device, name, "maxn", workers_of(name, workers), storage, sizes[0], settings)
    with ResultsStore(Path(results)) if results else contextlib.nullcontext() as store:
        how = {"strategy": strategy, "profiles": profiles, "store": store, "progress": Progress(sys.stderr)}
        return Answer(recommend_mode(opened, case, [goal], batch_sizes=sizes, **how)[0])


class Answer:
    """The power mode to train with; printed, it says what else was found."""

    def __init__(self, found: Recommendation) -> None:
        self.found = found
        self.power_mode = found.choice.power_mode
        self.keeps_limits = found.choice.feasible  # if not, it is the nearest mode that is known

    def __repr__(self) -> str:
        return format_recommendation(self.found)

    def front(self) -> pd.DataFrame:
        """The modes that no other is expected to beat in both time and power, by rising power; 80 % intervals."""
        import pandas as pd

        return pd.json_normalize(plain_recommendation(self.found)["front"], sep="_")

"""What the callbacks share: `measuring`, and `tuning` within a power budget, begun and ended by a library's hooks."""

from __future__ import annotations

import atexit
import contextlib
import os
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Optional, Union

from harness.core.errors import InvalidValueError
from harness.core.profiles import Profile
from harness.measure.own_loop import FurtherLoop, OwnLoop, StepFigures
from harness.measure.own_training import further_process
from harness.store.results import ResultsStore
from jetwatt.training_block import measuring
from predictors.choose.request import USUAL_SEARCH, Job, Search
from predictors.choose.tuning import OnlineTuner, tuning

FIGURES = ("step_time_s", "power_w", "energy_per_step_j")
"""The names of a step's figures in logs."""

ENERGY_PER_EPOCH = "energy_per_epoch_j"
UNKNOWN_BATCH = "the batch size of the training is not known"


class PowerLog:
    """Measures a training whose steps hooks report; with a power budget it searches for a power mode first.

    Args:
        device: as of `jetwatt.measuring`: `host`, a board, or `sim:BOARD` to rehearse.
        workload: the name of your training in results.
        results: the results file; None stores nothing.
        power_budget_w: the most power in W; `tuning` searches for the fastest mode within it while training runs, and
            what is stored begins once the mode is found. None leaves the mode.
        search: how many modes the search tries, and how many minibatches count in each; it takes as many steps as that.
        hold: whether to hold the device; with a power budget it is held in any case.
        power_mode: the mode to hold; None for `maxn`.
        batch_size: samples per step, where the library does not show it.
        simulated_workload: what a simulated board runs in place of your training.
        report: receives the lines of the search.
    """

    _begun: ClassVar[Optional[PowerLog]] = None
    """The one that measures: only one training runs at a time, and libraries tell of no end by an error."""

    def __init__(
        self,
        device: str = "host",
        *,
        workload: str,
        results: Union[str, Path, None] = None,
        power_budget_w: Optional[float] = None,
        search: Search = USUAL_SEARCH,
        hold: bool = False,
        power_mode: Optional[str] = None,
        batch_size: Optional[int] = None,
        simulated_workload: Optional[str] = None,
        report: Callable[[str], None] = print,
    ) -> None:
        if power_budget_w is not None and (hold or power_mode is not None):
            raise InvalidValueError("power_budget_w= searches for a power mode", "leave out hold= and power_mode=")
        if power_budget_w is None and search is not USUAL_SEARCH:
            raise InvalidValueError("search= has no effect without a search", "give power_budget_w= with it")
        self.device, self.workload, self.results = device, workload, results
        self.power_budget_w, self.search = power_budget_w, search
        self.hold, self.power_mode = hold, power_mode
        self.batch_size, self.simulated_workload, self.report = batch_size, simulated_workload, report
        self.profile: Optional[Profile] = None  # after training
        self._loop: Optional[OwnLoop] = None
        self._process = 0  # that has begun a training
        self._tuner: Optional[OnlineTuner] = None
        self._training = contextlib.ExitStack()  # what ends with the training
        self._block = contextlib.ExitStack()  # what ends when the search does
        self._logged = self._epoch_began = 0  # numbers of minibatches

    def begin(self, batch_size: Optional[int], model: Any = None, data: Any = None) -> None:
        """Training begins; `batch_size` is what the library shows."""
        samples = self.batch_size or batch_size
        if samples is None:
            raise InvalidValueError(UNKNOWN_BATCH, "give the callback batch_size=")
        further = further_process()
        if further is not None:  # the device is held once for all ranks
            if not further.is_certain:
                FurtherLoop(further.reason).say_once()
            return
        if PowerLog._begun is not None:  # a training before this one
            PowerLog._begun._end_unreported()
        self._options: Dict[str, Any] = {
            "workload": self.workload,
            "batch_size": samples,
            "model": model,
            "data": data if hasattr(getattr(data, "dataset", data), "__len__") else None,
            "simulated_workload": self.simulated_workload,
        }
        PowerLog._begun, self._process = self, os.getpid()
        atexit.register(self._end_unreported)
        try:
            self._begin_to_measure(samples)
        except BaseException as error:
            self.end(error)  # a device that the search holds
            raise

    def _begin_to_measure(self, samples: int) -> None:
        if self.power_budget_w is None:
            self._measure(results=self.results, hold=self.hold, power_mode=self.power_mode)
            return
        if self.results is not None:
            ResultsStore(self.results).close()  # refused before the search, not after it
        simulated = self.simulated_workload or "resnet18-imagenet"
        job = Job(simulated, batch_size=samples)
        tuner = tuning(self.device, power_w=self.power_budget_w, workload=job, search=self.search, report=self.report)
        self._tuner = self._training.enter_context(tuner)
        self._measure(results=None)

    def _measure(self, **options: Any) -> None:
        self._loop = self._block.enter_context(measuring(self.device, **self._options, **options))
        self._logged = self._epoch_began = 0

    def step(self, samples: Optional[int] = None) -> None:
        """A step has ended."""
        if self._loop is None:
            return
        self._loop.step(samples)
        if self._tuner is None:
            return
        self._tuner.step()
        if self._tuner.settled:
            choice = self._tuner.close().choice
            assert choice is not None, "a search that has settled has chosen"
            self._end_search()
            mode = {"hold": True, "power_mode": choice.power_mode.name} if self._is_rehearsal else {}
            self._measure(results=self.results, **mode)

    @property
    def _is_rehearsal(self) -> bool:
        return self.device.startswith("sim:")

    def _end_search(self) -> None:
        """End the loop of the search, which is for the log alone: it has many modes, and no doubts of it are noted."""
        self._tuner = self._loop = None
        block, self._block = self._block, contextlib.ExitStack()
        ended = SearchEndedError()
        block.__exit__(type(ended), ended, None)

    @property
    def is_searching(self) -> bool:
        """Whether the search for a power mode goes on; the profile begins after it."""
        return self._tuner is not None

    def resume(self) -> None:
        """What came since the last step, such as an evaluation, does not count."""
        if self._loop is not None:
            self._loop.resume()

    def begin_epoch(self) -> None:
        """An epoch begins."""
        self.resume()
        self._epoch_began = 0 if self._loop is None else self._loop.ended

    def since_log(self) -> Dict[str, float]:
        """Figures of a step since the last call of this, by the names under which they are logged."""
        if self._loop is None:
            return {}
        figures, self._logged = self._figures(self._logged), self._loop.ended
        return named(figures)

    def of_epoch(self) -> Dict[str, float]:
        """The same of the epoch so far, with its energy."""
        figures = self._figures(self._epoch_began)
        if figures is None or figures.energy_j is None:
            return named(figures)
        return {**named(figures), ENERGY_PER_EPOCH: figures.energy_j}

    def _figures(self, since: int) -> Optional[StepFigures]:
        if self._loop is None or (self.is_searching and self._is_rehearsal):  # whose loop is in one mode all the time
            return None
        return self._loop.figures(since)

    def end(self, error: Optional[BaseException] = None) -> None:
        """Training has ended: make and store the profile, and restore a device that is held. Idempotent."""
        atexit.unregister(self._end_unreported)
        if PowerLog._begun is self:
            PowerLog._begun = None
        if self.is_searching and error is None:
            self._end_search()
            self.report("training ended before the search did: there is no profile of it")
        loop, self._loop, self._tuner = self._loop, None, None
        blocks, self._block = self._block, contextlib.ExitStack()
        training, self._training = self._training, contextlib.ExitStack()
        with training:
            if error is None:
                blocks.close()
            else:  # which the library raises itself
                blocks.__exit__(type(error), error, error.__traceback__)
        if loop is not None:
            self.profile = loop.profile

    def _end_unreported(self) -> None:
        """End a training whose end no hook told: libraries call none when an error ends it."""
        if self._process == os.getpid():  # and no fork of it, which leaves all to its parent
            self.end(UnreportedError())


class SearchEndedError(Exception):
    """What ends the loop of a search."""


class UnreportedError(Exception):
    """What ended a training whose library called no hook at its end."""


def named(figures: Optional[StepFigures]) -> Dict[str, float]:
    """Figures by the names under which they are logged; what is not known is left out."""
    if figures is None:
        return {}
    per_step_j = None if figures.energy_j is None else figures.energy_j / figures.minibatches
    values = zip(FIGURES, (figures.time_s, figures.power_w, per_step_j))
    return {name: value for name, value in values if value is not None}

"""A job: what runs on a device while its power mode is chosen."""

from __future__ import annotations

import collections.abc
import dataclasses
from typing import TYPE_CHECKING, List, Optional, Sequence, Union, cast

from harness.core.corpus import TASKS
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint
from predictors.models.base import CallSettings, check_numbers, checks_names, numbers_in
from predictors.settings import DEFAULT_BATCH_SIZE

if TYPE_CHECKING:
    from harness.workloads.command import Command
    from harness.workloads.workload import Workload

WorkloadLike = Union[str, "Workload"]  # a name, a user's own `module:NAME`, or the workload itself
JobLike = Union[WorkloadLike, Sequence[WorkloadLike], "Command", "Job"]
"""What calls take: a workload, several, or a job; `recommend` also a command."""


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Job(CallSettings):
    """What runs on a device, apart from the device and its power mode.

    Attributes:
        workload: one of the suite's, or your own as `module:NAME` or as a `Workload`; one or several. For `recommend`
            also a `Command`, alone.
        batch_size: samples per minibatch; several to choose from, by time per sample. The batch size changes how a
            network learns.
        workers: of the DataLoader; None for the papers' default: 4, or 0 for YOLO.
        storage: medium of the data set; None for `ssd`, or for the board's own medium if it has no SSD.
        task: `training` or `inference`.
        epochs: of the whole training; None for the papers' number.
    """

    workload: Union[WorkloadLike, Sequence[WorkloadLike], Command]
    batch_size: Union[int, Sequence[int]] = DEFAULT_BATCH_SIZE
    workers: Optional[int] = None
    storage: Optional[str] = None
    task: str = TASKS[0]
    epochs: Optional[float] = None

    def __post_init__(self) -> None:
        """Refuse numbers and names out of range."""
        _refuse_what_is_no_workload(workloads_of(self))
        sizes = numbers_in(self.batch_size)
        if not sizes:
            raise InvalidValueError("no batch_size= was given", f"omit it for {DEFAULT_BATCH_SIZE}")
        check_numbers(above=True, whole=True, batch_size=sizes)
        check_numbers(whole=True, workers=self.workers)
        check_numbers(above=True, epochs=self.epochs)
        if self.task not in TASKS:
            raise UnknownNameError(f"task is {self.task!r}", available_hint(str(self.task), TASKS))


def _refuse_what_is_no_workload(given: Sequence[object]) -> None:
    """Refuse an empty list, and what is neither a name nor a `Workload`; a `Command` may stand alone."""
    if not given:
        raise InvalidValueError("no workload= was given", "name one, such as 'lenet-mnist'")
    others = [each for each in given if not isinstance(each, str)]
    if not others:
        return
    from harness.workloads.command import Command
    from harness.workloads.workload import Workload

    for other in others:
        if isinstance(other, Command) and len(given) > 1:
            raise InvalidValueError("a command is searched for alone", "give one workload=")
        if not isinstance(other, (Workload, Command)):
            raise InvalidValueError(f"workload is {other!r}, expected a name or a Workload", "such as 'lenet-mnist'")


def job_of(given: JobLike) -> Job:
    """A job as it is; workloads as a job with the defaults."""
    return given if isinstance(given, Job) else Job(given)


def refuse_command(job: Job, call: str) -> None:
    """InvalidValueError for a call that trains its workloads itself."""
    if command_of(job) is not None:
        raise InvalidValueError(f"{call} runs no command as its workload", "recommend and run_command do")


def command_of(job: Job) -> Optional[Command]:
    """The command that is the workload of a job; None for other workloads."""
    if isinstance(job.workload, str):
        return None
    from harness.workloads.command import Command

    return job.workload if isinstance(job.workload, Command) else None


def workloads_of(job: Job) -> List[WorkloadLike]:
    """The workloads of a job, also if it has one; of a command that alone, which few calls take (`command_of`)."""
    if isinstance(job.workload, str) or not isinstance(job.workload, collections.abc.Sequence):
        return [cast("WorkloadLike", job.workload)]
    return list(job.workload)


def batch_sizes_of(job: Job) -> List[int]:
    """The batch sizes of a job, each once, also if it has one."""
    return list(dict.fromkeys(map(int, numbers_in(job.batch_size))))

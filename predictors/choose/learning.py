"""What predictors learn from besides profiles of the workload that is predicted, and how: references, prior, counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Union

from harness.core.errors import UnknownNameError
from harness.core.notes import note
from harness.core.terminal import available_hint
from harness.workloads import get_workload
from harness.workloads.counting import counted_alone
from predictors.models.base import CallSettings, checks_names
from predictors.models.networks import LOSSES
from predictors.profiles import Profiles
from predictors.sampling import check_sampling

if TYPE_CHECKING:
    from predictors.choose.corpora import Corpus
    from predictors.models.physical_gp.prior import Counts, Hierarchy


@checks_names
@dataclasses.dataclass(frozen=True, repr=False)
class Learning(CallSettings):
    """What predictors learn from besides profiles of the target, and how.

    Attributes:
        reference: workloads that transfer predictors start from; a target is never its own reference.
        reference_corpus: where their profiles are, if not in the corpus.
        prior: a file written by `prior learn`; None for the suite's prior.
        loss: training loss of networks; None for the mean squared error.
        sampling: how the modes to fit on are chosen.
    """

    reference: Union[str, Sequence[str]] = ()
    reference_corpus: Optional[Corpus] = None
    prior: Union[str, Path, None] = None
    loss: Optional[str] = None
    sampling: str = "random"

    def __post_init__(self) -> None:
        """Refuse names of no loss and of no sampler."""
        if self.loss is not None and self.loss not in LOSSES:
            raise UnknownNameError(f"loss is {self.loss!r}", available_hint(str(self.loss), LOSSES))
        check_sampling(self.sampling)


USUAL_LEARNING = Learning()
"""The default of calls."""


def load_prior(prior: Union[str, Path, None]) -> Optional[Hierarchy]:
    """The prior in a file of `prior learn`; None, the suite's own, without a file."""
    if not prior:
        return None
    from predictors.models.physical_gp.prior import read_hierarchy

    return read_hierarchy(Path(prior))


def count_networks(tables: Sequence[Profiles]) -> Dict[str, Counts]:
    """Counts of what networks compute, by workload, from torch; unknown workloads are skipped."""
    from predictors.models.physical_gp.prior import Counts

    counts = {}
    for name in dict.fromkeys(table.workload for table in tables):
        try:
            workload = get_workload(name)
        except UnknownNameError as error:
            note(f"{name} is not counted: {error}")
            continue
        counted, _ = counted_alone(workload)
        counts[name] = Counts(*(float(getattr(counted, field)) for field in Counts._fields))
    return counts

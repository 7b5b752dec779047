"""How predictors learn, apart from the profiles of the workload that is predicted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Sequence, Union

from harness.core.errors import UnknownNameError
from harness.core.terminal import available_hint
from predictors.models.base import CallSettings, checks_names
from predictors.models.networks import LOSSES
from predictors.sampling import check_sampling

if TYPE_CHECKING:
    from predictors.choose.corpora import Corpus


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

"""A take-away of the papers as a check over profiles: what it says, where it stands, on which boards it was seen."""

from __future__ import annotations

from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

from harness.judge.findings import Finding
from harness.judge.published import beside, boards_of
from harness.judge.view import View

Views = Mapping[str, View]
"""Name of a device to what it says; of the device that is asked first."""

Check = Callable[[View, Views], Optional[Finding]]

LENET, MOBILENET, CIFAR, RESNET = "lenet-mnist", "mobilenetv3-gld23k", "resnet18-cifar10", "resnet18-imagenet"
SMALL_DATA = (LENET, CIFAR)
XAVIER, NX, NANO, ORIN = "xavier-agx", "xavier-nx", "nano", "orin-agx"
PAPERS_BOARDS = (XAVIER, NX, NANO)
"""The boards of 004."""

ALMOST = 0.97
"""What papers call comparable, or almost the same: 004 sec. 5.2.2 says it of 3 % of an epoch's time."""


def almost(board: str) -> float:
    """The same for a board. On NX epochs deviate by 5 % (004 sec. 5.4.1), so that single runs tell no less than 8 %."""
    return 0.92 if board == NX else ALMOST


class Takeaway(NamedTuple):
    """What a paper found.

    Attributes:
        name: of its check.
        experiment: the benchmark file that measures what it needs: `benchmarks/test_EXPERIMENT.py`.
        section: paper and section, such as `004 5.1.7`.
        facts: ids in `baselines/published/claims.csv` and `figures.csv`.
        says: what is claimed and how it is judged, in a sentence or two.
        boards: where the paper saw it; a simulated board that is none of them is not asked. Empty for any.
        only_there: whether it is said of these boards alone, so that another machine is not asked either.
        check: what it comes to; None, or without cells, where the profiles that it needs are not there.
    """

    name: str
    experiment: str
    section: str
    facts: Tuple[str, ...]
    says: str
    boards: Tuple[str, ...]
    only_there: bool
    check: Check


class Takeaways(List[Takeaway]):
    """The take-aways of an experiment, in the order they stand in."""

    def __init__(self, experiment: str) -> None:
        """Those that `benchmarks/test_EXPERIMENT.py` measures for."""
        super().__init__()
        self._experiment = experiment

    def of(
        self, section: str, *facts: str, boards: Tuple[str, ...] = (), only_there: bool = False
    ) -> Callable[[Check], Check]:
        """Take a check into the list: the function's name and docstring become the take-away's."""

        def take(check: Check) -> Check:
            says = " ".join((check.__doc__ or "").split())
            self.append(Takeaway(check.__name__, self._experiment, section, facts, says, boards, only_there, check))
            return check

        return take

    def figures(self, name: str, section: str, says: str, *facts: str) -> None:
        """Take in what a section prints of comparisons on some boards: the same there, within 15 %.

        Args:
            name: of the take-away.
            section: paper and section.
            says: what is claimed, in a sentence.
            facts: ids in `figures.csv`, as `harness.judge.published.comparisons` reads them.
        """

        def check(view: View, views: Views) -> Finding:
            return beside(view, *facts)

        ids = tuple(part for fact in facts for part in fact.split("/"))
        says = f"{says}, within 15 %."
        self.append(Takeaway(name, self._experiment, section, ids, says, boards_of(*facts), True, check))

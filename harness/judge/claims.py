"""Claims: sentences of papers as tests, and their verdicts on each device, measured and simulated alike.

    @claim("004 5.1.4", facts="F927 F928 F929 F930", boards="xavier-agx xavier-nx", fitted=True)
    def test_one_worker_shortens_every_epoch(ratio):
        \"\"\"With one worker, and with four, every epoch is shorter than with none.\"\"\"
        assert ratio("time", workers=(0, [1, 4]), workload=PAPERS, where=a_core_for_each_worker) < 1

The test takes statistics of `harness.judge.statistics` by name, bound to the cases of one device. Its docstring is the
claim, its only comparison the verdict.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from harness.core.cases import INSTANCE_MARK
from harness.core.errors import CannotRunError, InvalidValueError, StoreError
from harness.core.terminal import counted
from harness.judge.case_frame import MEASURED, SIMULATED
from harness.judge.query import Frame, cases_of
from harness.judge.statistics import STATISTICS
from harness.judge.verdict import (
    CONFIRMED,
    CONTRADICTED,
    UNDECIDED,
    BoundedFigures,
    Bounds,
    CaseFigures,
    Verdict,
    deciding_cell,
)
from harness.stats.noise import describe_noise

if TYPE_CHECKING:
    from harness.store.results import ResultsStore

Test = Callable[..., None]

HOW_TO_JUDGE = "pytest benchmarks --judge {}"


class Shortfall(NamedTuple):
    """The known behaviour of simulated boards that deviates from a claim, and why."""

    above: float
    below: float
    why: str


def known(above: float, below: float, why: str) -> Shortfall:
    """The bounds of a simulated board's figure that deviates from a claim: `shortfall=known(0.7, 1.15, "...")`."""
    if not above < below:
        raise InvalidValueError(f"a shortfall above {above:g} and below {below:g} is empty")
    return Shortfall(above, below, why)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and the test that judges it."""

    test: Test
    section: str  # paper and section, such as `004 5.1.7`
    facts: Tuple[str, ...] = ()  # ids of the papers' statements and figures; `F919/F918` is one figure over another
    boards: Tuple[str, ...] = ()  # of the paper; other simulated boards are not judged. Empty for any
    only_there: bool = False  # whether it is limited to these boards, so that no other machine is judged either
    fitted: str = ""  # how the simulation depends on the claim, if it does
    shortfall: Optional[Shortfall] = None
    measured_only: str = ""  # why a simulated board cannot fail it, and is therefore not judged

    @property
    def name(self) -> str:
        return self.test.__name__.partition("test_")[2]

    @property
    def experiment(self) -> str:
        """The benchmark file that defines it: `benchmarks/test_EXPERIMENT.py`."""
        return self.test.__module__.rpartition(".")[2].partition("test_")[2]

    @property
    def says(self) -> str:
        return " ".join((self.test.__doc__ or "").split())


def claim(
    section: str,
    facts: str = "",
    boards: str = "",
    only_there: bool = False,
    fitted: Union[bool, str] = False,
    shortfall: Optional[Shortfall] = None,
    measured_only: str = "",
) -> Callable[[Test], Test]:
    """Make a test a claim; its docstring states the claim.

    Args:
        section: paper and section, such as `004 5.1.4`.
        facts: ids of the statements and figures of `baselines/published` it rests on, separated by spaces.
        boards: those of the source, separated by spaces; other simulated boards are not judged.
        only_there: it is limited to these boards; no other machine is judged either.
        fitted: the simulation was fitted to one of the facts, or took a parameter from one; or a sentence on what else
            makes a simulated board agree. Such verdicts are counted separately.
        shortfall: `known(above, below, why)`, the known behaviour of simulated boards that deviates from the claim.
        measured_only: why simulated boards agree by construction; only measured profiles are judged then.
    """

    def decorate(test: Test) -> Test:
        dependence = f"the simulation was fitted to {section}" if fitted is True else fitted or ""
        more = (only_there, dependence, shortfall, measured_only)
        test.claim = Claim(test, section, tuple(facts.split()), tuple(boards.split()), *more)  # type: ignore[attr-defined]
        return test

    return decorate


def claim_of(test: Any) -> Optional[Claim]:
    """The claim of a test function."""
    return getattr(test, "claim", None)


@functools.lru_cache(maxsize=None)
def claims_in(folder: Path) -> Tuple[Claim, ...]:
    """The claims of a folder's `test_*.py`, file by file in alphabetical order, in the order of each file."""
    claims: List[Claim] = []
    for file in sorted(folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None, file
        assert spec.loader is not None, file
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        own = [claim_of(function) for function in vars(module).values()]
        claims += [item for item in own if isinstance(item, Claim) and item.test.__module__ == file.stem]
    return tuple(claims)


class DeviceFacts(NamedTuple):
    """Facts on the device of a verdict."""

    board: str  # its type
    provenance: str
    left_out: int = 0  # as in `Verdict`, like `between_runs`
    between_runs: str = ""
    trains_on_cpu: bool = False


class ClaimOnDevice:
    """A claim on one device: the statistics for its test, and the verdict after its comparison."""

    def __init__(
        self,
        claim: Optional[Claim],
        frame: Frame,
        device: str,
        accepts: Callable[[Verdict], bool] = lambda _: True,
        own_figures_of: Optional[DeviceFacts] = None,
    ) -> None:
        """Without a claim, statistics are bound to the device and nothing is recorded.

        `own_figures_of` is given if the run has the figures itself, and they are not statistics of profiles.
        """
        self.claim, self.device = claim, device
        self.verdict: Optional[Verdict] = None
        self._cases, self._accepts = cases_of(frame), accepts
        self._own_figures_of = own_figures_of

    @functools.cached_property
    def device_facts(self) -> DeviceFacts:
        """CannotRunError if there are no profiles of the device."""
        if self._own_figures_of is not None:
            return self._own_figures_of
        if self.device not in self._cases.devices:
            hint = f"measure them in the same run, or judge a results file: {HOW_TO_JUDGE.format('FILE')}"
            raise CannotRunError(f"there are no profiles of {self.device} to judge", hint)
        device = self._cases.devices[self.device]
        trains_on_cpu = any(row.conditions.get("accelerator") == "cpu" for row in device.rows)
        left_out = self._cases.left_out(self.device)
        return DeviceFacts(device.board, device.provenance, left_out, describe_noise(device.run_noise), trains_on_cpu)

    def check(self) -> None:
        """CannotRunError if the claim is not about this device, or there are no profiles of it."""
        about, device = self.claim, self.device_facts
        if about is None:
            return
        is_simulated = device.provenance == SIMULATED
        if about.boards and device.board not in about.boards and (is_simulated or about.only_there):
            raise CannotRunError(f"claimed of other boards than {self.device}")
        if about.measured_only and is_simulated:
            raise CannotRunError(f"judged on measured profiles only: {about.measured_only}")

    def statistic(self, name: str) -> Callable[..., CaseFigures]:
        """A function of `harness.judge.statistics`, bound to the cases of the device."""
        function = STATISTICS[name]

        @functools.wraps(function)
        def bound(*arguments: Any, **conditions: Any) -> CaseFigures:
            if name == "as_printed" and not arguments and self.claim is not None:
                arguments = self.claim.facts
            return self.bound(function(self._cases, *arguments, **{"device": self.device, **conditions}))

        return bound

    def bound(self, figures: CaseFigures) -> CaseFigures:
        """The same figures; comparing them makes the verdict on the claim."""
        figures.decide = None if self.claim is None else self._decide
        return figures

    def judge(self) -> Verdict:
        """Run the claim's test; CannotRunError if there is nothing to judge."""
        assert self.claim is not None
        self.check()
        names = list(inspect.signature(self.claim.test).parameters)
        if not STATISTICS.keys() >= {*names}:
            raise CannotRunError(f"{self.claim.name} is judged in the run that measures its figures, not on profiles")
        self.claim.test(**{name: self.statistic(name) for name in names})
        return self.checked_verdict()

    def checked_verdict(self) -> Verdict:
        """The verdict; InvalidValueError if the test made no comparison."""
        if self.verdict is None:
            raise InvalidValueError(f"{self.claim and self.claim.name} compared nothing", "assert ratio(...) < 1")
        return self.verdict

    def _decide(self, bounded: BoundedFigures) -> bool:
        if self.verdict is not None:
            raise InvalidValueError(
                "a claim is one comparison, and this test makes two",
                "two bounds are .within(0.85, 1.15), as 0.85 < x < 1.15 compares twice; another claim is another test",
            )
        self.verdict = self._verdict(bounded)
        return self._accepts(self.verdict)

    def _verdict(self, bounded: BoundedFigures) -> Verdict:
        about, device, figures = self.claim, self.device_facts, bounded.figures
        assert about is not None
        is_simulated = device.provenance == SIMULATED
        shortfall = None
        if is_simulated and about.shortfall and bounded.deciding.verdict != CONFIRMED:
            as_known = deciding_cell(figures.cells, Bounds(*about.shortfall[:2]))
            shortfall = about.shortfall.why if as_known is not None and as_known.verdict == CONFIRMED else None
        return Verdict(
            experiment=about.experiment,
            takeaway=about.name,
            section=about.section,
            says=about.says,
            device=self.device,
            meaning=figures.meaning,
            provenance=device.provenance,
            shortfall=shortfall,
            left_out=device.left_out,
            between_runs=device.between_runs,
            apart=_apart(about, device) if device.provenance == MEASURED else "",
            fitted=about.fitted if is_simulated else "",
            quantity=figures.quantity,
            against=figures.against,
            of_run=self._own_figures_of is not None,
            **bounded.deciding._asdict(),
            **bounded.bounds._asdict(),
        )


def _apart(about: Claim, device: DeviceFacts) -> str:
    """How a measured device differs from those of the paper."""
    notes = []
    if about.boards and device.board not in about.boards:
        notes.append(f"the paper saw it on {', '.join(about.boards)}")
    if device.trains_on_cpu:
        notes.append("here the CPU trains, and shares its cores with workers")
    return "; ".join(notes)


def judged_devices(names: Iterable[str]) -> List[str]:
    """The devices of some profiles on which claims are judged.

    Further instances of a simulated board are the same model: they count in claims about several boards, and are
    judged by themselves only if their board itself has no profiles.
    """
    unique_names = list(dict.fromkeys(names))

    def is_further(name: str) -> bool:
        return name.startswith("sim:") and INSTANCE_MARK in name and name.partition(INSTANCE_MARK)[0] in unique_names

    return [name for name in unique_names if not is_further(name)]


def judge(frame: Frame, claims: Iterable[Claim]) -> List[Verdict]:
    """The verdicts of pooled cases on each of their devices, in the order of the claims; without data there is none."""
    cases, verdicts = cases_of(frame), []
    for each in claims:
        for device in judged_devices(cases.devices):
            try:
                verdicts.append(ClaimOnDevice(each, cases, device).judge())
            except CannotRunError:
                continue
    return verdicts


def counts_of_claims(verdicts: Iterable[Verdict]) -> Dict[str, int]:
    """The number of claims with each verdict, counting for each claim the least favourable one over all devices.

    Measured and simulated verdicts are counted separately, and among the simulated ones those on figures to which the
    simulation was fitted: these only show that the model can reproduce them.
    """
    order = (CONFIRMED, UNDECIDED, CONTRADICTED)
    worst: Dict[Tuple[str, bool, str], str] = {}
    for verdict in verdicts:
        place = (verdict.provenance, bool(verdict.fitted), verdict.takeaway)
        worst[place] = max(worst.get(place, CONFIRMED), verdict.verdict, key=order.index)
    counts = Counter(
        f"{verdict} ({provenance}{', fitted to it' if fitted else ''})"
        for (provenance, fitted, _), verdict in worst.items()
    )
    return dict(sorted(counts.items()))


# -- in a results file -------------------------------------------------------------------------------------------------


def store_verdicts(store: ResultsStore, judged: Mapping[Tuple[str, str], Optional[Verdict]]) -> None:
    """Store verdicts in a results file, by device and claim, and replace earlier ones; None removes one."""
    contents = {place: None if verdict is None else json.dumps(_plain(verdict)) for place, verdict in judged.items()}
    store.keep_verdicts(contents)


def _plain(verdict: Verdict) -> Dict[str, Any]:
    """JSON cannot represent infinity: an open bound is null."""
    plain = verdict._asdict()
    return {**plain, **{name: None if abs(plain[name]) == float("inf") else plain[name] for name in Bounds._fields}}


class StoredVerdicts(NamedTuple):
    """The verdicts of a results file."""

    verdicts: Tuple[Verdict, ...]
    newer: int = 0  # profiles that were added since the oldest of them

    def note(self, path: Path) -> str:
        """The command to run if no verdict is stored, or profiles were added since; else empty."""
        command = HOW_TO_JUDGE.format(path)
        if not self.verdicts:
            return f"{path} has no verdicts on the papers' claims: `{command}` judges them"
        if self.newer:
            return f"{counted(self.newer, 'profile')} added since the claims were judged: `{command}` judges them again"
        return ""


NOT_JUDGED = StoredVerdicts(())


def stored_verdicts(store: ResultsStore) -> StoredVerdicts:
    """The verdicts that `pytest benchmarks` stored in a results file; StoreError for an invalid one."""
    verdicts, last = [], None
    for content, last_profile in store.verdicts():
        try:
            verdict = _verdict_from(json.loads(content))
        except (TypeError, KeyError, ValueError) as error:
            raise StoreError(
                f"a verdict in {store.path} cannot be read: {error}", HOW_TO_JUDGE.format(store.path) + " replaces it"
            ) from error
        verdicts.append(verdict)
        if not verdict.of_run:
            last = last_profile if last is None else min(last, last_profile)
    newer = 0 if last is None else sum(number > last for number in store.numbers())
    return StoredVerdicts(tuple(verdicts), newer)


def _verdict_from(fields: Dict[str, Any]) -> Verdict:
    """A verdict from plain values, which are checked: the file may be foreign."""
    open_ends = dict(zip(Bounds._fields, Bounds()))
    bounds = {end: fields[end] if fields[end] is not None else open_ends[end] for end in open_ends}
    verdict = Verdict(**{**fields, **bounds})
    if verdict.verdict not in (CONFIRMED, UNDECIDED, CONTRADICTED):
        raise ValueError(f"verdict {verdict.verdict!r}")
    for name, value in verdict._asdict().items():
        if type(value) not in _KINDS.get(name, (str,)):
            raise TypeError(f"{name} {value!r}")
    return verdict


_KINDS: Dict[str, Tuple[type, ...]] = {
    **dict.fromkeys(("effect", "low", "high", *Bounds._fields), (int, float)),
    **dict.fromkeys(("n", "left_out"), (int,)),
    "shortfall": (str, type(None)),
    "of_run": (bool,),
}
"""The types of a verdict's fields, after JSON; all others are texts."""

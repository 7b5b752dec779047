"""The papers' questions to predictors as named scenarios: what is learned from which tables, and tested on which.

A scenario says what it needs by device, workload, batch size and number of modes. Measured profiles are used where a
corpus with them is given, simulated ones otherwise; each result says which.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.errors import UnknownNameError
from harness.core.power_modes import PowerMode
from predictors.models.tables import Table
from predictors.trials import Target, TrialPlan

RESNET, MOBILENET, YOLO = "resnet18-imagenet", "mobilenetv3-gld23k", "yolov8n-coco"
ORIN, XAVIER, ORIN_NANO = "orin-agx", "xavier-agx", "orin-nano"


@dataclasses.dataclass(frozen=True)
class ProfileSource:
    """Profiles that a scenario needs."""

    workload: str  # whose they are
    device: str = ORIN
    task: str = "training"
    batch_size: int = 16  # 001 sec. 2.3
    modes: Optional[int] = None  # how many, drawn at random from the paper's grid of the device; None for all of it
    named: Tuple[str, ...] = ()  # power modes that a paper names, instead
    instance: int = 0  # which copy of the board, 0 the one that references are of
    minibatches: int = 40  # that are timed in each profile (001 sec. 2.5)


@dataclasses.dataclass(frozen=True)
class ScenarioCase:
    """One target of a scenario."""

    target: ProfileSource  # what is tested
    references: Tuple[ProfileSource, ...] = ()  # what transfer predictors start from
    label: str = ""  # how results call it; the workload by default
    # how the modes to fit on were profiled, where that differs from how the tested ones were
    profiled: Optional[ProfileSource] = None
    fitted: Tuple[str, ...] = ()  # names of the power modes to fit on, where a paper gives them
    tested: Tuple[PowerMode, ...] = ()  # power modes to test on, where a paper gives them


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A question that a paper asks."""

    name: str  # as the command line has it
    question: str  # in words
    source: str  # the section that asks it
    cases: Tuple[ScenarioCase, ...]  # its targets
    counts: Tuple[Optional[int], ...] = (50,)  # how many modes are fitted; None for all but a held-out tenth
    predictors: str = "all"  # who is asked where nobody is named


_MAIN = (RESNET, MOBILENET, YOLO)


def _case(
    workload: str,
    reference: Union[str, ProfileSource, None] = RESNET,
    label: str = "",
    profiled: Optional[ProfileSource] = None,
    fitted: Tuple[str, ...] = (),
    tested: Tuple[PowerMode, ...] = (),
    **asked: Any,
) -> ScenarioCase:
    """A case with a reference on the Orin AGX, by its workload's name, or none; `asked` are fields of the target."""
    known = ProfileSource(reference) if isinstance(reference, str) else reference
    return ScenarioCase(
        ProfileSource(workload, **asked), () if known is None else (known,), label, profiled, fitted, tested
    )


def _on(device: str, modes: int) -> Tuple[ScenarioCase, ...]:
    """What 001 transfers to another board."""
    return tuple(_case(name, label=f"{name} on {device}", device=device, modes=modes) for name in (RESNET, MOBILENET))


_G1 = (  # 150 modes each, 50 to fit and 100 to validate
    _case("resnet18-gld23k", RESNET, "R* to RM", modes=150),
    _case("mobilenetv3-imagenet", RESNET, "R* to MR", modes=150),
    _case("mobilenetv3-imagenet", MOBILENET, "M* to MR", modes=150),
    _case("resnet18-gld23k", MOBILENET, "M* to RM", modes=150),
)
_G2 = (_case(MOBILENET), _case(YOLO), _case("bert-squad", modes=220), _case("lstm-wikitext", modes=220))
_G5 = tuple(
    _case(name, label=f"{name} at {size}", batch_size=size, modes=150)
    for name, size in ((RESNET, 8), (RESNET, 32), (MOBILENET, 8), (MOBILENET, 16), (MOBILENET, 32))
)
_G6 = tuple(
    _case(RESNET, YOLO, f"instance 0 to {instance}", ProfileSource(RESNET, modes=500), modes=500, instance=instance)
    for instance in (1, 2, 3, 4)
)
_G7 = tuple(
    _case(name, None, device=XAVIER, named=tuple("abcdefghij"), fitted=tuple("efij"))
    for name in ("lenet-mnist", MOBILENET, "resnet18-cifar10", "vgg11-cifar10")
)
_E17 = tuple(
    _case(target, reference, f"{reference} to {target}")
    for reference in _MAIN
    for target in _MAIN
    if target != reference  # the paper's diagonal is a network on all modes: `--modes all` of `nn`
)
_FEWER_MINIBATCHES = tuple(
    _case(
        YOLO,
        ProfileSource(RESNET, minibatches=count),
        f"{count} minibatches",
        ProfileSource(YOLO, modes=1000, minibatches=count),
        modes=1000,
    )
    for count in (10, 20, 30, 40)
)
_SMALLER_REFERENCES = tuple(
    _case(YOLO, ProfileSource(RESNET, modes=count), f"reference of {count or 4368} modes", modes=1000)
    for count in (500, 1000, 2000, None)
)
# 001 Fig. 2a: 12 cores at 1.65 / 0.62 / 3.19 and 2.20 / 1.23 / 3.19 GHz; clocks as the board lists them.
_TWO_MODES = (PowerMode(12, 1_651_200, 624_750, 3_199_000), PowerMode(12, 2_201_600, 1_236_750, 3_199_000))
# ResNet-18 is no reference for itself: it starts from YOLOv8n.
_E19 = tuple(_case(name, YOLO if name == RESNET else RESNET, tested=_TWO_MODES) for name in _MAIN)

_ALL_SCENARIOS = (
    Scenario("G1", "the same network on other data, other data with the same network", "001 sec. 4.3.1", _G1),
    Scenario("G2", "a network and data that were never seen", "001 sec. 4.2, 4.3.2", _G2),
    Scenario("G3", "a board of another generation", "001 sec. 4.3.3", _on(XAVIER, 1000)),
    Scenario("G4", "another board of the same generation", "001 sec. 4.3.4", _on(ORIN_NANO, 180)),
    Scenario("G5", "other minibatch sizes than the reference's", "001 sec. 4.3.5", _G5),
    Scenario("G6", "profiles of one board, predictions for others of its kind", "004 sec. 5.4", _G6),
    Scenario(
        "G7",
        "ten modes of a network never seen, from the four that 004 recommends",
        "004 sec. 5.7.2",
        _G7,
        predictors="linear,linear-energy,ridge",
    ),
    Scenario(
        "E16",
        "error against the number of profiled modes, with what profiling costs",
        "001 sec. 4.2, Figs 7 and 8",
        (_case(MOBILENET), _case(YOLO)),
        counts=(*range(10, 101, 10), None),
        predictors="nn,powertrain",
    ),
    Scenario("E17", "which workload to take as the reference", "001 sec. 4.1, Fig. 6", _E17),
    Scenario(
        "E18",
        "fewer minibatches in a profile, fewer modes of the reference",
        "001 sec. 2.5, 3.2",
        (*_FEWER_MINIBATCHES, *_SMALLER_REFERENCES),
        predictors="powertrain",
    ),
    Scenario(
        "E19",
        "power of two modes, by the vendor's estimator and by PowerTrain",
        "001 sec. 1.4, Fig. 2a",
        _E19,
        predictors="npe,powertrain",
    ),
)
SCENARIOS: Dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL_SCENARIOS}


def find_scenario(name: str) -> Scenario:
    """The scenario of a name, in upper or lower case."""
    if name.upper() not in SCENARIOS:
        raise UnknownNameError(f"scenario {name!r} is unknown", f"known: {', '.join(SCENARIOS)}")
    return SCENARIOS[name.upper()]


def make_plan(
    scenario: Scenario,
    measured: Sequence[Table],
    simulate: Callable[[ProfileSource], Table],
    named_modes: Callable[[str], Dict[str, PowerMode]],
    limit: Optional[int] = None,
) -> TrialPlan:
    """A scenario with its tables: measured ones where they are what is needed, simulated ones otherwise.

    Args:
        scenario: what is asked.
        measured: tables at hand.
        simulate: makes the others: all modes of the paper's grid, or the named ones.
        named_modes: a device's modes by the names that papers give them.
        limit: the greatest number of modes of any table, for a quick look; None for as many as the paper had.
    """
    tables: Dict[Tuple[ProfileSource, bool], Table] = {}

    def table(source: ProfileSource, simulated: bool = False) -> Table:
        if (source, simulated) not in tables:
            tables[source, simulated] = _resolve(source, () if simulated else measured, simulate, limit)
        return tables[source, simulated]

    targets: List[Target] = []
    for case in scenario.cases:
        # What is profiled apart is simulated, and so must be what it is tested on: the two differ in one thing only.
        observed = table(case.target, simulated=case.profiled is not None)
        names = named_modes(case.target.device) if case.fitted else {}
        targets.append(
            Target(
                observed,
                tuple(table(source) for source in case.references),
                case.label,
                fitted=_places(observed, [names[name] for name in case.fitted]),
                tested=_places(observed, case.tested),
                profiled=None if case.profiled is None else table(case.profiled, simulated=True),
            )
        )
    return TrialPlan((), tuple(targets), scenario.counts)


def _resolve(
    source: ProfileSource, measured: Sequence[Table], simulate: Callable[[ProfileSource], Table], limit: Optional[int]
) -> Table:
    found = _measured(source, measured)
    complete = found if found is not None else simulate(source).complete()
    wanted = min(count for count in (source.modes, limit, len(complete)) if count is not None)
    if wanted == len(complete) or source.named:
        return complete
    # The same rows whatever the instance and the minibatches, so that profiles of both can be held side by side.
    drawn = np.random.default_rng([wanted, len(complete)]).choice(len(complete), size=wanted, replace=False)
    return complete.take(np.sort(drawn))


def _measured(source: ProfileSource, tables: Sequence[Table]) -> Optional[Table]:
    """The table that holds what is needed, if there is one with enough rows."""
    # Corpora do not tell instance and minibatches: they stand for the usual ones.
    if source.instance != 0 or source.minibatches != ProfileSource.minibatches or source.named:
        return None
    for table in tables:
        if (table.device, table.workload, table.task) == (source.device, source.workload, source.task):
            fitting = table.take(table.batch_size == source.batch_size).complete()
            if len(fitting):
                return fitting
    return None


def _places(table: Table, modes: Sequence[PowerMode]) -> Optional[np.ndarray]:
    """Where modes stand in a table, or what is nearest to them; None where there are none."""
    if not modes:
        return None
    logs = np.log(table.modes)
    return np.array([np.abs(logs - np.log(mode)).sum(axis=1).argmin() for mode in modes])

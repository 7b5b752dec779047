"""Gates: errors held against recorded ones, and the option that records them anew."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import pytest

from harness.core.environment import describe_environment
from predictors.choose.corpora import load_tables
from predictors.models import networks, powertrain
from predictors.models.physical_gp import prior
from predictors.profiles import Profiles, find_table
from tests.gates.recorded import Kind, check, format_verdicts, read_recorded, record, worth_recording

PROJECT = Path(__file__).resolve().parents[2]


def software() -> Dict[str, Any]:
    """What a recorded figure depends on: versions, and nothing of the machine."""
    described = describe_environment()
    return {name: described[name] for name in ("jetwatt", "python", "packages")}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-baselines", action="store_true", help="gates: write what is found to baselines/recorded, show changes"
    )
    parser.addoption("--gate-corpus", metavar="FILE", help="gates on measured tables: a corpus of one's own")
    where = "where the gates' figures are instead of baselines/recorded; those that are not there yet are recorded"
    parser.addoption("--gate-baselines", metavar="DIR", help=where)


@pytest.fixture(scope="session")
def recording(pytestconfig: pytest.Config) -> bool:
    """Whether what is found becomes the baseline."""
    return bool(pytestconfig.getoption("--record-baselines", default=False))


def forget_references() -> None:
    """References are learned once in a process: one that a broken predictor learned must not be used by a sound one."""
    prior.learn_reference.cache_clear()
    powertrain.learn_reference.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def references_learned_here() -> Iterator[None]:
    """No reference is used that tests of other modules have learned, and none is left to them."""
    forget_references()
    yield
    forget_references()


ROWS_OF_REFERENCE = 400
"""Of a table that PowerTrain's reference is learned from; all of them would take five times as long."""


def part_of(table: Profiles, count: int) -> Profiles:
    """As many rows, the same every time."""
    rows = np.random.default_rng(count).choice(len(table), size=min(count, len(table)), replace=False)
    return table.take(np.sort(rows))


@contextlib.contextmanager
def alike_on_every_processor(name: str) -> Iterator[None]:
    """The predictor or strategy `powertrain` trains in double precision.

    Its reference takes thousands of steps. In single precision that ends in different networks for BLAS kernels of
    Haswell and of Sandy Bridge, and in a penalty of 5 or 17 %; in double precision weights agree to 14 digits.
    """
    with pytest.MonkeyPatch.context() as patch:
        if name == "powertrain":
            patch.setattr(networks, "PRECISION", np.float64)
        yield


def data_folder() -> Path:
    """Where the public tables behind PowerTrain are, if anywhere."""
    return Path(os.environ.get("JETWATT_DATA") or PROJECT.parent / "shared" / "data") / "powertrain"


def public_table(name: str) -> Path:
    """A measured table that the repository may not hold; what needs it is skipped elsewhere."""
    path = data_folder() / name
    if not path.exists():
        pytest.skip(f"there is no measured corpus {name}: JETWATT_DATA names the folder that holds powertrain/{name}")
    return path


@pytest.fixture(scope="session")
def own_corpus(pytestconfig: pytest.Config) -> Optional[Path]:
    """The corpus of one's own that is gated instead of the public tables, if there is one."""
    given = pytestconfig.getoption("--gate-corpus")
    return Path(given) if given else None


@pytest.fixture(scope="session")
def measured_roles(own_corpus: Optional[Path]) -> Tuple[List[Profiles], Profiles]:
    """The targets among the measured tables of training, and their reference: ResNet-18 where it is one of them."""
    path = own_corpus or public_table("orin-agx-training.csv")
    tables = load_tables(path)
    targets, reference = ["yolov8n-coco", "lstm-wikitext"], "resnet18-imagenet"
    if own_corpus:
        names = list(dict.fromkeys(table.workload for table in tables))
        reference = reference if reference in names else names[0]
        targets = [name for name in names if name != reference]
        assert targets, f"{path} holds {', '.join(names)} alone: the gates take two workloads at least"
    return [find_table(tables, name).complete() for name in targets], find_table(tables, reference).complete()


@pytest.fixture(scope="session")
def public_tables(own_corpus: Optional[Path]) -> List[Profiles]:
    """All measured tables of an Orin AGX, of training and of inference."""
    if own_corpus:
        pytest.skip("a corpus of one's own is gated, not the public tables")
    paths = [public_table(f"orin-agx-{task}.csv") for task in ("training", "inference")]
    return [table.complete() for path in paths for table in load_tables(path)]


Gate = Callable[..., List[str]]


def unlike(entry: Dict[str, Any]) -> Dict[str, Any]:
    """An entry as if another machine had computed it, which allows the most: what is broken fails there, too."""
    return {**entry, "computed_by": "another machine"}


def blind_spots(entries: Sequence[Dict[str, Any]], broken: Sequence[Dict[str, Any]], kind: Kind) -> List[str]:
    """Where broken entries pass that are held against today's sound ones; `broken` may be a part of the entries.

    Computed alike, each of them has to fail; as if by another machine, which allows more, one of them.
    """
    recorded = [worth_recording(entry, kind) for entry in entries]

    def passing(entry: Dict[str, Any]) -> List[str]:
        verdicts = [one for one in check(recorded, [entry], kind, part=True) if one.recorded is not None]
        assert verdicts, f"nothing is gated of {entry}"
        return [format_verdicts(verdicts)] if all(one.passed for one in verdicts) else []

    here = [table for entry in broken for table in passing(entry)]
    elsewhere = [table for entry in broken for table in passing(unlike(entry))]
    return here + (elsewhere if len(elsewhere) == len(broken) else [])


@pytest.fixture
def gate(recording: bool, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture) -> Gate:
    """What of some entries differs from what is recorded, a line each; nothing where they are being recorded."""

    def held(which: str, path: Path, kind: Kind, entries: Sequence[Dict[str, Any]], part: bool = False) -> List[str]:
        own = pytestconfig.getoption("--gate-baselines")
        path = Path(own) / path.name if own else path
        before = read_recorded(path)
        verdicts = check(before, entries, kind, part)
        known = {tuple(entry[name] for name in kind.key) for entry in before}
        unknown = [
            " ".join(map(str, key))
            for key in (tuple(one[name] for name in kind.key) for one in entries)
            if key not in known
        ]
        if recording or (own and len(unknown) == len(entries)):
            with capsys.disabled():
                print("\n" + format_verdicts(verdicts))
            record(path, entries, software(), kind)
            return []
        assert not unknown, f"no baseline for {', '.join(unknown)}: pytest tests/gates -k {which} --record-baselines"
        return [format_verdicts([one]) for one in verdicts if not one.passed]

    return held

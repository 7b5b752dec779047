"""Gates: errors held against recorded ones, and the option that records them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

import pytest

from harness.core.environment import describe_environment
from predictors.models.tables import Table, find_table
from predictors.search.corpora import load_tables
from tests.gates.recorded import Kind, check, format_verdicts, read_recorded, record

PROJECT = Path(__file__).resolve().parents[2]


SLOW = {"nn", "powertrain"}
"""Predictors and strategies that train networks, a quarter of a minute each."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Exhaustive are gates of what is slow, and the tests that break something to see its gate fail."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if "broken" in item.name or any(isinstance(value, str) and value in SLOW for value in parameters):
            item.add_marker(pytest.mark.exhaustive)


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


@pytest.fixture(scope="session")
def measured_corpus(pytestconfig: pytest.Config) -> Path:
    """The measured table of Orin AGX training, or one's own; where it is not there, what needs it is skipped."""
    if pytestconfig.getoption("--gate-corpus"):
        return Path(pytestconfig.getoption("--gate-corpus"))
    folder = Path(os.environ.get("JETWATT_DATA") or PROJECT.parent / "shared" / "data")
    path = folder / "powertrain" / "orin-agx-training.csv"
    if not path.exists():
        pytest.skip(f"there is no measured corpus {path.name}: JETWATT_DATA names the folder that holds it")
    return path


@pytest.fixture(scope="session")
def measured_roles(pytestconfig: pytest.Config, measured_corpus: Path) -> Tuple[List[Table], Table]:
    """The targets among the measured tables, and their reference: ResNet-18 where it is one of them."""
    tables = load_tables(measured_corpus)
    targets, reference = ["yolov8n-coco", "lstm-wikitext"], "resnet18-imagenet"
    if pytestconfig.getoption("--gate-corpus"):
        names = list(dict.fromkeys(table.workload for table in tables))
        reference = reference if reference in names else names[0]
        targets = [name for name in names if name != reference]
        assert targets, f"{measured_corpus} holds {', '.join(names)} alone: the gates take two workloads at least"
    return [find_table(tables, name).complete() for name in targets], find_table(tables, reference).complete()


Gate = Callable[..., List[str]]


def unlike(entry: Dict[str, Any]) -> Dict[str, Any]:
    """An entry as if another machine had computed it, which allows the most: what is broken fails there, too."""
    return {**entry, "computed_by": "another machine"}


@pytest.fixture
def gate(recording: bool, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture) -> Gate:
    """What of some entries is worse than recorded, a line each; nothing where they are being recorded."""

    def held(which: str, path: Path, kind: Kind, entries: Sequence[Dict[str, Any]], part: bool = False) -> List[str]:
        own = pytestconfig.getoption("--gate-baselines")
        path = Path(own) / path.name if own else path
        verdicts = check(read_recorded(path), entries, kind, part)
        if recording or (own and all(one.recorded is None for one in verdicts)):
            with capsys.disabled():
                print("\n" + format_verdicts(verdicts))
            record(path, entries, software(), kind)
            return []
        unknown = [one.key for one in verdicts if one.recorded is None and one.found is not None]
        assert not unknown, f"no baseline for {', '.join(unknown)}: pytest tests/gates -k {which} --record-baselines"
        return [format_verdicts([one]) for one in verdicts if not one.passed]

    return held

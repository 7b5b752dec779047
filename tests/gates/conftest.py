"""Gates: errors held against recorded ones, and the option that records them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict

import pytest

from harness.environment import describe_environment

PROJECT = Path(__file__).resolve().parents[2]


def software() -> Dict[str, Any]:
    """What a recorded figure depends on: versions, and nothing of the machine."""
    described = describe_environment()
    return {name: described[name] for name in ("jetwatt", "python", "packages")}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-baselines", action="store_true", help="gates: write what is found to baselines/recorded, show changes"
    )


@pytest.fixture(scope="session")
def recording(pytestconfig: pytest.Config) -> bool:
    """Whether what is found becomes the baseline."""
    return bool(pytestconfig.getoption("--record-baselines", default=False))


@pytest.fixture(scope="session")
def measured_corpus() -> Path:
    """The measured table of Orin AGX training; where it is not there, what needs it is skipped."""
    folder = Path(os.environ.get("JETWATT_DATA") or PROJECT.parent / "shared" / "data")
    path = folder / "powertrain" / "orin-agx-training.csv"
    if not path.exists():
        pytest.skip(f"there is no measured corpus {path.name}: JETWATT_DATA names the folder that holds it")
    return path

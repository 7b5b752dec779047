"""Measured tables, where there are any."""

import functools
import os
from pathlib import Path

import pytest

from harness.core.corpus import read_corpus
from predictors.profiles import Profiles, find_table, tables_of

PROJECT = Path(__file__).resolve().parents[2]


def measured_table(workload: str) -> Profiles:
    """The measured training table of a workload on Orin AGX; skips the test where it is absent."""
    folder = Path(os.environ.get("JETWATT_DATA") or PROJECT.parent / "shared" / "data")
    path = folder / "powertrain" / "orin-agx-training.csv"
    if not path.is_file():
        pytest.skip(f"there is no measured table {path.name}: JETWATT_DATA names the folder that holds it")
    return find_table(_tables(path), workload)


@functools.lru_cache(maxsize=None)
def _tables(path: Path):
    return tables_of(read_corpus(path))

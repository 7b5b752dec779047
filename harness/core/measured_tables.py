"""Measured tables that ship with the suite, by name; their data cards and licences lie beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, List, Union

from harness.core.corpus import read_corpus
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).resolve().parents[2] / "baselines" / "measured"
"""The package `baselines` is next to `harness`, both in a clone and in an installation."""


def table_names() -> List[str]:
    """The names of the tables, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def table_file(name: str) -> Path:
    """The file of a table; raises `UnknownNameError` with the available names."""
    if name not in table_names():
        raise UnknownNameError(f"measured table {name!r} is unknown", available_hint(name, table_names()))
    return FOLDER / f"{name}.csv"


def corpus_file(name: Union[str, Path]) -> Path:
    """The file that an argument names: a path, or a table of the suite where no file has that name."""
    if not isinstance(name, (str, Path)):
        hint = "write a DataFrame to one with write_corpus"
        raise InvalidValueError(f"the corpus is a {type(name).__name__}, expected the name of a file", hint)
    path = Path(name)
    return table_file(str(name)) if not path.exists() and str(name) in table_names() else path


def load_table(name: str) -> pd.DataFrame:
    """Load a table that others measured and that ships with the suite, as a corpus.

    Args:
        name: `zeus-v100` and `zeus-a40`, training on two discrete GPUs under power limits (column `power_limit_mw`);
            `loudva-nano`, inference on a Jetson Nano; or `qutibench-tx2`, inference under the presets of a Jetson TX2.

    Returns:
        A DataFrame as of `read_corpus`: a row for each profile, `minibatch_time_ms` in ms, `power_mw` in mW, and the
        further columns of the source. `baselines/measured/README.md` has source, licence, citation and known defects of
        each table.

    Raises:
        UnknownNameError: there is no such table; the error lists the available ones.
    """
    return read_corpus(table_file(name))

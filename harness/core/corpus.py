"""The corpus: a table of profiles, its columns, and reading and writing it as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from harness.core.errors import DependencyError, InvalidValueError, StoreError
from harness.core.files import write_output

TASKS = ("training", "inference")
PROVENANCES = ("measured", "simulated", "replayed")
SUFFIXES = (".csv", ".parquet")

Row = Dict[str, Any]
"""A row of a corpus: values by column, None where a cell is empty."""


def _positive(value: Any) -> bool:
    return value is not None and math.isfinite(value) and value > 0


class Column(NamedTuple):
    """A column of a corpus."""

    name: str
    kind: type  # `str`, `int` or `float`
    meaning: str
    holds: Callable[[Any], bool] = bool  # whether a value may stand there
    expected: str = "a name"  # such a value in words


_COUNT = (_positive, "a whole number above 0")
_CLOCK = (lambda value: value is not None and value >= 0, "a whole number, 0 or more")

CORPUS: Tuple[Column, ...] = (
    Column("device", str, "what training ran on: orin-agx, host, ..."),
    Column("workload", str, "resnet18-imagenet, lenet-mnist, ..."),
    Column("task", str, "training or inference", TASKS.__contains__, " or ".join(TASKS)),
    Column("cpu_cores", int, "power mode: active CPU cores", *_COUNT),
    Column("cpu_khz", int, "power mode: CPU clock; 0 where the device has or tells none", *_CLOCK),
    Column("gpu_khz", int, "power mode: GPU clock; 0 where the device has or tells none", *_CLOCK),
    Column("mem_khz", int, "power mode: memory clock; 0 where the device has or tells none", *_CLOCK),
    Column("batch_size", int, "samples per minibatch", *_COUNT),
    Column("minibatch_time_ms", float, "median over the clean minibatches", _positive, "a number above 0"),
    Column(
        "power_mw",
        float,
        "median over the stable samples; empty where there is no power sensor",
        lambda value: value is None or _positive(value),
        "a number above 0, or empty where there is no power sensor",
    ),
    Column("provenance", str, "measured, simulated or replayed", PROVENANCES.__contains__, ", ".join(PROVENANCES)),
)
"""The columns that every corpus begins with, in this order. Further columns may follow."""

CORPUS_COLUMNS: Tuple[str, ...] = tuple(column.name for column in CORPUS)


class Scanned(NamedTuple):
    """One line of a corpus file."""

    place: str  # `line 17`; `row 17` in Parquet
    row: Optional[Row]  # its values; None where they cannot be read
    fault: str  # how it breaks the schema; empty where it does not


def scan_corpus(path: Union[str, Path]) -> Iterator[Scanned]:
    """Every line of a corpus, also those that `read_corpus` would refuse."""
    path = Path(path)
    return _scan_csv(path) if _suffix(path) == ".csv" else _scan_parquet(path)


def read_corpus(path: Union[str, Path]) -> List[Row]:
    """Read a corpus and check it.

    Args:
        path: a file that ends in `.csv` or `.parquet`.

    Returns:
        Its rows. The corpus columns have their types; further columns are strings from CSV, and what they are from
        Parquet.

    Raises:
        StoreError: the file cannot be read.
        InvalidValueError: the columns are not those of a corpus, or a value is not what its column holds; names file,
            line (row for Parquet), column and value.
        DependencyError: Parquet was asked for and pyarrow is not installed.
    """
    rows: List[Row] = []
    for place, row, fault in scan_corpus(path):
        if row is None or fault:
            raise InvalidValueError(f"{path} {place}: {fault}")
        rows.append(row)
    return rows


def write_corpus(path: Union[str, Path], rows: Sequence[Mapping[str, Any]], further: Sequence[Column] = ()) -> None:
    """Write a corpus, whole or not at all.

    Args:
        path: ends in `.csv` or `.parquet`.
        rows: values by column; a column that a row lacks is left empty.
        further: columns to follow those of the schema, in order.

    Raises:
        StoreError: the file cannot be written; what was there before is unchanged.
        InvalidValueError: the suffix is another one, or a row breaks the schema.
        DependencyError: Parquet was asked for and pyarrow is not installed.
    """
    path = Path(path)
    suffix = _suffix(path)
    columns = [*CORPUS, *further]
    table = [{column.name: row.get(column.name) for column in columns} for row in rows]
    for number, row in enumerate(table, start=1):
        fault = fault_of(row)
        if fault:
            raise InvalidValueError(f"row {number} for {path}: {fault}")
    write_output(path, _to_csv(table, columns) if suffix == ".csv" else _to_parquet(table, columns))


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidValueError(f"a corpus file ends in {' or '.join(SUFFIXES)}, not as {path.name!r} does")
    return suffix


def _check_header(header: Sequence[str], path: Path) -> None:
    missing = [name for name in CORPUS_COLUMNS if name not in header]
    if missing:
        raise InvalidValueError(
            f"{path} has no column {', '.join(missing)}", f"a corpus has {', '.join(CORPUS_COLUMNS)}"
        )
    twice = sorted({name for name in header if list(header).count(name) > 1})
    if twice:
        raise InvalidValueError(f"{path} has more than one column {', '.join(twice)}")


def fault_of(row: Row) -> str:
    """How a row breaks the schema; empty where it does not."""
    for column in CORPUS:
        value = row[column.name]
        if not column.holds(value):
            shown = "empty" if value in (None, "") else repr(value)
            return f"{column.name} is {shown}, expected {column.expected}"
    return ""


def _scan_csv(path: Path) -> Iterator[Scanned]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            _check_header(header, path)
            for cells in reader:
                if cells:
                    yield _csv_row(header, cells, f"line {reader.line_num}")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name a corpus file") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} is no CSV text in UTF-8: {error}") from error


def _csv_row(header: Sequence[str], cells: Sequence[str], place: str) -> Scanned:
    if len(cells) != len(header):
        return Scanned(place, None, f"{len(cells)} cells, expected {len(header)} as in the header")
    row: Row = dict(zip(header, cells))
    for column in CORPUS:
        if column.kind is str:
            continue
        text = row[column.name]
        try:
            row[column.name] = column.kind(text) if text.strip() else None
        except ValueError:
            return Scanned(place, None, f"{column.name} is {text!r}, expected {column.expected}")
    return Scanned(place, row, fault_of(row))


def _to_csv(table: Iterable[Row], columns: Sequence[Column]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([row[column.name] for column in columns] for row in table)  # None is written as an empty cell
    return text.getvalue().encode("utf-8")


def _scan_parquet(path: Path) -> Iterator[Scanned]:
    arrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(str(path))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name a corpus file") from error
    except arrow.ArrowInvalid as error:
        raise InvalidValueError(f"{path} is no Parquet file: {error}") from error
    _check_header(table.column_names, path)
    for column in CORPUS:
        found = table.schema.field(column.name).type
        types = arrow.types
        number = types.is_integer(found)
        fits = {
            str: types.is_string(found) or types.is_large_string(found),
            int: number,
            float: number or types.is_floating(found) or types.is_null(found),
        }
        if not fits[column.kind]:
            raise InvalidValueError(f"{path}: column {column.name} is of type {found}, expected {column.kind.__name__}")
    for number, row in enumerate(table.to_pylist(), start=1):
        yield Scanned(f"row {number}", row, fault_of(row))


def _to_parquet(table: Sequence[Row], columns: Sequence[Column]) -> bytes:
    arrow, parquet = _pyarrow()
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(column.name, types[column.kind]) for column in columns])
    content = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(list(table), schema=schema), content)
    return content.getvalue()


def _pyarrow() -> Tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DependencyError(
            "Parquet needs pyarrow, which is not installed", "pip install 'jetwatt[report]', or use .csv"
        ) from error
    return pyarrow, pyarrow.parquet

"""The corpus: a table of profiles, its columns and their allowed values; reading and writing it as CSV or Parquet."""

from __future__ import annotations

import collections.abc
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import board_meant, is_board, known_variants, load_board
from harness.core.errors import DependencyError, InvalidValueError, StoreError
from harness.core.files import read_csv, write_output
from harness.core.notes import note
from harness.core.power_modes import NO_SETTINGS, UNKNOWN_KHZ, PowerMode
from harness.core.terminal import nearest_word
from harness.core.units import share_to_percent

if TYPE_CHECKING:
    import pandas as pd

TASKS = ("training", "inference")
PROVENANCES = ("measured", "simulated", "replayed")
CHOICES = {"task": TASKS, "provenance": PROVENANCES}  # the allowed values of columns that have few
SUFFIXES = (".csv", ".parquet")

Row = Dict[str, Any]  # a row of a corpus: values by column, None if a cell is empty

MOST_COLUMNS, MOST_CELLS = 1_000, 50_000_000  # a file of a few kilobytes can claim any number of either
SHOWN_PLACES = 5  # of a fault that many rows have, beside its first
SEPARATORS = {";": "semicolons", "\t": "tabs"}  # separators of other programs


def listed(names: Any) -> List[str]:
    """Names given as one or several; a `Workload` is given for its name."""
    several = isinstance(names, collections.abc.Iterable) and not isinstance(names, str)
    return [each if isinstance(each, str) else each.name for each in (names if several else [names])]


class Fault(NamedTuple):
    text: str  # column, value, expected value, likely mistake
    kind: str  # the same for rows with the same mistake
    hint: str = ""


class Column(NamedTuple):
    name: str
    kind: type  # `str`, `int` or `float`
    meaning: str
    expected: str = "a name"  # the allowed values, in words


_COUNT, _CLOCK, _ABOVE_0 = "a whole number above 0", "a whole number, 0 or more", "a number above 0"

CORPUS: Tuple[Column, ...] = (
    Column("device", str, "what training ran on: orin-agx, host, ..."),
    Column("workload", str, "resnet18-imagenet, lenet-mnist, ..."),
    Column("task", str, "training or inference", " or ".join(TASKS)),
    Column("cpu_cores", int, "power mode: active CPU cores; 1 if they do not matter", _COUNT),
    Column("cpu_khz", int, "power mode: CPU clock; 0 if the device has or reports none", _CLOCK),
    Column("gpu_khz", int, "power mode: GPU clock; 0 if the device has or reports none", _CLOCK),
    Column("mem_khz", int, "power mode: memory clock; 0 if the device has or reports none", _CLOCK),
    Column("batch_size", int, "samples per minibatch", _COUNT),
    Column("minibatch_time_ms", float, "median over the clean minibatches", _ABOVE_0),
    Column(
        "power_mw",
        float,
        "median over the stable samples; empty without a power sensor",
        f"{_ABOVE_0}, or empty without a power sensor",
    ),
    Column("provenance", str, "measured, simulated or replayed", ", ".join(PROVENANCES)),
)
"""The columns that every corpus begins with, in this order. Further columns may follow."""

POWER_LIMIT = Column(
    "power_limit_mw",
    int,
    "power limit of a discrete GPU, part of its power mode; empty where the device has none",
    "a number above 0, or empty where the device has none",
)
"""A further column that predictors and strategies read where a corpus has it."""

CORPUS_COLUMNS: Tuple[str, ...] = tuple(column.name for column in CORPUS)

CASE_COLUMNS: Tuple[str, ...] = (
    "device", "workload", "task", *PowerMode._fields, "batch_size", "provenance",
    # of an export, if present; `key` is the hash of all conditions
    "workers", "storage", "cache", "clocks", "minibatches", "epochs_asked", "data_scale", "seed", "tpc_mask",
    POWER_LIMIT.name, "key",
)  # fmt: skip
"""Columns in which rows of the same case agree."""

CONTRADICTION = 1.25
"""Ratio of two times of the same case; runs that were repeated differ by a few percent."""

_CLOCKS = PowerMode._fields[1:]
_THOUSANDS = re.compile(r"\s*-?[1-9]\d{0,2}(,\d{3})+\s*")
_LIKE = ("device", "workload", "task", "batch_size")
_WHOLE, _DECIMAL = re.compile(r"0|-?[1-9]\d{0,14}"), re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")

# Orders of magnitude of true values, which values in another unit exceed.
LEAST_KHZ, MOST_KHZ, MOST_GHZ = 20_000, 20_000_000, 20  # the slowest clock of any supported board is 76.8 MHz
BOARD_LEAST_MW, LEAST_MW, MOST_MW = 300.0, 1_000.0, 1e7  # no board trains below 1.6 W, and none draws 300 W
FAR_ABOVE_PEAK = 10.0
FAR = 100.0  # a value this many times too large or too small for its mode or its workload has another unit
# CPU cycles of a minibatch: at any clock of any board the smallest network of the suite takes 11 million in training,
# measured LSTMs 2.7 million in inference. A minibatch of 2 G cycles, given in seconds, appears to take 2 million.
LEAST_CYCLES = {"training": 2e6, "inference": 2e5}
LEAST_MS, MOST_MS = {"training": 0.3, "inference": 0.02}, 1e7  # on other devices; the median of a workload
# With this many rows, the rank correlation with the clocks shows which column is time and which is power.
LEAST_ROWS, CLEAR = 8, 0.3


def read_corpus(path: Union[str, Path]) -> pd.DataFrame:
    """Read a corpus and check it.

    Args:
        path: a file that ends in `.csv` or `.parquet`.

    Returns:
        A row for each profile. The corpus columns come first and have their types; further columns are numeric if all
        their cells are numbers. Empty cells are missing values. What is allowed and doubtful is a warning: times of the
        same case that contradict each other, a device with the name of a board in other words.

    Raises:
        StoreError: the file cannot be read.
        InvalidValueError: the columns are not those of a corpus, or a value is not allowed in its column; the message
            has file, line (row for Parquet), column, value and the likely mistake.
        DependencyError: the file is Parquet and pyarrow is not installed.
    """
    return _noted(load_corpus(path), str(path))


def check_corpus(table: pd.DataFrame, name: str = "the table") -> pd.DataFrame:
    """A table as `read_corpus` would return it; raises and warns of the same, and calls the table `name`."""
    return _noted(validated(table, name), name)


def load_corpus(path: Union[str, Path]) -> pd.DataFrame:
    """As `read_corpus`, without its warnings."""
    table, faults = scan_corpus(path)
    _refuse(faults, len(table), str(path))
    return table.reset_index(drop=True)


def validated(table: pd.DataFrame, name: str = "the table") -> pd.DataFrame:
    """As `check_corpus`, without its warnings."""
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        hint = "pandas.DataFrame(...) makes one of a dict or of rows; read_corpus and load_table return one"
        raise InvalidValueError(f"{name} is a {type(table).__name__}, expected a DataFrame", hint)
    checked, faults = _checked(table.set_axis([f"row {number}" for number in range(len(table))]), name)
    _refuse(faults, len(table), name)
    return checked.reset_index(drop=True)


def _noted(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A corpus, after warnings of what is doubtful in it."""
    for text in [*notes_on_devices(table), *notes_on_cases(table)]:
        note(f"{name}: {text}")
    return table


def notes_on_devices(table: pd.DataFrame) -> List[str]:
    """A note for each device that has the name of a board in other words, as its facts are not used."""
    return [
        f"device {device!r} is taken as one of your own: rename it if {board} is meant, whose modes are known"
        for device, board in _boards_meant(table).items()
        if board != device
    ]


def notes_on_cases(table: pd.DataFrame) -> List[str]:
    """A note on rows of the same case whose times contradict each other; none without any."""
    columns = [column for column in CASE_COLUMNS if column in table]
    times_ms = table["minibatch_time_ms"].groupby([table[column] for column in columns], dropna=False, sort=False)
    apart = times_ms.transform("max") > CONTRADICTION * times_ms.transform("min")
    if not apart.any():
        return []
    percent = f"{share_to_percent(CONTRADICTION - 1):.0f} %"
    return [
        f"{apart.sum()} of {len(table)} rows are of the same case as another one, with times over {percent} apart: does"
        f" the table lack a column of what differed, such as {POWER_LIMIT.name}?"
    ]


def scan_corpus(path: Union[str, Path]) -> Tuple[pd.DataFrame, Dict[str, Fault]]:
    """The rows of a corpus, indexed by place (`line 17`, in Parquet `row 17`), and the faults of rows by place.

    Rows with a fault have the values that could be read. Raises as `read_corpus` does, except for faults of rows.
    """
    import pandas as pd

    path = Path(path)
    if _suffix(path) == ".parquet":
        return _checked(read_parquet(path), str(path))
    faults: Dict[str, Fault] = {}
    header, rows = read_csv(path)
    if len(header) > MOST_COLUMNS:
        raise InvalidValueError(f"{path} has {len(header)} columns, expected at most {MOST_COLUMNS}")
    for line, cells in rows:
        if len(cells) != len(header):
            problem = f"{len(cells)} cells, expected {len(header)} as in the header"
            hint = "write decimal points instead of decimal commas" if len(cells) > len(header) else ""
            faults[f"line {line}"] = Fault(problem, problem, hint)
    table = [[*cells, *[""] * len(header)][: len(header)] for _, cells in rows]
    frame = pd.DataFrame(table, [f"line {line}" for line, _ in rows], header, dtype=object)
    checked, others = _checked(frame, str(path))
    return checked, {**others, **faults}


def rows_of(table: pd.DataFrame) -> List[Row]:
    """The rows of a frame one by one, None if a value is missing."""
    plain = table.astype(object)
    rows: List[Row] = plain.where(plain.notna(), None).to_dict("records")
    return rows


def write_corpus(
    path: Union[str, Path], rows: Union[Sequence[Mapping[str, Any]], pd.DataFrame], further: Sequence[Column] = ()
) -> None:
    """Write a corpus atomically.

    Args:
        path: ends in `.csv` or `.parquet`.
        rows: a frame, or a mapping from column to value for each row; missing values become empty cells.
        further: columns that follow those of the schema, in order.

    Raises:
        StoreError: the file cannot be written; an existing file is unchanged.
        InvalidValueError: the suffix is not supported, or a row violates the schema.
        DependencyError: the file is Parquet and pyarrow is not installed.
    """
    import pandas as pd

    path = Path(path)
    suffix, columns = _suffix(path), [*CORPUS, *further]
    names = [column.name for column in columns]
    given = rows_of(rows) if isinstance(rows, pd.DataFrame) else rows
    places = [f"row {number}" for number in range(1, len(given) + 1)]
    table = pd.DataFrame([[row.get(name) for name in names] for row in given], places, names, dtype=object)
    _, faults = _typed(table[list(CORPUS_COLUMNS)])
    _refuse(faults, len(table), f"for {path},")
    if suffix == ".csv":
        content = table.to_csv(index=False).encode("utf-8")
    else:
        arrow, _ = pyarrow()
        types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
        schema = arrow.schema([(column.name, types[column.kind]) for column in columns])
        content = table.to_parquet(index=False, schema=schema)
    write_output(path, content)


def check_modes(modes: Sequence[PowerMode], device: str) -> None:
    """Refuse power modes that cannot be: negative, in another unit, or out of the range of a known board.

    Clocks between those of the board are allowed. Raises an `InvalidValueError` with mode, value and likely mistake.
    """
    columns = {column.name: column for column in CORPUS if column.name in PowerMode._fields}
    board = board_bounds(device) if is_board(device) else None
    for mode in modes:
        for field, value in mode._asdict().items():
            khz = () if board is None or field in board.incomplete else board.khz.get(field, ())
            fault = None
            if value < (0 if field in _CLOCKS else 1):
                fault = _schema_fault(columns[field], value, value, False)
            elif field in _CLOCKS and value != UNKNOWN_KHZ and not LEAST_KHZ <= value <= MOST_KHZ:
                fault = _clock_fault(field, str(value), value)
            elif field not in _CLOCKS and board is not None and value > board.cpu_cores:
                fault = _core_fault(device, value, board.cpu_cores)
            elif khz and value != UNKNOWN_KHZ and not khz[0] <= value <= khz[-1]:
                fault = Fault(f"{field} is {value}, {device} has {khz[0]} to {khz[-1]}", field)
            if fault is not None:
                raise InvalidValueError(f"power mode {tuple(mode)}: {fault.text}")


def faults_of(table: pd.DataFrame) -> Dict[Any, Fault]:
    return _checked(table, "the table")[1]


def described(faults: Mapping[str, Fault], count: int) -> List[str]:
    """A line for each kind of fault: the first fault, how many of `count` rows have it, and the next of them."""
    kinds: Dict[str, List[str]] = {}
    for place, fault in faults.items():
        kinds.setdefault(fault.kind, []).append(place)
    lines = []
    for first, *more in kinds.values():
        line = f"{first}: {faults[first].text}"
        if more and len(more) + 1 == count:
            line += f" (all {count} rows are like this)"
        elif more:
            line += f" ({len(more) + 1} of {count} rows are like this, next {_next_places(first, more)})"
        lines.append(line)
    return lines


def _next_places(first: str, places: Sequence[str]) -> str:
    """The first few of the further places of a fault; after `c.csv line 7`, `line 8` of the same file is `line 8`."""
    unit_in_file = first.rpartition(" ")[0]
    unit = unit_in_file.rpartition(" ")[2]
    shown = [
        place[len(unit_in_file) + 1 :] if place.startswith(f"{unit_in_file} ") else place
        for place in places[:SHOWN_PLACES]
    ]
    return f"{unit} {', '.join(shown)}{', ...' if len(places) > SHOWN_PLACES else ''}".strip()


def _refuse(faults: Mapping[str, Fault], count: int, name: str) -> None:
    if faults:
        hints = [fault.hint for fault in faults.values() if fault.hint]
        raise InvalidValueError(f"{name} {'; '.join(described(faults, count))}", *hints[:1])


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidValueError(f"{path.name!r} is not a corpus file, whose name ends in {' or '.join(SUFFIXES)}")
    return suffix


def read_parquet(path: Path) -> pd.DataFrame:
    arrow, parquet = pyarrow()
    try:
        metadata = parquet.read_metadata(str(path))
        if metadata.num_columns > MOST_COLUMNS or metadata.num_rows * metadata.num_columns > MOST_CELLS:
            shape = f"{metadata.num_rows} rows of {metadata.num_columns} columns"
            limits = f"at most {MOST_COLUMNS} columns and {MOST_CELLS} cells"
            raise InvalidValueError(f"{path} has {shape}, expected {limits}", "split it, or drop columns")
        table = parquet.read_table(str(path))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "give a corpus file") from error
    except arrow.ArrowInvalid as error:
        raise InvalidValueError(f"{path} is not a Parquet file: {error}") from error
    frame = table.to_pandas(integer_object_nulls=True)
    return frame.set_axis([f"row {number}" for number in range(1, len(frame) + 1)])


def _checked(table: pd.DataFrame, name: str) -> Tuple[pd.DataFrame, Dict[str, Fault]]:
    table = _with_absent_settings(table)
    header = [str(column) for column in table.columns]
    missing = [column for column in CORPUS_COLUMNS if column not in header]
    if missing:
        further = [column for column in header if column not in CORPUS_COLUMNS]
        meant = {column: nearest_word(column, further) for column in missing}
        renamed = ", ".join(f"rename {near} to {column}" for column, near in meant.items() if near)
        hint = f"a corpus has {', '.join(CORPUS_COLUMNS)}"
        for column in CORPUS:
            if column.name in missing and column.name in CHOICES:
                hint += f"; {column.name} is {column.meaning}"
        if renamed:
            hint = f"{renamed}; {hint}"
        for separator, words in SEPARATORS.items():
            if header and separator in header[0]:
                hint = (
                    f"its columns are separated by {words}, a corpus has commas: convert it, or read it with "
                    f"pandas.read_csv(FILE, sep={separator!r}), with decimal=',' for decimal commas, and check_corpus"
                )
        raise InvalidValueError(f"{name} has no column {', '.join(missing)}", hint)
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise InvalidValueError(f"{name} has more than one column {', '.join(twice)}")
    typed, faults = _typed(table)
    types = {column.name: column.kind for column in CORPUS if column.kind is int}
    sound = typed.drop(list(faults)).astype(types).copy()  # in few blocks: a further column takes no warning
    checked = typed if faults else sound
    for look in (_clock_units, _modes_of_boards, _exchanged, _power_units, _time_units, _power_limits):
        for place, fault in look(sound):
            faults.setdefault(place, fault)
    return checked, faults


def _with_absent_settings(table: pd.DataFrame) -> pd.DataFrame:
    """The table with one core and unknown clocks where devices that are no Jetson board lack such a column.

    No cores are one core. A column is not filled in if one with a similar name is there.
    """
    if "device" not in table.columns or any(map(_has_every_setting, set(table["device"].astype(str)))):
        return table
    further = [str(column) for column in table.columns if column not in (*CORPUS_COLUMNS, POWER_LIMIT.name)]
    settings = [column for column in PowerMode._fields if column in table.columns]
    if not settings and POWER_LIMIT.name not in table.columns:
        return table  # it has no power mode at all
    absent = [column for column in PowerMode._fields if column not in settings and not nearest_word(column, further)]
    filled: Dict[str, Any] = {column: getattr(NO_SETTINGS, column) for column in absent}
    if "cpu_cores" in settings:
        cores = table["cpu_cores"]
        is_zero = cores.astype(str).str.strip() == "0"
        filled["cpu_cores"] = cores.mask(is_zero, NO_SETTINGS.cpu_cores) if is_zero.any() else cores
    return table.assign(**filled)


def _has_every_setting(device: str) -> bool:
    return is_board(device) and not load_board(device).power_limits_mw


def _typed(table: pd.DataFrame) -> Tuple[pd.DataFrame, Dict[str, Fault]]:
    """The table with numeric columns converted, and the rows that violate the schema."""
    import pandas as pd

    made: Dict[str, pd.Series] = {}
    faults: Dict[str, Fault] = {}
    for column in CORPUS:
        cells = table[column.name]
        is_empty = cells.isna() | cells.map(lambda cell: isinstance(cell, str) and not cell.strip()).astype(bool)
        if column.kind is str:
            values = pd.Series(
                ["" if empty else str(cell) for cell, empty in zip(cells, is_empty)], cells.index, object
            )
            choices = CHOICES.get(column.name)
            right = values.isin(choices) if choices else ~is_empty
        else:
            values = cells.map(_number).astype(float)
            least = 0 if column.name in _CLOCKS else 1
            right = np.isfinite(values) & ((values % 1 == 0) & (values >= least) if column.kind is int else values > 0)
            right |= is_empty & (column.name == "power_mw")
        made[column.name] = values
        for place in table.index[~right]:
            faults.setdefault(place, _schema_fault(column, cells[place], values[place], is_empty[place]))
    made.update({str(name): _further(table[name]) for name in table.columns if name not in made})
    return pd.DataFrame(made, index=table.index), faults


def _schema_fault(column: Column, cell: Any, value: Any, is_empty: bool) -> Fault:
    """The fault of a cell; `value` is its number, NaN if it is not a number."""
    problem = f", expected {column.expected}"
    like = ""  # rows with other values of the kind have the same mistake
    if is_empty:
        shown = like = "empty"
    elif column.kind is str or (np.isnan(value) and str(cell).strip().lower() != "nan"):
        shown = repr(cell)
        like = "text"
        if _THOUSANDS.fullmatch(str(cell)):
            problem += "; without the comma, which separates thousands or is a decimal comma"
        elif re.fullmatch(r"\s*-?\d+,\d+\s*", str(cell)):
            problem = ", expected a decimal point instead of the comma"
    else:
        shown = f"{value:.12g}" if column.kind is int else repr(float(value))
        like = "below 0" if value < 0 else "" if np.isfinite(value) else shown
        if np.isinf(value) and isinstance(cell, str):
            shown = cell.strip()
        if column.name in _CLOCKS and 0 < value < LEAST_KHZ:
            return _clock_fault(column.name, shown, value)
    return Fault(f"{column.name} is {shown}{problem}", f"{column.name}{problem} {like}")


def _further(cells: pd.Series) -> pd.Series:
    """A column outside the schema: numeric if all cells are numbers; hashes and versions (12.10) stay text."""
    import pandas as pd

    if pd.api.types.infer_dtype(cells, skipna=True) != "string":
        return cells
    texts = [cell if isinstance(cell, str) and cell else None for cell in cells]
    there = [text for text in texts if text]
    column = pd.Series(texts, cells.index, object)
    if there and all(_WHOLE.fullmatch(text) for text in there):
        return pd.to_numeric(column).astype("int64" if len(there) == len(texts) else "Int64")
    if there and all(_DECIMAL.fullmatch(text) and repr(float(text)) == text for text in there):
        return column.map(_number).astype(float)
    return column


def _number(cell: Any) -> float:
    """A cell as Python parses it, exactly (old releases of pandas are not); NaN if it is not a number."""
    try:
        return np.nan if isinstance(cell, str) and "_" in cell else float(cell)
    except (TypeError, ValueError):
        return np.nan


def _clock_fault(field: str, shown: str, khz: float) -> Fault:
    """A clock in another unit; the same kind for all clocks, as a table has all or none of them in MHz."""
    unit = "Hz" if khz > MOST_KHZ else "MHz" if khz > MOST_GHZ else "GHz"
    problem = f"that looks like {unit}, expected kHz"
    return Fault(f"{field} is {shown}: {problem}", problem)


def _clock_units(table: pd.DataFrame) -> Iterator[Tuple[str, Fault]]:
    for field in _CLOCKS:
        khz = table[field]
        for place, value in khz[(khz != UNKNOWN_KHZ) & ~khz.between(LEAST_KHZ, MOST_KHZ)].items():
            yield place, _clock_fault(field, str(value), value)


class BoardBounds(NamedTuple):
    """What a power mode and the power of a board can be, over all its variants and releases."""

    cpu_cores: int  # at most
    khz: Dict[str, Tuple[int, ...]]  # clocks by dimension
    incomplete: Tuple[str, ...]  # dimensions that may have other clocks
    peak_power_mw: int


@functools.lru_cache(maxsize=None)
def board_bounds(name: str) -> BoardBounds:
    specs = [load_board(name, variant) for variant in known_variants(name)]
    khz = {field: {value for spec in specs for value in getattr(spec.clocks, field)} for field in _CLOCKS}
    for spec in specs:
        khz["gpu_khz"] |= {*spec.clocks.newer_gpu_khz, *spec.clocks.older_gpu_khz}
    return BoardBounds(
        max(spec.cpu_cores for spec in specs),
        {field: tuple(sorted(clocks)) for field, clocks in khz.items()},
        tuple({*specs[0].clocks.incomplete, *(field for field, clocks in khz.items() if not clocks)}),
        max(spec.peak_power_mw for spec in specs),
    )


def _core_fault(device: str, cores: int, most: int) -> Fault:
    return Fault(f"cpu_cores is {cores}, {device} has {most}", f"cpu_cores of {device}")


def _boards_meant(table: pd.DataFrame) -> Dict[str, str]:
    """The board with facts of each device that has its name, also in other words."""
    boards = {device: device if is_board(device) else board_meant(device) for device in table["device"].unique()}
    return {device: board for device, board in boards.items() if board}


def _modes_of_boards(table: pd.DataFrame) -> Iterator[Tuple[str, Fault]]:
    with_facts = [name for name in table["device"].unique() if is_board(str(name))]
    for device, part in table[table["device"].isin(with_facts)].groupby("device", sort=False):
        board = board_bounds(str(device))
        for place, value in part["cpu_cores"][part["cpu_cores"] > board.cpu_cores].items():
            yield place, _core_fault(str(device), value, board.cpu_cores)
        for field, allowed in board.khz.items():
            for place, value in part[field][~part[field].isin([UNKNOWN_KHZ, *allowed])].items():
                owner = next((other for other in _CLOCKS if other != field and value in board.khz[other]), "")
                if owner:
                    problem = f", which is a {owner} of {device}: the columns look exchanged"
                    yield place, Fault(f"{field} is {value}{problem}", field + problem)
                elif field not in board.incomplete:
                    problem = f", which {device} does not have"
                    nearest = min(allowed, key=lambda khz: abs(khz - value))
                    hint = f"a board with other clocks needs a name other than {device}"
                    yield place, Fault(f"{field} is {value}{problem}; the nearest is {nearest}", field + problem, hint)


def _exchanged(table: pd.DataFrame) -> Iterator[Tuple[str, Fault]]:
    """Times that rise and powers that fall with the clocks, so their columns are exchanged."""
    powered = table.dropna(subset=["power_mw"])
    clocks = powered[list(PowerMode._fields)].clip(lower=1).astype(float).product(axis=1)
    for _, part in powered.assign(clocks=clocks).groupby([*_LIKE], sort=False):
        figures = part[["clocks", "minibatch_time_ms", "power_mw"]]
        if len(part) < LEAST_ROWS or (figures.nunique() == 1).any():
            continue
        correlations = figures.rank().corr()["clocks"]
        with_time, with_power = correlations["minibatch_time_ms"], correlations["power_mw"]
        if with_time > CLEAR and with_power < -CLEAR:
            text = "minibatch_time_ms rises and power_mw falls with the clocks: the columns look exchanged"
            yield from ((place, Fault(text, text)) for place in part.index)


def _power_units(table: pd.DataFrame) -> Iterator[Tuple[str, Fault]]:
    power, boards = table["power_mw"], _boards_meant(table)
    greatest = power.groupby(table["device"]).transform("max")
    too_low = (power < BOARD_LEAST_MW).where(table["device"].isin(list(boards)), greatest < LEAST_MW)
    too_low |= FAR * power < _medians_of_like(table, "power_mw")
    peaks = {device: FAR_ABOVE_PEAK * board_bounds(board).peak_power_mw for device, board in boards.items()}
    yield from _in_unit(power, too_low & power.notna(), "W, expected mW")
    yield from _in_unit(power, power > table["device"].map(peaks).fillna(MOST_MW), "uW, expected mW")


def _medians_of_like(table: pd.DataFrame, column: str) -> pd.Series:
    """For each row, the median over all of the same device, workload, task and batch size."""
    return table.groupby([*_LIKE])[column].transform("median")


def _time_units(table: pd.DataFrame) -> Iterator[Tuple[str, Fault]]:
    time_ms, task = table["minibatch_time_ms"], table["task"]
    medians = _medians_of_like(table, "minibatch_time_ms")
    # Of boards only: a device of one's own may be a PC, which takes fewer cycles of its CPU, also if it has all clocks.
    is_meant = table["device"].isin(list(_boards_meant(table)))
    counts_cycles = is_meant & (table["cpu_khz"] != UNKNOWN_KHZ)
    cycles = time_ms * table["cpu_khz"]  # ms * kHz
    too_short = (cycles < task.map(LEAST_CYCLES)).where(counts_cycles, medians < task.map(LEAST_MS))
    yield from _in_unit(time_ms, too_short, "s, expected ms")
    yield from _in_unit(time_ms, time_ms > MOST_MS, "us, expected ms")


def _power_limits(table: pd.DataFrame) -> Iterator[Tuple[str, Fault]]:
    if POWER_LIMIT.name not in table:
        return
    cells = table[POWER_LIMIT.name]
    values = cells.map(_number).astype(float)
    wrong = cells.notna() & ~(np.isfinite(values) & (values > 0))
    problem = f", expected {POWER_LIMIT.expected}"
    for place in table.index[wrong]:
        yield place, Fault(f"{POWER_LIMIT.name} is {cells[place]!r}{problem}", POWER_LIMIT.name + problem)
    yield from _in_unit(values, ~wrong & (values < LEAST_MW), "W, expected mW")


def _in_unit(values: pd.Series, which: pd.Series, units: str) -> Iterator[Tuple[str, Fault]]:
    problem = f": that looks like {units}"
    for place, value in values[which].items():
        yield place, Fault(f"{values.name} is {value:g}{problem}", f"{values.name}{problem}")


def pyarrow() -> Tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DependencyError(
            "Parquet needs pyarrow, which is not installed", "pip install 'jetwatt[report]', or use .csv"
        ) from error
    return pyarrow, pyarrow.parquet

"""From corpora, results files, tables of other people and recorded tegrastats logs to one corpus."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from harness.board.tegrastats import parse_line, parse_log
from harness.core.boards import board_meant, is_board, load_board
from harness.core.corpus import (
    CORPUS_COLUMNS,
    SUFFIXES,
    TASKS,
    Column,
    Row,
    check_corpus,
    described,
    rows_of,
    write_corpus,
)
from harness.core.errors import InvalidValueError
from harness.core.metrics import POWER_CHANNEL
from harness.core.notes import note
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode
from harness.core.profiles import flagged_in_words
from harness.core.terminal import counted
from harness.core.units import hz_to_khz
from harness.simulation import model
from harness.simulation.model import Load
from harness.simulation.parameters import (
    SIMULATED_BOARDS,
    SIMULATED_WORKLOADS,
    load_board_parameters,
    load_workload_parameters,
)
from harness.store.corpora import Expected, Rows, check_rows, placed, read_rows, repeats, rows_with_faults
from harness.store.foreign_tables import (
    FOREIGN_SUFFIXES,
    NOTHING_STATED,
    ForeignTable,
    TableOptions,
    convert,
    known_column,
    mode_of,
    not_recognised,
    read_table,
    stating,
)
from harness.store.frames import FURTHER, STORES
from harness.store.recorded_log import read_text, recorded_row

if TYPE_CHECKING:
    import pandas as pd

LOG_SUFFIXES = (".txt", ".log")
SOURCE_SUFFIXES = tuple(dict.fromkeys((*SUFFIXES, *FOREIGN_SUFFIXES, *STORES)))


@dataclasses.dataclass(frozen=True)
class RecordedLog:
    """A tegrastats log, the times of the minibatches that ran meanwhile, and the case that was run.

    Attributes:
        log: the output of tegrastats.
        minibatch_times: CSV with the start and time of each minibatch.
        case: device, workload, task, batch size, workers, storage, and `power_mode` as text.
        interval_s: of tegrastats, for a log without dates.
    """

    log: Path
    minibatch_times: Path
    case: Mapping[str, Any]
    interval_s: Optional[float] = None


class Import(NamedTuple):
    """What was imported.

    `table` has the good rows, as a checked corpus. `notes` has a sentence for each assumption; `explicit` has the
    options that state them, by source.
    """

    table: pd.DataFrame
    bad_rows: int
    bad_lines: Tuple[str, ...]  # a line for each kind of fault of the rows that were left out
    flagged: int  # profiles that were left out because they were disturbed or throttled
    notes: Tuple[str, ...]
    explicit: Dict[str, TableOptions]


class BadRowsError(InvalidValueError):
    """Rows that were refused; `lines` names them with their values, a line for each kind of fault."""

    def __init__(self, what: str, hint: str, lines: Sequence[str]) -> None:
        super().__init__(what, hint)
        self.lines = tuple(lines)


def import_table(
    source: Union[str, Path, pd.DataFrame],
    out: Union[str, Path, None] = None,
    *,
    rename: Optional[Mapping[str, str]] = None,
    unit: Optional[Mapping[str, str]] = None,
    values: Optional[Mapping[str, Any]] = None,
    decimal: str = "",
    interval_s: Optional[float] = None,
    skip_bad: bool = False,
    include_flagged: bool = False,
) -> pd.DataFrame:
    """Read a table of measured power modes in any usual form as a corpus.

    Columns and units are recognised by name and by size; each assumption is a `UserWarning`.

    Args:
        source: CSV, TSV, Excel, JSON lines, Parquet, a results file, a folder of tegrastats logs with the mode in their
            names, or a DataFrame.
        out: a `.csv` or `.parquet` file to write the corpus to.
        rename: column of the corpus by column of the table: `{"Time (s)": "minibatch_time_ms"}`.
        unit: unit by column of the table: `{"CPU clock": "MHz"}`.
        values: value for all rows by column that the table lacks: `{"batch_size": 16}`.
        decimal: `"point"` or `"comma"`; recognised if left out.
        interval_s: seconds between the lines of tegrastats logs that have no dates.
        skip_bad: leave bad rows out instead of refusing the table.
        include_flagged: of a results file, keep disturbed and throttled profiles.

    Returns:
        The corpus, as `check_corpus` returns it.

    Raises:
        StoreError: the file cannot be read.
        InvalidValueError: something is missing or can be read in two ways (all of it is in the text), or rows are bad.
    """
    stated = TableOptions(
        dict(rename or {}), dict(unit or {}), {name: str(value) for name, value in (values or {}).items()}, decimal
    )
    try:
        imported = import_tables(
            [source],
            stated,
            interval_s=interval_s,
            skip_bad=skip_bad,
            include_flagged=include_flagged,
            in_python=True,
        )
    except BadRowsError as error:
        raise InvalidValueError("; ".join([error.what, *error.lines]), error.hint) from error
    if imported.notes:
        listed = "".join(f"\n  {note}" for note in imported.notes)
        note(f"assumed while importing:{listed}")
    if imported.bad_rows:
        listed = "; ".join(imported.bad_lines)
        note(f"left out: {counted(imported.bad_rows, 'bad row')}: {listed}")
    if imported.flagged:
        note(f"left out: {flagged_in_words(imported.flagged)}")
    if out is not None:
        write_imported(Path(out), imported.table)
    return check_corpus(imported.table)


def import_tables(
    sources: Sequence[Union[str, Path, pd.DataFrame]],
    stated: TableOptions = NOTHING_STATED,
    *,
    logs: Sequence[RecordedLog] = (),
    interval_s: Optional[float] = None,
    skip_bad: bool = False,
    include_flagged: bool = False,
    in_python: bool = False,
) -> Import:
    """As `import_table`, of several sources at once; also raises a `BadRowsError` if rows are bad."""
    import pandas as pd

    notes: List[str] = []
    explicit: Dict[str, TableOptions] = {}
    parts: List[Rows] = []
    for source in sources:
        rows, foreign = _read(source, stated, interval_s, include_flagged, in_python, notes)
        parts.append(rows)
        if foreign is not None:
            name = "the table" if isinstance(source, pd.DataFrame) else str(source)
            notes += [f"{name}: {note}" for note in foreign.notes] if len(sources) > 1 else foreign.notes
            explicit[name] = foreign.options
    parts += [placed([_row_of_log(log, notes)], [str(log.log)]) for log in logs]
    flagged = sum(part.flagged for part in parts)
    table = pd.concat([part.table for part in parts]) if parts else pd.DataFrame()
    if table.empty:
        named = ", ".join(str(source) for source in sources if not isinstance(source, pd.DataFrame))
        left_out = f": left out: {flagged_in_words(flagged)}" if flagged else ""
        of = f" in {named}" if named else ""
        raise InvalidValueError(f"there is nothing to import{of}{left_out}", "name a table with rows")
    known_faults = {place: fault for part in parts for place, fault in part.faults.items()}
    faults = check_rows(table, known_faults, _of_model)
    kept = table.drop(list(faults))
    lines = [*described(faults, len(table)), *(_unread(table, in_python) if faults else [])]
    if kept.empty:
        raise BadRowsError(f"every row is bad{'' if in_python else ', nothing was written'}", "fix the source", lines)
    if faults and not skip_bad:
        left_out = "skip_bad=True" if in_python else "--skip-bad"
        written = "" if in_python else "; nothing was written"
        raise BadRowsError(
            f"bad rows: {len(faults)} of {len(table)}{written}", f"fix them, or leave them out with {left_out}", lines
        )
    is_copy = kept.duplicated()
    if is_copy.any():
        notes.append(f"left out: {counted(int(is_copy.sum()), 'row')} equal to an earlier one in all columns")
        kept = kept[~is_copy]
    repeated = repeats(kept)
    if repeated:
        place, earlier = next(iter(repeated.items()))
        others = f" (and {len(repeated) - 1} more)" if len(repeated) > 1 else ""
        notes.append(f"{place} repeats the case of {earlier}{others}: the medians of such rows count")
        notes += _unread(table, in_python)
    return Import(kept, len(faults), tuple(lines), flagged, tuple(notes), explicit)


def _unread(table: pd.DataFrame, in_python: bool) -> List[str]:
    """Which columns mean nothing to the suite: bad rows may be alike for lack of one of them."""
    known = {*CORPUS_COLUMNS, *(column.name for column in FURTHER)}
    unread = [str(name) for name in table.columns if name not in known]
    return [not_recognised(unread, in_python)] if unread else []


def write_imported(out: Path, table: pd.DataFrame) -> None:
    """Write imported rows as a corpus; columns of the suite have their types, all others are text."""
    named_columns = {column.name: column for column in FURTHER}
    further = [named_columns.get(name, Column(name, str, "")) for name in table.columns if name not in CORPUS_COLUMNS]
    rows = [{**row, **{column.name: _cell(row[column.name], column) for column in further}} for row in rows_of(table)]
    write_corpus(out, rows, further)


def _read(
    source: Union[str, Path, pd.DataFrame],
    stated: TableOptions,
    interval_s: Optional[float],
    include_flagged: bool,
    in_python: bool,
    notes: List[str],
) -> Tuple[Rows, Optional[ForeignTable]]:
    """The rows of a source, and how a table that is no corpus was read; adds to `notes` what logs left out."""
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        plain = source.astype(object).where(source.notna(), None)
        cells = plain.set_axis([f"row {number}" for number in range(len(source))])
        foreign = convert(cells, stated, "the table", in_python)
        return rows_with_faults(foreign.table, "the table"), foreign
    path = Path(source)
    if path.is_dir():
        return _rows_of_logs(path, stated, interval_s, in_python, notes), None
    suffix = path.suffix.lower()
    if suffix not in SOURCE_SUFFIXES:
        raise InvalidValueError(f"{path} is no table", f"its name must end in {', '.join(SOURCE_SUFFIXES)}")
    if suffix in STORES:
        return read_rows(path, include_flagged), None
    rows = _as_corpus(path) if suffix in SUFFIXES and stated == NOTHING_STATED else None
    if rows is not None and not _may_be_read_otherwise(rows):
        return rows, None
    try:
        foreign = read_table(path, stated, in_python)
    except InvalidValueError:
        if rows is None or _has_other_units(rows) or _means_a_board(rows):
            raise
        return rows, None
    if rows is not None and _has_other_units(rows):  # of some rows, not of whole columns
        return rows, None
    return rows_with_faults(foreign.table, str(path)), foreign


_STAND_INS = (UNKNOWN_KHZ, 1)  # for the clocks and the cores of a table without them


def _as_corpus(path: Path) -> Optional[Rows]:
    """The rows of a file with the columns of a corpus; None if it has others."""
    try:
        return read_rows(path)
    except InvalidValueError:
        return None


def _may_be_read_otherwise(rows: Rows) -> bool:
    """Whether a table with the columns of a corpus may be meant otherwise.

    Every row has a fault, or a unit is another one, or a board has another name, or a further column has another name
    of one that the suite reads (`power_limit_w`).
    """
    is_wrong_throughout = len(rows.faults) == len(rows.table)
    further = [str(column) for column in rows.table.columns if column not in CORPUS_COLUMNS]
    is_known = any(_names_what_is_missing(rows, column) for column in further)
    return is_wrong_throughout or is_known or _has_other_units(rows) or _means_a_board(rows)


def _names_what_is_missing(rows: Rows, column: str) -> bool:
    """Whether a further column has another name of one that the table lacks, or that only some tables have."""
    known = known_column(column)
    if known not in CORPUS_COLUMNS:
        return known not in ("", column)
    return bool(rows.table[known].isin([None, *_STAND_INS]).all())


def _means_a_board(rows: Rows) -> bool:
    """Whether a device has the name of a board in other words."""
    return any(not is_board(str(name)) and board_meant(str(name)) for name in rows.table["device"].unique())


def _has_other_units(rows: Rows) -> bool:
    """Whether a row has a value in another unit than its column says."""
    return any("looks like" in fault.text for fault in rows.faults.values())


def _rows_of_logs(
    folder: Path, stated: TableOptions, interval_s: Optional[float], in_python: bool, notes: List[str]
) -> Rows:
    """A row for each tegrastats log of a folder.

    The minibatch times are in the CSV file that has the same power mode in its name.
    """
    logs = sorted(path for path in folder.iterdir() if path.suffix.lower() in LOG_SUFFIXES)
    if not logs:
        raise InvalidValueError(f"{folder} has no tegrastats log", f"its files end in {' or '.join(LOG_SUFFIXES)}")
    problems = [
        f"no {name.replace('_', ' ')}: {stating('set', name, example, in_python)}"
        for name, example in (("device", "orin-agx"), ("workload", "NAME"), ("batch_size", "N"))
        if name not in stated.values
    ]
    device = stated.values.get("device", "")
    case: Dict[str, Any] = {"task": TASKS[0], **stated.values}
    if not str(case.get("batch_size", 1)).isdecimal():
        problems.append(f"batch_size is {case['batch_size']!r}, expected a whole number above 0")
    recorded: List[RecordedLog] = []
    for log in logs:
        words = _words_of_mode(log)
        times = [path for path in folder.glob("*.csv") if words and words in path.stem]
        if not words:
            problems.append(f"{log.name} has no clock or power mode in its name")
        elif len(times) != 1:
            problems.append(f"{log.name} needs one CSV file with {words} in its name that has the minibatches' times")
        elif device:
            mode = _mode_in_words(words, device, stated.values.get("power_mode", "maxn"))
            recorded.append(RecordedLog(log, times[0], {**case, "power_mode": mode}, interval_s))
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        written = "" if in_python else "\nnothing was written"
        raise InvalidValueError(f"{folder} cannot be imported:\n{listed}{written}")
    rows = [_row_of_log(log, notes) for log in recorded]
    return placed(rows, [str(log.log) for log in recorded])


_MODE_IN_NAME = re.compile(r"\d+c-[\d.x]+-[\d.x]+-[\d.x]+|\d{5,}")


def _words_of_mode(log: Path) -> str:
    """The power mode in the name of a log: `12c-2201.6-1300.5-3199`, or the GPU clock in Hz or kHz; empty if none."""
    matches = _MODE_IN_NAME.findall(log.stem)
    return matches[-1] if matches else ""


def _mode_in_words(words: str, device: str, others: str) -> str:
    """The whole mode: of a GPU clock alone, with cores and other clocks of the mode `others`."""
    if not words.isdecimal():
        return words
    mode = mode_of(device, others)
    clock = int(words)
    gpu_khz = (
        clock if not is_board(device) or clock in load_board(device).power_mode_space().gpu_khz else hz_to_khz(clock)
    )
    return PowerMode(mode.cpu_cores, mode.cpu_khz, gpu_khz, mode.mem_khz).name


def _row_of_log(recorded: RecordedLog, notes: List[str]) -> Row:
    """The row of a recorded log; adds to `notes` what was left out of its power."""
    case = {name: value for name, value in recorded.case.items() if name != "power_mode"}
    case["batch_size"] = int(case["batch_size"])
    device = case["device"]
    case.update(mode_of(device, recorded.case["power_mode"])._asdict())
    lines = read_text(recorded.log).splitlines()
    of_board: Dict[str, Any] = {}
    if is_board(device):
        board = load_board(device)
        of_board = {"total": board.rails.total or None, "remark": board.rails.note, "most_mw": board.most_mw}
    try:
        telemetry = parse_log(lines, interval_s=recorded.interval_s, **of_board)
    except InvalidValueError as error:
        raise InvalidValueError(f"{recorded.log}: {error.what}", error.hint) from error
    if POWER_CHANNEL in telemetry.series and POWER_CHANNEL in telemetry.missing:
        notes.append(f"{recorded.log}: left out of {POWER_CHANNEL}: {telemetry.missing[POWER_CHANNEL]}")
    began = next((line.at for line in map(parse_line, lines) if not line.is_empty), None)
    return recorded_row(case, telemetry, recorded.log, recorded.minibatch_times, began)


def _of_model(rows: pd.DataFrame) -> Optional[Expected]:
    """Figures of the physical model for rows of one device, workload, task and batch size; None if it has not both."""
    first = rows.iloc[0]
    if first["device"] not in SIMULATED_BOARDS or first["workload"] not in SIMULATED_WORKLOADS:
        return None
    modes = rows[list(PowerMode._fields)].to_numpy(int)
    if not (modes > UNKNOWN_KHZ).all():
        return None
    board, workload = load_board_parameters(first["device"]), load_workload_parameters(first["workload"])
    load = Load(batch_size=int(first["batch_size"]), workers=workload.default_workers, task=first["task"])
    response = model.simulate(board, workload, modes, load, rough=False)
    return {"minibatch_time_ms": response.minibatch_time_ms, "power_mw": response.power_mw}


def _cell(value: Any, column: Column) -> Optional[Any]:
    if value is None or value == "":
        return None
    try:
        return column.kind(float(value)) if column.kind is int else column.kind(value)
    except ValueError:
        raise InvalidValueError(f"column {column.name} holds {value!r}, expected {column.kind.__name__}") from None

"""Tables as other people have them: their columns and units recognised by name and by size, and what was assumed.

A table of measurements has its own names of columns (`CPU MHz`, `Time (s)`, `avg_power_w`), units and separators.
`read_table` turns it into the columns of a corpus in one pass. It notes each assumption. What can be read in two ways
is refused, with all that is unclear in one error.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from harness.core.boards import board_meant, is_board, load_board
from harness.core.corpus import (
    CHOICES,
    CORPUS_COLUMNS,
    MOST_COLUMNS,
    POWER_LIMIT,
    board_bounds,
    read_parquet,
)
from harness.core.errors import DependencyError, InvalidValueError, StoreError
from harness.core.files import read_unpacked
from harness.core.mode_texts import only_mode
from harness.core.power_modes import NO_SETTINGS, UNKNOWN_KHZ, PowerMode, format_mhz, parse_power_mode
from harness.core.terminal import nearest_word
from harness.core.units import UNIT_FACTORS, UNIT_SPELLINGS, s_to_ms

if TYPE_CHECKING:
    import pandas as pd

TEXT_TABLES = (".csv", ".tsv", ".txt", ".dat")
EXCEL = (".xlsx", ".xlsm", ".xls", ".ods")
JSON = (".json", ".jsonl", ".ndjson")
FOREIGN_SUFFIXES = (*TEXT_TABLES, *EXCEL, *JSON, ".parquet")

POWER_MODE, THROUGHPUT = "power_mode", "samples_per_s"
"""What a foreign table may have instead of columns of the corpus: a mode in one cell; throughput instead of time."""

SYNONYMS: Dict[str, Tuple[str, ...]] = {
    "device": ("device", "board", "platform", "hardware", "machine", "gpu_name", "device_name", "gpu_model"),
    "workload": ("workload", "model", "network", "net", "dnn", "architecture", "arch", "app", "application", "program",
                 "benchmark", "model_name"),
    "task": ("task", "phase", "kind"),
    "cpu_cores": ("cpu_cores", "cores", "num_cores", "n_cores", "core_count", "cpu_count", "cpus", "online_cpus",
                  "ncpu", "active_cores", "number_of_cores"),
    "cpu_khz": ("cpu", "cpu_freq", "cpu_frequency", "cpu_clock", "cpufreq", "cpu_clk", "freq_cpu", "cpu_speed"),
    "gpu_khz": ("gpu", "gpu_freq", "gpu_frequency", "gpu_clock", "gpufreq", "gpu_clk", "freq_gpu", "sm_clock",
                "graphics_clock", "core_clock", "locked_clock", "gpu_core_clock", "clock", "gpu_speed"),
    "mem_khz": ("mem", "memory", "mem_freq", "mem_frequency", "memory_freq", "memory_frequency", "mem_clock",
                "memory_clock", "emc", "emc_freq", "emc_frequency", "emc_clock", "freq_mem", "ddr", "ram_freq"),
    "batch_size": ("batch_size", "batch", "bs", "batchsize", "minibatch_size", "mini_batch_size", "mb_size"),
    "minibatch_time_ms": ("minibatch_time", "time", "latency", "step_time", "iteration_time", "iter_time", "mb_time",
                          "time_per_batch", "time_per_minibatch", "time_per_step", "time_per_iteration", "batch_time",
                          "batch_latency", "duration", "exec_time", "execution_time", "elapsed", "mini_batch_time",
                          "runtime"),
    "power_mw": ("power", "power_draw", "board_power", "module_power", "total_power", "power_consumption", "gpu_power",
                 "vdd_in", "watts", "milliwatts"),
    "provenance": ("provenance",),
    POWER_LIMIT.name: ("power_limit", "power_cap", "powerlimit", "powercap", "pl", "cap", "enforced_power_limit"),
    POWER_MODE: ("power_mode", "mode", "pm", "nvpmodel", "configuration", "config"),
    THROUGHPUT: ("samples_per_s", "throughput", "fps"),
}  # fmt: skip
"""Names of columns in lower case, words joined by underscores, without unit, by the column of the corpus they mean."""

UNIT_OF = {
    "cpu_khz": "kHz", "gpu_khz": "kHz", "mem_khz": "kHz",
    "minibatch_time_ms": "ms", "power_mw": "mW", POWER_LIMIT.name: "mW",
}  # fmt: skip
_TEXTS = ("device", "workload", "task", "provenance", POWER_MODE)
_STATISTICS = ("avg", "average", "mean", "median", "med", "measured")  # words before a quantity that change no meaning
_TASK_WORDS = {"train": "training", "training": "training", "infer": "inference", "inference": "inference"}
_FIELDS = PowerMode._fields

# Sizes that a quantity can have. Clocks of all supported devices lie between 20 MHz and 20 GHz, so that each number has
# one unit. A minibatch takes between a fraction of a millisecond and two minutes, a device draws between a third of a
# watt and 1.5 kW.
_SIZES: Dict[str, Tuple[float, float]] = {"kHz": (20_000, 20_000_000), "ms": (0.3, 120_000), "mW": (300, 1_500_000)}

_POINT, _COMMA = "point", "comma"
DECIMALS = (_POINT, _COMMA)
_NUMBER = re.compile(r"[-+]?[\d.,' \u00a0\u202f]*\d[\d.,]*(?:[eE][-+]?\d+)?")
_PER_SECOND = re.compile(r"(sample|image|img|picture|frame)s?[\s_]*(/|per)[\s_]*s(ec|econd)?\b", re.IGNORECASE)
_QUANTITY = re.compile(rf"({_NUMBER.pattern})\s*([A-Za-zµμ]+)?")


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """What the user states about a table, which is then not guessed.

    Attributes:
        rename: column of the corpus by column of the table.
        unit: unit by column of the table, such as `MHz`, `s` or `W`.
        values: value by column of the corpus that the table lacks, for all rows.
        decimal: `point` or `comma`; empty to recognise it.
    """

    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unit: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    decimal: str = ""

    def as_words(self) -> str:
        """As options of the command `import`."""
        words = [f"--rename {shlex.quote(f'{name}={column}')}" for name, column in self.rename.items()]
        words += [f"--unit {shlex.quote(f'{name}={unit}')}" for name, unit in self.unit.items()]
        words += [f"--set {shlex.quote(f'{column}={value}')}" for column, value in self.values.items()]
        words += [f"--decimal {self.decimal}"] if self.decimal else []
        return " ".join(words)


NOTHING_STATED = TableOptions()


@dataclasses.dataclass(frozen=True)
class ForeignTable:
    """A table in the columns of a corpus.

    Attributes:
        table: the corpus columns, then the table's further ones; indexed by place (`line 17`), None for empty cells.
        notes: a sentence for each assumption.
        options: what would make the assumptions explicit.
    """

    table: pd.DataFrame
    notes: Tuple[str, ...]
    options: TableOptions


def read_table(path: Path, stated: TableOptions = NOTHING_STATED, in_python: bool = False) -> ForeignTable:
    """Read a table of measurements in any usual form.

    Args:
        path: CSV, TSV or other separated text, Excel, JSON (lines, a list, or columns) or Parquet.
        stated: what need not be recognised.
        in_python: whether errors name the parameters of `import_table` instead of the options of the command.

    Raises:
        StoreError: the file cannot be read.
        InvalidValueError: a column or unit is missing or can be read in two ways; the text has all such problems.
        DependencyError: the package for this kind of file is not installed.
    """
    return convert(_cells_of(path), stated, str(path), in_python)


def convert(cells: pd.DataFrame, stated: TableOptions, name: str, in_python: bool = False) -> ForeignTable:
    """As `read_table`, of a frame whose index has the places of the rows; errors call it `name`."""
    if len(cells) == 0:
        raise InvalidValueError(f"{name} has no rows", "name a table with a header and a row for each measurement")
    if len(cells.columns) > MOST_COLUMNS:
        raise InvalidValueError(f"{name} has {len(cells.columns)} columns, expected at most {MOST_COLUMNS}")
    return _Conversion(cells, stated, name, in_python).result()


def explicit_options(rename: Sequence[str], unit: Sequence[str], values: Sequence[str], decimal: str) -> TableOptions:
    """The options of a command line, each `NAME=VALUE`."""
    return TableOptions(_pairs(rename, "--rename"), _pairs(unit, "--unit"), _pairs(values, "--set"), decimal)


def _pairs(texts: Sequence[str], option: str) -> Dict[str, str]:
    pairs: Dict[str, str] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        if not separator or not name.strip() or not value.strip():
            raise InvalidValueError(f"{option} {text!r} is not NAME=VALUE", f"for example {_EXAMPLES[option]}")
        pairs[name.strip()] = value.strip()
    return pairs


_EXAMPLES = {
    "--rename": "--rename 'Time (s)=minibatch_time_ms'",
    "--unit": "--unit 'CPU clock=MHz'",
    "--set": "--set batch_size=16",
}


def stating(option: str, name: str, value: str, in_python: bool) -> str:
    """How the user states a name, a unit or a value: `--unit 'CPU=MHz'`, or in Python `unit={'CPU': 'MHz'}`."""
    if in_python:
        return f"{'values' if option == 'set' else option}={{{name!r}: {value!r}}}"
    return f"--{option} {shlex.quote(f'{name}={value}')}"


def not_recognised(columns: Iterable[str], in_python: bool) -> str:
    """Which columns of a table mean nothing to the suite, and how to say what one is."""
    named = ", ".join(map(repr, columns))
    return f"columns that were not recognised: {named}; {stating('rename', 'THIS', 'COLUMN', in_python)}"


def mode_of(device: str, text: str) -> PowerMode:
    """The power mode that a text names: a preset of a board, or clocks in MHz; for other devices clocks only."""
    if not is_board(device):
        return parse_power_mode(text, PowerMode(1, UNKNOWN_KHZ, UNKNOWN_KHZ, UNKNOWN_KHZ))
    return only_mode(text, load_board(device).power_modes(text)).mode


def split_unit(header: str) -> Tuple[str, str]:
    """The name of a column in lower case, its words joined by underscores, and its unit; empty if it has none.

    `CPU clock [MHz]` is `cpu_clock` and `MHz`, `avgPower_mW` is `power` and `mW`.
    """
    text = header.strip()
    if _PER_SECOND.search(text):
        return THROUGHPUT, ""
    bracketed = re.fullmatch(r"(.*?)[\s_]*[(\[{<]\s*([^)\]}>]*?)\s*[)\]}>]", text)
    unit = ""
    if bracketed and bracketed[1]:
        unit = UNIT_SPELLINGS.get(_spelling(bracketed[2]), "")
        text = bracketed[1] if unit else f"{bracketed[1]} {bracketed[2]}"
    words: List[str] = []
    for token in re.findall(r"[^\W_]+", text):
        is_unit = _spelling(token) in UNIT_SPELLINGS
        words += [token] if is_unit else re.sub(r"(?<=[a-z\d])(?=[A-Z])", " ", token).split()
    if not unit and len(words) > 1 and _spelling(words[-1]) in UNIT_SPELLINGS and words[-2].lower() != "per":
        unit = UNIT_SPELLINGS[_spelling(words.pop())]
        words = words[:-1] if words[-1].lower() == "in" and len(words) > 1 else words
    lowered = [word.lower() for word in words]
    while len(lowered) > 1 and lowered[0] in _STATISTICS:
        lowered = lowered[1:]
    while len(lowered) > 1 and lowered[-1] in _STATISTICS:
        lowered = lowered[:-1]
    return "_".join(lowered), unit


def known_column(header: str) -> str:
    """The column of a corpus that a name means, whatever its unit; empty if none."""
    return _NAMES.get(split_unit(header)[0], "")


def _spelling(unit: str) -> str:
    """A unit as `UNIT_SPELLINGS` has it, in lower case: no table has megawatts or megaseconds."""
    return unit.strip().rstrip(".").replace("\u00b5", "u").replace("\u03bc", "u").lower()


_NAMES = {synonym: column for column, synonyms in SYNONYMS.items() for synonym in (column, *synonyms)}


class _Conversion:
    """One table on its way to the columns of a corpus; collects assumptions and problems."""

    def __init__(self, cells: pd.DataFrame, stated: TableOptions, name: str, in_python: bool) -> None:
        self.in_python = in_python
        self.cells = cells.set_axis([str(column) for column in cells.columns], axis=1)
        self.stated, self.name = stated, name
        self.notes: List[str] = []
        self.problems: List[str] = []
        self.recognised: Dict[str, str] = {}  # a note by column of the table
        self.rename: Dict[str, str] = {}
        self.unit: Dict[str, str] = {}
        self.values: Dict[str, str] = dict(stated.values)
        self.made: Dict[str, List[Any]] = {}  # by column of the corpus
        self._check_stated()

    def result(self) -> ForeignTable:
        import pandas as pd

        sources = self._sources()
        self.decimal = self._decimal_style(sources)
        self._take_texts(sources)
        self._take_values()
        self._take_numbers(sources)
        self._take_throughput(sources)
        self._take_power_modes(sources)
        self._fill_what_is_missing(sources)
        self._snap_to_clocks_of_boards()
        further = [column for column in self.cells if column not in sources.values()]
        if further and any(problem.startswith("no column") for problem in self.problems):
            self.problems.append(not_recognised(further, self.in_python))
        if self.problems:
            listed = "\n".join(f"  {problem}" for problem in self.problems)
            written = "" if self.in_python else "\nnothing was written"
            raise InvalidValueError(f"{self.name} cannot be read in one way only:\n{listed}{written}")
        columns = {column: self.made[column] for column in (*CORPUS_COLUMNS, *self.made) if column in self.made}
        for column in further:
            columns[column.strip()] = [None if _is_empty(cell) else cell for cell in self.cells[column]]
        table = pd.DataFrame(columns, index=self.cells.index, dtype=object)
        decimal = self.decimal if self.decimal == _COMMA or self.stated.decimal else ""
        notes = (*self.recognised.values(), *self.notes)
        return ForeignTable(table, notes, TableOptions(self.rename, self.unit, self.values, decimal))

    def _option(self, option: str, name: str, value: str = "") -> str:
        """How the user states something: `--unit 'CPU=MHz'`, or in Python `unit={'CPU': 'MHz'}`."""
        if option == "decimal":
            return f'decimal="{name}"' if self.in_python else f"--decimal {name}"
        return stating(option, name, value, self.in_python)

    def _check_stated(self) -> None:
        columns = (*CORPUS_COLUMNS, POWER_LIMIT.name, POWER_MODE, THROUGHPUT)
        for option, names in (("rename", self.stated.rename), ("unit", self.stated.unit)):
            for name in names:
                if name not in self.cells.columns:
                    meant = nearest_word(name, list(self.cells.columns))
                    hint = f"; did you mean {meant!r}?" if meant else f"; it has {', '.join(self.cells.columns)}"
                    self.problems.append(f"{option} names a column {name!r} that the table does not have{hint}")
        for option, given in (("rename", self.stated.rename.values()), ("set", self.stated.values)):
            for column in given:
                if column not in columns:
                    meant = nearest_word(column, columns) or ", ".join(columns)
                    self.problems.append(
                        f"{option} to {column!r}, which is no column of a corpus; did you mean {meant}?"
                    )
        for name, unit in self.stated.unit.items():
            if unit not in UNIT_FACTORS:
                self.problems.append(f"unit of {name!r} is {unit!r}, expected one of {', '.join(UNIT_FACTORS)}")

    def _sources(self) -> Dict[str, str]:
        """The column of the table for each column of the corpus that it has; notes names that are not the corpus's."""
        by_column: Dict[str, List[str]] = {}
        for source in self.cells.columns:
            column = self.stated.rename.get(source, "") or self._meaning(source)
            if column:
                by_column.setdefault(column, []).append(source)
        chosen: Dict[str, str] = {}
        for column, sources in by_column.items():
            stated = [source for source in sources if source in self.stated.rename]
            exact = [source for source in sources if source.strip() == column]
            best = stated or exact or sources
            if len(best) > 1:
                named = " and ".join(repr(source) for source in best)
                options = " or ".join(self._option("rename", source, column) for source in best)
                self.problems.append(f"columns {named} could both be {column}: {options}")
            chosen[column] = best[0]
            if best[0] != column:
                self.rename[best[0]] = column
                if not stated:
                    self.recognised[best[0]] = f"column {best[0]!r} is {column}"
            for other in sources:
                if other not in best:
                    self.notes.append(f"column {other!r} is kept as it is, since {best[0]!r} is {column}")
        if THROUGHPUT in chosen and "minibatch_time_ms" in chosen:
            kept = chosen.pop(THROUGHPUT)
            self.rename.pop(kept, None)
            self.recognised.pop(kept, None)
        return chosen

    def _meaning(self, source: str) -> str:
        """The column of the corpus that a column of the table is by its name; empty if by none."""
        if source.strip() in (*CORPUS_COLUMNS, POWER_LIMIT.name):
            return source.strip()
        key, unit = split_unit(source)
        column = _NAMES.get(key, "")
        if key in ("gpu", "memory", "mem", "cpu") and not unit and self._is_text(source):
            return "device" if key == "gpu" else ""
        if key in ("mode", "config", "configuration") and self._is_task(source):
            return "task"
        wanted = UNIT_OF.get(column, "")
        if unit and (not wanted or UNIT_FACTORS[unit][0] != wanted):
            # `Memory (MB)` is no clock, `CPU power (W)` no CPU clock, `GPU (W)` the power of the GPU alone.
            return "power_mw" if column == "gpu_khz" and key == "gpu" and UNIT_FACTORS[unit][0] == "mW" else ""
        return column

    def _is_text(self, source: str) -> bool:
        return any(not _is_empty(cell) and _quantity(cell) is None for cell in self.cells[source])

    def _is_task(self, source: str) -> bool:
        return all(str(cell).strip().lower() in _TASK_WORDS for cell in self.cells[source] if not _is_empty(cell))

    def _decimal_style(self, sources: Mapping[str, str]) -> str:
        """Whether numbers have a decimal point or comma; a problem if cells contradict or nothing shows it."""
        if self.stated.decimal:
            return self.stated.decimal
        numeric = [source for column, source in sources.items() if column not in _TEXTS]
        shown: Dict[str, str] = {}  # a cell that shows each style
        unclear = ""
        for source in numeric:
            for cell in self.cells[source]:
                style = _style_of(cell)
                if style in DECIMALS:
                    shown.setdefault(style, str(cell).strip())
                elif style and not unclear:
                    unclear = str(cell).strip()
        either = f"{self._option('decimal', _COMMA)} or {self._option('decimal', _POINT)}"
        if len(shown) == 2:
            self.problems.append(
                f"numbers have a decimal point ({shown[_POINT]}) and a decimal comma ({shown[_COMMA]}): {either}"
            )
        elif not shown and "," in unclear:
            self.problems.append(f"{unclear!r} is {unclear.replace(',', '.')} or {unclear.replace(',', '')}: {either}")
        if _COMMA in shown and len(shown) == 1:
            self.notes.append(f"numbers have decimal commas ({shown[_COMMA]})")
            return _COMMA
        return _POINT

    def _take_texts(self, sources: Mapping[str, str]) -> None:
        for column in ("device", "workload", "task", "provenance"):
            if column not in sources:
                continue
            cells = ["" if _is_empty(cell) else str(cell).strip() for cell in self.cells[sources[column]]]
            if column == "task":
                cells = [_TASK_WORDS.get(cell.lower(), cell) for cell in cells]
            elif column == "provenance":
                cells = [cell.lower() for cell in cells]
            elif column == "device":
                cells = self._devices(cells)
            self.made[column] = cells

    def _devices(self, cells: Sequence[str]) -> List[str]:
        """Names of devices, with those of a board that are written in another way replaced by its own."""
        names = {}
        for cell in dict.fromkeys(cells):
            meant = "" if is_board(cell) else board_meant(cell)
            names[cell] = meant or cell
            if meant:
                self.notes.append(f"device {cell!r} is {meant}")
        return [names[cell] for cell in cells]

    def _take_values(self) -> None:
        for column, value in self.stated.values.items():
            if column in self.made:
                self.problems.append(f"{self._option('set', column, value)}, but the table has a column for it")
                continue
            if column == "device":
                [value] = self._devices([value])
            self.made[column] = [value] * len(self.cells)

    def _take_numbers(self, sources: Mapping[str, str]) -> None:
        for column in ("cpu_cores", "batch_size", *UNIT_OF):
            if column in sources:
                self._take_number(column, sources[column])

    def _take_number(self, column: str, source: str) -> None:
        quantities = [_quantity(cell, self.decimal) for cell in self.cells[source]]
        cells = list(self.cells[source])
        values = np.array([np.nan if quantity is None else quantity.value for quantity in quantities])
        wanted = UNIT_OF.get(column)
        if wanted is None:
            self.made[column] = [
                None if _is_empty(cell) else cell if np.isnan(value) else _plain(value)
                for cell, value in zip(cells, values)
            ]
            return
        in_cells = {quantity.unit for quantity in quantities if quantity is not None and quantity.unit}
        unit = self._unit_of(column, source, values, in_cells)
        factor = UNIT_FACTORS[unit][1] if unit else 1.0
        made: List[Any] = []
        for cell, value in zip(cells, values):
            if np.isnan(value):
                made.append(None if _is_empty(cell) else cell)
            elif column in _FIELDS or column == POWER_LIMIT.name:
                made.append(round(value * factor))
            else:
                made.append(value if factor == 1.0 else _scaled(value, factor))
        self.made[column] = made

    def _unit_of(self, column: str, source: str, values: np.ndarray, in_cells: Collection[str]) -> str:
        """The unit of a column: stated; in its name or cells, and possible by size; or the only possible one."""
        wanted = UNIT_OF[column]
        units = [unit for unit, (base, _) in UNIT_FACTORS.items() if base == wanted]
        positive = values[np.isfinite(values) & (values > 0)]
        if source in self.stated.unit:
            unit = self.stated.unit[source]
            if unit not in units:
                self.problems.append(f"unit of {source!r} is {unit}, expected one of {', '.join(units)}")
                return ""
            self.unit[source] = unit
            return unit
        named = split_unit(source)[1] or (wanted if source.strip() == column else "")
        if not named and len(set(in_cells)) == 1:
            [named] = set(in_cells)
        if len(positive) == 0:
            return named or wanted
        possible = [unit for unit in units if self._is_possible(column, positive * UNIT_FACTORS[unit][1])]
        span = (
            f"{positive.min():g}" if positive.min() == positive.max() else f"{positive.min():g} to {positive.max():g}"
        )
        if named in possible or (named and not possible):
            if named != wanted:
                self.unit[source] = named
                self._note_unit(source, f"in {named} ({span})")
            return named
        options = " or ".join(self._option("unit", source, unit) for unit in possible or units)
        if named:
            self.problems.append(
                f"{source!r} holds {span}, which cannot be {named}; it looks like {' or '.join(possible)}: {options}"
            )
            return ""
        if len(possible) != 1:
            # Nothing says which one it is, and a wrong guess would be a thousand times off.
            could = f"could be {' or '.join(possible)}" if possible else "is out of range in any unit"
            self.problems.append(f"{source!r} names no unit, and {span} {could}: {options}")
            return ""
        [unit] = possible
        self.unit[source] = unit
        self._note_unit(source, f"in {unit} by its size ({span})")
        return unit

    def _note_unit(self, source: str, unit: str) -> None:
        known = self.recognised.get(source, f"column {source!r} is")
        self.recognised[source] = f"{known}{' ' if known.endswith(' is') else ', '}{unit}"

    def _is_possible(self, column: str, values: np.ndarray) -> bool:
        """Whether values, in the corpus's unit, can be: by physics, and if the device is one board, by its facts."""
        least, most = _SIZES[UNIT_OF[column]]
        board = self._board()
        if board is not None and column == "power_mw":
            most = min(most, 2.0 * board.peak_power_mw)
        khz = board.khz[column] if board is not None and column in _FIELDS and column not in board.incomplete else ()
        if khz:
            least, most = 0.9 * khz[0], 1.1 * khz[-1]
        return bool(least <= values.min() and values.max() <= most)

    def _board(self) -> Any:
        devices = set(self.made.get("device", ()))
        [device] = devices if len(devices) == 1 else [""]
        return board_bounds(device) if is_board(device) else None

    def _take_throughput(self, sources: Mapping[str, str]) -> None:
        if THROUGHPUT not in sources:
            return
        source = sources[THROUGHPUT]
        if "batch_size" not in self.made:
            return  # the batch size is missing, which is a problem of its own
        times: List[Any] = []
        for cell, size in zip(self.cells[source], self.made["batch_size"]):
            quantity = _quantity(cell, self.decimal)
            is_usable = quantity is not None and quantity.value > 0 and size is not None
            times.append(_scaled(s_to_ms(float(size)), 1 / quantity.value) if quantity and is_usable else cell)
        self.made["minibatch_time_ms"] = times
        self.notes.append(
            f"minibatch_time_ms is 1000 times the batch size over {source!r}, taken as samples per second"
        )

    def _take_power_modes(self, sources: Mapping[str, str]) -> None:
        if POWER_MODE not in sources or set(_FIELDS) <= set(self.made) or "device" not in self.made:
            return
        modes: Dict[Tuple[str, str], Optional[PowerMode]] = {}
        for device, cell in zip(self.made["device"], self.cells[sources[POWER_MODE]]):
            text = str(cell).strip()
            if (device, text) in modes:
                continue
            try:
                modes[device, text] = mode_of(device, text)
            except InvalidValueError as error:
                modes[device, text] = None
                self.problems.append(f"{sources[POWER_MODE]!r}: {error}")
        read = [modes[device, str(cell).strip()] for device, cell in
                zip(self.made["device"], self.cells[sources[POWER_MODE]])]  # fmt: skip
        for number, field in enumerate(_FIELDS):
            if field not in self.made:
                self.made[field] = [None if mode is None else mode[number] for mode in read]

    def _fill_what_is_missing(self, sources: Mapping[str, str]) -> None:
        count = len(self.cells)
        for column, example, meaning in (
            ("device", "NAME", "orin-agx, v100, or a name of your own"),
            ("workload", "NAME", "what was run"),
            ("batch_size", "N", "samples per minibatch"),
        ):
            if column not in self.made:
                self.problems.append(f"no column for {column} ({meaning}): {self._option('set', column, example)}")
        if "minibatch_time_ms" not in self.made and THROUGHPUT not in sources:
            near = nearest_word("minibatch_time_ms", list(self.cells.columns))
            option = self._option("rename", near or "COLUMN", "minibatch_time_ms")
            self.problems.append(f"no column for the time of a minibatch: {option}")
        if "power_mw" not in self.made:
            self.made["power_mw"] = [None] * count
            self.notes.append("no column for power: it stays empty")
        for column in ("task", "provenance"):
            if column not in self.made:
                self.made[column] = [CHOICES[column][0]] * count
                self.values[column] = CHOICES[column][0]
                self.notes.append(f"no column for {column}: {CHOICES[column][0]} is assumed")
        boards = [is_board(str(device)) for device in self.made.get("device", [""] * count)]
        self._fill_power_mode(boards)

    def _fill_power_mode(self, boards: Sequence[bool]) -> None:
        """Dimensions that a device does not have: none of a board may be missing, a GPU has no CPU of its own."""
        count = len(self.cells)
        missing = [field for field in _FIELDS if field not in self.made]
        if missing and any(boards):
            options = ", ".join(self._option("set", field, "VALUE") for field in missing)
            self.problems.append(f"no column for {', '.join(missing)} of the power mode: {options}")
            return
        if missing:
            for field in missing:
                value = getattr(NO_SETTINGS, field)
                self.made[field] = [value] * count
                self.values[field] = str(value)
            self.notes.append(f"no column for {', '.join(missing)}: taken as a device that has or reports none")
        is_zero = [not board and cores == 0 for board, cores in zip(boards, self.made["cpu_cores"])]
        if any(is_zero):
            self.made["cpu_cores"] = [
                NO_SETTINGS.cpu_cores if zero else cores for zero, cores in zip(is_zero, self.made["cpu_cores"])
            ]
            self.notes.append(f"cpu_cores 0 is written as {NO_SETTINGS.cpu_cores}: the device reports none")

    def _snap_to_clocks_of_boards(self) -> None:
        """Clocks that were rounded or cut (2201 MHz for 2201.6) become those of the board."""
        for field in _FIELDS[1:]:
            snapped: Dict[Tuple[int, int], None] = {}
            source = next((name for name, column in self.rename.items() if column == field), field)
            if field not in self.made or source not in self.cells:
                continue
            factor = UNIT_FACTORS[self.unit.get(source, "kHz")][1]
            for place, (cell, khz) in enumerate(zip(self.cells[source], self.made[field])):
                device = str(self.made.get("device", [""] * len(self.cells))[place])
                if not isinstance(khz, int) or khz == UNKNOWN_KHZ or not is_board(device):
                    continue
                allowed = board_bounds(device).khz[field]
                if not allowed or khz in allowed:
                    continue
                nearest = min(allowed, key=lambda value: abs(value - khz))
                if abs(nearest - khz) < factor * 10.0 ** -_decimals(cell, self.decimal):
                    self.made[field][place] = nearest
                    snapped[khz, nearest] = None
            for khz, nearest in list(snapped)[:1]:
                more = f", and {len(snapped) - 1} other clocks likewise" if len(snapped) > 1 else ""
                self.notes.append(
                    f"{source!r}: {format_mhz(khz)} MHz is taken as the board's {format_mhz(nearest)} MHz{more}"
                )


class _Quantity:
    """A number and its unit, empty if a cell has none."""

    def __init__(self, value: float, unit: str) -> None:
        self.value, self.unit = value, unit


def _quantity(cell: Any, decimal: str = _POINT) -> Optional[_Quantity]:
    """The number in a cell, with the unit behind it (`12.3 W`); None if it holds anything else."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, (int, float, np.number)):
        return _Quantity(float(cell), "")
    match = _QUANTITY.fullmatch(str(cell).strip())
    if match is None:
        return None
    unit = UNIT_SPELLINGS.get(_spelling(match[2] or ""), "")
    if match[2] and not unit:
        return None
    digits = re.sub(r"[' \u00a0\u202f]", "", match[1])
    digits = digits.replace(".", "").replace(",", ".") if decimal == _COMMA else digits.replace(",", "")
    try:
        return _Quantity(float(digits), unit)
    except ValueError:
        return None


def _style_of(cell: Any) -> str:
    """`point` or `comma` if a number shows which it has, `unclear` if its one separator may separate thousands."""
    match = _QUANTITY.fullmatch(str(cell).strip()) if isinstance(cell, str) else None
    if match is None:
        return ""
    digits = match[1].strip()
    points, commas = digits.count("."), digits.count(",")
    if points and commas:
        return _COMMA if digits.rindex(",") > digits.rindex(".") else _POINT
    if points > 1 or commas > 1:
        return _COMMA if points > 1 else _POINT
    if not points and not commas:
        return ""
    whole, _, fraction = digits.partition("." if points else ",")
    if len(fraction) == 3 and whole.lstrip("+-").strip("0") and len(whole.lstrip("+-")) <= 3:
        return "unclear"
    return _POINT if points else _COMMA


def _decimals(cell: Any, decimal: str) -> int:
    """How many digits a cell shows behind its decimal point."""
    quantity = _quantity(cell, decimal)
    text = f"{quantity.value:.10g}" if quantity is not None else ""
    return len(text.partition(".")[2])


def _scaled(value: float, factor: float) -> float:
    """A value in another unit, without digits that the multiplication adds (0.3827119 s is 382.7119 ms)."""
    return float(f"{value * factor:.12g}")


def _plain(value: float) -> Any:
    return int(value) if float(value).is_integer() else value


def _is_empty(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in ("", "n/a", "na", "-"))


def _cells_of(path: Path) -> pd.DataFrame:
    """The cells of a file, indexed by place, as text where the file has text."""
    suffix = path.suffix.lower()
    if suffix in EXCEL:
        return _excel(path)
    if suffix == ".parquet":
        return read_parquet(path)
    text = decoded(_read(path), str(path))
    return _json(text, path) if suffix in JSON else _separated(text, path)


def _read(path: Path) -> bytes:
    try:
        return read_unpacked(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}", "name an existing file") from error


def decoded(content: bytes, name: str) -> str:
    """Text in UTF-8, UTF-16 or UTF-32 (by its first bytes), else in the Windows code page of western Europe."""
    for mark, encoding in (
        (b"\xff\xfe\x00\x00", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
        (b"\xef\xbb\xbf", "utf-8-sig"),
    ):
        if content.startswith(mark):
            return _as_text(content, encoding, name)
    if b"\x00" in content[:200]:  # UTF-16 without a mark: every other byte of ASCII text is 0
        return _as_text(content, "utf-16-le" if content[1:2] == b"\x00" else "utf-16-be", name)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return _as_text(content, "cp1252", name)


def _as_text(content: bytes, encoding: str, name: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{name} is not text in {encoding}: {error}", "save it as CSV in UTF-8") from error


def _separated(text: str, path: Path) -> pd.DataFrame:
    import pandas as pd

    lines = text.splitlines()
    skipped = 0
    while skipped < len(lines) and (not lines[skipped].strip() or lines[skipped].startswith("#")):
        skipped += 1
    stated = re.fullmatch(r'"?sep=(.)"?', lines[skipped].strip()) if skipped < len(lines) else None
    if stated:
        skipped += 1
    if skipped == len(lines):
        raise InvalidValueError(f"{path} is empty", "name a table with a header and a row for each measurement")
    separator = stated[1] if stated else _separator(lines[skipped])
    try:
        rows = list(_rows_of("\n".join(lines[skipped:]), separator))
    except csv.Error as error:
        raise InvalidValueError(f"{path} is not a table: {error}") from error
    header = [name.strip() for name in rows[0][1]]
    while header and not header[-1] and all(len(cells) < len(header) or not cells[-1].strip() for _, cells in rows[1:]):
        header.pop()  # each line ends with a separator
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InvalidValueError(f"{path} has more than one column {', '.join(repr(name) for name in twice)}")
    kept: List[List[str]] = []
    places: List[str] = []
    for number, cells in rows[1:]:
        cells = cells[: len(header)] if not any(cell.strip() for cell in cells[len(header) :]) else cells
        if len(cells) != len(header):
            hint = "decimal commas need another separator" if len(cells) > len(header) and separator == "," else ""
            place = f"{path} line {number + skipped}"
            raise InvalidValueError(f"{place}: {len(cells)} cells, expected {len(header)} as in the header", hint)
        kept.append(cells)
        places.append(f"line {number + skipped}")
    return pd.DataFrame(kept, places, header, dtype=object)


def _rows_of(text: str, separator: str) -> Sequence[Tuple[int, List[str]]]:
    if separator == " ":
        lines = ((number, line.split()) for number, line in enumerate(text.splitlines(), 1))
        return [(number, cells) for number, cells in lines if cells]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    return [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]


def _separator(header: str) -> str:
    """The separator that splits a header into the most columns; blanks only if there is no other."""
    counts = {separator: len(next(csv.reader([header], delimiter=separator))) for separator in ",;\t|"}
    best = max(counts, key=lambda separator: counts[separator])
    return best if counts[best] > 1 else " "


def _json(text: str, path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    try:
        rows = whole if whole is not None else [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{path} is neither JSON nor JSON lines: {error}") from error
    if isinstance(rows, dict):
        rows = [rows] if not any(isinstance(value, (list, dict)) for value in rows.values()) else rows
    is_of_rows = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    is_of_columns = isinstance(rows, dict) and all(isinstance(cells, (list, dict)) for cells in rows.values())
    if not is_of_rows and not is_of_columns:
        raise InvalidValueError(f"{path} holds no table", "a JSON object for each row, or a list for each column")
    try:
        frame = pd.DataFrame(rows, dtype=object)
    except ValueError as error:
        raise InvalidValueError(f"{path}: {error}") from error
    return _numbered(frame)


def _excel(path: Path) -> pd.DataFrame:
    import pandas as pd

    _read(path)  # a clear error on what cannot be read
    try:
        frame = pd.read_excel(str(path), dtype=object)
    except ImportError as error:
        raise DependencyError(f"reading {path} needs another package: {error}", "or save it as CSV") from error
    except ValueError as error:
        raise InvalidValueError(f"{path} is not an Excel file: {error}", "save it as CSV") from error
    return _numbered(frame.dropna(how="all"), first=2)


def _numbered(frame: pd.DataFrame, first: int = 1) -> pd.DataFrame:
    plain = frame.astype(object).where(frame.notna(), None)
    return plain.set_axis([f"row {number}" for number in range(first, first + len(frame))])

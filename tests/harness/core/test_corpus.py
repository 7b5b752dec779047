"""A corpus reads back as it was written, and what breaks its schema is refused by file, line and column."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.boards import BOARDS, load_board
from harness.core.corpus import (
    CORPUS,
    CORPUS_COLUMNS,
    PROVENANCES,
    TASKS,
    Column,
    check_corpus,
    read_corpus,
    rows_of,
    write_corpus,
)
from harness.core.errors import DependencyError, InvalidValueError, StoreError
from harness.core.notes import NoteWarning
from harness.simulation.corpus import simulate_corpus
from tests.messages import says

ROW: Dict[str, Any] = {
    "device": "orin-agx", "workload": "resnet18-imagenet", "task": "training",
    "cpu_cores": 12, "cpu_khz": 2_201_600, "gpu_khz": 1_300_500, "mem_khz": 3_199_000,
    "batch_size": 16, "minibatch_time_ms": 57.25, "power_mw": 43_000.0, "provenance": "measured",
}  # fmt: skip
FURTHER = (Column("workers", int, "workers"), Column("stall_ms", float, "stall"), Column("note", str, "a note"))

words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0\r"), min_size=1, max_size=10)
clocks = st.just(0) | st.integers(20_000, 10**7)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "device": words.filter(lambda name: name.strip() and name not in BOARDS),
            "workload": words.filter(str.strip),
            "task": st.sampled_from(TASKS),
            "cpu_cores": st.integers(1, 64),
            "cpu_khz": clocks,
            "gpu_khz": clocks,
            "mem_khz": clocks,
            "batch_size": st.integers(1, 4096),
            "minibatch_time_ms": st.floats(1, 1e6),
            "power_mw": st.none() | st.floats(1e3, 1e6),
            "provenance": st.sampled_from(PROVENANCES),
        }
    ),
    max_size=5,
)
"""Rows of a corpus."""


def csv_text(*changes: Dict[str, str]) -> str:
    """A corpus of one row for each of these changes to `ROW`."""
    lines = [",".join(CORPUS_COLUMNS)]
    lines += [",".join(str({**ROW, **change}[name]) for name in CORPUS_COLUMNS) for change in changes]
    return "\n".join(lines) + "\n"


def test_the_columns_are_those_of_the_schema_in_order() -> None:
    assert tuple(ROW) == CORPUS_COLUMNS
    assert all(column.meaning for column in CORPUS)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@settings(max_examples=30)
@given(table=rows)
@pytest.mark.exhaustive
def test_a_corpus_reads_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, table: List[Dict]
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("corpus") / f"c{suffix}"
    write_corpus(path, table)
    assert rows_of(read_corpus(path)) == table


def test_further_columns_follow_in_order_and_keep_their_types(tmp_path: Path) -> None:
    rows = [{**ROW, "workers": 4, "note": "a, b"}, {**ROW, "power_mw": None, "workers": 4}]
    read = [{**ROW, "workers": 4, "stall_ms": None, "note": "a, b"}, {**rows[1], "stall_ms": None, "note": None}]
    write_corpus(tmp_path / "c.csv", rows, FURTHER)
    assert rows_of(read_corpus(tmp_path / "c.csv")) == read
    header, line, other = (tmp_path / "c.csv").read_text().splitlines()
    assert header == ",".join([*CORPUS_COLUMNS, "workers", "stall_ms", "note"])
    assert line.endswith(',measured,4,,"a, b"')
    assert other.endswith(",,measured,4,,"), "a missing sensor is an empty cell"
    pytest.importorskip("pyarrow")
    write_corpus(tmp_path / "c.parquet", rows, FURTHER)
    assert rows_of(read_corpus(tmp_path / "c.parquet")) == read


def test_columns_of_another_order_clocks_with_a_decimal_point_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    names, row = sorted(CORPUS_COLUMNS), {**ROW, "cpu_khz": "2201600.0"}
    text = "\ufeff" + ",".join(names) + "\r\n" + ",".join(str(row[name]) for name in names) + "\r\n\r\n"
    path.write_bytes(text.encode("utf-8"))
    assert rows_of(read_corpus(path)) == [ROW]
    assert read_corpus(path)["cpu_khz"].dtype == "int64"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("cpu_khz", "fast"), ("cpu_khz", "1.5"), ("gpu_khz", ""), ("cpu_cores", "0"), ("minibatch_time_ms", "")),
        *(("minibatch_time_ms", "nan"), ("power_mw", "0"), ("task", "sleeping"), ("device", "")),
    ],
)
def test_a_value_that_breaks_the_schema_is_named_with_its_line(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "c.csv"
    path.write_text(csv_text({}, {}, {column: value}))
    with pytest.raises(InvalidValueError, match=rf"c\.csv line 4: {column} is .*, expected ") as caught:
        read_corpus(path)
    assert repr(value) in str(caught.value) or "empty" in str(caught.value) or value in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (csv_text({}) + "orin-agx,lenet-mnist\n", "line 3: 2 cells, expected 11"),
        ("device,workload\nhost,lenet-mnist\n", "has no column task, cpu_cores"),
        (
            "device,workload,minibatch_time\nhost,lenet-mnist,3\n",
            "rename minibatch_time to minibatch_time_ms; a corpus has",
        ),
        (
            csv_text({}).replace("task,", "").replace("provenance", "origin"),
            "no column task, provenance; .*; task is training or inference; provenance is measured, simulated or repla",
        ),
        (csv_text().strip() + ",device\n", "more than one column device"),
        (csv_text({}).replace(",", ";"), r"separated by semicolons.*sep=';'.*decimal=','"),
        (csv_text({"minibatch_time_ms": '"57,25"'}), "minibatch_time_ms is '57,25', expected a decimal point"),
    ],
)
def test_cells_and_columns_that_are_too_many_or_too_few_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(InvalidValueError, match=words):
        read_corpus(tmp_path / "c.csv")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b'device,"unclosed\n', b"a\0b,c\n"])
def test_what_is_no_csv_or_not_there_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.csv"
    with pytest.raises(StoreError, match="cannot read"):
        read_corpus(path)
    path.write_bytes(content)
    with pytest.raises(InvalidValueError, match=r"c\.csv"):
        read_corpus(path)


def test_a_parquet_that_is_none_or_breaks_the_schema_is_refused(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "c.parquet"
    path.write_bytes(b"device,workload\n")
    with pytest.raises(InvalidValueError, match="is not a Parquet file"):
        read_corpus(path)
    parquet.write_table(pyarrow.table({name: ["x"] for name in CORPUS_COLUMNS}), str(path))
    with pytest.raises(InvalidValueError, match=r"row 1: task is 'x', .*training or inference"):
        read_corpus(path)
    parquet.write_table(pyarrow.Table.from_pylist([ROW, {**ROW, "batch_size": 0}]), str(path))
    with pytest.raises(InvalidValueError, match="row 2: batch_size is 0"):
        read_corpus(path)


@pytest.mark.parametrize("name", ["c.xlsx", "c", "c.csv.gz"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    for use in (read_corpus, lambda path: write_corpus(path, [ROW])):
        with pytest.raises(InvalidValueError, match=r"ends in \.csv or \.parquet"):
            use(tmp_path / name)
    assert os.listdir(str(tmp_path)) == []


def test_a_row_that_breaks_the_schema_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    write_corpus(path, [ROW])
    before = path.read_bytes()
    with pytest.raises(InvalidValueError, match=r"for .*c.csv, row 2: power_mw is 0"):
        write_corpus(path, [ROW, {**ROW, "power_mw": 0.0}])
    assert path.read_bytes() == before


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (read_corpus, lambda path: write_corpus(path, [ROW])):
        with pytest.raises(DependencyError, match=r"jetwatt\[report\]"):
            use(tmp_path / "c.parquet")
    assert os.listdir(str(tmp_path)) == []


Change = Callable[[pd.DataFrame], pd.DataFrame]


def of_board() -> pd.DataFrame:
    """A true table of 41 modes."""
    space = load_board("orin-agx").power_mode_space()
    rows = simulate_corpus("orin-agx", "yolov8n-coco", [space.greatest, *space.sample(40)])
    return pd.DataFrame(rows)[list(CORPUS_COLUMNS)]


def of_host() -> pd.DataFrame:
    """The same of a device of which nothing is known."""
    return of_board().assign(device="host", gpu_khz=0, mem_khz=0)


def of_words() -> pd.DataFrame:
    """The same of a board in other words."""
    return of_board().assign(device="Jetson AGX Orin")


def of_own_name() -> pd.DataFrame:
    """The same of a device with a name of one's own that reports all of its clocks."""
    return of_board().assign(device="my-board")


def of_fast_device() -> pd.DataFrame:
    """A true table of a fast device of one's own that reports all of its clocks."""
    fast = {"device": "my-server", "cpu_khz": 3_000_000, "gpu_khz": 1_410_000, "mem_khz": 1_215_000}
    return of_host().assign(minibatch_time_ms=0.5, **fast)


def times(factor: float, *names: str) -> Change:
    return lambda table: table.assign(**{name: table[name] * factor for name in names})


def some_in_watts(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(power_mw=table["power_mw"].where(table.index >= 10, table["power_mw"] / 1000))


def exchanged(one: str, other: str) -> Change:
    return lambda table: table.assign(**{one: table[other], other: table[one]})


@pytest.mark.parametrize(
    ("true", "change", "words"),
    [
        (of_board, times(1e-3, "cpu_khz", "gpu_khz", "mem_khz"),
         "cpu_khz is 2201.6: that looks like MHz, expected kHz (all 41 rows are like this)"),
        (of_board, times(1e3, "gpu_khz"), "gpu_khz is 1300500000: that looks like Hz, expected kHz (all 41"),
        (of_host, times(1e-3, "cpu_khz"), "that looks like MHz, expected kHz (all 41"),
        (of_host, lambda table: table.assign(cpu_khz=2.2), "cpu_khz is 2.2: that looks like GHz, expected kHz (all 41"),
        (of_board, times(1e-3, "power_mw"), "that looks like W, expected mW (all 41"),
        (of_host, times(1e-3, "power_mw"), "that looks like W, expected mW (all 41"),
        (of_host, some_in_watts, "that looks like W, expected mW (10 of 41"),
        (of_board, times(1e3, "power_mw"), "that looks like uW, expected mW (all 41"),
        (of_board, times(1e-3, "minibatch_time_ms"), "that looks like s, expected ms (all 41"),
        (of_words, times(1e-3, "minibatch_time_ms"), "that looks like s, expected ms (all 41"),
        (of_words, times(1e-3, "power_mw"), "that looks like W, expected mW (all 41"),
        (of_own_name, lambda table: table.assign(minibatch_time_ms=0.2), "that looks like s, expected ms (all 41"),
        (of_host, lambda table: table.assign(minibatch_time_ms=0.2), "that looks like s, expected ms (all 41"),
        (of_board, exchanged("gpu_khz", "mem_khz"), "which is a mem_khz of orin-agx: the columns look exchanged"),
        (of_board, exchanged("cpu_cores", "cpu_khz"), "cpu_khz is 12: that looks like GHz"),
        (of_board, exchanged("minibatch_time_ms", "power_mw"), "the columns look exchanged (all 41"),
        (of_board, lambda table: table.replace({"cpu_khz": {2_201_600: 2_201_000}}),
         "cpu_khz is 2201000, which orin-agx does not have; the nearest is 2201600"),
        (of_board, lambda table: table.replace({"cpu_cores": {12: 16}}), "cpu_cores is 16, orin-agx has 12"),
        (of_board, lambda table: table.assign(device="xavier-nx"), "which xavier-nx does not have"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_true_is_refused_in_one_message_with_the_likely_mistake(
    tmp_path: Path, true: Callable[[], pd.DataFrame], change: Change, words: str
) -> None:
    table = change(true())
    table.to_csv(tmp_path / "c.csv", index=False)
    for read in (lambda: check_corpus(table, "mine"), lambda: read_corpus(tmp_path / "c.csv")):
        with pytest.raises(InvalidValueError) as caught:
            read()
        assert words in str(caught.value)
        assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "change", [lambda table: table, lambda table: table.iloc[:0], lambda table: table.assign(power_mw=None)]
)
@pytest.mark.parametrize("true", [of_board, of_host, of_own_name, of_fast_device])
def test_a_true_table_is_checked_as_it_is_read(
    tmp_path: Path, true: Callable[[], pd.DataFrame], change: Change
) -> None:
    table = change(true())
    table.to_csv(tmp_path / "c.csv", index=False)
    pd.testing.assert_frame_equal(check_corpus(table), read_corpus(tmp_path / "c.csv"))


def test_what_is_doubtful_in_a_table_is_a_warning_of_whatever_reads_it(tmp_path: Path) -> None:
    table = of_words()
    twice = pd.concat([table, table.iloc[:3].assign(minibatch_time_ms=table["minibatch_time_ms"] * 1.5)])
    twice.to_csv(tmp_path / "c.csv", index=False)
    for read, name in ((lambda: check_corpus(twice), "the table"), (lambda: read_corpus(tmp_path / "c.csv"), "c.csv")):
        with pytest.warns(NoteWarning) as notes:
            read()
        device, cases = (str(note.message) for note in notes)
        assert name in device
        assert says(device, "'Jetson AGX Orin'", "your own", "orin-agx")
        assert says(cases, "6 of 44 rows", "25 %")
        assert {note.filename for note in notes} == {__file__}
    repeated = pd.concat([of_board(), of_board().assign(minibatch_time_ms=lambda own: 1.05 * own["minibatch_time_ms"])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_corpus(repeated)


@pytest.mark.parametrize("name", ["orin-agx-training.csv", "orin-agx-inference.csv", "orin-nano-training.csv"])
def test_the_measured_tables_of_others_are_corpora(name: str) -> None:
    folder = os.environ.get("JETWATT_DATA")
    if not folder:
        pytest.skip("JETWATT_DATA names no folder with measured tables")
    [path] = Path(folder).rglob(name)
    table = read_corpus(path)
    assert len(table) >= 180
    assert set(table["device"]) == {name.rpartition("-")[0]}


GPU_TABLE = pd.DataFrame({
    "device": "my-gpu", "workload": "gemm", "task": "training", "batch_size": 16,
    "gpu_khz": [1_410_000, 1_110_000, 810_000], "minibatch_time_ms": [10.0, 12.0, 16.0],
    "power_mw": [290e3, 230e3, 170e3], "provenance": "measured",
    "power_limit_mw": 300_000,
})  # fmt: skip


def test_a_table_of_a_gpu_may_lack_the_settings_of_its_host():
    checked = check_corpus(GPU_TABLE)
    assert checked["cpu_cores"].tolist() == [1] * 3
    assert (checked[["cpu_khz", "mem_khz"]] == 0).all(axis=None)
    assert checked["gpu_khz"].tolist() == GPU_TABLE["gpu_khz"].tolist()
    without_clocks = check_corpus(GPU_TABLE.drop(columns="gpu_khz"))
    assert without_clocks["gpu_khz"].tolist() == [0] * 3
    pd.testing.assert_frame_equal(check_corpus(GPU_TABLE.assign(cpu_cores=0)), checked, check_like=True)


@pytest.mark.parametrize(
    "table",
    [
        GPU_TABLE.assign(device="orin-agx"),
        GPU_TABLE.assign(cpu_core=4),
        GPU_TABLE.drop(columns=["gpu_khz", "power_limit_mw"]),
    ],
    ids=["of a board", "spelled otherwise", "without a power mode"],
)
def test_settings_that_may_be_forgotten_or_misspelled_are_not_made_up(table):
    with pytest.raises(InvalidValueError, match="no column cpu_cores"):
        check_corpus(table)


def test_a_checked_table_of_many_columns_takes_a_further_one_without_a_warning():
    columns = pd.DataFrame({f"own_{number}": [1.0] * len(GPU_TABLE) for number in range(150)})
    checked = check_corpus(pd.concat([GPU_TABLE, columns], axis=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pandas warns if each column is stored apart
        checked["mine"] = 1.0

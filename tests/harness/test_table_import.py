"""Tables as people have them: the same 60 rows in forty habits come in with one call, or all that is wrong is named."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any, Callable, Dict, List, Sequence

import pandas as pd
import pytest

from harness.__main__ import main
from harness.core.boards import load_board
from harness.core.corpus import CORPUS_COLUMNS, read_corpus
from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode
from harness.simulation.corpus import simulate_corpus
from harness.table_import import import_table
from tests.messages import says

pytestmark = pytest.mark.filterwarnings("ignore:assumed while importing")

ROWS = 60
REFUSED = 2
EXACT = ("cpu_cores", "cpu_khz", "gpu_khz", "mem_khz", "batch_size")
FIGURES = ("minibatch_time_ms", "power_mw")


@pytest.fixture(scope="module")
def rows() -> List[Dict[str, Any]]:
    modes = load_board("orin-agx").power_mode_space().sample(ROWS, seed=3)
    return [{**row, "provenance": "measured"} for row in simulate_corpus("orin-agx", "yolov8n-coco", modes)]


@pytest.fixture(scope="module")
def gpu_rows() -> List[Dict[str, Any]]:
    chance = random.Random(5)
    limits = [limit_w for limit_w in range(100, 301, 25) for _ in range(7)][:ROWS]
    return [
        {
            "device": "rtx-4090", "workload": "my-net", "task": "training", "cpu_cores": 1, "cpu_khz": 0, "gpu_khz": 0,
            "mem_khz": 0, "batch_size": 2 ** (place % 7), "minibatch_time_ms": round(chance.uniform(20, 90), 3),
            "power_mw": round(1000 * chance.uniform(0.5, 0.98) * limit_w), "provenance": "measured",
            "power_limit_mw": limit_w * 1000,
        }
        for place, limit_w in enumerate(limits)
    ]  # fmt: skip


Cells = List[Dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Habit:
    """One way of writing the table: its cells from the rows of the corpus, and how they are written."""

    cells: Callable[[Cells], Cells] = lambda rows: [dict(row) for row in rows]
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    suffix: str = ".csv"
    before: str = ""
    options: Sequence[str] = ()

    def write(self, rows: Cells, folder) -> Any:
        cells = self.cells(rows)
        path = folder / f"theirs{self.suffix}"
        if self.suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in cells))
        elif self.suffix == ".json":
            path.write_text(json.dumps(cells))
        elif self.suffix == ".xlsx":
            pytest.importorskip("openpyxl")
            pd.DataFrame(cells).to_excel(path, index=False)
        else:
            text = pd.DataFrame(cells).to_csv(index=False, sep=self.separator, decimal=self.decimal)
            path.write_bytes((self.before + text).encode(self.encoding))
        return path


def renamed(**names: str) -> Callable[[Cells], Cells]:
    return lambda rows: [{names.get(column, column): value for column, value in row.items()} for row in rows]


def mapped(rename: Dict[str, str], **convert: Callable[[Any], Any]) -> Callable[[Cells], Cells]:
    """Rows with converted values (by column of the corpus), then with other names of the columns."""

    def cells(rows: Cells) -> Cells:
        return [
            {rename.get(column, column): convert.get(column, _same)(value) for column, value in row.items()}
            for row in rows
        ]

    return cells


def _same(value: Any) -> Any:
    return value


def mhz(khz: int) -> float:
    return khz / 1000


def cut_mhz(khz: int) -> int:
    return khz // 1000


def ghz(khz: int) -> float:
    return khz / 1e6


def seconds(ms: float) -> float:
    return round(ms / 1000, 9)


def microseconds(ms: float) -> float:
    return round(ms * 1000, 4)


def hz(khz: int) -> int:
    return khz * 1000


def watts(mw: float) -> float:
    return round(mw / 1000, 6)


CLOCKS_IN_MHZ = {"cpu_khz": mhz, "gpu_khz": mhz, "mem_khz": mhz}
SPREADSHEET = {
    "device": " Device ", "workload": "Model", "task": "Phase", "cpu_cores": "CPU cores", "cpu_khz": "CPU MHz",
    "gpu_khz": "GPU MHz", "mem_khz": "EMC MHz", "batch_size": "Batch Size", "minibatch_time_ms": "Time (s)",
    "power_mw": "Power (W)", "provenance": "Provenance",
}  # fmt: skip
IN_SI = {**CLOCKS_IN_MHZ, "minibatch_time_ms": seconds, "power_mw": watts}
WITHOUT_TEXTS = ("device", "workload", "task", "provenance", "batch_size")
GIVEN = ("--set", "device=orin-agx", "--set", "workload=yolov8n-coco", "--set", "batch_size=16")


def with_mode_in_one_cell(rows: Cells) -> Cells:
    return [
        {
            "device": row["device"], "model": row["workload"],
            "power mode": PowerMode(*(row[field] for field in PowerMode._fields)).name,
            "bs": row["batch_size"], "latency_ms": row["minibatch_time_ms"], "avg_power_mW": row["power_mw"],
        }
        for row in rows
    ]  # fmt: skip


def without(*columns: str, then: Callable[[Cells], Cells] = lambda rows: rows) -> Callable[[Cells], Cells]:
    return lambda rows: then([{name: row[name] for name in row if name not in columns} for row in rows])


HABITS = {
    "corpus": Habit(),
    "spaced-title-case": Habit(renamed(device=" Device ", minibatch_time_ms="Minibatch Time Ms", power_mw="Power mW")),
    "upper-case": Habit(lambda rows: [{name.upper(): value for name, value in row.items()} for row in rows]),
    "spreadsheet": Habit(mapped(SPREADSHEET, **IN_SI)),
    "spreadsheet-semicolons": Habit(mapped(SPREADSHEET, **IN_SI), separator=";"),
    "spreadsheet-german": Habit(mapped(SPREADSHEET, **IN_SI), separator=";", decimal=","),
    "spreadsheet-german-bom": Habit(mapped(SPREADSHEET, **IN_SI), separator=";", decimal=",", encoding="utf-8-sig"),
    "utf-16": Habit(mapped(SPREADSHEET, **IN_SI), separator="\t", encoding="utf-16"),
    "utf-16-no-mark": Habit(mapped(SPREADSHEET, **IN_SI), separator="\t", encoding="utf-16-le"),
    "latin-1": Habit(
        mapped({**SPREADSHEET, "minibatch_time_ms": "Time [\u00b5s]"}, **{**IN_SI, "minibatch_time_ms": microseconds}),
        encoding="latin-1",
    ),
    "tsv": Habit(mapped(SPREADSHEET, **IN_SI), separator="\t", suffix=".tsv"),
    "pipes": Habit(mapped(SPREADSHEET, **IN_SI), separator="|", suffix=".txt"),
    "excel-sep-line": Habit(mapped(SPREADSHEET, **IN_SI), separator=";", before="sep=;\n"),
    "comments-above": Habit(mapped(SPREADSHEET, **IN_SI), before="# measured in May\n# fan at 100 %\n"),
    "blank-separated": Habit(
        mapped({name: name.upper() for name in CORPUS_COLUMNS}), separator=" ", suffix=".dat"
    ),
    "cut-mhz": Habit(
        mapped(SPREADSHEET, **{**IN_SI, "cpu_khz": cut_mhz, "gpu_khz": cut_mhz, "mem_khz": cut_mhz})
    ),
    "rounded-mhz": Habit(mapped(SPREADSHEET, **{**IN_SI, "gpu_khz": lambda khz: round(khz / 1000)})),
    "ghz": Habit(
        mapped({"cpu_khz": "cpu_ghz", "gpu_khz": "gpu (GHz)", "mem_khz": "memory [GHz]"},
               cpu_khz=ghz, gpu_khz=ghz, mem_khz=ghz)
    ),
    "hz-as-sysfs": Habit(
        mapped({"gpu_khz": "gpu_freq", "mem_khz": "emc_freq"}, gpu_khz=hz, mem_khz=hz)
    ),
    "no-units-in-names": Habit(
        mapped({"cpu_khz": "cpu_freq", "gpu_khz": "gpu_freq", "mem_khz": "mem_freq", "minibatch_time_ms": "latency",
                "power_mw": "power"}, cpu_khz=mhz, gpu_khz=mhz, mem_khz=mhz, power_mw=watts)
    ),
    "snake-case": Habit(
        mapped({"cpu_khz": "cpu_mhz", "gpu_khz": "gpu_mhz", "mem_khz": "mem_mhz", "minibatch_time_ms": "step_time_s",
                "power_mw": "avg_power_w", "batch_size": "bs", "workload": "model", "cpu_cores": "cores"}, **IN_SI)
    ),
    "camel-case": Habit(
        renamed(cpu_cores="cpuCores", cpu_khz="cpuFreqKHz", gpu_khz="gpuFreqKHz", mem_khz="memFreqKHz",
                batch_size="batchSize", minibatch_time_ms="stepTimeMs", power_mw="meanPowerMW")
    ),
    "units-in-cells": Habit(
        mapped({"minibatch_time_ms": "time", "power_mw": "power", "cpu_khz": "cpu"},
               minibatch_time_ms=lambda ms: f"{ms} ms", power_mw=lambda mw: f"{mw / 1000:.4f} W",
               cpu_khz=lambda khz: f"{khz / 1000:.1f} MHz")
    ),
    "thousands-by-commas": Habit(
        mapped({}, power_mw=lambda mw: f"{mw:,.1f}", cpu_khz=lambda khz: f"{khz:,}", gpu_khz=lambda khz: f"{khz:,}")
    ),
    "thousands-by-points": Habit(
        mapped({}, power_mw=lambda mw: f"{mw:,.1f}".translate(str.maketrans(",.", ".,")),
               minibatch_time_ms=lambda ms: f"{ms:.4f}".replace(".", ",")), separator=";"
    ),
    "microseconds": Habit(mapped({"minibatch_time_ms": "time_us"}, minibatch_time_ms=microseconds)),
    "task-words": Habit(mapped({}, task=lambda task: "Train")),
    "device-in-words": Habit(mapped({}, device=lambda name: "Jetson AGX Orin")),
    "throughput": Habit(
        lambda rows: [
            {**{name: row[name] for name in row if name != "minibatch_time_ms"},
             "images/s": repr(1000 * row["batch_size"] / row["minibatch_time_ms"])} for row in rows
        ]
    ),
    "mode-in-one-cell": Habit(with_mode_in_one_cell),
    "without-texts": Habit(without(*WITHOUT_TEXTS), options=GIVEN),
    "without-provenance-and-task": Habit(without("provenance", "task")),
    "corpus-but-one-clock": Habit(mapped({"cpu_khz": "CPU MHz"}, cpu_khz=lambda khz: khz / 1000)),
    "corpus-but-memory": Habit(mapped({"mem_khz": "EMC (MHz)"}, mem_khz=lambda khz: khz / 1000)),
    "further-columns": Habit(lambda rows: [{**row, "fan": 80, "note": "ok"} for row in rows]),
    "mean-and-peak-power": Habit(lambda rows: [{**row, "peak_power_mw": row["power_mw"] * 2} for row in rows]),
    "json-lines": Habit(mapped(SPREADSHEET, **IN_SI), suffix=".jsonl"),
    "json": Habit(mapped(SPREADSHEET, **IN_SI), suffix=".json"),
    "excel": Habit(mapped(SPREADSHEET, **IN_SI), suffix=".xlsx"),
}  # fmt: skip

GPU_NAMES = {"device": "GPU", "workload": "network", "batch_size": "batch", "minibatch_time_ms": "iteration time (ms)",
             "power_mw": "Power draw [W]", "power_limit_mw": "power limit [W]"}  # fmt: skip
IN_WATTS = {"power_mw": watts, "power_limit_mw": lambda mw: mw // 1000}
MODE = ("cpu_cores", "cpu_khz", "gpu_khz", "mem_khz")
GPU_HABITS = {
    "gpu-without-cpu": Habit(without(*MODE, "task", "provenance", then=mapped(GPU_NAMES, **IN_WATTS))),
    "gpu-cores-0": Habit(mapped({}, cpu_cores=lambda cores: 0)),
    "gpu-power-limit-w": Habit(mapped({"power_limit_mw": "power_limit_w"}, power_limit_mw=lambda mw: mw / 1000)),
}


def test_there_are_forty_habits():
    assert len(HABITS) + len(GPU_HABITS) >= 40


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    return table.reset_index(drop=True)


def assert_same(imported: pd.DataFrame, rows: Cells) -> None:
    """The same values to the digit; times that were written as throughput, to the precision of a double."""
    wanted = pd.DataFrame(rows)
    assert len(imported) == ROWS
    for column in (*EXACT, "device", "workload", "task", "provenance"):
        assert imported[column].tolist() == wanted[column].tolist(), column
    for column in FIGURES:
        assert imported[column].tolist() == pytest.approx(wanted[column].tolist(), rel=1e-11), column


@pytest.mark.parametrize("name", HABITS)
def test_a_table_in_any_habit_comes_in_with_one_call(name, rows, tmp_path, capsys):
    habit = HABITS[name]
    source, out = habit.write(rows, tmp_path), tmp_path / "corpus.csv"
    assert main(["import", str(source), "--out", str(out), *habit.options]) == 0, capsys.readouterr().err
    assert_same(read_corpus(out), rows)


@pytest.mark.parametrize("name", GPU_HABITS)
def test_a_table_of_a_gpu_needs_no_columns_of_a_cpu(name, gpu_rows, tmp_path, capsys):
    source, out = GPU_HABITS[name].write(gpu_rows, tmp_path), tmp_path / "corpus.csv"
    assert main(["import", str(source), "--out", str(out)]) == 0, capsys.readouterr().err
    imported = read_corpus(out)
    assert_same(imported, gpu_rows)
    assert imported["power_limit_mw"].tolist() == [row["power_limit_mw"] for row in gpu_rows]


def test_the_printed_options_state_every_assumption(rows, tmp_path, capsys):
    source, out = HABITS["spreadsheet-german"].write(rows, tmp_path), tmp_path / "corpus.csv"
    main(["import", str(source), "--out", str(out)])
    said = capsys.readouterr().out
    assert "'Time (s)' is minibatch_time_ms, in s (0.197308 to 2.60158)" in said
    assert "column 'EMC MHz' is mem_khz, in MHz" in said
    assert "decimal commas" in said
    import shlex

    [command] = [line for line in said.splitlines() if line.startswith("  jetwatt import ")]
    assert main(shlex.split(command)[1:]) == 0
    assert_same(read_corpus(out), rows)


def refused(source, **stated) -> str:
    with pytest.raises(InvalidValueError) as caught:
        import_table(source, **stated)
    return str(caught.value)


def test_all_wrong_units_are_named_at_once_with_what_imports_them(rows, tmp_path):
    source = Habit(mapped({}, **IN_SI)).write(rows, tmp_path)
    text = refused(source)
    for column, unit in (("cpu_khz", "MHz"), ("gpu_khz", "MHz"), ("mem_khz", "MHz"), ("minibatch_time_ms", "s"),
                         ("power_mw", "W")):  # fmt: skip
        assert f"unit={{'{column}': '{unit}'}}" in text
    units = {"cpu_khz": "MHz", "gpu_khz": "MHz", "mem_khz": "MHz", "minibatch_time_ms": "s", "power_mw": "W"}
    assert_same(import_table(source, unit=units), rows)


def test_all_that_is_missing_is_named_at_once(rows, tmp_path):
    text = refused(Habit(without(*WITHOUT_TEXTS, "cpu_cores", "minibatch_time_ms")).write(rows, tmp_path))
    for column in ("device", "workload", "batch_size"):
        assert f"values={{'{column}': " in text
    assert "no column for the time of a minibatch" in text


def test_columns_that_were_not_recognised_are_listed_where_one_is_missing(rows, tmp_path):
    source = Habit(mapped({"workload": "Netz", "gpu_khz": "Takt der Grafik"})).write(rows, tmp_path)
    assert says(refused(source), "not recognised", "'Netz', 'Takt der Grafik'")
    assert_same(
        import_table(
            source, rename={"Netz": "workload", "Takt der Grafik": "gpu_khz"}, unit={"Takt der Grafik": "kHz"}
        ),
        rows,
    )


def test_a_time_that_may_be_in_two_units_is_refused(gpu_rows, tmp_path):
    """20 to 90 are milliseconds or seconds: a wrong guess would be a thousand times off."""
    source = Habit(mapped({"minibatch_time_ms": "time"})).write(gpu_rows, tmp_path)
    text = refused(source)
    assert "unit={'time': 'ms'} or unit={'time': 's'}" in text
    with pytest.warns(UserWarning, match="column 'time' is minibatch_time_ms"):
        assert_same(import_table(source, unit={"time": "ms"}), gpu_rows)


def test_two_columns_for_one_quantity_are_refused(rows, tmp_path):
    two = Habit(lambda rows: [{**{("board power (mW)" if name == "power_mw" else name): row[name] for name in row},
                               "module power (mW)": row["power_mw"] * 0.8} for row in rows])  # fmt: skip
    source = two.write(rows, tmp_path)
    assert says(refused(source), "'board power (mW)'", "'module power (mW)'", "power_mw")
    assert_same(import_table(source, rename={"board power (mW)": "power_mw"}), rows)


def test_a_number_with_one_comma_may_be_two_numbers(gpu_rows, tmp_path):
    cells = mapped({"power_mw": "Power (W)"}, power_mw=lambda mw: f"1,{int(mw) % 1000:03}", power_limit_mw=str)
    whole = mapped({}, minibatch_time_ms=lambda ms: round(ms))
    source = Habit(lambda rows: cells(whole(rows)), separator=";").write(gpu_rows, tmp_path)
    assert 'decimal="comma" or decimal="point"' in refused(source)


def test_decimal_points_and_commas_in_one_table_are_refused(rows, tmp_path):
    cells = mapped({}, minibatch_time_ms=lambda ms: f"{ms:.4f}".replace(".", ","), power_mw=lambda mw: f"{mw:.1f}")
    assert "decimal point" in refused(Habit(cells, separator=";").write(rows, tmp_path))


def test_memory_in_megabytes_and_power_of_a_part_are_not_taken_for_columns_of_the_corpus(rows, tmp_path):
    extra = Habit(lambda rows: [{**row, "Memory (MB)": 4000, "CPU power (W)": 3.5} for row in rows])
    imported = import_table(extra.write(rows, tmp_path))
    assert_same(imported, rows)
    assert imported["Memory (MB)"].tolist() == [4000] * ROWS


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"rename": {"Tmie (s)": "minibatch_time_ms"}}, "did you mean 'Time (s)'?"),
        ({"rename": {"Time (s)": "minibatch_time"}}, "did you mean minibatch_time_ms?"),
        ({"unit": {"Time (s)": "fortnights"}}, "expected one of Hz, kHz"),
        ({"unit": {"Time (s)": "W"}}, "expected one of ns, us, ms, s"),
        ({"values": {"task": "training"}}, "the table has a column for it"),
    ],
)
def test_an_option_that_does_not_fit_the_table_is_refused(rows, tmp_path, stated, words):
    assert words in refused(HABITS["spreadsheet"].write(rows, tmp_path), **stated)


def test_a_frame_comes_in_as_a_file_does_and_each_note_is_a_warning(rows):
    frame = pd.DataFrame(mapped(SPREADSHEET, **IN_SI)(rows))
    with pytest.warns(UserWarning, match="'Power \\(W\\)' is power_mw, in W"):
        imported = import_table(frame)
    assert_same(imported, rows)


def test_nothing_is_written_if_anything_is_unclear(rows, tmp_path, capsys):
    source, out = Habit(mapped({}, **IN_SI)).write(rows, tmp_path), tmp_path / "corpus.csv"
    assert main(["import", str(source), "--out", str(out)]) == REFUSED
    assert "--unit power_mw=W" in capsys.readouterr().err
    assert not out.exists()


LOG_LINE = (
    "RAM 2000/30000MB (lfb 1x4MB) CPU [10%@2201,off] EMC_FREQ 0%@3199 GR3D_FREQ 99%@[{mhz}]"
    " VDD_GPU_SOC {mw}mW/{mw}mW VDD_CPU_CV 900mW/900mW VIN_SYS_5V0 900mW/900mW"
)


def test_a_folder_of_logs_has_the_gpu_clock_in_its_names(tmp_path):
    """A public set of logs is named by the GPU clock in Hz: tegrastats_114750000.txt."""
    clocks = load_board("orin-agx").power_mode_space().gpu_khz
    for number, khz in enumerate(clocks):
        lines = [LOG_LINE.format(mhz=khz // 1000, mw=5000 + 500 * number)] * 40
        (tmp_path / f"tegrastats_{khz * 1000}.txt").write_text("\n".join(lines) + "\n")
    stated = {"device": "orin-agx", "workload": "my-net", "batch_size": 16}
    missing = refused(tmp_path, values=stated)
    assert missing.count("needs one CSV file with") == len(clocks)
    for number, khz in enumerate(clocks):
        times = "".join(f"{place * 0.5},{500 - 20 * number}\n" for place in range(70))
        (tmp_path / f"times_{khz * 1000}.csv").write_text("start_s,minibatch_time_ms\n" + times)
    assert "say the interval" in refused(tmp_path, values=stated)
    imported = import_table(tmp_path, values=stated, interval_s=1.0)
    assert imported["gpu_khz"].tolist() == sorted(clocks, key=lambda khz: str(khz * 1000))
    assert set(imported["cpu_cores"]) == {12}
    assert "no device" in refused(tmp_path)


def test_errors_of_the_call_are_in_python_and_name_no_file_to_write(tmp_path, rows):
    (tmp_path / "tegrastats_114750000.txt").write_text("")
    ambiguous = pd.DataFrame({"clock": [1, 2], "time": [3, 4]})
    bad = pd.DataFrame([{**row, "minibatch_time_ms": -1.0} for row in rows])
    for source in (tmp_path, ambiguous, bad):
        with pytest.raises(InvalidValueError) as refused:
            import_table(source)
        assert "nothing was written" not in str(refused.value)
        assert "--" not in str(refused.value)
    with pytest.raises(InvalidValueError, match=r"values=\{'device': 'orin-agx'\}"):
        import_table(tmp_path)


def test_bad_rows_come_with_the_columns_that_mean_nothing_here(gpu_rows, tmp_path, capsys):
    """Rows that differ in such a column alone are otherwise called the same case, and nothing says why."""
    fast, slow = ({**gpu_rows[0], "power_limit_mw": limit_mw} for limit_mw in (150_000, 100_000))
    for slower, code, word in ((1.5, REFUSED, "the same case"), (1.1, 0, "repeats the case")):
        two = [fast, {**slow, "minibatch_time_ms": slower * fast["minibatch_time_ms"]}]
        source = Habit(mapped({"power_limit_mw": "TDP"})).write(two, tmp_path)
        assert main(["import", str(source), "--out", str(tmp_path / "o.csv")]) == code
        said = "".join(capsys.readouterr())
        assert word in said
        assert "not recognised: 'TDP'" in said

"""What the commands print and write is what they printed and wrote before, whatever becomes of the modules behind them.

`JETWATT_REMAKE_GOLDEN=1 pytest tests/golden` writes the files of `files/` anew; `git diff` then shows what changed. A
change that nobody wanted is a mistake; one that somebody wanted goes in with its files.

How files are compared: `golden_files.py`.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from harness.core.configuration import Configuration
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board
from harness.store.results import ResultsStore
from tests.boards.emulator import intercepted
from tests.boards.kernel import Kernel
from tests.boards.tools_in_process import tools_in_process
from tests.boards.tree import build_board
from tests.golden.golden_files import columns_of, condensed, digest_of_table, number_or_text, read_csv, sha256

MINIBATCH_COLUMNS = ("position", "epoch", "number", "phase", "start_s", "stall_ms", "compute_ms", "e2e_ms")

pytestmark = pytest.mark.one_python

BOARDS = ("nano", "orin-agx", "orin-nano", "orin-nx", "thor", "tx2", "xavier-agx", "xavier-nx")

FITTED = 1e-4
"""Tolerance of what an optimiser found: its end depends on the last bits of sums that processors take differently."""

KEPT_COLUMNS = ("case_id", "key", "minibatch_time_ms", "fetch_stall_ms", "power_mw", "energy_mwh", "epoch_time_s")


def named(rows, *names):
    return {"columns": list(names), "rows": columns_of(rows, names)}


# -- a campaign, its export, its report --------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.long
def test_outcomes_of_a_campaign_with_verdicts_asserted(campaign, golden):
    cases = ElementTree.parse(str(campaign["outcomes"])).getroot().iter("testcase")
    ended = {}
    for case in cases:
        how = next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed")
        ended.setdefault(how, []).append(f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}")
    passed = sorted(ended.pop("passed"))
    golden.check(
        "campaign-outcomes", {**{how: sorted(names) for how, names in ended.items()}, "passed": "\n".join(passed)}
    )


@pytest.fixture(scope="module")
def exported(campaign, run_each, tmp_path_factory):
    """What `export` says and where it writes, by options and format."""
    folder, command = tmp_path_factory.mktemp("exported"), ("harness", "export", "--results", campaign["results"])
    said = run_each(
        {
            "newest.csv": (*command, "--out", folder / "newest.csv"),
            "newest.parquet": (*command, "--out", folder / "newest.parquet"),
            "all.csv": (*command, "--out", folder / "all.csv", "--all-runs", "--include-flagged"),
        }
    )
    return folder, said


@pytest.mark.exhaustive
def test_export_of_a_campaign(exported, golden):
    folder, said = exported
    newest, every = (read_csv(folder / f"{name}.csv") for name in ("newest", "all"))
    found = {"table": digest_of_table(newest), "rows": named(newest, *KEPT_COLUMNS)}
    found["all"] = {"rows": len(every), "ids": sha256("\n".join(row["case_id"] for row in every))}
    found["left out"] = [re.findall(r"\d+", line) for line in said["newest.csv"].err.splitlines()]
    golden.check("export", found)


@pytest.mark.exhaustive
def test_export_as_parquet_is_the_same_table(exported):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(str(exported[0] / "newest.parquet")).to_pylist()
    rows = read_csv(exported[0] / "newest.csv")
    assert [list(row) for row in table] == [list(row) for row in rows]
    for row, other in zip(table, rows):
        assert {name: "" if value is None else str(value) for name, value in row.items()} == other


@pytest.mark.exhaustive
def test_tables_of_a_results_file(campaign, golden):
    with sqlite3.connect(str(campaign["results"])) as store:
        store.row_factory = sqlite3.Row
        tables = [row["name"] for row in store.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY 1")]
        columns = {name: [row["name"] for row in store.execute(f"PRAGMA table_info({name})")] for name in tables}
        profiles = [dict(row) for row in store.execute("SELECT * FROM profiles ORDER BY id")]
        with ResultsStore(campaign["results"], read_only=True) as opened:
            minibatches = [
                {"profile_id": number, **dict(zip(MINIBATCH_COLUMNS, (place, *row)))}
                for number in opened.numbers()
                for place, row in enumerate(opened._raw(number)[0])
            ]
        series = store.execute("SELECT channel, COUNT(*) AS n, SUM(LENGTH(times_s)) AS bytes FROM series GROUP BY 1")
        found = {
            "version": store.execute("PRAGMA user_version").fetchone()[0],
            "application": store.execute("PRAGMA application_id").fetchone()[0],
            "tables": {name: columns[name] for name in tables if not name.startswith("sqlite_")},
            "minibatches": digest_of_table(minibatches),
            "series": {row["channel"]: [row["n"], row["bytes"]] for row in series},
        }
    for part in ("case", "conditions", "aggregates", "flags", "telemetry"):
        values = [json.loads(profile[f"{part}_json"]) for profile in profiles]
        found[part] = {
            "first": condensed(values[0]),
            "last": condensed(values[-1]),
            "keys": sorted({key for value in values if isinstance(value, dict) for key in value}),
            "numbers": condensed([values_of(value) for value in values]) if part != "telemetry" else None,
        }
    store.close()
    golden.check("results-tables", found)


def values_of(value):
    """The plain values of an object, so that a table of them can be condensed."""
    plain = value if isinstance(value, dict) else {"all": json.dumps(value)}
    return {key: one for key, one in plain.items() if isinstance(one, (int, float, str, bool))}


@pytest.fixture(scope="module")
def report(campaign, run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    said = run("harness", "report", "--results", campaign["results"], "--out", folder)
    return folder, said.out


@pytest.mark.exhaustive
def test_figures_of_the_report(report, golden):
    folder, _ = report
    figures = {path.name: digest_of_table(read_csv(path)) for path in sorted(folder.glob("figures/*.csv"))}
    drawn = sorted(path.stem for path in folder.glob("figures/*.svg"))
    golden.check("report-figures", {"figures": figures, "drawn": drawn})


@pytest.mark.exhaustive
def test_take_aways_of_the_report(report, golden):
    rows = read_csv(report[0] / "takeaways.csv")
    names = ("takeaway", "device", "verdict", "effect", "low", "high", "above", "below", "case", "n", "left_out")
    golden.check("report-takeaways", {"table": digest_of_table(rows)["order"], **named(rows, *names)})


@pytest.mark.exhaustive
def test_results_beside_the_report_are_the_export(report, exported):
    beside = {row["key"]: row for row in read_csv(report[0] / "results.csv")}
    rows = read_csv(exported[0] / "newest.csv")
    assert [beside.get(row["key"]) for row in rows] == rows


@pytest.mark.exhaustive
def test_json_of_pytest_benchmark(sides, golden):
    kept = json.loads(sides["json0"].read_text())["benchmarks"]
    for one in kept:
        one["extra_info"]["conditions"] = json.loads(one["extra_info"]["conditions"])
        for part in ("stats", "options"):
            one[part] = {key: one[part][key] for key in sorted(one[part]) if key not in ("ops", "data")}
    golden.check("pytest-benchmark-json", condensed(kept))


# -- two sides ---------------------------------------------------------------------------------------------------------


def stretched(value, factor, ending="", key=""):
    """The figures under keys that end so, times a factor."""
    if isinstance(value, dict):
        return {name: stretched(one, factor, ending, name) for name, one in value.items()}
    if isinstance(value, list):
        return [stretched(one, factor, ending, key) for one in value]
    return value * factor if isinstance(value, float) and key.endswith(ending) else value


@pytest.mark.exhaustive
def test_baselines_are_recorded_and_checked(sides, bench, run_each, golden, tmp_path):
    """A check looks at what was measured after the baseline, so the same is measured once more."""
    baseline, faster = tmp_path / "baseline.json", tmp_path / "faster.json"
    results = {seed: shutil.copy(str(sides[f"results{seed}"]), str(tmp_path / f"{seed}.sqlite")) for seed in (0, 1)}
    record = ("harness", "baseline", "record", "--results", results[0], "--baseline", baseline)
    recorded = run_each({"": record})[""]
    content = json.loads(baseline.read_text())
    faster.write_text(json.dumps(stretched(content, 0.8, "_ms")))
    check = ("harness", "baseline", "check", "--results")
    before = run_each({"not measured since": (*check, results[0], "--baseline", baseline)})
    where = {"where": "benchmarks/test_training.py"}
    bench(results[0], "--device", "sim:xavier-agx", "--seed", 0, **where)
    checks = run_each(
        {
            "equal": (*check, results[0], "--baseline", baseline),
            "slower": (*check, results[0], "--baseline", faster),
            "slower, not by so much": (*check, results[0], "--baseline", faster, "--threshold", 40),
            "another seed": (*check, results[1], "--baseline", baseline),
        }
    )
    golden.check(
        "baselines",
        {
            "recorded": [line for line in golden.lines(recorded.out) if " ms (" in line],
            "file": condensed(content),
            **{
                name: {"code": said.code, "table": table_of(golden.lines(said.out))}
                for name, said in {**before, **checks}.items()
            },
        },
    )


def table_of(lines):
    """The lines of a table: from its first rule with its header to the next empty line."""
    rule = next(number for number, line in enumerate(lines) if set(line.strip()) == {"-", " "})
    end = lines.index("", rule) if "" in lines[rule:] else len(lines)
    return lines[rule - 1 : end]


@pytest.fixture(scope="module")
def compared(sides, tmp_path_factory):
    """What is compared with what: the name, both sides and further options."""
    folder = tmp_path_factory.mktemp("compared")
    kept = json.loads(sides["json0"].read_text())
    for one in kept["benchmarks"][:2]:
        one["stats"] = stretched(one["stats"], 1.15)
    slower = folder / "slower.json"
    slower.write_text(json.dumps(kept))
    return {
        "itself": (sides["results0"], sides["results0"]),
        "another-seed": (sides["results0"], sides["results1"]),
        "by-seed": (sides["results0"], sides["results1"], "--by", "seed"),
        "slower": (sides["json0"], slower),
        "faster": (slower, sides["json0"], "--threshold", "10"),
        "results-and-json": (sides["results0"], sides["json0"]),
        "fastest": (sides["results0"], sides["results0"], "--fastest"),
    }


IN_WORDS = ("by-seed", "slower", "another-seed")


@pytest.fixture(scope="module")
def said_of(compared, run_each):
    """What `compare` says, by form and name."""
    asked = {("json", name): ("harness", "compare", *how, "--json") for name, how in compared.items()}
    for name in IN_WORDS:
        asked["text", name] = ("harness", "compare", *compared[name])
        asked["markdown", name] = ("harness", "compare", *compared[name], "--markdown")
    return run_each(asked)


@pytest.mark.exhaustive
def test_comparisons(compared, said_of, golden):
    found = {}
    for name in compared:
        said = said_of["json", name]
        content = json.loads(said.out)
        for side in ("before", "after"):
            content[side] = Path(content[side]).name
        found[name] = {"code": said.code, "json": condensed(content)}
    golden.check("comparisons", found)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_comparisons_in_words(compared, said_of, golden, form):
    found = {}
    for name in IN_WORDS:
        said = said_of[form, name]
        text = said.out.replace(f"{compared[name][1].parent}/", "").replace(f"{compared[name][0].parent}/", "")
        found[name] = {"code": said.code, "lines": [line for line in golden.lines(text) if len(line) < 160]}
    golden.check(f"comparisons-{form}", found)


# -- power modes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", BOARDS)
def test_power_modes_of_a_board(board, run_each, golden):
    asked = {
        "count": ("--count",),
        "all": (),
        "sample": ("--sample", 12, "--seed", 1),
        "safe": ("--sample", 60, "--seed", 5, "--order", "safe"),
        "descending": ("--sample", 12, "--seed", 1, "--order", "descending"),
        "presets": ("--presets", "--format", "csv"),
        "maxn": ("--power-mode", "maxn", "--format", "table"),
        "paper": ("--grid", "paper", "--count"),
    }
    said = run_each({name: ("harness", "modes", "--board", board, *options) for name, options in asked.items()})
    golden.check(
        f"modes-{board}", {name: {"code": one.code, **shortened(golden.lines(one.out))} for name, one in said.items()}
    )


def shortened(lines):
    """Lines, of many the first and last and a hash."""
    if len(lines) <= 16:
        return {"lines": lines}
    return {"count": len(lines), "hash": sha256("\n".join(lines)), "first": lines[:5], "last": lines[-3:]}


def test_variants_and_named_power_modes(run_each, golden):
    asked = {
        "orin-agx 32gb": ("orin-agx", "--variant", "32gb", "--count"),
        "orin-nano super": ("orin-nano", "--variant", "super", "--presets"),
        **{letter: ("xavier-agx", "--power-mode", letter) for letter in "abcdefghijklmn"},
        "one": ("orin-agx", "--power-mode", "8c-1728-612-3199"),
        "not there": ("orin-agx", "--power-mode", "99c-1-1-1"),
        "no such board": ("orin-xxl", "--count"),
    }
    said = run_each({name: ("harness", "modes", "--board", *how) for name, how in asked.items()})
    golden.check("modes-named", {name: {"code": one.code, "out": golden.lines(one.out)} for name, one in said.items()})


CONFS = (
    *(("orin-agx", "8c-1728-612-3199"), ("orin-agx", "maxn"), ("orin-nano", "3c-1113.6-408-2133")),
    *(("orin-nx", "maxn"), ("xavier-agx", "4c-1190.4-675.75-1333"), ("xavier-nx", "maxn"), ("tx2", "maxn")),
    *(("nano", "2c-921.6-614.4-1600"), ("thor", "maxn")),
)


def test_nvpmodel_confs(run_each, golden, tmp_path):
    made, parsed = {}, {}
    for number, (board, mode) in enumerate(CONFS):
        whole, options = tmp_path / f"{number}.conf", ("--board", board, "--power-mode", mode)
        made[f"{board} {mode} alone"] = ("harness", "nvpmodel-conf", *options, "--alone", "--name", "MINE")
        made[f"{board} {mode} whole"] = ("harness", "nvpmodel-conf", *options, "--out", whole)
        parsed[f"{board} {mode} table"] = ("harness", "nvpmodel-conf", "--parse", whole)
        parsed[f"{board} {mode} json"] = ("harness", "nvpmodel-conf", "--parse", whole, "--json")
    said = {**run_each(made), **run_each(parsed)}
    found = {name: {"code": one.code, **shortened(golden.lines(one.out))} for name, one in said.items()}
    files = {path.name: sha256(path.read_text()) for path in sorted(tmp_path.glob("*.conf"))}
    golden.check("nvpmodel-confs", {"said": found, "files": files})


# -- emulated boards ---------------------------------------------------------------------------------------------------

TOOLS = ("usr/sbin/nvpmodel", "usr/bin/jetson_clocks")

TRACES = {
    "orin-agx-8c": ("orin-agx", "r36.4", "8c-1728-612-3199", "static"),
    "orin-agx-8c-dvfs": ("orin-agx", "r36.4", "8c-1728-612-3199", "dvfs"),
    "orin-agx-8c-without-tools": ("orin-agx", "r36.4", "8c-1728-612-3199", "static", *TOOLS),
    "orin-agx-8c-dvfs-without-tools": ("orin-agx", "r36.4", "8c-1728-612-3199", "dvfs", *TOOLS),
    "orin-agx-maxn": ("orin-agx", "r36.4", "maxn", "static"),
    "orin-agx-15w": ("orin-agx", "r36.4", "MODE_15W", "static"),
    "orin-agx-jetpack5-2c": ("orin-agx", "r35.4", "2c-729.6-318.75-665.6", "static"),
    "orin-nano-3c": ("orin-nano", "r36.4", "3c-1113.6-408-2133", "static"),
    "orin-nx-15w": ("orin-nx", "r36.4", "15W", "static"),
    "xavier-agx-15w": ("xavier-agx", "r35.4", "MODE_15W", "static"),
    "xavier-agx-c": ("xavier-agx", "r32.7", "c", "static"),
    "xavier-agx-f-dvfs": ("xavier-agx", "r35.4", "f", "dvfs"),
    "xavier-nx-maxn-without-clocks": ("xavier-nx", "r32.7", "maxn", "static", TOOLS[1]),
    "nano-2c": ("nano", "r32.7", "2c-921.6-614.4-1600", "static"),
    "tx2-maxn": ("tx2", "r32.7", "maxn", "static"),
    "thor-maxn": ("thor", "r38.2", "maxn", "static"),
}
"""Board, release of L4T, power mode, clocks, and which tools of NVIDIA are not there."""


@pytest.fixture
def own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("JETWATT_LOCK_DIR", str(tmp_path / "locks"))
    (tmp_path / "locks").mkdir()


def trace(root, power_mode, clocks):
    """What is written on a board by a session that applies a mode: to begin, to apply, to put back."""
    kernel = Kernel(str(root))
    kernel.forget_record()
    with intercepted(kernel), tools_in_process(str(root)):
        device = JetsonDevice(read_board(root), Configuration(), root)
        [(name, mode)] = device.power_modes(power_mode)
        with device.session():
            begun = list(kernel.writes)
            device._apply(name, mode, clocks)
            applied = list(kernel.writes)
    ended = list(kernel.writes)
    return {"session": begun, "apply": applied[len(begun) :], "restore": ended[len(applied) :]}


@pytest.mark.parametrize("name", TRACES)
def test_writes_of_apply_and_restore(own_state, golden, tmp_path, name):
    board, l4t, mode, clocks, *without = TRACES[name]
    build_board(tmp_path / "root", board, l4t)
    for tool in without:
        (tmp_path / "root" / tool).unlink()
    try:
        found = trace(tmp_path / "root", mode, clocks)
    except Exception as error:  # a mode that the board refuses is refused later too
        found = {"refused": type(error).__name__}
    written = {part: [" ".join(write) for write in writes] for part, writes in found.items() if part != "refused"}
    written = {part: [write.replace("sys/devices/system/", "") for write in writes] for part, writes in written.items()}
    golden.check(f"writes-{name}", written or found)


# -- corpora -----------------------------------------------------------------------------------------------------------


def test_simulated_corpora(corpus, run_each, golden, tmp_path):
    found = {"sample": digest_of_table(read_csv(corpus))}
    asked = {
        "paper": ("orin-agx", "resnet18-imagenet", "--grid", "paper"),
        "no-noise": ("orin-agx", "yolov8n-coco,lstm-wikitext", "--sample", 40, "--no-noise"),
        "inference": ("orin-agx", "mobilenetv3-gld23k", "--sample", 40, "--task", "inference", "--batch-size", "1,16"),
        "hdd": ("xavier-nx", "lenet-mnist", "--sample", 40, "--storage", "hdd", "--workers", 0, "--seed", 7),
        "nano": ("nano", "lenet-mnist", "--sample", 40),
        "orin-nano": ("orin-nano", "all", "--sample", 10),
        "one": ("xavier-agx", "resnet18-cifar10", "--power-mode", "f"),
    }
    said = run_each(
        {
            name: ("harness", "corpus", "simulate", "--device", board, "--workload", workloads, *options,
                   "--out", tmp_path / f"{name}.csv")
            for name, (board, workloads, *options) in asked.items()
        }
    )  # fmt: skip
    for name, one in said.items():
        rows = read_csv(tmp_path / f"{name}.csv") if one.code == 0 else []
        found[name] = {"code": one.code, **digest_of_table(rows)}
    golden.check("corpora-simulated", found)


@pytest.mark.exhaustive
def test_a_replayed_corpus(corpus, bench, run, golden, own_folder, tmp_path):
    how = ("--device", f"replay:{corpus}", "--workload", "yolov8n-coco", "--power-mode", "all")
    bench(tmp_path / "replayed.sqlite", *how, where="benchmarks/test_training.py", code=None)
    run("harness", "export", "--results", tmp_path / "replayed.sqlite", "--out", tmp_path / "replayed.csv")
    golden.check("corpus-replayed", digest_of_table(read_csv(tmp_path / "replayed.csv")))


def tegrastats_line(second, power_mw):
    return (
        f"01-31-2026 12:00:{second:02d} RAM 2046/7771MB (lfb 4x4MB) SWAP 0/3885MB (cached 0MB) "
        "CPU [25%@1420,30%@1420,off,off,off,off] EMC_FREQ 0%@1600 GR3D_FREQ 60%@1109 AUX@40.5C CPU@43C "
        f"thermal@41.95C GPU@42.5C VDD_IN {power_mw}mW/4000mW"
    )


HAND_WRITTEN = """\
device,workload,task,cpu_cores,cpu_khz,gpu_khz,mem_khz,batch_size,minibatch_time_ms,power_mw,provenance
orin-agx,resnet18-imagenet,training,12,2201600,1300500,3199000,16,61.5,34100,measured
orin-agx,resnet18-imagenet,training,8,1728000,624750,3199000,16,102.25,24000.5,measured
orin-agx,resnet18-imagenet,training,8,1728000,624750,3199000,16,-3,24000.5,measured
orin-agx,resnet18-imagenet,training,9,1728001,624750,3199000,16,99,24000.5,measured
"""


def test_imports(sides, run_each, golden, tmp_path):
    powers = [5000, 9000, 11500, *[12000 + 10 * (number % 3) for number in range(27)]]
    (tmp_path / "log").write_text("".join(f"{tegrastats_line(*one)}\n" for one in enumerate(powers)))
    times = [f"{0.5 + 0.25 * number:g},{5000 if number == 0 else 250 + number % 2}" for number in range(100)]
    (tmp_path / "times.csv").write_text("\n".join(["start_s,minibatch_time_ms", *times]) + "\n")
    (tmp_path / "corpus.csv").write_text(HAND_WRITTEN)
    whole = "".join(HAND_WRITTEN.splitlines(keepends=True)[:3])
    (tmp_path / "whole.csv").write_text(whole)
    log = ("--tegrastats", tmp_path / "log", "--minibatch-times", tmp_path / "times.csv", "--device", "xavier-nx",
           "--workload", "resnet18-imagenet", "--power-mode", "maxn", "--batch-size", 16)  # fmt: skip
    asked = {
        "log": log,
        "bad": (tmp_path / "corpus.csv",),
        "skip-bad": (tmp_path / "corpus.csv", "--skip-bad"),
        "twice": (tmp_path / "whole.csv", tmp_path / "corpus.csv", "--skip-bad"),
        "results": (sides["results0"], tmp_path / "whole.csv"),
    }
    found = {}
    said = run_each(
        {name: ("harness", "import", *how, "--out", tmp_path / f"{name}-out.csv") for name, how in asked.items()}
    )
    for name, one in said.items():
        out = tmp_path / f"{name}-out.csv"
        rows = read_csv(out) if out.is_file() else []
        filled = [{column: number_or_text(value) for column, value in row.items() if value} for row in rows]
        found[name] = {"code": one.code, "rows": filled}
    golden.check("imports", found)


# -- predictors and strategies -----------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_predictors(corpus, run_each, golden, tmp_path):
    how = ("predictors", "evaluate", "--corpus", corpus, "--target", "yolov8n-coco", "--reference", "resnet18-imagenet",
           "--repeats", 2, "--jobs", 1)  # fmt: skip
    out, spread = tmp_path / "predictors.json", tmp_path / "spread.json"
    asked = {
        out: ("--predictors", "physical-gp,ridge,linear,linear-energy,npe", "--modes", "10,30"),
        spread: ("--predictors", "ridge", "--modes", "12", "--sampling", "space-filling"),
    }
    said = run_each({path: (*how, *options, "--json", path) for path, options in asked.items()})
    assert {one.code for one in said.values()} == {0}, said
    golden.check("predictors", {path.stem: json.loads(path.read_text()) for path in asked}, FITTED)


@pytest.mark.exhaustive
def test_fitted_predictors(corpus, run_each, golden, tmp_path):
    names = ("physical-gp", "ridge", "linear")
    how = ("--corpus", corpus, "--target", "yolov8n-coco", "--modes", 30, "--reference", "resnet18-imagenet")
    asked = {}
    for name in names:
        model, out = tmp_path / f"{name}.model", tmp_path / f"{name}.csv"
        asked[f"fit {name}"] = ("predictors", "fit", *how, "--predictor", name, "--out", model)
        asked[name] = ("predictors", "predict", "--model", model, "--board", "orin-agx", "--power-mode", "sample:200",
                       "--out", out)  # fmt: skip
    assert {said.code for said in run_each(asked).values()} == {0}
    golden.check(
        "predictors-fitted", {name: digest_of_table(read_csv(tmp_path / f"{name}.csv")) for name in names}, FITTED
    )


@pytest.mark.exhaustive
def test_strategies(corpus, run, golden, tmp_path):
    out = tmp_path / "strategies.json"
    names = "closed-loop,front,one-shot,random,mdbs,gmd,presets,npe,maxn,brute-force"
    run("predictors", "strategies", "evaluate", "--corpus", corpus, "--target", "yolov8n-coco", "--reference",
        "resnet18-imagenet", "--strategies", names, "--budgets", "20:50:10", "--profiles", 8, "--repeats", 1,
        "--jobs", 1, "--json", out)  # fmt: skip
    golden.check("strategies", json.loads(out.read_text()), FITTED)


@pytest.mark.exhaustive
def test_recommendations(run_each, golden, tmp_path):
    asked = {"power": ("--power-budget", 30), "time": ("--goal", "power", "--time-limit", 150)}
    how = ("predictors", "recommend", "--device", "sim:orin-agx", "--workload", "mobilenetv3-gld23k", "--profiles", 6)
    said = run_each(
        {
            name: (*how, *limit, "--results", tmp_path / f"{name}.sqlite", "--json", tmp_path / f"{name}.json",
                   "--write-conf", tmp_path / f"{name}.conf")
            for name, limit in asked.items()
        }
    )  # fmt: skip
    found = {}
    for name, one in said.items():
        assert one.code == 0, one.err
        content = json.loads((tmp_path / f"{name}.json").read_text())
        found[name] = {**condensed(content), "conf": sha256((tmp_path / f"{name}.conf").read_text())}
    golden.check("recommendations", found, FITTED)


def test_advice(run, golden):
    said = run("predictors", "advise", "--epochs", 120, "--epoch-minutes", 5, "--json")
    golden.check("advice", json.loads(said.out))


# -- what can be asked for ---------------------------------------------------------------------------------------------

AXES = (
    *("--workload", "lenet-mnist,yolov8n-coco", "--workers", "0,1", "--batch-size", "8,16", "--power-mode", "1c,maxn"),
    *("--storage", "ssd,ssd@20", "--cache", "evicted", "--epochs", "3", "--device", "host"),
)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("paper", ("--campaign", "paper", "--device", "sim:orin-agx,sim:xavier-agx")),
        pytest.param(
            "paper-nx",
            ("--campaign", "paper", "--device", "sim:xavier-nx,sim:nano,sim:orin-nano"),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param("quick", ("--campaign", "quick", "--device", "host"), marks=pytest.mark.exhaustive),
        ("axes", AXES),
        pytest.param(
            "corpus",
            ("benchmarks/test_corpus_profiling.py", "--campaign", "paper", "--device", "sim:orin-agx"),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_cases(run, golden, name, arguments):
    where = () if arguments[0].startswith("benchmarks") else ("benchmarks",)
    said = run("pytest", *where, *arguments, "--collect-only", "-q", "-p", "no:cacheprovider")
    ids = [line.strip() for line in said.out.splitlines() if "::" in line]
    golden.check(
        f"cases-{name}",
        {"count": len(ids), "hash": sha256("\n".join(sorted(ids))), "first": ids[: 50 if name == "paper" else 12]},
    )


@pytest.mark.exhaustive
def test_emulated_board_as_the_doctor_sees_it(run, golden, tmp_path):
    build_board(tmp_path / "root", "orin-agx", "r36.4")
    said = run("harness", "doctor", "--root", tmp_path / "root", "--json", code=None)
    content = json.loads(said.out)
    told = {key: keys_of(value) for key, value in content.items() if key not in ("environment", "storage")}
    golden.check("doctor", {"code": said.code, "keys": sorted(content), "told": told})


def keys_of(value):
    """The shape of an object: its keys, and the names of what it lists."""
    if isinstance(value, dict):
        return {key: keys_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return [one["name"] if isinstance(one, dict) and "name" in one else keys_of(one) for one in value]
    return type(value).__name__

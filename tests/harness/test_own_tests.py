"""A test of one's own: axes by any marks, each fixture around a loop of one's own, what is refused and why."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from types import SimpleNamespace

import pytest

from harness.__main__ import main
from harness.options import deadline_from
from harness.store.results import ResultsStore
from tests import warm_pytest
from tests.messages import says


@pytest.fixture
def own(tmp_path):
    """Runs a test file of one's own in an empty folder, on a simulated board unless another device is named."""

    def run(text, *arguments, name="test_mine.py", device="sim:orin-agx"):
        (tmp_path / name).write_text(text)
        # Bytecode of a text of the same length from the same second counts as that of this one.
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        device_words = ("--device", device) if device else ()
        words = ["-p", "jetwatt", "--rootdir", ".", "--results", "r.sqlite", "-rs", name, *device_words]
        return warm_pytest.run([*words, *arguments], tmp_path, {**os.environ, "COLUMNS": "200"})

    return run


def ids(done):
    return [line.partition("::")[2] for line in done.stdout.splitlines() if line.startswith("test_mine.py::")]


WHOLE = """
import pytest
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("batch_size", [8, pytest.param(16, marks=pytest.mark.xfail(reason="is known"))])
def test_a(profile, workers):
    assert profile().case.workers == workers
"""


TABLE = "Name (time in "  # the header of pytest-benchmark's table, which is over 200 columns wide


@pytest.mark.exhaustive
def test_the_table_of_pytest_benchmark_is_printed_on_request_only_and_its_file_is_complete(own, tmp_path):
    done = own(WHOLE, "--benchmark-json", "b.json")
    assert TABLE not in done.stdout
    assert "lenet-mnist-maxn-w4-ssd-bs8" in done.stdout  # in the summary
    benchmarks = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    assert len(benchmarks) == 4
    assert all(len(benchmark["stats"]["data"]) == benchmark["stats"]["rounds"] >= 10 for benchmark in benchmarks)
    assert TABLE in own(WHOLE, "--benchmark-columns", "min,median").stdout
    slower = own(WHOLE, "--benchmark-json", "c.json", "--slowdown", "20%", "--benchmark-verbose")
    assert TABLE in slower.stdout


@pytest.mark.exhaustive
def test_the_table_of_pytest_benchmark_is_printed_for_benchmarks_that_are_not_the_suites(own):
    text = (
        WHOLE
        + """
def test_sum(benchmark):
    benchmark(sum, range(10))
"""
    )
    assert TABLE in own(text).stdout


def test_axes_come_from_stacked_marks_and_are_in_the_id(own):
    assert sorted(ids(own(WHOLE, "--collect-only", "-q"))) == [
        f"test_a[sim:orin-agx-lenet-mnist-maxn-w{workers}-ssd-bs{size}]" for workers in (0, 4) for size in (16, 8)
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--campaign", "c.toml"], {"w1"}),
        (["--campaign", "c.toml", "--workers", "2"], {"w2"}),
        (["--campaign", "general.toml"], {"w0", "w4"}),
    ],
)
def test_the_command_line_goes_before_the_experiments_table_before_marks_before_the_campaign(
    own, tmp_path, arguments, expected
):
    (tmp_path / "c.toml").write_text("[experiment.mine]\nworkers = [1]\n")
    (tmp_path / "general.toml").write_text("[axes]\nworkers = [8]\n")
    found = ids(own(WHOLE, "--collect-only", "-q", *arguments))
    assert {word for one in found for word in one.split("-") if word[0] == "w" and word[1:].isdigit()} == expected


@pytest.mark.exhaustive
def test_marks_with_other_arguments_indirect_ones_and_a_campaign_for_all(own, tmp_path):
    text = """
import pytest
@pytest.mark.parametrize(("workers", "most_ms"), [(0, 1e9), (4, 1e9)])
@pytest.mark.parametrize("cache", ["warm", "cold"], indirect=True)
@pytest.mark.parametrize("other", ["x"])
def test_a(train, workers, most_ms, cache, other):
    assert train(minibatches=10).minibatch_time_ms < most_ms
    assert cache in ("warm", "cold") and other == "x"
"""
    done = own(text, "-v")
    assert "4 passed" in done.stdout, done.stdout
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        assert sorted((one.case.workers, one.case.settings.cache) for one in store.records()) == [
            (0, "cold"), (0, "warm"), (4, "cold"), (4, "warm"),
        ]  # fmt: skip
    assert len(ids(own(text, "--collect-only", "-q", "--workers", "4"))) == 2  # of the rows, those that speak of it
    none = own(text, "--workers", "3")
    assert says(none.stdout, "neither", "campaign", "marks", "mine")


def test_an_axis_that_a_test_does_not_ask_for_is_not_in_its_id(own):
    text = "def test_a(device, power_mode):\n    assert power_mode.cpu_cores\n"
    assert ids(own(text, "--collect-only", "-q", "--power-mode", "maxn,mode_30w")) == [
        "test_a[sim:orin-agx-maxn]", "test_a[sim:orin-agx-MODE_30W]",
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_each_loop_takes_its_changes_and_gives_a_profile(own):
    text = """
import math
def test_a(train, infer, interleave, idle, telemetry, baseline):
    trained, answered = train(minibatches=12, workers=0), infer(minibatches=12)
    assert (trained.case.task, answered.case.task) == ("training", "inference")
    assert len(trained.counted) >= 12 and trained.case.workers == 0 and answered.minibatch_time_ms > 0
    assert interleave("lenet-mnist", batch_size=2, per_s=5).aggregates["inference_per_s"] > 0
    assert idle(seconds=20).aggregates["power_mean_mw"] > 0
    assert telemetry.stop().series
    assert baseline(trained) == math.inf
"""
    done = own(text)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.training
def test_parts_work_around_a_loop_of_ones_own_on_this_machine(own):
    text = """
import time
def test_a(device, power_mode, storage, page_cache, telemetry):
    assert device.name == "host" and storage.files and page_cache.residency is None or page_cache.residency > 0.9
    time.sleep(0.3)
    assert telemetry.stop().series
"""
    done = own(text, "--workload", "lenet-mnist", "--interval", "0.1", device="host")
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.exhaustive
def test_an_idle_state_has_no_data_on_a_storage(own):
    text = """
import pytest
@pytest.mark.idle_states
def test_a(storage):
    assert storage.files == () and storage.directory is None and storage.medium == {}
"""
    done = own(text, device="host")
    assert "3 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("train(minibatches=0)", "minibatches must be at least 1"),
        ("train(epoch=1)", "'epoch' cannot be changed here"),
        ("train(workload='alexnet')", "workload 'alexnet' is unknown"),
    ],
)
@pytest.mark.exhaustive
def test_a_wrong_change_fails_with_what_is_known_and_no_traceback_of_ours(own, call, words):
    done = own(f"def test_a(train):\n    {call}\n")
    assert "1 failed" in done.stdout
    assert words in done.stdout
    assert "harness/fixtures.py" not in done.stdout.split("short test summary")[0].split("FAILURES")[1]


@pytest.mark.exhaustive
def test_a_mark_that_resembles_an_axis_says_which_and_a_wrong_one_what_an_axis_takes(own):
    text = "import pytest\n@pytest.mark.parametrize('{}', [{!r}])\ndef test_a({}):\n    pass\n"
    done = own(text.format("batchsize", 8, "profile, batchsize"), "--collect-only")
    assert says(done.stdout, "parametrize", "'batchsize'", "'batch_size'")
    for argument, arguments in (("batchsize", "batchsize"), ("depth", "profile, depth")):  # not ours; not alike
        assert "is not an axis" not in own(text.format(argument, 8, arguments), "--collect-only").stdout
    done = own(text.format("workers", "many", "profile, workers"))
    assert says(done.stdout, "axis workers", "from 0 up", "'many'")


def test_tests_that_use_our_names_for_things_of_their_own_are_left_alone(own):
    text = """
import pytest
@pytest.fixture
def workload():
    return 3
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a(device, workload):
    assert device in ("cpu", "cuda") and workload == 3
"""
    done = own(text, device=None)
    assert "2 passed" in done.stdout, done.stdout


ASSERTED = """
def test_a(train, baseline):
    profile = train(minibatches=30)
    assert profile.minibatch_time_ms <= baseline(profile)
"""
CHECKED = "def test_a(train, baseline):\n    baseline.check(train(minibatches=30))\n"


@pytest.fixture
def record(tmp_path):
    """Records what a run measured as `b.json`, its times changed by a factor."""

    def write(factor=1.0):
        path = tmp_path / "b.json"
        assert main(["baseline", "record", "--results", str(tmp_path / "r.sqlite"), "--baseline", str(path)]) == 0
        content = json.loads(path.read_text())
        for run in content["cases"][0]["runs"]:
            for column in ("minibatch_times_ms", "fetch_stalls_ms"):
                run[column] = [factor * time_ms for time_ms in run[column]]
        path.write_text(json.dumps(content))

    return write


@pytest.mark.parametrize(("text", "ended"), [(ASSERTED, "1 skipped"), (CHECKED, "1 passed")])
@pytest.mark.exhaustive
def test_a_baseline_that_lacks_a_case_is_said_and_a_halved_one_fails(own, record, text, ended):
    assert "1 passed" in own(text).stdout
    record()
    done = own(text, "--baseline", "b.json").stdout
    assert "1 passed" in done
    words = r"baseline: no difference: 2; tolerance minibatch time 5\.0%, power 5\.0%, peak memory 10\.0%"
    assert re.search(words, done), done
    missing = own(text, "--baseline", "b.json", "--batch-size", "8").stdout
    assert ended in missing
    assert "not compared: sim:orin-agx-lenet-mnist-maxn-w4-ssd-bs8: not recorded" in missing
    assert "jetwatt baseline check --results " in missing
    record(0.5)
    assert "1 failed" in own(text, "--baseline", "b.json").stdout


@pytest.mark.exhaustive
def test_the_baseline_is_read_once_before_the_tests_are_collected(own, record):
    own(CHECKED)
    record(0.5)
    without_its_file = "import pathlib\npathlib.Path('b.json').unlink()\n" + CHECKED
    done = own(without_its_file, "--baseline", "b.json").stdout
    assert "worse than b.json recorded" in done
    assert "1 failed" in done


@pytest.mark.parametrize("text", [ASSERTED, CHECKED])
@pytest.mark.exhaustive
def test_without_a_baseline_nothing_is_compared_and_the_end_of_the_run_says_how_to_record_one(own, text):
    done = own(text, "--workers", "0,4").stdout
    assert "2 passed" in done
    told = [line for line in done.splitlines() if "no baseline given" in line]
    [line] = told
    assert says(line, "jetwatt baseline record --results r.sqlite --baseline FILE.json", "--baseline FILE.json")


AN_HOUR_EACH = """
import datetime

class Clock(datetime.datetime):
    hour = 7

    @classmethod
    def now(cls, tz=None):
        return super().now(tz) if tz else cls(2030, 1, 1, cls.hour)

datetime.datetime = Clock

def pytest_runtest_logfinish(nodeid, location):
    Clock.hour += 1
"""


@pytest.mark.exhaustive
def test_a_deadline_at_a_time_of_day_comes_on_that_day(own, tmp_path):
    (tmp_path / "conftest.py").write_text(AN_HOUR_EACH)
    done = own("def test_a(profile):\n    profile()\n", "--workers", "0,1,2,4", "--deadline", "08:30")
    assert "2 passed, 1 skipped" in done.stdout, done.stdout
    assert says(done.stdout, "deadline", "--resume")


def test_a_deadline_in_another_time_zone_is_a_local_time(monkeypatch):
    monkeypatch.setenv("TZ", "IST-5:30")  # India, also where no time zones are installed
    time.tzset()
    try:
        deadlines = []
        for given in ("2030-01-01T08:30+00:00", "2030-01-01T14:00", "14:00+05:30", "14:00"):
            deadlines.append(deadline_from(SimpleNamespace(getoption=lambda name, given=given: given)))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert deadlines[0] == deadlines[1]
    assert deadlines[2] == deadlines[3]


@pytest.mark.exhaustive
def test_a_run_says_that_its_results_file_has_more_profiles_than_it_listed(own):
    text = "def test_a(profile):\n    profile()\n"
    assert "results: r.sqlite\n" in own(text).stdout
    assert "results: r.sqlite (2 profiles: also of earlier runs, or of searches for power modes)" in own(text).stdout


def test_a_deadline_that_is_no_time_ends_the_run_before_it_begins(own):
    done = own("def test_a(profile):\n    profile()\n", "--deadline", "8 o'clock")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert '--deadline "8 o\'clock" is not a time' in done.stderr


@pytest.mark.parametrize("text", [ASSERTED, CHECKED])
@pytest.mark.exhaustive
def test_strict_fails_what_the_baseline_does_not_hold_with_what_differs(own, record, text):
    """A slowdown changes what stands for the version of torch, as another torch would."""
    own(text)
    record()
    assert own(text, "--baseline", "b.json", "--slowdown", "10%").returncode == 6
    strict = own(text, "--baseline", "b.json", "--slowdown", "10%", "--strict")
    assert "1 failed" in strict.stdout
    assert says(strict.stdout, "torch: unknown -> ", "10 % slower (--slowdown)")
    assert "1 passed" in own(text, "--baseline", "b.json", "--strict").stdout
    by_torch = own(text, "--baseline", "b.json", "--slowdown", "10%", "--strict", "--by", "torch")
    assert "1 failed" in by_torch.stdout
    assert "does not hold" not in by_torch.stdout
    assert "inconclusive comparison" not in by_torch.stdout
    wrong = own(text, "--baseline", "b.json", "--by", "tourch")
    assert says(wrong.stderr, "tourch", "torch", "available:")


FLAGGED = """
import dataclasses
from harness.devices.simulated import SimulatedDevice
measure = SimulatedDevice.profile
def profile(*arguments, **options):
    return dataclasses.replace(measure(*arguments, **options), flags=["disturbed: others used 2 cores"])
SimulatedDevice.profile = profile
"""


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        ((), "no difference"),
        (("--by", "torch,cuda", "--slowdown", "10%"), "slower"),
        (("-p", "flagged"), "no difference"),
    ],
)
@pytest.mark.exhaustive
def test_the_command_that_lists_the_comparisons_works_as_printed(
    own, record, tmp_path, monkeypatch, capsys, arguments, listed
):
    (tmp_path / "flagged.py").write_text(FLAGGED)
    monkeypatch.syspath_prepend(tmp_path)
    own(CHECKED)
    record()
    done = own(CHECKED, "--baseline", "b.json", "--results", "second run.sqlite", *arguments).stdout
    command = re.search(r"^to list them: jetwatt (baseline check .*)$", done, re.MULTILINE)
    assert command, done
    monkeypatch.chdir(tmp_path)
    main(shlex.split(command[1]))
    assert re.search(rf"  minibatch time  .*  {listed}$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.exhaustive
def test_strict_fails_a_run_that_compared_nothing_with_its_baseline(own, record):
    own(CHECKED)
    record()
    skipped = "import pytest\ndef test_a(baseline):\n    pytest.skip('no board')\n"
    done = own(skipped, "--baseline", "b.json", "--strict")
    assert done.returncode == 1
    assert says(done.stdout, "--strict", "no case", "b.json")
    done = own(skipped, "--baseline", "b.json")
    assert done.returncode == 6
    assert says(done.stdout, "exit code 6", "no case", "b.json")
    assert "(-rs: why cases were skipped)" in done.stdout
    other = own(CHECKED, "--baseline", "b.json", "--workload", "resnet18-cifar10")
    assert (other.returncode, "1 passed" in other.stdout) == (6, True), "the baseline has another workload"
    assert "(the reasons are above)" in other.stdout
    unused = own("def test_a():\n    pass\n", "--baseline", "b.json")
    assert says(unused.stdout, "no test", "`baseline`")
    assert own(CHECKED, "--baseline", "b.json").returncode in (0, 1)
    assert own(skipped, "--baseline", "b.json", "--strict", "--collect-only").returncode == 0


@pytest.mark.exhaustive
def test_a_slurm_job_that_was_queued_again_measures_no_case_twice_and_says_so(own, tmp_path, monkeypatch):
    text = "def test_a(profile):\n    profile()\n"
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert "1 passed" in own(text).stdout
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    done = own(text + "def test_b(profile):\n    profile()\n", "--workers", "4,0")
    assert "Slurm job 4711" in done.stdout
    with ResultsStore(tmp_path / "r.sqlite") as store:
        cases = [(record.case.id, record.conditions["slurm_restarts"]) for record in store.records()]
    assert len(cases) == len({case for case, _ in cases}) == 2
    assert [restarts for _, restarts in cases] == [0, 1]
    monkeypatch.setenv("SLURM_JOB_ID", "4712")  # another job has cases of its own
    assert "1 passed" in own(text).stdout


@pytest.mark.exhaustive
def test_strict_without_a_baseline_is_refused_before_anything_is_measured(own, tmp_path):
    refused = own(CHECKED, "--strict")
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert says(refused.stderr, "--strict", "--baseline", "--baseline FILE")
    assert not (tmp_path / "r.sqlite").exists()
    assert "1 passed" in own("def test_a(profile):\n    profile()\n", "--strict").stdout, "it compares nothing"


@pytest.mark.exhaustive
def test_more_power_fails_and_its_limit_can_be_asked_for(own, record, tmp_path):
    assert "1 passed" in own(CHECKED).stdout
    record()
    content = json.loads((tmp_path / "b.json").read_text())
    [run] = content["cases"][0]["runs"]
    recorded_mw = run["power_mw"]
    text = f"""
def test_a(train, baseline):
    profile = train(minibatches=30)
    assert {recorded_mw} * 1.04 < baseline(profile, "power_mw") < {recorded_mw} * 1.06
    assert baseline(profile) < 10
"""
    assert "1 passed" in own(text, "--baseline", "b.json").stdout
    run["power_mw"] = 0.9 * recorded_mw
    (tmp_path / "b.json").write_text(json.dumps(content))
    done = own(CHECKED, "--baseline", "b.json").stdout
    assert "1 failed" in done
    assert "worse than b.json recorded:" in done
    assert ": power: more power, " in done
    del run["power_mw"]
    (tmp_path / "b.json").write_text(json.dumps(content))
    assert "1 passed" in own(CHECKED, "--baseline", "b.json").stdout
    strict = own(CHECKED, "--baseline", "b.json", "--strict").stdout
    assert "1 failed" in strict
    assert "power: only now has a reliable one" in strict


@pytest.mark.exhaustive
def test_a_fixture_of_ones_own_called_case_is_no_case_of_the_plan(own):
    text = "import pytest\n@pytest.fixture\ndef case():\n    return 7\ndef test_a(case):\n    assert case == 7\n"
    assert ids(own(text, "--collect-only", "-q")) == ["test_a"]
    assert "1 passed" in own(text).stdout

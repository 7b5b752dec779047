"""`run`: several runs, several power modes, what they are compared with, and the table that predictors take."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import statistics
import sys
from pathlib import Path

import pytest

import jetwatt
from harness.__main__ import main
from harness.command_runs import ModeRuns, compare_command, run_command, write_command_table
from harness.core import metrics
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError, InvalidValueError, StoreError
from harness.devices.host import HostDevice
from harness.measure import flags
from harness.measure.command import KEPT_LINES, CommandFailedError
from harness.store import frames
from harness.store.results import ResultsStore
from harness.workloads.command import Command
from tests.harness.counting_rapl import POWER_W
from tests.harness.failing_command import failing_in
from tests.messages import says

PYTHON = [sys.executable, "-I", "-S", "-c"]
NAP = "import time; time.sleep({})"


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch, tmp_path):
    """What else runs on the machine of the tests decides nothing."""
    monkeypatch.setattr(flags, "DISTURBED_CORES", 1e6)
    monkeypatch.setattr(metrics, "MAX_GAP_INTERVALS", 240)  # the sampler may get no core for long
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def nap(seconds=0.3, name="nap"):
    return Command([*PYTHON, NAP.format(seconds)], name=name)


def run_on(machine, **options):
    device = HostDevice(Configuration(), machine)
    return run_command(options.pop("command", nap()), device=device, interval_s=0.1, **options)


@pytest.mark.exhaustive
def test_repeated_runs_have_medians_with_intervals(machine_with_rapl):
    lines = []
    done = run_on(machine_with_rapl, repeat=3, report=lines.append)
    [runs] = done.modes
    figures = runs.figures()
    times_s = sorted(profile.aggregates["wall_time_s"] for profile in done.profiles)
    assert len(times_s) == 3
    assert figures["wall_time_s"].value == times_s[1]
    assert figures["wall_time_s"].low < times_s[1] < figures["wall_time_s"].high
    assert figures["power_mean_mw"].value == pytest.approx(POWER_W * 1000, rel=0.05)
    assert "run 3 of 3" in lines[-1]
    assert "3 runs" in str(done)
    json.dumps(done.plain(), allow_nan=False)


@pytest.mark.exhaustive
def test_a_sweep_goes_on_where_it_ended_and_its_table_is_one_that_fit_takes(machine_with_rapl, tmp_path):
    (tmp_path / "modes.txt").write_text("1c  # the least\n\nmaxn\n")
    options = {"power_mode": "modes.txt", "results": tmp_path / "r.sqlite", "resume": True}
    first = run_on(machine_with_rapl, **{**options, "power_mode": "1c"})
    assert first.resumed == 0
    second = run_on(machine_with_rapl, **options)
    names = ["1c", "maxn"] if len(os.sched_getaffinity(0)) > 1 else ["1c"]
    assert [runs.power_mode.name for runs in second.modes] == names
    assert second.resumed == 1
    assert second.profiles[0].started_at == first.profiles[0].started_at
    assert run_on(machine_with_rapl, **options).resumed == len(second.modes)
    assert write_command_table(tmp_path / "r.sqlite", second, tmp_path / "t.csv") == len(second.modes)
    row = jetwatt.read_corpus(tmp_path / "t.csv").iloc[0]
    assert row["minibatch_time_ms"] == pytest.approx(1000 * second.profiles[0].aggregates["wall_time_s"])
    assert (row["task"], row["workload"], row["cpu_cores"]) == ("training", "nap", 1)
    assert row["power_mw"] == pytest.approx(POWER_W * 1000, rel=0.05)


SWEPT = ["12c-2201.6-1300.5-3199", "8c-1497.6-930.75-2133", "4c-1190.4-612-2133", "4c-729.6-306-2133"]


def sweep(**options):
    Path("modes.txt").write_text("\n".join(SWEPT))
    command = Command(["no-such-program"], name="mine", rehearse_as="lenet-mnist")
    modes = {"power_mode": "modes.txt", "results": "r.sqlite", "resume": True}
    return run_command(command, device="sim:orin-agx", **{**modes, **options})


def test_a_sweep_goes_on_after_a_mode_in_which_the_command_fails_and_tries_it_again_when_resumed(monkeypatch):
    lines = []
    tried = failing_in(monkeypatch, SWEPT[:2].__contains__)
    runs = sweep(report=lines.append)
    assert tried == SWEPT
    assert [each.power_mode.name for each in runs.modes] == SWEPT[2:]
    assert [(mode.name, code) for mode, code, _ in runs.failed] == [(name, 7) for name in SWEPT[:2]]
    assert [each["exit_code"] for each in runs.plain()["failed"]] == [7, 7]
    assert str(runs).count("exit code 7") == 2
    assert any(line.startswith(f"{SWEPT[0]}: no-such-program ended") for line in lines)
    assert write_command_table("r.sqlite", runs, "t.csv") == 2
    sweep(resume=False)
    tried.clear()
    resumed = sweep()
    assert resumed.resumed == 2
    assert [len(each.profiles) for each in resumed.modes] == [1, 1]  # the newest
    assert tried == SWEPT[:2]


def test_a_command_that_fails_in_every_one_of_its_first_modes_ends_the_sweep_and_its_only_one_does(monkeypatch):
    tried = failing_in(monkeypatch, SWEPT.__contains__)
    with pytest.raises(CommandFailedError):
        sweep()
    assert tried == SWEPT[:3]
    with pytest.raises(CommandFailedError):
        sweep(power_mode=SWEPT[3])


def test_the_command_line_of_a_sweep_ends_with_the_exit_code_of_the_mode_that_failed(monkeypatch, capfd):
    failing_in(monkeypatch, SWEPT[1:2].__contains__)
    Path("modes.txt").write_text("\n".join(SWEPT[:2]))
    options = ["--device", "sim:orin-agx", "--rehearse-as", "lenet-mnist", "--sweep", "modes.txt"]
    written = ["--results", "r.sqlite", "--table", "t.csv"]
    assert main(["run", *options, *written, "--", "no-such-program"]) == 7
    said = capfd.readouterr().err
    assert says(said, SWEPT[1], "no-such-program", "exit code 7")
    assert len(jetwatt.read_corpus("t.csv")) == 1


@pytest.mark.exhaustive
def test_what_others_may_use_is_asked_for_and_recorded_and_compared_with_its_like(machine_with_rapl, monkeypatch):
    disturbed = {}
    for cores in (None, 1e6):
        monkeypatch.setattr(flags, "DISTURBED_CORES", -1.0)  # what else runs is always more
        [profile] = run_on(machine_with_rapl, disturbance_cores=cores).profiles
        assert profile.case.settings.disturbance_cores == cores
        disturbed[cores] = any(flag.startswith("disturbed:") for flag in profile.flags)
    assert disturbed == {None: True, 1e6: False}


@pytest.mark.exhaustive
def test_a_slurm_job_that_was_queued_again_runs_nothing_twice_and_is_in_the_record(
    machine_with_rapl, tmp_path, monkeypatch
):
    path = tmp_path / "r.sqlite"
    resumed = []
    for job, restarts, repeat in [("12", "0", 1), ("12", "1", 2), ("13", "1", 1)]:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        done = run_on(machine_with_rapl, results=path, repeat=repeat)
        resumed.append(len({profile.started_at for profile in done.profiles}))
    with ResultsStore(path, read_only=True) as store:
        jobs = [(record.conditions["slurm_job"], record.conditions["slurm_restarts"]) for record in store.records()]
    assert jobs == [("12", 0), ("12", 1), ("13", 1)]  # of two runs the job had one
    assert resumed == [1, 2, 1]


@pytest.mark.exhaustive
def test_runs_without_minibatches_do_not_count_for_a_command_that_shows_some(machine_with_rapl, tmp_path):
    text = "import time\nfor step in range(4):\n    time.sleep(0.05)\n    print(step, flush=True)"
    plain = Command([*PYTHON, text], name="steps")
    patterned = dataclasses.replace(plain, minibatch_pattern=r"^\d+$")
    options = {"results": tmp_path / "r.sqlite", "resume": True}
    run_on(machine_with_rapl, command=plain, **options)
    shown = run_on(machine_with_rapl, command=patterned, **options)
    assert shown.resumed == 0
    assert shown.profiles[0].aggregates["minibatch_time_ms"] is not None
    assert run_on(machine_with_rapl, command=patterned, **options).resumed == 1


def test_modes_of_a_rehearsed_command_can_be_predicted_from_its_table(tmp_path):
    command = Command(["no-such-program"], name="mine", rehearse_as="lenet-mnist")
    runs = run_command(command, device="sim:orin-agx", power_mode="sample:12", results="r.sqlite")
    write_command_table("r.sqlite", runs, "t.csv")
    pytest.importorskip("sklearn")
    model = jetwatt.fit("t.csv", workload="mine")
    assert len(model.predict("orin-agx", modes="sample:5")) == 5


@pytest.mark.exhaustive
def test_a_table_has_the_profiles_of_its_own_command_only(machine_with_rapl, tmp_path):
    first = run_on(machine_with_rapl, command=nap(0.1), results="r.sqlite")
    other = run_on(machine_with_rapl, command=nap(0.4), results="r.sqlite")
    for runs in (first, other):
        assert write_command_table("r.sqlite", runs, "t.csv") == 1
        [row] = jetwatt.read_corpus("t.csv").itertuples()
        assert row.minibatch_time_ms == pytest.approx(1000 * runs.profiles[0].aggregates["wall_time_s"])


@pytest.mark.exhaustive
def test_a_sweep_whose_runs_were_all_disturbed_is_printed_and_gives_no_table_and_its_flags(
    machine_with_rapl, monkeypatch, capfd
):
    monkeypatch.setattr(flags, "DISTURBED_CORES", -1.0)
    options = ["--root", str(machine_with_rapl), "--interval", "0.1", "--sample", "1", "--results", "r.sqlite"]
    assert main(["run", *options, "--json", "--table", "t.csv", "--", *PYTHON, NAP.format(0.3)]) == 2
    printed = capfd.readouterr()
    assert "disturbed: other processes" in printed.err.splitlines()[-1]
    assert "--disturbance" in printed.err.splitlines()[-1]
    assert "wall time" in printed.err
    assert json.loads(printed.out)["modes"][0]["runs"]
    assert not Path("t.csv").exists()


@pytest.mark.exhaustive
def test_a_table_without_profiles_or_minibatches_of_the_command_is_refused(machine_with_rapl, tmp_path):
    runs = run_on(machine_with_rapl, results="r.sqlite")
    run_on(machine_with_rapl, command=nap(0.1), results="other.sqlite")
    with pytest.raises(StoreError, match=r"no undisturbed profile .*'nap'"):
        write_command_table("other.sqlite", runs, "t.csv")
    patterned = dataclasses.replace(nap(), minibatch_pattern="step")
    silent = run_on(machine_with_rapl, command=patterned, results="r.sqlite")
    with pytest.raises(StoreError, match="no minibatches"):
        write_command_table("r.sqlite", silent, "t.csv")


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 2.0, 4.0, 8.0]], ids=len)
def test_a_figure_without_noise_of_its_own_has_the_median(machine_with_rapl, values):
    [profile] = run_on(machine_with_rapl, command=nap(0.05)).profiles
    profiles = [
        dataclasses.replace(profile, aggregates={**profile.aggregates, "disk_read_bytes": value}) for value in values
    ]
    runs = ModeRuns(profile.case.power_mode, profiles, list(range(len(values))))
    assert runs.figures()["disk_read_bytes"] == (statistics.median(values), values[0], values[-1])


@pytest.mark.exhaustive
def test_a_slower_command_is_worse_than_its_baseline_and_another_one_is_not_compared(machine_with_rapl):
    def words(seconds):
        Path("work.py").write_text(NAP.format(seconds))
        return Command([sys.executable, "-I", "-S", "work.py"])

    before = run_on(machine_with_rapl, command=words(0.3), repeat=3, results="before.sqlite")
    same = shutil.copy("before.sqlite", "same.sqlite")  # the same runs: others would be as slow as this machine is busy
    slower = run_on(machine_with_rapl, command=words(1.5), repeat=3, results="slower.sqlite")
    assert before.name == "work"
    wall = [each for each in compare_command("before.sqlite", same, before).comparisons if each.figure == "wall time"]
    assert wall
    assert not any(each.is_worse for each in wall)
    run_on(machine_with_rapl, command=nap(0.1), results="before.sqlite")
    others = compare_command("before.sqlite", same, before)
    assert others.only_before == []  # the other command is not in question
    assert compare_command("before.sqlite", "slower.sqlite", slower).exit_code == 2  # another script
    assert compare_command("before.sqlite", "slower.sqlite", slower, by=["script"]).exit_code == 1


@pytest.mark.exhaustive
def test_runs_that_are_all_flagged_leave_their_baseline_its_cases(machine_with_rapl, monkeypatch):
    run_on(machine_with_rapl, results="before.sqlite")
    monkeypatch.setattr(flags, "DISTURBED_CORES", -1.0)
    flagged = run_on(machine_with_rapl, results="after.sqlite")
    compared = compare_command("before.sqlite", "after.sqlite", flagged)
    assert [len(side.cases) for side in (compared.before, compared.after)] == [1, 0]
    assert compared.after.flagged == 1
    assert compare_command("before.sqlite", "after.sqlite", flagged, include_flagged=True).comparisons


def test_a_command_is_run_in_the_modes_of_a_machine_that_measures_power(machine_with_rapl, tmp_path):
    pytest.importorskip("sklearn")
    search = jetwatt.Search(profiles=1, root=machine_with_rapl, results=tmp_path / "r.sqlite")
    answer = jetwatt.recommend("host", workload=jetwatt.Job(nap(0.2)), power_w=POWER_W + 1, search=search)
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        [row] = frames.profiles(store).itertuples()
    assert row.workload == "nap"
    assert row.wall_time_s >= 0.2
    assert answer.recommendations[0][0].mode.power_mw.value == pytest.approx(POWER_W * 1000, rel=0.05)


FAILS = "import os, sys; [print(number, file=sys.stderr) for number in range(30)]; {}"


@pytest.mark.parametrize(
    ("ending", "exit_code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 128 + 9)], ids=["exit", "killed"]
)
def test_the_error_of_a_command_that_fails_everywhere_has_the_last_lines_of_its_output(
    machine_with_rapl, ending, exit_code
):
    pytest.importorskip("sklearn")
    command = Command([*PYTHON, FAILS.format(ending)], name="mine")
    search = jetwatt.Search(profiles=1, root=machine_with_rapl)
    with pytest.raises(CannotRunError) as ended:
        jetwatt.recommend("host", workload=command, power_w=99, search=search)
    assert f"exit code {exit_code}" in ended.value.what
    assert ended.value.hint.split("\n    ")[1:] == [str(number) for number in range(30 - KEPT_LINES, 30)]


@pytest.mark.exhaustive
def test_the_command_line_hands_on_exit_codes_and_keeps_good_runs_only(machine_with_rapl, tmp_path, capfd):
    options = ["run", "--root", str(machine_with_rapl), "--interval", "0.1", "--results", "r.sqlite", "--json", "--"]
    assert main([*options, *PYTHON, "print('mine'); import sys; sys.exit(5)"]) == 5
    assert main([*options, *PYTHON, "print('mine')"]) == 0
    said = capfd.readouterr()
    assert said.out.startswith("mine\nmine\n{")
    assert json.loads(said.out[len("mine\nmine\n") :])["modes"][0]["runs"]
    assert "nothing is stored" in said.err
    with ResultsStore("r.sqlite", read_only=True) as store:
        assert len(store) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sample", "3"], "--results"),
        (["--table", "t.csv"], "--sweep or --sample"),
        (["--compare", "none.sqlite"], "no file"),
        (["--repeat", "0"], "1 or more"),
        (["--name", "a b"], "letters"),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_command_starts(options, words, tmp_path, capfd):
    assert main(["run", *options, "--", *PYTHON, "open('started', 'w')"]) == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / "started").exists()


def test_a_file_of_modes_without_any_is_refused(machine_with_rapl, tmp_path):
    (tmp_path / "modes.txt").write_text("# none\n")
    with pytest.raises(InvalidValueError, match="names no power mode"):
        run_on(machine_with_rapl, power_mode="modes.txt")


OWN_LOOP = """
import sys
from pathlib import Path

from harness.core import metrics
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.devices.host import HostDevice
from harness.measure.run import run

metrics.MAX_GAP_INTERVALS = 240  # on a busy machine the sampler may get no core for long
device = HostDevice(Configuration(storage={"ssd": Path.cwd()}), Path(sys.argv[1]))
settings = CaseSettings(interval_s=0.1, minibatches=60, data_scale=0.02)
case = Case("host", "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 256, settings)
profile = run(case, device, lambda line: print(line, flush=True))
times_ms = [minibatch.e2e_ms for minibatch in profile.counted]
print("own", profile.aggregates["energy_per_sample_mws"] * case.batch_size, *times_ms, flush=True)
"""


@pytest.mark.exhaustive
@pytest.mark.training
@pytest.mark.long
def test_the_suites_own_loop_as_a_command_agrees_with_its_profile(machine_with_rapl, capfd):
    pytest.importorskip("torch")
    Path("loop.py").write_text(OWN_LOOP)
    # The loop reports each minibatch when it has ended, without decimals: its lines' own times are what is measured.
    command = Command([sys.executable, "loop.py", str(machine_with_rapl)], minibatch_pattern=r"minibatch \d+ \(clean\)")
    [profile] = run_on(machine_with_rapl, command=command).profiles
    [own] = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("own ")]
    own_mws, *own_ms = map(float, own[1:])
    figures = profile.aggregates
    shown = profile.counted  # not the first one, before which there is no line
    assert 50 < len(shown) < len(own_ms) == 60
    # Of all together: on a busy machine a line may come late, and the next one sooner.
    assert sum(minibatch.e2e_ms for minibatch in shown) == pytest.approx(sum(own_ms[-len(shown) :]), rel=0.02)
    energy_mwh = metrics.energy_mwh(
        *profile.telemetry.series[metrics.POWER_CHANNEL], shown[0].start_s, metrics.end_s(shown[-1])
    )
    assert energy_mwh * 3600 / len(shown) == pytest.approx(own_mws, rel=0.02)
    assert figures["energy_mwh"] * 3600 == pytest.approx(POWER_W * 1000 * figures["wall_time_s"], rel=0.02)

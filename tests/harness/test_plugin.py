"""The plugin as a user meets it: ids, skips, usage errors, help; none of it needs torch."""

from __future__ import annotations

import re
import sys

import pytest
from boards.tree import build_board

from harness.board.cpu_clocks import CpuFrequency
from tests.messages import says

USAGE_ERROR = 4
SKIPPED = re.compile(r"^SKIPPED \[\d+\] .*?\.py:\d+: (.*)$", re.MULTILINE)
TWO_LINES = 155  # characters of a reason in two lines of a screen of 100 columns, behind the file of the test


def ids(done):
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.exhaustive
def test_an_absent_board_and_a_storage_without_a_place_are_skipped_with_reason_and_hint(run_suite):
    asked = ("--device", "orin-agx,host", "--storage", "hdd", "--workload", "lenet-mnist", "--workers", "0")
    done = run_suite(*asked, "-rs")
    assert "2 skipped" in done.stdout
    for words in ("orin-agx is not this machine", "run on the board", "--device sim:orin-agx", "--storage hdd=/mount/"):
        assert words in done.stdout
    assert max(map(len, SKIPPED.findall(done.stdout))) <= TWO_LINES


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "nonsense"], ["device 'nonsense' is unknown", "host", "orin-agx"]),
        (["--workload", "alexnet"], ["workload 'alexnet' is unknown", "lenet-mnist", "bert-squad"]),
        (["--power-mode", "turbo"], ["power mode 'turbo'", "maxn", "1c"]),
        (["--workers", "many"], ["axis workers takes whole numbers"]),
        (["--cache", "lukewarm"], ["cache state 'lukewarm' is unknown", "evicted"]),
        (["--socket-meter", "Wol=m.csv"], ["--socket-meter takes STATE=FILE.csv, got 'Wol=m.csv'"]),
        (["--socket-meter", "wol=/no/such.csv"], ["power log /no/such.csv cannot be read"]),
        (["--idle-seconds", "0"], ["idle_s must be at least 1"]),
        (["--campaign", "nonsense"], ["campaign 'nonsense' is unknown", "quick"]),
        (["--minibatches", "2", "--epochs", "2"], ["--minibatches and --epochs were both given"]),
        (["--storage", "sd=/no/such/place"], ["/no/such/place", "not a directory"]),
        (["--device", "sim:orin-agx", "--list-cases", "/tmp"], ["ERROR: cannot write /tmp"]),
        (["--storage", "ssdd"], ["storage 'ssdd' is unknown", "did you mean ssd?", "--storage ssdd=/mount/point"]),
        (["--storage", "ssdd", "--device", "sim:nano"], ["storage 'ssdd' is unknown"]),
        (["--storage", "../../x=/tmp"], ["storage '../../x'; a name has letters, digits, dots, dashes"]),
        (["--config", "/no/such/file.toml"], ["--config /no/such/file.toml does not exist"]),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_lists_what_is_known(run_suite, arguments, words):
    done = run_suite(*arguments, check=False)
    assert done.returncode == USAGE_ERROR
    for word in words:
        assert word in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("arguments", "board"),
    [(["-k", "orin"], "orin-agx"), (["-k", "Xavier and nx"], "xavier-nx"), (["-k", "nano"], "nano")],
)
@pytest.mark.exhaustive
def test_words_of_a_board_that_this_machine_is_not_name_the_next_line(run_suite, arguments, board):
    done = run_suite(*arguments, check=False)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert says(done.stdout, f"-k '{arguments[1]}'", "no case of host")
    assert f"--device sim:{board}." in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.exhaustive
def test_words_of_a_board_select_its_cases_where_it_is_simulated(run_suite):
    asked = ("-k", "orin and lenet and w0", "--device", "sim:orin-agx", "--collect-only", "-q")
    assert "matches no case" not in run_suite(*asked).stdout


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--minibatchs", "5"], "hint: did you mean --minibatches instead of --minibatchs?"),
        (["--devise=host"], "hint: did you mean --device instead of --devise?"),
        (["--nonsense"], None),
    ],
)
def test_the_option_that_was_meant_is_named(run_suite, arguments, hint):
    done = run_suite(*arguments, check=False)
    assert done.returncode == USAGE_ERROR
    assert f"unrecognized arguments: {arguments[0]}" in done.stderr
    assert hint in done.stderr if hint else "hint:" not in done.stderr


NO_TORCHVISION = """
import harness.measure.run as measured_run
from harness.core.errors import DependencyError

whole_check = measured_run.check

def check(case, device):
    if case.workload == "resnet18-cifar10-32":
        raise DependencyError("torchvision is not installed")
    return whole_check(case, device)

measured_run.check = check
"""


@pytest.mark.exhaustive
def test_a_simulated_board_skips_what_needs_a_missing_package_and_goes_on(run_suite, tmp_path, monkeypatch):
    (tmp_path / "no_torchvision.py").write_text(NO_TORCHVISION)
    monkeypatch.syspath_prepend(tmp_path)
    axes = ("--workload", "resnet18-cifar10-32,lenet-mnist", "--workers", "0", "--minibatches", "5")
    done = run_suite("--device", "sim:xavier-agx", *axes, "-p", "no_torchvision", "-rs", check=False)
    assert "1 passed, 1 skipped" in done.stdout
    assert "torchvision is not installed" in done.stdout


def test_an_experiment_that_no_file_is_for_is_a_usage_error(run_suite, tmp_path):
    campaign = tmp_path / "mine.toml"
    campaign.write_text('[[sweep]]\nworkload = ["lenet-mnist"]\n[experiment.batch_sizes]\nbatch_size = [1, 2]\n')
    done = run_suite("--campaign", str(campaign), check=False)
    assert done.returncode == USAGE_ERROR
    assert "experiment 'batch_sizes'" in done.stderr
    assert "batch_size, " in done.stderr


@pytest.mark.exhaustive
@pytest.mark.long
def test_collecting_10_000_cases_loads_no_torch(run_suite, tmp_path):
    campaign = tmp_path / "many.toml"
    campaign.write_text(f"[axes]\nworkers = {list(range(100))}\nbatch_size = {list(range(1, 101))}\n")
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text("import sys\nsys.modules['torch'] = None\n")  # any import of torch now fails
    done = run_suite("--collect-only", "-q", "--campaign", str(campaign), "-p", "sitecustomize", fresh=True)
    assert len(ids(done)) == 10_000


@pytest.mark.exhaustive
def test_what_runs_on_request_and_idle_states_need_their_file_named(run_suite):
    said = run_suite("--collect-only", "-q").stdout
    assert "test_overhead.py" not in said
    assert "test_baseload.py" not in said


@pytest.mark.parametrize("content", [None, "no baseline"])
def test_a_baseline_that_cannot_be_read_ends_the_run_before_anything_is_measured(run_suite, tmp_path, content):
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content)
    done = run_suite("--workload", "lenet-mnist", "--workers", "0", "--baseline", str(path), check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "baseline.json" in done.stderr
    assert "test_training" not in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/full")
@pytest.mark.exhaustive
def test_results_that_cannot_be_written_are_an_error_before_anything_is_measured(run_suite):
    done = run_suite("--results", "/dev/full", "--workload", "lenet-mnist", "--workers", "0,1", check=False)
    assert done.returncode != 0
    assert "1 error" in done.stdout
    assert "/dev/full" in done.stdout
    assert "ms per minibatch" not in done.stdout


@pytest.mark.exhaustive
def test_free_clocks_are_refused_where_none_can_be_set(run_suite, monkeypatch):
    if CpuFrequency("/").available().available:
        pytest.skip("this machine's CPU clocks can be set")
    done = run_suite("--clocks", "dvfs", "--workload", "lenet-mnist", "--workers", "0", "-rs")
    assert "1 skipped" in done.stdout
    assert "DVFS cannot be switched on or off here" in done.stdout


@pytest.mark.exhaustive
def test_cases_of_a_board_that_cannot_raise_clocks_come_in_an_order_in_which_they_fall(run_suite, tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4", mode="MAXN")
    modes = "2c-729.6-306-665.6,12c-729.6-408-3199,maxn,4c-1728-612-3199"
    collect = ("--collect-only", "--device-root", tree.root, "--workload", "lenet-mnist", "--batch-size", "8,16")
    done = run_suite(*collect, "-q", "--workers", "0", "--power-mode", modes)
    order = [case.split("lenet-mnist-")[1].split("-w0")[0] for case in ids(done)]
    assert order[::2] == order[1::2]  # the two batch sizes of a mode stay together
    assert order[::2] == ["maxn", "4c-1728-612-3199", "12c-729.6-408-3199", "2c-729.6-306-665.6"]


@pytest.mark.exhaustive
def test_modes_of_such_a_board_that_take_several_passes_are_said_with_what_to_do(run_suite, tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4", mode="MAXN")
    collect = ("--collect-only", "--device-root", tree.root, "--workload", "lenet-mnist", "--workers", "0")
    both = ("--power-mode", "12c-2201.6-306-3199,12c-729.6-1300.5-3199")
    done = run_suite(*collect, *both)
    assert "so they run in 2 passes" in done.stdout
    assert says(done.stdout, "reboot", "--resume")
    assert "2 passes" not in run_suite(*collect, *both, "-k", "2201").stdout


def test_what_a_socket_meter_recorded_is_of_one_power_mode(run_suite, tmp_path):
    (tmp_path / "m.csv").write_text("time_s,power_w\n0,1\n20,1\n")
    done = run_suite("--socket-meter", "wol=m.csv", "--power-mode", "1c,maxn", check=False)
    assert done.returncode == USAGE_ERROR
    assert "is for one power mode, and there are 2" in done.stderr + done.stdout

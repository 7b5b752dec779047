"""The plugin as a user meets it: ids, skips, usage errors, help; none of it needs torch."""

from __future__ import annotations

import sys

import pytest

USAGE_ERROR = 4


def ids(done):
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_ids_are_readable_and_stable(run_suite):
    done = run_suite("--collect-only", "-q", "--workload", "resnet18-cifar10", "--workers", "4")
    assert ids(done) == ["test_training[host-resnet18-cifar10-maxn-w4-ssd-bs16]"]


def test_axes_cross_and_take_comma_lists(run_suite):
    done = run_suite(
        "--collect-only", "-q", "--workload", "lenet-mnist,resnet18-cifar10", "--workers", "0,1", "--batch-size", "8,16"
    )
    assert len(ids(done)) == 8


def test_cases_are_chosen_by_k(run_suite):
    done = run_suite("--collect-only", "-q", "--workers", "0,4", "-k", "resnet18 and w4")
    assert ids(done) == ["test_training[host-resnet18-cifar10-maxn-w4-ssd-bs16]"]


def test_a_board_that_is_not_here_is_skipped_with_the_reason_and_the_way_out(run_suite):
    done = run_suite("--device", "orin-agx", "--workload", "lenet-mnist", "--workers", "0", "-rs")
    assert "1 skipped" in done.stdout
    assert "orin-agx is not this machine" in done.stdout
    assert "run on the board" in done.stdout


def test_a_storage_without_a_place_is_skipped_with_the_way_out(run_suite):
    done = run_suite("--storage", "hdd", "--workload", "lenet-mnist", "--workers", "0", "-rs")
    assert "1 skipped" in done.stdout
    assert "--storage hdd=/mount/point" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "nonsense"], ["device 'nonsense' is unknown", "host", "orin-agx"]),
        (["--workload", "alexnet"], ["workload 'alexnet' is unknown", "lenet-mnist", "bert-squad"]),
        (["--power-mode", "turbo"], ["power mode 'turbo'", "maxn", "1c"]),
        (["--power-mode", "9999c"], ["cpu_cores=9999", "allowed: 1"]),
        (["--workers", "many"], ["axis workers takes whole numbers"]),
        (["--batch-size", "0"], ["axis batch_size takes whole numbers from 1 up"]),
        (["--cache", "lukewarm"], ["cache state 'lukewarm' is unknown", "evicted"]),
        (["--campaign", "nonsense"], ["campaign 'nonsense' is unknown", "quick"]),
        (["--minibatches", "2", "--epochs", "2"], ["--minibatches and --epochs were both given"]),
        (["--storage", "sd=/no/such/place"], ["/no/such/place", "not a directory"]),
        (["--config", "/no/such/file.toml"], ["--config /no/such/file.toml is not there"]),
        (["--data-root", "/no/such/place"], ["data root is '/no/such/place'"]),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_lists_what_is_known(run_suite, arguments, words):
    done = run_suite(*arguments, check=False)
    assert done.returncode == USAGE_ERROR
    for word in words:
        assert word in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_help_has_the_options_in_their_own_group(run_suite):
    text = run_suite("--help").stdout
    group = text[text.index("measuring DNN training (jetwatt)") :]
    options = "campaign device workload power-mode workers storage batch-size cache minibatches epochs results resume"
    for option in options.split():
        assert f"--{option}" in group


def test_collecting_100_000_cases_loads_no_torch(run_suite, tmp_path):
    campaign = tmp_path / "many.toml"
    campaign.write_text(f"[axes]\nworkers = {list(range(100))}\nbatch_size = {list(range(1, 1001))}\n")
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text("import sys\nsys.modules['torch'] = None\n")  # any import of torch now fails
    done = run_suite("--collect-only", "-q", "--campaign", str(campaign), "-p", "sitecustomize")
    assert len(ids(done)) == 100_000


def test_what_runs_on_request_needs_its_file_named(run_suite):
    assert "overhead" not in run_suite("--collect-only", "-q").stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/full")
def test_results_that_cannot_be_written_are_an_error_before_anything_is_measured(run_suite):
    done = run_suite("--results", "/dev/full", "--workload", "lenet-mnist", "--workers", "0,1", check=False)
    assert done.returncode != 0
    assert "1 error" in done.stdout
    assert "/dev/full" in done.stdout
    assert "ms per minibatch" not in done.stdout

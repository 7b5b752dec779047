"""What a board is asked by the lab host: whether it is fit to measure, runs that end with their connection, healing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.board.lock import locked
from harness.core.errors import ControlError, StoreError
from harness.fleet import on_board
from harness.fleet.on_board import CASE_BEGINS, UNFIT, id_on_board, main
from harness.measure import rehearsal
from harness.store.results import ResultsStore
from tests import warm_pytest
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

PROJECT = Path(__file__).resolve().parents[2]
CASE = "benchmarks/test_training.py::test_training[sim:orin-agx-lenet-mnist-{}-w4-ssd-bs16]"


@pytest.fixture
def board(tmp_path, monkeypatch):
    """The root of a board with L4T 36.4.3, with locks and saved states of its own."""
    monkeypatch.setenv("JETWATT_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    files = {
        "proc/sys/kernel/random/boot_id": "c0ffee\n",
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1\n",
        "sys/class/thermal/cooling_device0/type": "cpufreq-cpu0\n",
        "sys/class/thermal/cooling_device0/cur_state": "0\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "50000\n",
        "sys/class/thermal/thermal_zone0/trip_point_0_type": "critical\n",
        "sys/class/thermal/thermal_zone0/trip_point_0_temp": "104500\n",
    }
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "root"


def leave_state(board):
    path = board.parent / "state/jetwatt/orin-agx.json"
    path.parent.mkdir(parents=True)
    state = {"format": 2, "device": "orin-agx", "root": "/", "pid": 1, "saved_at": "2026-01-01T00:00:00", "knobs": []}
    path.write_text(json.dumps(state))
    return path


def check(board, *words):
    asked = ["--root", str(board), "--work", str(board.parent / "work"), "--device", "orin-agx", "--jetpack", "6"]
    return main(["check", *asked, *words])


@pytest.mark.parametrize(
    ("words", "file", "text", "why"),
    [
        (["--version", "0.0.1"], "", "", "has jetwatt .*, the lab host 0.0.1: install the same"),
        (["--jetpack", "6.1"], "", "", r"has JetPack 6.2 \(L4T 36.4.3\), lab.toml says 6.1"),
        (["--free-mb", "1e15"], "", "", "disk full: .* MB free"),
        ([], "sys/class/thermal/cooling_device0/cur_state", "3\n", "throttled: throttle_cpufreq_cpu0_state is 3"),
        (
            [],
            "sys/class/thermal/thermal_zone0/temp",
            "103000\n",
            "hot: temperature_cpu_thermal_c is 103, the limit is 10",
        ),
    ],
)
def test_a_board_that_is_not_fit_says_why(board, capsys, words, file, text, why):
    if file:
        (board / file).write_text(text)
    assert check(board, *words) == UNFIT
    said = capsys.readouterr().out
    assert re.search(why, said), said


@pytest.mark.parametrize("device", ["fleet", "orin-agx"])
@pytest.mark.exhaustive
def test_a_board_on_which_somebody_measures_is_in_use(board, capsys, device):
    words = ["check", "--root", str(board), "--work", str(board.parent), "--device", "orin-agx", "--jetpack", "6"]
    with locked(device):
        # another process, as the lock of one's own is no hindrance
        done = warm_pytest.run(words, board.parent, os.environ, main)
    assert done.returncode == UNFIT
    assert says(done.stdout, device, f"process {os.getpid()}")


@pytest.mark.parametrize(("action", "attempts", "code"), [("check", 30, 0), ("check", 99, UNFIT), ("run", 2, UNFIT)])
def test_a_check_waits_for_another_check_but_not_for_a_run(board, monkeypatch, action, attempts, code):
    holders = [f"fleet is in use by process 7: python -m harness.fleet.on_board {action} --work out"] * attempts

    @contextlib.contextmanager
    def used(device):
        if holders:
            raise ControlError(holders.pop(), "wait")
        yield

    monkeypatch.setattr(on_board, "locked", used)
    monkeypatch.setattr(on_board.time, "sleep", lambda seconds: None)
    assert check(board) == code


def test_what_a_killed_run_left_changed_is_healed(board, capsys):
    saved = leave_state(board)
    assert check(board) == UNFIT
    assert "orin-agx: left changed by a killed run" in capsys.readouterr().out
    assert main(["heal", "--work", str(board.parent / "work")]) == 0
    assert not saved.exists()
    assert check(board) == 0
    assert capsys.readouterr().out.endswith("fit, boot c0ffee\n")


def test_files_of_old_runs_are_removed_unless_they_are_still_to_be_fetched(board):
    works = board.parent / "work"
    for name in ("night-1", "night-2", "night-3"):
        (works / name).mkdir(parents=True)
    for name in ("night-1", "night-2"):
        os.utime(works / name, (0, 0))  # a board without a clock of its own boots into 1970
    assert main(["heal", "--work", str(works), "--keep", "night-1", "night-7"]) == 0
    assert sorted(path.name for path in works.iterdir()) == ["night-1", "night-3"]


def start(work, *modes):
    work.mkdir(parents=True)
    (work / "cases.txt").write_text("".join(f"{CASE.format(mode)}\tkey\n" for mode in modes))
    command = [sys.executable, "-m", "harness.fleet.on_board", "run", "--work", str(work), "--device", "sim:orin-agx@2"]
    command += ["--pytest", "--workload", "lenet-mnist", "--power-mode", "MODE_30W,MODE_15W"]
    return subprocess.Popen(
        command, cwd=str(PROJECT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.exhaustive
def test_a_slice_runs_the_cases_of_the_pool_as_those_of_this_board(board):
    work = board.parent / "work/night-1"
    process = start(work, "MODE_30W", "MODE_15W")
    said = process.stdout.read().decode()
    assert process.wait() == 0, said
    begun = [line.partition(CASE_BEGINS)[2] for line in said.splitlines() if line.startswith(CASE_BEGINS)]
    assert begun == [CASE.format(mode) for mode in ("MODE_30W", "MODE_15W")]  # by their names in the pool
    with ResultsStore(work / "results.sqlite", read_only=True) as store:
        assert [(one.case.device, one.case.power_mode.name) for one in store.records()] == [
            ("sim:orin-agx@2", "MODE_30W"),
            ("sim:orin-agx@2", "MODE_15W"),
        ]
    assert (work / "junit.xml").exists()
    assert not (work.parent / "running.pid").exists()


@pytest.mark.parametrize("name", ["a[{}-lenet]", "a[reads-{}-lenet]", "a[{}]"])
def test_a_test_of_the_pool_is_one_of_this_board_wherever_its_name_has_the_device(name):
    of_pool, of_board = name.format("sim:orin-agx"), name.format("sim:orin-agx@2")
    assert id_on_board("sim:orin-agx@2", of_pool) == of_board
    assert id_on_board("sim:orin-agx", of_board) == id_on_board("sim:orin-agx", of_pool) == of_pool


@pytest.mark.parametrize("how", ["connection", "heal"])
def test_a_run_ends_with_its_connection_or_where_the_next_check_finds_it(board, how):
    work = board.parent / "work/night-1"
    process = start(work, "MODE_30W")
    while b"on_board" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
        assert process.poll() is None  # the kernel is about to start it
    process.send_signal(signal.SIGSTOP)  # it would be done before it could be ended
    if how == "connection":
        process.stdin.close()
    else:
        (work.parent / "running.pid").write_text(str(process.pid))
        assert main(["heal", "--work", str(work.parent)]) == 0
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) != 0


@pytest.mark.exhaustive
def test_a_case_that_the_board_does_not_have_ends_the_run(board):
    process = start(board.parent / "work/night-1", "MODE_30W", "nonsense")
    assert says(process.stdout.read().decode(), "--cases", "1 unknown", "benchmarks/test_training.py")
    assert process.wait(60) == 4


def test_the_results_of_a_killed_run_are_complete(board, capfdbinary):
    work = board.parent / "work/night-1"
    assert main(["complete", "--work", str(work)]) == 0
    assert capfdbinary.readouterr().out == b""
    work.mkdir(parents=True)
    pid = os.fork()
    if not pid:  # a run that is killed with its results still in SQLite's log
        store = ResultsStore(work / "results.sqlite")  # by name, so that nothing closes it
        store.add(make_profile(), ENVIRONMENT, "run a")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (work / "results.sqlite-wal").stat().st_size > 0
    assert main(["complete", "--work", str(work)]) == 0
    fetched = board.parent / "fetched.sqlite"
    fetched.write_bytes(capfdbinary.readouterr().out)
    with ResultsStore(fetched, read_only=True) as store:
        assert [record.run_id for record in store.records()] == ["run a"]


def test_a_board_is_fit_only_if_it_can_train_the_workloads(board, capsys, monkeypatch):
    asked = []

    def why_not_trained(name, gpu_uuid):
        asked.append(name)
        return "no module named torchvision" if name == "yolov8n-coco" else None

    monkeypatch.setattr(rehearsal, "why_not_trained", why_not_trained)
    monkeypatch.chdir(board)
    words = ["--root", str(board), "--work", str(board.parent / "work"), "--jetpack", "6", "--workloads"]
    workloads = ["lenet-mnist", "my_module:NET", "yolov8n-coco"]
    assert main(["check", "--device", "host", *words, *workloads]) == UNFIT
    assert says(capsys.readouterr().out, "yolov8n-coco", "torchvision")
    assert asked == ["lenet-mnist", "yolov8n-coco"]  # one's own is not the board's fault
    assert main(["check", "--device", "sim:orin-agx", *words, *workloads]) == 0
    assert main(["check", "--device", "host", *words, "lenet-mnist"]) == 0


def test_a_run_of_another_commit_than_the_submission_is_refused(board, capsys, monkeypatch):
    monkeypatch.setattr(on_board, "suite_commit", lambda: "c0ffee+")
    ran = []
    monkeypatch.setattr(on_board, "run", lambda *words: ran.append(words) or 0)
    assert main(["run", "--commit", "bad", "--pytest"]) == on_board.OTHER_COMMIT
    said = capsys.readouterr().out
    assert says(said, "other commit", "c0ffee", "bad")
    assert not ran
    for commit in ("c0ffee", ""):
        assert main(["run", "--commit", commit, "--pytest"]) == 0
    monkeypatch.setattr(on_board, "suite_commit", lambda: None)  # installed without a checkout
    assert main(["run", "--commit", "bad", "--pytest"]) == 0
    assert len(ran) == 3


def test_results_that_cannot_be_made_one_file_are_not_sent(board, capfdbinary):
    work = board.parent / "work/night-1"
    work.mkdir(parents=True)
    with ResultsStore(work / "results.sqlite") as store:  # as on a full disk, SQLite's log stays
        store.add(make_profile(), ENVIRONMENT, "run a")
        assert main(["complete", "--work", str(work)]) == 1
        assert capfdbinary.readouterr().out == b""
    assert main(["complete", "--work", str(work)]) == 0
    whole = capfdbinary.readouterr().out
    (work / "results.sqlite").write_bytes(whole[:5000])
    with pytest.raises(StoreError, match="is damaged"):
        main(["complete", "--work", str(work)])
    assert capfdbinary.readouterr().out == b""

"""What the lab host runs for a slice and a board's health; Slurm, ssh and the board are some lines of shell."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time

import pytest

from harness.fleet.lab import SCRIPTS
from tests.messages import says

DONE, REQUEUE, HOLD = 0, 75, 76


@pytest.fixture
def fleet(tmp_path):
    """A fleet's folder with the real scripts; `answers/WORD` is how on_board ends a WORD, `asked` what it was asked."""
    for name in ("bin", "boards", "run", "log", "answers", "submissions/night/slices/1"):
        (tmp_path / name).mkdir(parents=True)
    for script in SCRIPTS.iterdir():
        (tmp_path / "bin" / script.name).write_text(script.read_text())
    fakes = {
        "on_board": f'cd {tmp_path}; echo "$*" >> asked\nshift; [ "$1" != suite ] || shift; word=$1\n'
        '[ "$word" != cat ] || echo "content of $2"\n[ ! -e "answers/$word.says" ] || cat "answers/$word.says"\n'
        'exit "$(cat "answers/$word" 2> /dev/null || echo 0)"\n',
        "scontrol": f'echo "$*" >> {tmp_path}/slurm\n[ "$1" != show ] || cat {tmp_path}/node\n',
        "python": f'echo "$*" >> {tmp_path}/decisions\ncd {tmp_path}/answers\ncase $3 in\n'
        f"plan) for part in part.*; do [ ! -e $part ] || cp $part {tmp_path}/submissions/night/slices/1; done ;;\n"
        'failed) [ -e failed ] && cat failed || printf "queued\\tagain" ;;\n'
        "fault | able | unable) [ ! -e $3 ] || cat $3 ;;\nesac\n",
        "power": f'echo "$*" >> {tmp_path}/power\n',
    }
    for name, text in fakes.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}")
    for path in (tmp_path / "bin").iterdir():
        path.chmod(0o755)
    (tmp_path / "fleet.env").write_text(
        f"SCONTROL={tmp_path}/bin/scontrol\nLIMIT_S=100\nMOST_BOOTS=3\nLAB=lab.toml\nSUITE={tmp_path}\n"
        f"PYTHON={tmp_path}/bin/python\n"
    )
    (tmp_path / "boards/orin1").write_text(
        "NAME=orin1\nDEVICE=orin-agx\nFOLDER=/home\nPYTHON=python\nWORK=work\nROOT=/\nJETPACK=6\nFREE_MB=1\nVERSION=1\n"
        f"CLOCKS_ONLY_FALL=no\nMODES='maxn mode_15w'\nPOWER={tmp_path}/bin/power\n"
    )
    night = tmp_path / "submissions/night"
    (night / "submission.json").write_text("{}")
    (night / "cases.txt").write_text("one\tkey 1\ntwo\tkey 2\nthree\tkey 3\n")
    (night / "slices.tsv").write_text("1\t2\t2\n")
    (night / "arguments").write_text("-k\na b\n")
    return tmp_path


def call(fleet, script, *words):
    variables = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "orin1"}
    command = [str(fleet / "bin" / script), *words]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.stderr == "", done.stderr
    return done.returncode


def text(path):
    return path.read_text() if path.exists() else ""


def answer(fleet, word, code, says=""):
    (fleet / "answers" / word).write_text(str(code))
    (fleet / "answers" / f"{word}.says").write_text(says)


def test_a_slice_sends_its_cases_runs_them_and_brings_the_files_back(fleet):
    assert call(fleet, "slice", "night") == DONE
    here = fleet / "submissions/night/slices/1"
    assert text(here / "cases.txt") == "two\tkey 2\nthree\tkey 3\n"
    [results] = here.glob("results-*-orin1.sqlite")
    assert text(results) == "content of work/night-1/results.sqlite\n"
    assert len([*here.glob("junit-*-orin1-1.xml")]) == 1
    assert text(here / "ended").startswith("done\torin1\t")
    assert "orin1 suite run --work work/night-1 --device orin-agx --root / --commit  --pytest -k a b\n" in text(
        fleet / "asked"
    )
    assert text(fleet / "asked").endswith("orin1 rm -rf work/night-1\n")
    (fleet / "asked").unlink()
    assert call(fleet, "slice", "night") == DONE  # the engine gave it twice
    assert text(fleet / "asked") == ""


@pytest.mark.parametrize(
    ("code", "is_drained", "why", "case"),
    [
        (1, False, "pytest ended with 1", ""),
        (124, False, "took more than 100 s", "two"),
        (255, True, "orin1 was lost", "two"),
    ],
)
def test_a_slice_that_fails_is_queued_again_with_the_reason_and_the_case(fleet, code, is_drained, why, case):
    answer(fleet, "complete", 0, "profiles")
    answer(fleet, "run", code, "jetwatt-case: one\n.\njetwatt-case: two\n")
    assert call(fleet, "slice", "night") == DONE
    [attempt] = text(fleet / "submissions/night/slices/1/attempts").splitlines()
    assert attempt.split("\t")[1:] == ["orin1", why, case]
    assert text(fleet / "run/orin1.failures") == f"night\t1\t{why}\n"
    assert "failed --lab lab.toml --submission night --slice 1 --board orin1" in text(fleet / "decisions")
    assert ("State=DRAIN Reason=jetwatt: lost" in text(fleet / "slurm")) == is_drained
    assert not (fleet / "submissions/night/slices/1/ended").exists()
    is_cut_off = code > 100  # its results are fetched later, once they are complete
    assert (text(fleet / "run/orin1.left") == "night 1\n") == is_cut_off
    assert ("orin1 suite complete --work work/night-1" in text(fleet / "asked")) != is_cut_off
    assert "orin1 cat work/night-1/results.sqlite" not in text(fleet / "asked")  # it may not be closed


def test_a_slice_is_held_if_that_is_decided_or_if_it_failed_three_times(fleet):
    answer(fleet, "run", 1)
    (fleet / "answers/failed").write_text("held\tfailed 3 times, the last time: it rained\n")
    assert call(fleet, "slice", "night") == HOLD
    ended = fleet / "submissions/night/slices/1/ended"
    assert text(ended).split("\t")[0::4] == ["held", "failed 3 times, the last time: it rained\n"]
    (fleet / "submissions/night/slices/1/attempts").write_text("a\tb\tit rained\n" * 3)
    assert call(fleet, "slice", "night") == HOLD
    assert text(fleet / "asked").count(" run ") == 1


def test_a_run_that_was_cut_off_before_its_first_case_names_none_but_an_only_one(fleet):
    answer(fleet, "run", 255)
    attempts = fleet / "submissions/night/slices/1/attempts"
    call(fleet, "slice", "night")
    assert text(attempts).splitlines()[0].split("\t")[3] == "?"
    (fleet / "answers/part.1").write_text("one\tkey 1\n")
    call(fleet, "slice", "night")
    assert text(attempts).splitlines()[1].split("\t")[3] == "one"


def test_a_later_attempt_runs_its_parts_one_after_the_other(fleet):
    answer(fleet, "run", 1)
    call(fleet, "slice", "night")
    answer(fleet, "run", 0)
    for number, name in ((1, "two"), (2, "three")):
        (fleet / f"answers/part.{number}").write_text(f"{name}\tkey\n")
    assert call(fleet, "slice", "night") == DONE
    assert text(fleet / "asked").count(" run ") == 3
    assert text(fleet / "submissions/night/slices/1/ended").startswith("done\t")
    assert not (fleet / "run/orin1.failures").exists()


def test_attempts_before_a_case_was_left_out_count_no_more(fleet):
    here = fleet / "submissions/night/slices/1"
    (here / "attempts").write_text("a\tb\tlost\ttwo\n" * 3)
    (here / "left_out").write_text("two\tleft out, because of rain\t3\n")
    assert call(fleet, "slice", "night") == DONE  # nothing is left to measure
    assert text(here / "ended").endswith("\ttwo was left out, because of rain\n")


def test_what_a_lost_run_measured_is_fetched_once_its_board_is_back(fleet):
    (fleet / "run/orin1.left").write_text("night 1\ngone 2\n")
    (fleet / "node").write_text(OUT.format("jetwatt: lost while it ran slice 1 of night"))
    answer(fleet, "check", 0, "fit, boot a")
    answer(fleet, "complete", 255)
    call(fleet, "health", "now")
    assert text(fleet / "run/orin1.left") == "night 1\n"  # of a submission that is removed there is nothing to keep
    answer(fleet, "complete", 0, "profiles")
    call(fleet, "health", "now")
    [results] = (fleet / "submissions/night/slices/1").glob("results-*-orin1.sqlite")
    assert text(results) == "profiles"
    assert text(fleet / "run/orin1.left") == ""
    assert text(fleet / "asked").count("rm -rf work/night-1") == 1


UNABLE = "cannot train yolov8n-coco: no module named torchvision"


@pytest.fixture
def with_workloads(fleet):
    """The fleet with a slice of two workloads, of which the board cannot train one."""
    (fleet / "submissions/night/case_workloads").write_text("resnet18-imagenet\nlenet-mnist\nyolov8n-coco\n")
    board = fleet / "bin/on_board"
    lines = board.read_text().splitlines()
    fails = f'case "$*" in *--workloads*yolov8n-coco*) [ -e {fleet}/fixed ] || {{ echo "{UNABLE}"; exit 3; }} ;; esac'
    board.write_text("\n".join([*lines[:2], fails, *lines[2:]]) + "\n")
    return fleet


def test_a_workload_that_another_board_can_train_keeps_a_board_out_until_it_can(with_workloads):
    fleet = with_workloads
    (fleet / "answers/unable").write_text("board\torin2 can\n")
    (fleet / "answers/able").write_text("orin2\n")
    assert call(fleet, "slice", "night") == REQUEUE
    assert "--workloads lenet-mnist yolov8n-coco\n" in text(fleet / "asked")  # those of this slice
    assert "--workload yolov8n-coco --why no module named torchvision" in text(fleet / "decisions")
    assert f"Reason=jetwatt: {UNABLE}" in text(fleet / "slurm")
    assert not (fleet / "submissions/night/slices/1/attempts").exists()
    (fleet / "node").write_text(OUT.format(f"jetwatt: {UNABLE}"))
    answer(fleet, "check", 0, "fit, boot a")
    for is_fixed in (False, True):
        (fleet / "asked").unlink()
        if is_fixed:
            (fleet / "fixed").touch()
        call(fleet, "health", "now")
        assert "--workloads yolov8n-coco\n" in text(fleet / "asked")
        assert ("State=RESUME" in text(fleet / "slurm")) == is_fixed
    assert call(fleet, "slice", "night") == DONE
    (fleet / "asked").unlink()
    (fleet / "submissions/night/slices/1/ended").unlink()
    assert call(fleet, "slice", "night") == DONE
    assert "--workloads" not in text(fleet / "asked")  # the second slice does not wait for that


def test_a_workload_that_no_board_can_train_keeps_none_out(with_workloads):
    fleet = with_workloads
    (fleet / "answers/unable").write_text("queued\tagain, on another board than orin1\n")
    assert call(fleet, "slice", "night") == DONE  # of this attempt
    assert " run " not in text(fleet / "asked")
    (fleet / "answers/unable").write_text("workload\tnor can 2 other boards\n")
    assert call(fleet, "slice", "night") == DONE
    assert text(fleet / "asked").count(" run ") == 1
    assert "DRAIN" not in text(fleet / "slurm")
    assert text(fleet / "run/orin1.rehearsed") == "lenet-mnist\n"
    # one that was drained when another still could
    (fleet / "run/orin1.unable").write_text("yolov8n-coco\n")
    (fleet / "node").write_text(OUT.format(f"jetwatt: {UNABLE}"))
    answer(fleet, "check", 0, "fit, boot a")
    call(fleet, "health", "now")
    assert "State=RESUME" in text(fleet / "slurm")


def test_a_board_that_fails_slice_after_slice_stays_out_though_its_check_passes(fleet):
    (fleet / "node").write_text(OUT.format("jetwatt: failed 3 slices in succession"))
    (fleet / "run/orin1.failures").write_text("night\t1\train\n")
    answer(fleet, "check", 0, "fit, boot a")
    (fleet / "answers/fault").write_text("failed 3 slices in succession, the last: rain")
    call(fleet, "health", "now")
    assert "State=RESUME" not in text(fleet / "slurm")
    (fleet / "answers/fault").unlink()  # other boards failed them too
    call(fleet, "health", "now")
    assert "State=RESUME" in text(fleet / "slurm")


def test_a_board_that_is_not_fit_is_no_failure_of_the_slice(fleet):
    answer(fleet, "check", 3, "throttled: fan")
    assert [call(fleet, "slice", "night") for _ in range(4)] == [REQUEUE] * 4
    assert text(fleet / "slurm").count("Reason=jetwatt: throttled: fan") == 4
    assert " run " not in text(fleet / "asked")
    answer(fleet, "check", 0)
    assert call(fleet, "slice", "night") == DONE


def test_a_file_that_does_not_come_back_whole_is_not_taken(fleet):
    answer(fleet, "cat", 255)
    assert call(fleet, "slice", "night") == DONE  # of this attempt: it is queued again
    assert not (fleet / "submissions/night/slices/1/ended").exists()
    here = fleet / "submissions/night/slices/1"
    assert [*here.glob("results*"), *here.glob(".results*")] == []
    assert text(fleet / "run/orin1.left") == "night 1\n"


IDLE = "NodeName=orin1 State=IDLE CPUs=1 Partitions=a \n"
OUT = "NodeName=orin1 State=IDLE+DRAIN CPUs=1 Reason={} [root@2026-01-01T00:00:00] \n"


@pytest.mark.parametrize(
    ("node", "code", "says", "told"),
    [
        (IDLE, 0, "fit, boot a", ""),
        (IDLE, 3, "hot: 100", "State=DRAIN Reason=jetwatt: hot: 100"),
        (IDLE, 255, "", "State=DRAIN Reason=jetwatt: does not answer"),
        (OUT.format("jetwatt: hot: 100"), 0, "fit, boot a", "State=RESUME"),
        (OUT.format("Duplicate jobid"), 0, "fit, boot a", "State=RESUME"),
        (OUT.format("jetwatt: hot: 100"), 3, "hot: 101", "State=DRAIN Reason=jetwatt: hot: 101"),
        (OUT.format("fan is being changed"), 0, "fit, boot a", ""),
        ("NodeName=orin1 State=ALLOCATED CPUs=1 \n", 3, "hot: 100", ""),
        ("NodeName=orin1 State=IDLE+RESERVED CPUs=1 \n", 3, "in use by ada", ""),
    ],
)
def test_a_board_is_taken_out_with_the_reason_and_given_back_but_not_where_a_person_took_it(
    fleet, node, code, says, told
):
    (fleet / "node").write_text(node)
    answer(fleet, "check", code, says)
    call(fleet, "health", "now")
    updates = [line for line in text(fleet / "slurm").splitlines() if line.startswith("update")]
    assert len(updates) == bool(told)
    assert told in "".join(updates)
    assert ("suite heal" in text(fleet / "asked")) == (code == 3 and bool(told))


def test_a_check_outlives_its_process_group_which_slurm_kills(fleet, monkeypatch):
    (fleet / "node").write_text(IDLE)
    # a busy host: the check is late in its own session
    (fleet / "bin/setsid").write_text('#!/bin/sh\nsleep 0.3\nexec /usr/bin/setsid "$@"\n')
    (fleet / "bin/setsid").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fleet}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", "orin1")
    program = subprocess.Popen([str(fleet / "bin/health")], start_new_session=True)
    program.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    until((fleet / "run/orin1.boot").exists)


def test_a_board_is_checked_once_what_remains_of_a_slice_has_ended(fleet, monkeypatch):
    (fleet / "node").write_text(IDLE)
    board = fleet / "bin/on_board"
    board.write_text(f"""#!/bin/sh
flock -n {fleet}/run/orin1.slice true || {{ echo in use by a run; exit 3; }}
echo fit, boot a
""")
    (fleet / "bin/flock").write_text(f'#!/bin/sh\n[ "$1" != -w ] || touch {fleet}/waits\nexec /usr/bin/flock "$@"\n')
    (fleet / "bin/flock").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fleet}/bin:{os.environ['PATH']}")
    run = f"touch {fleet}/runs; for i in $(seq 3000); do [ ! -e {fleet}/waits ] || break; sleep 0.02; done"
    with subprocess.Popen(["/usr/bin/flock", str(fleet / "run/orin1.slice"), "sh", "-c", run]) as slice_left:
        until((fleet / "runs").exists)
        call(fleet, "health", "now")
        slice_left.kill()
    assert "update" not in text(fleet / "slurm")
    assert text(fleet / "run/orin1.boot") == "a\n"
    assert text(fleet / "slurm").count("show node") == 3  # it may have got a slice while this waited


def test_a_board_that_a_person_booked_is_not_touched(fleet):
    (fleet / "node").write_text("NodeName=orin1 State=IDLE+RESERVED CPUs=1 \n")
    call(fleet, "health", "now")
    assert text(fleet / "asked") == ""


@pytest.mark.parametrize(("user", "code"), [(os.getuid(), 0), (0, 0), (os.getuid() + 1, 1), ("", 1), ("0 1", 1)])
def test_the_prolog_refuses_jobs_of_other_users(fleet, user, code, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_UID", str(user))
    assert call(fleet, "prolog") == code
    assert says(text(fleet / "log/health.log"), "refused job 7", user or "unknown") == bool(code)


def test_the_daemons_refuse_a_fleet_that_others_may_enter(fleet):
    (fleet / "munge.key").touch(0o400)
    for path, mode in ((fleet, 0o711), (fleet / "munge.key", 0o440)):
        before = path.stat().st_mode
        path.chmod(mode)
        refused = subprocess.run([str(fleet / "bin/daemons")], capture_output=True, text=True, timeout=60)
        assert (refused.returncode, refused.stderr) == (1, f"daemons: others may use {path}: chmod go= {path}\n")
        path.chmod(before)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "status --lab=lab.toml"),
        (["orin1", "2"], "book --person=ada --hours=2 --board=orin1 --lab=lab.toml"),
        (["orin1", "end"], "book --person=ada --end --board=orin1 --lab=lab.toml"),
        (["--lab", "/tmp/evil.toml"], "book --person=ada --hours=/tmp/evil.toml --board=--lab --lab=lab.toml"),
        (["orin1 --person=eve", "$(id)"], "book --person=ada --hours=$(id) --board=orin1 --person=eve --lab=lab.toml"),
        (["orin1", "2", "--person=eve"], ""),
        (["orin1"], ""),
    ],
)
def test_the_door_for_people_passes_on_a_board_and_a_time_only(fleet, words, expected, monkeypatch):
    (fleet / "bin/python").write_text(f'#!/bin/bash\nprintf "<%s>" "$@" > {fleet}/asked\nenv > {fleet}/variables\n')
    (fleet / "bin/python").chmod(0o755)
    (fleet / "fleet.env").write_text(f"SUITE={fleet}\nPYTHON={fleet}/bin/python\nLAB=lab.toml\n")
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setenv("PYTHONPATH", "/tmp/evil")
    subprocess.run([str(fleet / "bin/book"), *words], capture_output=True, check=False)
    passed = text(fleet / "asked")[1:-1].split("><")
    assert " ".join(passed) == (f"-m harness fleet {expected}" if expected else "")
    if expected:
        assert len(passed) == 3 + (5 if words[1:] else 2)
        assert "evil" not in text(fleet / "variables")


def test_a_silent_board_gets_one_power_cycle(fleet):
    (fleet / "node").write_text(IDLE)
    answer(fleet, "check", 255)
    for count in range(1, 6):
        call(fleet, "health", "now")
        assert text(fleet / "power") == ("orin1 cycle\n" if count >= 3 else "")


def test_a_board_that_boots_by_itself_again_and_again_waits_for_a_person(fleet):
    (fleet / "node").write_text(IDLE)
    for boot in "abcd":
        assert "rebooted 3 times by itself" not in text(fleet / "slurm")
        answer(fleet, "check", 0, f"fit, boot {boot}")
        call(fleet, "health", "now")
    assert "Reason=jetwatt: rebooted 3 times by itself" in text(fleet / "slurm")


@pytest.mark.parametrize("is_alive", [False, True], ids=["slice-ended", "slice-lives"])
def test_a_board_is_healed_between_slices_only(fleet, is_alive):
    with open(fleet / "run/orin1.slice", "w") as lock:
        if is_alive:
            fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([str(fleet / "bin/heal"), "orin1"], check=True)
    assert ("orin1 suite heal --work work" in text(fleet / "asked")) != is_alive


def test_healing_keeps_what_was_not_fetched_yet(fleet):
    (fleet / "run/orin1.left").write_text("night 2\nnight 1\nnight 2\n")
    subprocess.run([str(fleet / "bin/heal"), "orin1"], check=True)
    assert text(fleet / "asked").endswith("--keep night-1 night-2\n")


def test_a_killed_slice_ends_its_run_on_the_board(fleet):
    board = fleet / "bin/on_board"
    board.write_text(f"""#!/bin/bash
case $3 in
    check) echo fit ;;
    run) echo $PPID >> {fleet}/runs; cat; echo the input ended >> {fleet}/runs ;;
esac
""")
    variables = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "orin1"}
    command = [str(fleet / "bin/slice"), "night"]
    slice_script = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
    until(lambda: text(fleet / "runs"))
    slice_script.kill()
    slice_script.wait()
    until(lambda: text(fleet / "runs").endswith("the input ended\n"))


def test_a_repaired_board_is_checked_again_at_once(fleet):
    (fleet / "node").write_text(IDLE)
    (fleet / "bin/on_board").write_text(
        f'#!/bin/sh\n[ "$3" != heal ] || {{ touch {fleet}/healed; echo restored fan; }}\n[ "$3" != check ] || '
        f"{{ [ -e {fleet}/healed ] && echo fit, boot a; }} || {{ echo left changed; exit 3; }}\n"
    )
    call(fleet, "health", "now")
    updates = [line.partition("State=")[2] for line in text(fleet / "slurm").splitlines() if line.startswith("update")]
    assert updates == ["DRAIN Reason=jetwatt: left changed", "RESUME"]


def test_a_controller_that_dies_again_meanwhile_has_what_it_lost_queued_once(fleet, monkeypatch):
    fakes = {
        "sleep": f'[ "$1" = 25 ] || exec /bin/sleep 0.02\necho x >> {fleet}/waits\n'
        f"until [ -e {fleet}/go ]; do /bin/sleep 0.02; done\n",
        "slurmctld": f'echo $$ >> "{fleet}/controllers"\nexec /bin/sleep 100\n',
        "another": "exec /bin/sleep 100\n",
        "python": f'echo "$*" >> {fleet}/asked\n',
    }
    for name, lines in fakes.items():
        (fleet / "bin" / name).write_text(f"#!/bin/sh\n{lines}")
        (fleet / "bin" / name).chmod(0o755)
    programs = f"MUNGED={fleet}/bin/another\nSLURMCTLD={fleet}/bin/slurmctld\nSLURMD={fleet}/bin/another\n"
    programs += f"BOARDS=orin1\nSUITE={fleet}\nPYTHON={fleet}/bin/python\nLAB=lab.toml\n"
    (fleet / "fleet.env").write_text(programs)
    (fleet / "munge.key").touch(0o600)
    monkeypatch.chdir(fleet)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as munge:
        munge.bind("run/munge.socket")
    variables = {**os.environ, "PATH": f"{fleet}/bin:{os.environ['PATH']}"}
    daemons = subprocess.Popen([str(fleet / "bin/daemons")], env=variables)
    try:
        for deaths in (0, 1, 2):
            if deaths:
                os.kill(int(text(fleet / "controllers").split()[-1]), signal.SIGKILL)
            for file in ("controllers", "waits"):
                until(lambda path=fleet / file, lines=deaths + 1: text(path).count("\n") == lines)
        (fleet / "go").touch()
        until(lambda: "retry" in text(fleet / "asked"))
        time.sleep(0.2)
        queued = [line for line in text(fleet / "asked").splitlines() if "retry" in line]
        assert queued == ["-m harness fleet retry --lost --lab lab.toml"]
    finally:
        (fleet / "go").touch()  # what waits for it would outlive a failed test
        daemons.terminate()
        assert daemons.wait(30) == 0


def until(is_so):
    for _ in range(1500):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError


def df_of(fleet, free_mb):
    """Have `df` report so many MB of free space."""
    (fleet / "bin/df").write_text(f"#!/bin/sh\necho title\necho disk 100 50 {free_mb} 50% /\n")
    (fleet / "bin/df").chmod(0o755)


def test_a_slice_does_not_begin_on_a_full_disk(fleet, monkeypatch):
    monkeypatch.setenv("PATH", f"{fleet}/bin:{os.environ['PATH']}")
    df_of(fleet, 0)
    assert call(fleet, "slice", "night") == REQUEUE
    assert " run " not in text(fleet / "asked")
    assert not (fleet / "submissions/night/slices/1/attempts").exists()
    df_of(fleet, 2)
    assert call(fleet, "slice", "night") == DONE


def test_results_stay_on_the_board_until_the_disk_has_room_for_them(fleet, monkeypatch):
    monkeypatch.setenv("PATH", f"{fleet}/bin:{os.environ['PATH']}")
    df_of(fleet, 2)
    (fleet / "bin/sleep").write_text(f"#!/bin/sh\necho slept >> {fleet}/waits\nexec /bin/sleep 0.05\n")
    (fleet / "bin/sleep").chmod(0o755)
    board = fleet / "bin/on_board"
    lines = board.read_text()
    board.write_text(
        lines.replace('[ "$word" != cat ]', f'[ "$word" != run ] || cp {fleet}/full {fleet}/bin/df; [ "$word" != cat ]')
    )
    (fleet / "full").write_text((fleet / "bin/df").read_text().replace(" 2 ", " 0 "))
    variables = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "orin1"}
    slice_script = subprocess.Popen([str(fleet / "bin/slice"), "night"], env={**os.environ, **variables})
    until(lambda: text(fleet / "waits").count("slept") > 3)
    assert "orin1 cat" not in text(fleet / "asked")
    df_of(fleet, 2)
    assert slice_script.wait(60) == DONE
    assert text(fleet / "submissions/night/slices/1/ended").startswith("done\t")
    assert "DRAIN" not in text(fleet / "slurm")


def test_a_run_of_another_commit_is_a_failure_that_says_so_and_no_fault_of_the_board(fleet):
    (fleet / "submissions/night/commit").write_text("c0ffee")
    said = "other commit: the board has bad, the slice was submitted with c0ffee"
    answer(fleet, "run", 8, f"{said}\n")
    assert call(fleet, "slice", "night") == DONE
    assert "--commit c0ffee --pytest" in text(fleet / "asked")
    [attempt] = text(fleet / "submissions/night/slices/1/attempts").splitlines()
    assert attempt.split("\t")[2:] == [said, ""]
    assert not (fleet / "run/orin1.failures").exists()
    (fleet / "submissions/night/slices/1/any_commit").touch()  # by `fleet retry`
    (fleet / "answers/part.1").write_text("two\tkey 2\n")
    call(fleet, "slice", "night")
    assert text(fleet / "asked").count("--commit c0ffee --pytest") == 1
    assert text(fleet / "asked").count("--commit  --pytest") == 1


@pytest.mark.parametrize("part", ["slices", "."], ids=["slices", "all"])
def test_a_folder_that_is_removed_during_a_run_is_made_again_or_ends_the_slice(fleet, part):
    night = fleet / "submissions/night"
    board = fleet / "bin/on_board"
    lines = board.read_text()
    board.write_text(
        lines.replace('[ "$word" != cat ]', f'[ "$word" != run ] || rm -r {night}/{part}/*; [ "$word" != cat ]')
    )
    assert call(fleet, "slice", "night") == DONE
    assert says(text(fleet / "log/health.log"), "night", "removed", "slice 1", "orin1") == (part == ".")
    assert (night / "slices/1/ended").exists() == (part == "slices")
    assert text(fleet / "asked").endswith("orin1 rm -rf work/night-1\n")

"""The faults of a lab one by one, each on its own simulated boards with real Slurm, munge and sshd: docs/fleet.md."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from harness.core.boards import load_board
from harness.core.environment import suite_commit
from harness.core.mode_texts import format_power_modes
from harness.core.power_modes import PowerMode
from harness.core.terminal import counted
from harness.fleet.submission import Submission
from harness.store.results import ResultsStore
from tests.fleet.simulated_lab import POOL, PROJECT, SETTINGS, SLICE_S, SimulatedLab, attempts, processes, why_not
from tests.messages import says

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and a disk of its own need root"),
]

SELDOM_CHECKED = SETTINGS.replace("check_seconds = 5", "check_seconds = 300").replace(
    "silent_seconds = 45", "silent_seconds = 120"
)
"""Few checks, so that boards are idle for the tests, and no board that counts as silent because the machine is busy."""


@pytest.fixture
def make_lab(request):
    labs = []

    def make(**options):
        labs.append(SimulatedLab(**{"settings": SELDOM_CHECKED, **options}))
        labs[-1].wait_until_idle()
        return labs[-1]

    yield make
    with contextlib.ExitStack() as stops:
        for lab in labs:
            stops.callback(lab.stop)


def falling_modes(count):
    space = load_board("orin-agx").power_mode_space()
    clocks = itertools.product(sorted(space.cpu_khz, reverse=True), sorted(space.cpu_cores, reverse=True))
    return [PowerMode(cores, cpu, max(space.gpu_khz), max(space.mem_khz)) for cpu, cores in clocks][:count]


def submit(lab, count, case_wait_s=0.3, per_slice=10, words=(), pytest_words=()):
    """Submit `count` power modes of falling clocks in slices of `per_slice`."""
    modes = falling_modes(count)
    table = lab.folder / f"modes{count}.csv"
    table.write_text(format_power_modes([(mode, {}) for mode in modes], ()))
    case_s = SLICE_S / per_slice
    said = lab.call(
        *("submit", "--pool", POOL, "--case-seconds", str(case_s), *words, "--", "benchmarks/test_training.py"),
        *("-p", "tests.fleet.benchmark", "--case-wait", str(case_wait_s), "--minibatches", "40", "--workers", "4"),
        *lab.gate_words,
        *("--workload", "lenet-mnist", "--power-mode", str(table), *pytest_words),
    )
    return Submission(lab.fleet / "submissions" / said.partition(":")[0])


def attempts_of_all(night):
    """All attempts, and the ends of the logs, for the message of a failed assertion."""
    numbers = range(1, len(night.slices) + 1)
    return {n: (attempts(night, n), (night.folder / "log" / f"{n}.log").read_text()[-2000:]) for n in numbers}


def wait_until_over(lab, night, at_most_s=3600.0):
    def is_over():
        status = lab.status()
        entry = next((entry for entry in status["submissions"] if entry["id"] == night.id), None) if status else None
        return entry and not any(entry["slices"][state] for state in ("running", "waiting", "gone"))

    lab.wait(f"{night.id} is over", is_over, at_most_s)


def measured(lab, night, missing=0):
    """How often each case of a submission was collected, by power mode; `missing` of them were not."""
    out = lab.folder / f"{night.id}.sqlite"
    said = lab.call("collect", "--submission", night.id, "--out", str(out), code=1 if missing else 0)
    assert f"{counted(missing, 'case')} missing" in said or not missing
    with ResultsStore(out, read_only=True) as store:
        return sorted(record.case.power_mode.name for record in store.records())


def all_of(night):
    return sorted(re.search(r"lenet-mnist-(.+)-w4-", name)[1] for name, _ in night.cases())


def runs_on(lab, board):
    """The process ids of runs on a board."""
    own = os.fsencode(f"--work\0{lab.folder / board}/work/")
    return [pid for pid, text in processes() if own in text and b"harness.fleet.on_board\0run\0" in text]


def test_a_slice_whose_script_is_killed_is_queued_again_by_itself(make_lab):
    lab = make_lab(boards=2)
    boards = ("board1", "board2")
    lab.hold(*boards)
    night = submit(lab, 20)
    board = boards[lab.wait_until_held(night, *boards).index(1)]
    script = min(  # the subshell that reads the run's output has the same command line
        pid
        for pid, text in processes()
        if os.fsencode(f"{lab.fleet}/bin/slice\0{night.id}\0") in text and b"SLURM_ARRAY_TASK_ID=1\0" in text
    )
    os.kill(script, signal.SIGKILL)
    lab.wait("its run ends with it", lambda: not runs_on(lab, board) or len(attempts(night, 1)) > 1, every_s=0.2)
    lab.release(*boards)
    wait_until_over(lab, night)
    assert [state.state for state in night.states([])] == ["done", "done"]
    assert len(attempts(night, 1)) == 2
    assert night.losses(1) == 1
    assert measured(lab, night) == all_of(night)


def test_after_a_reboot_of_the_lab_host_its_boards_measure_within_a_minute(make_lab):
    lab = make_lab(boards=2, networks=True, sshd="ClientAliveInterval 0")  # sshd's default
    boards = ("board1", "board2")
    lab.hold(*boards)
    night = submit(lab, 40)
    slices = lab.wait_until_held(night, *boards)
    left = {board: runs_on(lab, board) for board in boards}
    assert [len(pids) for pids in left.values()] == [1, 1]
    lab.reboot_host()
    time.sleep(5)
    assert {board: runs_on(lab, board) for board in boards} == left  # they do not notice

    lab.start_daemons()
    began_s, rounds = time.monotonic(), set()
    for board in boards:

        def measures_again(board=board):
            rounds.update(lab.rounds())
            return {*runs_on(lab, board)} - {*left[board]}

        lab.wait(f"{board} measures again", measures_again, every_s=0.2)
        assert not {*left[board]} & {*runs_on(lab, board)}
    # a round takes a second, and longer on a machine that others use
    assert 0 < len(rounds) <= 60
    print(
        f"{time.monotonic() - began_s:.0f} s and {len(rounds)} rounds of the daemons until both boards measured again"
    )
    lab.release(*boards)
    wait_until_over(lab, night)
    assert {state.state for state in night.states([])} == {"done"}
    assert [len(attempts(night, number)) for number in slices] == [2, 2]
    assert measured(lab, night) == all_of(night)


def change_python(lab, board, lines):
    """Have a board run some lines of shell before its Python, with the same arguments."""
    settings = (lab.fleet / "boards" / board).read_text()
    own = next(line.partition("=")[2] for line in settings.splitlines() if line.startswith("PYTHON="))
    wrapper = lab.folder / board / "python"
    wrapper.write_text(f'#!/bin/bash\n{lines}\nexec {own} "$@"\n')
    wrapper.chmod(0o755)
    toml = (lab.folder / "lab.toml").read_text()
    before = f'python = "{own}"\nwork = "{lab.folder / board}/'
    assert before in toml
    (lab.folder / "lab.toml").write_text(toml.replace(before, before.replace(own, str(wrapper))))
    lab.call("init", str(lab.folder / "lab.toml"))


def test_a_board_that_fails_every_run_costs_no_case_and_is_drained(make_lab):
    lab = make_lab()
    # its check passes; it would be the first to be idle, each time
    change_python(lab, "board2", '[[ " $* " != *" harness.fleet.on_board run "* ]] || { echo no torchvision; exit 1; }')
    night = submit(lab, 100)
    lab.wait("board2 is out", lambda: "failed 3 slices" in (lab.board("board2") or {}).get("reason", ""), every_s=2.0)
    wait_until_over(lab, night)
    assert {state.state for state in night.states([])} == {"done"}
    assert measured(lab, night) == all_of(night)
    on_board2 = [row[1] for number in range(1, 11) for row in attempts(night, number)].count("board2")
    assert on_board2 == 3
    reason = lab.board("board2")["reason"]
    assert says(reason, "3 slices", "no other board", "pytest ended with 1")
    assert "fleet retry --board board2" in reason


def test_a_case_that_kills_its_board_is_named_and_left_out(make_lab):
    lab = make_lab(settings=SETTINGS)
    killer = falling_modes(4)[-1].name
    night = submit(lab, 10, pytest_words=["-p", "tests.fleet.power_cut", "--cut-power-at", killer])
    wait_until_over(lab, night)
    killed = (lab.folder / "killed").read_text().split()
    assert len(killed) == len({*killed}) == 2  # it killed a board, and then another one
    [state] = night.states([])
    assert state.state == "done"
    assert f"-{killer}-" in state.why
    assert says(state.why, "left out", "two runs", f"{killed[0]} was lost", killed[1])
    assert measured(lab, night, missing=1) == sorted({*all_of(night)} - {killer})
    assert f"-{killer}-" in lab.call("collect", "--submission", night.id, "--out", str(lab.folder / "again"), code=1)


def test_what_a_held_slice_measured_is_collected(make_lab):
    lab = make_lab(settings=SETTINGS)
    modes = [mode.name for mode in falling_modes(10)]
    killers = [modes[1], modes[4], modes[7]]
    night = submit(lab, 10, pytest_words=["-p", "tests.fleet.power_cut", "--cut-power-at", ",".join(killers)])
    wait_until_over(lab, night)
    lab.wait_until_idle()  # the board that was lost last is back, too
    [state] = night.states([])
    assert state.state == "held"
    assert says(state.why, "2 cases", "left out", "board")
    assert len((lab.folder / "killed").read_text().split()) == 5
    assert measured(lab, night, missing=5) == sorted({*modes[:7]} - {*killers})


def is_done(night):
    return {state.state for state in night.states([])} == {"done"}


@contextlib.contextmanager
def small_disk(folder, size_mb):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_slices_wait_while_the_disk_of_the_lab_host_is_full(make_lab):
    lab = make_lab(boards=2)
    boards = ("board1", "board2")
    lab.hold(*boards)
    with small_disk(lab.fleet / "submissions", 64):
        night = submit(lab, 30)
        lab.wait_until_held(night, *boards)
        filler = lab.fleet / "submissions/filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(64 * 1000 * 1000 * 2))
        lab.release(*boards)
        for board in boards:
            lab.wait(f"the run on {board} ended", lambda board=board: not runs_on(lab, board))
        assert "0 MB are free on the disk of" in lab.call("status")
        time.sleep(5)
        assert not any(night.results(number) for number in (1, 2, 3))
        filler.unlink()
        wait_until_over(lab, night)
        assert is_done(night)
        assert [len(attempts(night, number)) for number in (1, 2, 3)] == [1, 1, 1], attempts_of_all(night)
        assert [board["reason"] for board in lab.status()["boards"]] == ["", ""]
        assert measured(lab, night) == all_of(night)


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long ahead(void) { return access(getenv("JUMPED"), F_OK) == 0 ? 86400 : 0; }
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (id == CLOCK_REALTIME) now->tv_sec += ahead();
    return result;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def test_a_clock_that_jumps_by_a_day_during_a_run_costs_nothing(make_lab):
    lab = make_lab(boards=1)
    (lab.folder / "clock.c").write_text(CLOCK)
    library, jumped = lab.folder / "clock.so", lab.folder / "jumped"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(lab.folder / "clock.c"), "-ldl"]
    subprocess.run(command, check=True)
    change_python(lab, "board1", f"export LD_PRELOAD={library} JUMPED={jumped}")
    lab.hold("board1")
    night = submit(lab, 20)
    assert lab.wait_until_held(night, "board1") == [1]
    jumped.touch()
    lab.release("board1")
    lab.wait("slice 1 is done", lambda: night.file(1, "ended").exists())
    jumped.unlink()  # and back
    wait_until_over(lab, night)
    assert is_done(night)
    assert [len(attempts(night, number)) for number in (1, 2)] == [1, 1]
    assert measured(lab, night) == all_of(night)
    with ResultsStore(lab.folder / f"{night.id}.sqlite", read_only=True) as store:
        days = {record.created_at[:10] for record in store.records()}
    assert len(days) >= 2


def test_a_board_that_is_renamed_during_a_run_loses_nothing(make_lab):
    lab = make_lab(boards=2)
    lab.hold("board1", "board2")
    night = submit(lab, 40)
    lab.wait_until_held(night, "board1", "board2")
    lab.stop_daemons()
    toml = (lab.folder / "lab.toml").read_text()
    (lab.folder / "lab.toml").write_text(toml.replace('name = "board2"', 'name = "orin9"'))
    lab.call("init", str(lab.folder / "lab.toml"))
    lab.start_daemons()
    lab.release("board2")  # its folder has the same name as before; board1 still holds its slice

    def boards():
        return [row[1] for number in range(1, 5) for row in attempts(night, number)]

    lab.wait("orin9 takes a slice", lambda: "orin9" in boards())
    lab.release("board1")
    wait_until_over(lab, night)
    assert is_done(night)
    assert measured(lab, night) == all_of(night)
    assert [board["name"] for board in lab.status()["boards"]] == ["board1", "orin9"]
    assert (lab.fleet / "run/orin9.used").exists()
    assert [*(lab.fleet / "run").glob("board2.left")] == []


def git(folder, *words):
    own = ["-c", "user.name=lab", "-c", "user.email=lab@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *own, "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(suite_commit() is None, reason="without a clone of the suite there are no commits")
def test_a_slice_runs_the_commit_it_was_submitted_with_or_says_so(make_lab):
    lab = make_lab(boards=2)
    clones = [lab.folder / f"suite{number}" for number in (1, 2)]
    toml = (lab.folder / "lab.toml").read_text()
    for number, clone in enumerate(clones, start=1):
        git(PROJECT, "clone", "--quiet", "--shared", str(PROJECT), str(clone))
        changed = git(PROJECT, "ls-files", "--modified", "--others", "--exclude-standard").splitlines()
        for name in changed:
            if (PROJECT / name).is_file():
                (clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(PROJECT / name), str(clone / name))
        before, _, after = toml.partition(f'name = "board{number}"')
        toml = before + f'name = "board{number}"' + after.replace(f'folder = "{PROJECT}"', f'folder = "{clone}"', 1)
    (lab.folder / "lab.toml").write_text(toml)
    lab.call("init", str(lab.folder / "lab.toml"))

    lab.hold("board1", "board2")
    night = submit(lab, 40)
    lab.wait_until_held(night, "board1", "board2")  # so both have noted the commit that they run
    git(clones[1], "commit", "--quiet", "--allow-empty", "-m", "An upgrade of board2")
    lab.release("board2")

    def refused():
        rows = [row for number in range(1, 5) for row in attempts(night, number)]
        return [row[1] for row in rows if "other commit" in row[2]]

    lab.wait("board2 has refused the slices that board1 has not begun", lambda: refused() == ["board2", "board2"])
    lab.release("board1")
    wait_until_over(lab, night)
    assert is_done(night)
    assert refused() == ["board2", "board2"]
    assert measured(lab, night) == all_of(night)
    with ResultsStore(lab.folder / f"{night.id}.sqlite", read_only=True) as store:
        commits = {record.environment["suite_commit"].rstrip("+") for record in store.records()}
    assert commits == {suite_commit().rstrip("+")}
    assert [board["reason"] for board in lab.status()["boards"]] == ["", ""]  # it is no fault of the board

    git(clones[0], "commit", "--quiet", "--allow-empty", "-m", "An upgrade of board1")
    later = submit(lab, 5)
    wait_until_over(lab, later)
    [state] = later.states([])
    assert state.state == "held"
    assert "the slice was submitted with" in state.why
    lab.call("retry", "--submission", later.id)
    wait_until_over(lab, later)
    assert is_done(later)
    assert measured(lab, later) == all_of(later)


def test_two_labs_on_one_host_do_not_disturb_each_other(make_lab):
    first, second = make_lab(boards=1), make_lab(boards=1)
    port = re.search(r"^port = (\d+)$", (first.folder / "lab.toml").read_text(), re.MULTILINE)[1]
    third = second.folder / "third.toml"
    own = (second.folder / "lab.toml").read_text()
    toml = re.sub(r"(?m)^port = \d+$", f'port = {port}\nfolder = "third"', own, count=1)
    third.write_text(toml)
    refused = second.start("init", str(third)).communicate(timeout=60)[0]
    assert f"port {port} of 127.0.0.1" in refused

    nights = [submit(lab, 20 + number) for number, lab in enumerate((first, second))]
    second.kill_controller()
    for lab, night in zip((first, second), nights):
        wait_until_over(lab, night)
        assert is_done(night)
        assert measured(lab, night) == all_of(night)


def test_a_board_that_is_taken_by_salloc_during_a_run_finishes_it_first(make_lab):
    lab = make_lab(boards=2, settings=SETTINGS)
    lab.hold("board1")
    night = submit(lab, 60)
    lab.wait_until_held(night, "board1")
    during, gives_back = runs_on(lab, "board1"), lab.folder / "gives_back"
    command = ["sh", "-c", f"until [ -e {gives_back} ]; do sleep 0.2; done"]
    person = lab.slurm("salloc", "--job-name=talk", "--partition", POOL, "--nodelist", "board1", *command)
    lab.wait("salloc waits", lambda: "PENDING" in lab.slurm("squeue", "-h", "--name=talk", "-o", "%T").communicate()[0])
    assert runs_on(lab, "board1") == during
    lab.release("board1")
    lab.wait("salloc has board1", lambda: "root's " in (lab.board("board1") or {}).get("busy_with", ""), every_s=0.2)
    for _ in range(40):  # meanwhile board2 measures
        assert runs_on(lab, "board1") == []
        time.sleep(0.5)
    gives_back.touch()
    assert person.wait(600) == 0
    wait_until_over(lab, night)
    assert is_done(night)
    assert [len(attempts(night, number)) for number in range(1, 7)] == [1] * 6
    assert [board["reason"] for board in lab.status()["boards"]] == ["", ""]
    assert measured(lab, night) == all_of(night)


def remove(folder, trash):
    """Remove a folder at once, though others may write into it."""
    folder.rename(trash)
    shutil.rmtree(str(trash))


def test_results_that_are_removed_are_measured_again(make_lab):
    lab = make_lab(boards=2)
    lab.hold("board1")
    night = submit(lab, 60)
    lab.wait("a slice is done", lambda: [*(night.folder / "slices").glob("*/ended")], every_s=0.2)
    lab.hold("board2")
    lab.wait_until_held(night, "board1", "board2")
    remove(night.folder / "slices", lab.folder / "trash")
    lab.release("board1", "board2")
    lab.wait("it is over", lambda: is_done(night))
    wait_until_over(lab, night)
    assert measured(lab, night) == all_of(night)
    assert [board["reason"] for board in lab.status()["boards"]] == ["", ""]

    lab.hold("board1", "board2")
    removed = submit(lab, 30)
    lab.wait_until_held(removed, "board1", "board2")
    remove(removed.folder, lab.folder / "trash")
    lab.release("board1", "board2")
    lab.wait("nothing of it is left", lambda: not lab.slurm("squeue", "-h").communicate()[0])
    assert [board["reason"] for board in lab.status()["boards"]] == ["", ""]
    assert [*lab.folder.glob(f"board*/work/{removed.id}-*")] == []
    assert f"submission {removed.id} was removed" in (lab.fleet / "log/health.log").read_text()


UNABLE = """[[ " $* " != *" --workloads "*lenet-mnist* || -e {fixed} ]] || {{
    echo "cannot train lenet-mnist: no 7 MB of memory on ${{SIMULATED_BOARD##*/}}"
    exit 3
}}"""


def test_a_workload_that_no_board_can_train_is_left_out_and_drains_none(make_lab):
    lab = make_lab()
    for board in ("board1", "board2", "board3"):
        change_python(lab, board, UNABLE.format(fixed=lab.folder / "fixed" / board))
    night = submit(lab, 30)
    wait_until_over(lab, night)
    for state in night.states([]):
        assert state.state == "done"
        assert says(state.why, "left out", "lenet-mnist", "(board")
    assert [board["reason"] for board in lab.status()["boards"]] == ["", "", ""]
    assert measured(lab, night, missing=30) == []
    assert "drained" not in "".join(path.read_text() for path in (night.folder / "log").glob("*.log"))

    (lab.folder / "fixed").mkdir()
    for board in ("board1", "board2"):
        (lab.folder / "fixed" / board).touch()
    lab.call("retry", "--submission", night.id)
    wait_until_over(lab, night)
    assert is_done(night)
    assert measured(lab, night) == all_of(night)
    later = submit(lab, 30)
    lab.wait("board3 is out, as others can", lambda: "cannot train" in (lab.board("board3") or {}).get("reason", ""))
    wait_until_over(lab, later)
    assert measured(lab, later) == all_of(later)

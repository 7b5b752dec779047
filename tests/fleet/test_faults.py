"""A campaign on three simulated boards, with real Slurm, munge and sshd, through all that goes wrong in a lab."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.boards import load_board
from harness.core.mode_texts import format_power_modes
from harness.core.power_modes import PowerMode
from harness.fleet.submission import Submission
from harness.store.results import ResultsStore
from tests.fleet.simulated_lab import POOL, PROJECT, SLICE_S, TOOL, SimulatedLab, attempts, pythons, why_not
from tests.messages import says

KILLER = "MODE_30W"
"""A slice of this mode takes its board's power away."""

WORKLOADS = ("resnet18-imagenet", "lenet-mnist")

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and a disk of its own need root"),
]


@pytest.fixture
def lab():
    made = SimulatedLab(networks=True)
    try:
        for number in (1, 2, 3):
            make_killable(made.folder / f"board{number}", made)
        made.power("cut", "board2")
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(made.folder / "board2/work")], check=True
        )
        made.power("start", "board2")  # its network has a view of its own of what is mounted
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made.folder / "board2/work")], check=False)
        made.stop()


def make_killable(board, lab):
    """Have a board's Python cut the board's power where it is to run the mode KILLER; it is back after some seconds.

    It also tells when each run begins, in which mode of the board, and where another one has not ended then.
    """
    settings = lab.fleet / "boards" / board.name
    own = next(line.partition("=")[2] for line in settings.read_text().splitlines() if line.startswith("PYTHON="))
    wrapper = board / "python"
    # what cuts the power is twice removed, so that it is no process of the board
    wrapper.write_text(f"""#!/bin/bash
[[ " $* " == *" harness.fleet.on_board run "* ]] || exec {own} "$@"
exec 9> {board}/one # held until the run has ended
flock -n 9 || echo {board.name} >> {lab.folder}/overlaps
echo "{board.name} $(date +%s) $(cat {board}/mode) $*" >> {lab.folder}/runs
for word in "$@"; do
    if [ -e "$word/cases.txt" ] && grep -q -- "-{KILLER}-" "$word/cases.txt"; then
        echo {board.name} >> {lab.folder}/killed
        switches="sleep 1; {TOOL} cut {board}; sleep 2; {TOOL} start {board}"
        (env -u SIMULATED_BOARD setsid bash -c "$switches" &> /dev/null &)
        sleep 60
    fi
done
exec {own} "$@"
""")
    wrapper.chmod(0o755)
    toml = lab.folder / "lab.toml"
    toml.write_text(
        toml.read_text().replace(f'python = "{own}"\nwork = "{board}/', f'python = "{wrapper}"\nwork = "{board}/')
    )
    lab.call("init", str(toml))


def chain_of_modes():
    """225 power modes in which no clock rises."""
    space = load_board("orin-agx").power_mode_space()
    for cpu_khz, cores in itertools.product(sorted(space.cpu_khz, reverse=True)[:25], sorted(space.cpu_cores)[:9]):
        yield PowerMode(cores, cpu_khz, max(space.gpu_khz), max(space.mem_khz))


def is_out(lab, board, why):
    found = lab.board(board)
    return found is not None and why in found["reason"] and found["reason"]


def is_back(lab, board):
    found = lab.board(board)
    return found is not None and not found["reason"] and found["state"] in ("idle", "allocated")


def test_a_campaign_comes_through_all_that_goes_wrong_in_a_lab(lab, tmp_path):
    began = time.monotonic()
    modes = [*chain_of_modes()]
    tables = []
    for part in (modes[:150], modes[150:195], modes[195:]):
        tables.append(str(lab.folder / f"{len(tables)}.csv"))
        Path(tables[-1]).write_text(format_power_modes([(mode, {}) for mode in part], ()))
    words = ["--pool", POOL, "--case-seconds", str(SLICE_S / 30), "--", "benchmarks/test_training.py"]
    words += ["--minibatches", "40", "--workload", ",".join(WORKLOADS), "--workers", "4", "--power-mode"]
    lab.wait_until_idle()

    # two submits at once
    slowly = ["-p", "tests.fleet.benchmark", "--case-wait", "0.3", *lab.gate_words]
    lab.hold("board1", "board2")  # so that there is something left to be cut off
    submits = [
        lab.start("submit", *words, *asked) for asked in ([tables[0], *slowly], [KILLER, "--workload", WORKLOADS[0]])
    ]
    said = [process.communicate(timeout=300)[0] for process in submits]
    assert [process.returncode for process in submits] == [0, 0], said
    night, killer = (Submission(lab.fleet / "submissions" / text.partition(":")[0].split()[-1]) for text in said)
    assert night.id != killer.id

    # a person books a board
    booked = 15
    book = shlex.join([sys.executable, "-m", "harness", "fleet", "book", "--board", "board3", "--lab"])
    book += f" {lab.folder / 'lab.toml'}"
    shell = f"{book} --hours 1 >&2 && date +%s && sleep {booked} && date +%s && {book} --end >&2"
    person = subprocess.Popen(["bash", "-c", shell], cwd=str(PROJECT), stdout=subprocess.PIPE, text=True)
    lab.wait("board3 is booked", lambda: "booked: board3 by root, " in lab.call("status"), every_s=0.2)

    # the power of a board that measures goes, and comes back by the lab's own program
    [lost] = lab.wait_until_held(night, "board1")
    lab.power("cut", "board1")
    lab.release("board1")
    lab.wait("board1 is out", lambda: is_out(lab, "board1", "jetwatt: "))

    # the network to a board that measures goes silent: nothing is refused, nothing comes through
    [silent] = lab.wait_until_held(night, "board2")
    namespace = (lab.folder / "board2/settings").read_text().partition("=")[2].strip()
    firewall = ["ip", "netns", "exec", namespace, "iptables"]
    for chain in ("INPUT", "OUTPUT"):
        subprocess.run([*firewall, "-A", chain, "-j", "DROP"], check=True)
    lab.wait("board2 is silent", lambda: is_out(lab, "board2", "jetwatt: "))
    lab.release("board2")
    subprocess.run([*firewall, "-F"], check=True)
    lab.wait("board2 is back", lambda: is_back(lab, "board2"))

    # slurmctld is killed in the moment in which a slice ends, which its queue on disk does not know yet
    lab.wait("the killer is held", killer.file(1, "ended").exists)
    morning = submit(lab, *words, tables[1])
    lab.wait("a slice ends", lambda: [*(morning.folder / "slices").glob("*/ended")], every_s=0.1)
    time.sleep(2)
    lab.kill_controller()

    # a board is throttled
    device = lab.folder / "board2/root/sys/class/thermal/cooling_device0"
    device.mkdir(parents=True)
    (device / "type").write_text("cpufreq-cpu0\n")
    (device / "cur_state").write_text("2\n")
    lab.wait("board2 is throttled", lambda: is_out(lab, "board2", "throttled: throttle_cpufreq_cpu0_state is 2"))
    (device / "cur_state").write_text("0\n")
    lab.wait("board2 is back", lambda: is_back(lab, "board2"))

    # the disk of a board that measures is full, then somebody's run was killed on it
    lab.hold("board2")
    crowded = submit(lab, "--board", "board2", *words, tables[2], *lab.gate_words)
    [full] = lab.wait_until_held(crowded, "board2")
    filler = lab.folder / "board2/work/filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(64 * 1000 * 1000 * 2))
    lab.release("board2")
    lab.wait("board2 has a full disk", lambda: is_out(lab, "board2", "disk full"))
    saved = lab.folder / "board2/state/jetwatt/host.json"
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text('{"format": 2, "device": "host", "root": "/", "pid": 1, "saved_at": "2026-01-01", "knobs": []}')
    filler.unlink()
    lab.wait("board2 is put back", lambda: is_back(lab, "board2"))
    assert not saved.exists()

    # two cases ask for a mode that takes a reboot
    mask = submit(lab, *words, "mode_15w")

    ended = person.communicate(timeout=300)[0].split()
    lab.wait("all is done", lambda: is_over(lab))
    lab.wait_until_idle()
    print(f"{time.monotonic() - began:.0f} s")

    # the case that kills is left out and named, after it took two boards
    [held] = next(one["held"] for one in lab.status()["submissions"] if one["id"] == killer.id)
    killed = (lab.folder / "killed").read_text().split()
    assert [why for _, _, why, _ in attempts(killer, 1)[:2]] == [f"{board} was lost" for board in killed]
    assert len(killed) == 2
    assert held["why"].count("cut off two runs") == 1
    assert says(Path(held["log"]).read_text(), "slice 1", killed[-1])

    # the others are done, also those whose board was lost
    assert {state.state for one in (night, morning, crowded, mask) for state in one.states([])} == {"done"}
    for number, board in ((lost, "board1"), (silent, "board2")):
        assert f"{board} was lost" in [row[2] for row in attempts(night, number)[:-1]]
    assert "and the board: disk full" in attempts(crowded, full)[0][2]

    # collect is interrupted, and repeated
    out = tmp_path / "night.sqlite"
    interrupted = lab.start("collect", "--submission", night.id, "--out", str(out))
    lab.wait("collecting", (night.folder / "collected.sqlite").exists, every_s=0.02)
    interrupted.kill()
    assert interrupted.wait() == -signal.SIGKILL  # it had not ended
    lab.call("collect", "--submission", night.id, "--out", str(out))
    assert "0 profiles added" in lab.call("collect", "--submission", night.id, "--out", str(out))
    for one in (morning, crowded, mask):
        lab.call("collect", "--submission", one.id, "--out", str(out))
    said = lab.call("collect", "--submission", killer.id, "--out", str(out), code=1)
    assert "1 case missing" in said
    assert "left out, because it cut off two runs" in said

    # every case stands there once
    with ResultsStore(out, read_only=True) as store:
        records = list(store.records())
    found = sorted((record.case.workload, record.case.power_mode.name) for record in records)
    assert found == sorted(itertools.product(WORKLOADS, [*(mode.name for mode in modes), "MODE_15W"]))

    # each board's own Python measured
    versions = {record.case.device: record.environment["python"] for record in records}
    own = [subprocess.run([path, "-V"], stdout=subprocess.PIPE, text=True, check=True).stdout for path in pythons()]
    assert versions == {f"sim:orin-agx@{number}": text.split()[1] for number, text in enumerate(own, start=1)}

    # no two runs at once on a board, none left, none while it was booked
    assert not (lab.folder / "overlaps").exists()
    for number in (1, 2, 3):
        subprocess.run(["flock", "-n", str(lab.folder / f"board{number}/one"), "true"], check=True)
    spans = {}
    for path in [
        *lab.fleet.glob("submissions/*/slices/*/results*.sqlite"),
        *lab.folder.glob("board*/work/*/results.sqlite"),
    ]:
        with ResultsStore(path, read_only=True) as store:
            for record in store.records():
                spans.setdefault((record.case.device, record.run_id), set()).add(record.created_at)
    assert len(spans) >= sum(len(one.slices) for one in (night, morning, crowded, mask))
    for device in ("sim:orin-agx@1", "sim:orin-agx@2", "sim:orin-agx@3"):
        own = sorted((min(times), max(times)) for (name, _), times in spans.items() if name == device)
        assert all(before[1] < after[0] for before, after in zip(own, own[1:])), own
    first, last = map(int, ended)
    assert last - first >= booked
    assert person.returncode == 0
    # created_at is UTC, to be compared as text
    stamps = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) for moment in (first, last)]
    of_board3 = sorted(itertools.chain(*(times for (name, _), times in spans.items() if name.endswith("@3"))))
    assert [moment for moment in of_board3 if stamps[0] < moment < stamps[1]] == []
    runs = [line.split() for line in (lab.folder / "runs").read_text().splitlines()]
    assert [run for run in runs if run[0] == "board3" and first < int(run[1]) < last] == []

    # cases of the other mask, and no others, ran in it, after one reboot; nothing is left changed
    for run in runs:
        assert (run[2] == "mode_15w") == any(f"/{mask.id}-" in word for word in run), run
    boots = "".join(path.read_text() for path in (lab.fleet / "run").glob("*.boots"))
    assert boots.count("by the fleet, into mode_15w") == 1
    assert list(lab.folder.glob("board*/state/jetwatt/*.json")) == []


def test_a_search_on_a_pool_leaves_alone_a_board_that_is_reserved(tmp_path):
    lab, out = SimulatedLab(), tmp_path / "r.sqlite"
    try:
        lab.wait_until_idle()
        reserved = "create reservation ReservationName=talk Nodes=board3 Users=root StartTime=now Duration=30"
        assert lab.slurm("scontrol", *reserved.split()).wait(60) == 0
        assert "booked: board3 by root, " in lab.call("status")
        words = ["--pool", POOL, "--lab", str(lab.folder / "lab.toml"), "--workload", "lenet-mnist"]
        words += ["--results", str(out), "--power-budget", "30", "--profiles", "4", "--strategy", "random"]
        command = [sys.executable, "-m", "jetwatt", "recommend", *words]
        said = subprocess.run(command, cwd=str(PROJECT), capture_output=True, text=True, timeout=300, check=True).stdout
        assert "recommended: " in said
        assert "boards:      as on board" in said
        assert "booked: board3 by root, " in lab.call("status")
        assert lab.slurm("squeue", "-h").communicate()[0] == ""
        with ResultsStore(out, read_only=True) as store:
            found = [(record.case.device, record.case.power_mode.name) for record in store.records()]
        assert {device for device, _ in found} == {"sim:orin-agx@1", "sim:orin-agx@2"}
        assert len({mode for _, mode in found}) == 4
    finally:
        lab.stop()


def submit(lab, *words):
    return Submission(lab.fleet / "submissions" / lab.call("submit", *words).partition(":")[0])


def is_over(lab):
    status = lab.status()
    return status is not None and not any(
        one["slices"][state] for one in status["submissions"] for state in ("running", "waiting", "gone")
    )

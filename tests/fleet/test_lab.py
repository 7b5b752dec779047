"""`lab.toml` and what `fleet init` makes of it, without Slurm."""

from __future__ import annotations

import os
import socket
import stat
import subprocess

import pytest

from harness.core.errors import HarnessError
from harness.fleet import lab
from harness.fleet.lab import SCRIPTS, Fleet

BOARD = (
    'name = "orin1"\ntype = "orin-agx"\njetpack = "6.2"\nssh = "nvidia@orin1.lab"\nfolder = "/home/nvidia/jetwatt"\n'
)
SECOND = BOARD.replace("orin1", "orin2").replace('"6.2"', '"5.1.2"')
MODES = 'modes = ["maxn", "mode_15w"]\nreboot = "sudo -n boot-into {mode}"\n'


def text(*boards, general=""):
    return general + "".join(f"[[board]]\n{board}" for board in boards)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A function that writes a lab.toml into a folder, where every program is installed."""
    monkeypatch.setattr(lab, "program", lambda name: f"/usr/sbin/{name}")
    monkeypatch.setattr(lab, "_LONGEST_SOCKET", 1000)

    def write(content):
        (tmp_path / "lab.toml").write_text(content)
        return Fleet(tmp_path / "lab.toml")

    return write


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "key 'board' of .* is missing"),
        ("board = []\n", r"no \[\[board\]\]"),
        (text(BOARD.replace("orin1", "orin-1", 1)), "board 'orin-1' .* lower-case letters and digits"),
        (text(BOARD, BOARD), "board 'orin1' .* twice"),
        (text(BOARD.replace("nvidia@orin1.lab", "-oProxyCommand=x")), "ssh is '-oProxyCommand=x'"),
        (text(BOARD.replace('"6.2"', "6.2")), "jetpack of .* is 6.2, expected a text"),
        (text(BOARD.replace('"6.2"', '"r36"')), "jetpack is 'r36'"),
        (text(BOARD + 'modes = ["maxn", "15 W"]\n'), "mode '15 W'"),
        (text(BOARD + 'modes = ["maxn", "mode_15w"]\n'), r"reboot is .*\{mode\}"),
        (text(BOARD, general="port = 65535\n"), "port of .* is 65535"),
        (text(BOARD, general="slice_minutes = 0\n"), "slice_minutes of .* is 0"),
        (text(BOARD, general="requeue_seconds = 3\n"), "requeue_seconds of .* is 3; Slurm accepts 5 or more"),
        (text(BOARD + "pasword = 1\n"), "key 'pasword' .* is unknown; available: name"),
        (text(BOARD, general='identity = "~/no-key"\n'), "identity of .*/no-key, which does not exist"),
        (text(BOARD + 'power = "/no/switch"\n'), "power of board 'orin1' is /no/switch, which is not a program here"),
        (text(BOARD.replace("orin-agx", "orin-agxx")), r"device 'orin-agxx' is unknown; did you mean orin-agx\?"),
    ],
)
def test_a_wrong_lab_is_refused_with_what_was_expected(make, content, expected):
    with pytest.raises(HarnessError, match=expected):
        make(content).init()


def test_a_pool_is_a_board_type_and_its_jetpack(make):
    simulated = BOARD.replace("orin1", "sim1").replace('"orin-agx"', '"sim:orin-agx@2"')
    pools = make(text(BOARD, SECOND, simulated)).pools
    assert {name: [one.name for one in boards] for name, boards in pools.items()} == {
        "orin-agx-jp6": ["orin1"],
        "orin-agx-jp5": ["orin2"],
        "sim-orin-agx-jp6": ["sim1"],
    }


def test_init_makes_the_fleet_again_and_again_and_keeps_its_key(make):
    fleet = make(text(BOARD + MODES, SECOND))
    todo = fleet.init()
    files = {path: path.read_bytes() for path in fleet.folder.rglob("*") if path.is_file()}
    times = {path: path.stat().st_mtime_ns for path in files}
    assert fleet.init() == todo
    assert {path: path.stat().st_mtime_ns for path in files} == times
    key = fleet.folder / "munge.key"
    assert (stat.S_IMODE(key.stat().st_mode), len(files[key])) == (0o400, 128)
    assert stat.S_IMODE(fleet.folder.stat().st_mode) == 0o700
    conf = files[fleet.folder / "slurm.conf"].decode()
    assert "NodeName=orin1" in conf
    assert "Port=17001 Features=maxn,mode_15w\n" in conf
    assert "PartitionName=orin-agx-jp5 Nodes=orin2 " in conf
    ssh = files[fleet.folder / "ssh_config"].decode()
    for line in ("BatchMode yes", "StrictHostKeyChecking yes", "IdentityAgent none", "ForwardAgent no", "User nvidia"):
        assert f"    {line}\n" in ssh
    for script in SCRIPTS.iterdir():
        assert os.access(fleet.folder / "bin" / script.name, os.X_OK)
    make(text(SECOND)).init()
    assert [path.name for path in (fleet.folder / "boards").iterdir()] == ["orin2"]
    assert key.read_bytes() == files[key]


def test_a_key_that_others_may_read_is_refused(make):
    fleet = make(text(BOARD))
    fleet.init()
    (fleet.folder / "munge.key").chmod(0o644)
    with pytest.raises(HarnessError, match=r"munge.key has mode 644.*chmod 400"):
        fleet.init()


def test_a_fleet_that_others_could_enter_is_closed(make):
    fleet = make(text(BOARD))
    fleet.init()
    fleet.folder.chmod(0o755)
    (fleet.folder / "munge.key").chmod(0o600)
    fleet.init()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (fleet.folder, fleet.folder / "munge.key")]
    assert modes == [0o700, 0o400]


def test_a_folder_with_other_files_is_not_closed_to_others(make):
    fleet = make('folder = "."\n' + text(BOARD))
    fleet.folder.chmod(0o755)
    before = fleet.folder.stat().st_mode
    with pytest.raises(HarnessError, match=r"other files.*folder in lab\.toml"):
        fleet.init()
    assert fleet.folder.stat().st_mode == before
    assert [path.name for path in fleet.folder.iterdir()] == ["lab.toml"]


def test_a_folder_that_another_user_may_exchange_is_refused(make):
    fleet = make('folder = "open/closed/fleet"\n' + text(BOARD))
    (fleet.path.parent / "open/closed").mkdir(parents=True)
    (fleet.path.parent / "open").chmod(0o777)
    with pytest.raises(HarnessError, match=r"another user.*/open .*777, owner \d+ and group \d+"):
        fleet.init()
    assert not (fleet.folder / "munge.key").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
@pytest.mark.parametrize(("owner", "mode"), [(12345, 0o755), (0, 0o775)])
def test_a_folder_below_that_of_another_user_or_group_is_refused(make, owner, mode):
    fleet = make('folder = "theirs/fleet"\n' + text(BOARD))
    theirs = fleet.path.parent / "theirs"
    theirs.mkdir()
    os.chown(theirs, owner, 12345)
    theirs.chmod(mode)
    expected = f"another user may replace .*/theirs has mode {mode:o}, owner {owner} and group 12345"
    with pytest.raises(HarnessError, match=expected):
        fleet.init()


def test_a_missing_program_and_a_place_that_cannot_be_made_are_named(make, monkeypatch):
    fleet = make(text(BOARD))
    monkeypatch.setattr(lab, "program", lambda name: None if name == "slurmctld" else name)
    with pytest.raises(HarnessError, match=r"slurmctld.*apt-get install slurm-wlm"):
        fleet.init()
    monkeypatch.setattr(lab, "program", lambda name: name)
    with pytest.raises(HarnessError, match=r"/proc/fleet .*sudo install -d -m 700 -o \w+ /proc/f"):
        make('folder = "/proc/fleet"\n' + text(BOARD)).init()


@pytest.mark.parametrize("device", ["host", "nvidia-gpu", "raspberry-pi-5"])
def test_a_board_need_not_be_like_the_lab_host(make, device):
    make(text(BOARD.replace("orin-agx", device))).init()


@pytest.mark.parametrize("value", ["a b; touch hacked", "$(touch hacked)", "it's"])
def test_values_of_the_lab_are_values_for_the_shell(make, value, tmp_path):
    folder = value.replace('"', "")
    fleet = make(text(BOARD.replace("/home/nvidia/jetwatt", folder)))
    fleet.init()
    done = subprocess.run(
        ["sh", "-c", f'. "{fleet.folder}/boards/orin1"; printf %s "$FOLDER"'],
        cwd=str(tmp_path),
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (folder, "")
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("script", sorted(SCRIPTS.iterdir()), ids=lambda path: path.name)
def test_scripts_are_shell(script):
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True).stderr == ""


def test_ports_of_another_lab_are_refused(make):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        made = make(text(BOARD, general=f"port = {port - 1}\n"))
        made.init()
        other.listen()
        made.init()  # they may be its own daemons
        made = make(text(BOARD, general=f"port = {port}\n"))
        with pytest.raises(HarnessError, match=f"port {port} of 127.0.0.1 .*another lab.* 2 free"):
            made.init()


def test_what_the_fleet_recorded_of_a_board_follows_it_to_its_new_name(make):
    made = make(text(BOARD, SECOND))
    made.init()
    for name in ("orin1.boots", "orin2.left", "orin2.boots"):
        (made.folder / "run" / name).write_text(name)
    make(text(BOARD, SECOND.replace('"orin2"', '"lab9"', 1))).init()
    content = {path.name: path.read_text() for path in (made.folder / "run").iterdir()}
    assert content == {"orin1.boots": "orin1.boots", "lab9.left": "orin2.left", "lab9.boots": "orin2.boots"}
    moved = SECOND.replace('"orin2"', '"orin3"', 1).replace("orin2.lab", "orin3.lab")
    make(text(BOARD, moved)).init()  # another board, not another name
    assert sorted(path.name for path in (made.folder / "run").glob("orin3.*")) == []

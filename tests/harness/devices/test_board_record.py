"""`doctor --record`: what a record holds, what it never tells, and the board or host that it is again."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import sys
import tarfile
import types
from pathlib import Path

import pytest
from boards.tools_in_process import tools_in_process
from boards.tree import build_board

from harness.__main__ import main
from harness.board.source import SOURCES, Reading, SourceModule, SourceSpec, open_source
from harness.core.cases import Case
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import HarnessError, InvalidValueError
from harness.core.metrics import POWER_CHANNEL
from harness.core.power_modes import PowerMode
from harness.devices import board_record
from harness.devices.board_record import record, root_of, unpacked
from harness.devices.registry import local_board, open_device
from harness.measure.doctor import examine
from harness.options import device_root_from
from tests.harness.board.kernel_trees import cpus, policy

NOT_HELD = {"set nvpmodel modes", "switch DVFS off", "set the fan", "tell it from others of its type"}
"""What takes programs or a serial number."""


def available(device):
    return {one.name for one in device.capabilities() if one.available}


def recorded(root, file, has_own_tools=False):
    """The folder of a record of a root, by the command."""
    with contextlib.nullcontext() if has_own_tools else tools_in_process(str(root)):
        assert main(["doctor", "--root", str(root), "--record", str(file), "--record-seconds", "0"]) == 0
    return unpacked(file).parent


@pytest.mark.parametrize(
    ("board", "l4t"),
    [
        ("orin-agx", "r36.4"),
        pytest.param("thor", "r38.2", marks=pytest.mark.exhaustive),
        pytest.param("nano", "r32.7", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.exhaustive
def test_a_recorded_board_is_the_board_again(tmp_path, board, l4t):
    tree = build_board(tmp_path / "root", board, l4t)
    nodes = {path: path.read_bytes() for path in tree.path.glob("sys/class/*/*/*") if path.is_file()}
    folder = recorded(tree.path, tmp_path / "board.tar.gz")
    assert {path: path.read_bytes() for path in nodes if nodes[path] != path.read_bytes()} == {}
    said = json.loads((folder / "record.json").read_text())
    assert said["sources"]["ina"]["values"][POWER_CHANNEL] > 0
    assert said["sources"]["thermal"]["read_ms"] >= 0
    assert str(tmp_path) not in json.dumps(said)
    before, again = (local_board(Configuration(), root) for root in (tree.path, folder / "root"))
    assert again.identity() == before.identity()
    assert again.power_mode_space() == before.power_mode_space()
    assert available(again) >= available(before) - NOT_HELD
    if board == "thor":  # whose clocks are read in a process of their own
        devfreq = folder / "root/sys/class/devfreq"
        assert (devfreq / "gpu-gpc-0/available_frequencies").read_text().split()
        assert (devfreq / "bwmgr/max_freq").read_text().strip().isdigit()


HOST = {
    "proc/cpuinfo": "\n\n".join(f"processor : {cpu}\nmodel name : Some CPU" for cpu in range(4)),
    "proc/meminfo": "MemTotal:       16777216 kB",
    "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp",
    "sys/class/thermal/thermal_zone0/temp": 40_000,
    **cpus(4),
    **policy(0, "0 1 2 3"),
    "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": 1497600,
}


def test_a_recorded_host_is_a_host_again_with_its_cpus_clocks_and_sensors(tmp_path, tree, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # a home folder need not be writable
    tree.write(HOST)
    root = recorded(tree.root, tmp_path / "host.tar.gz") / "root"
    again = open_device("emulated-host", Configuration(), root)
    assert again.identity().model == "Some CPU (emulated)"
    assert again.identity().specification == {"cpus": 4, "memory_gib": 16}
    assert (again.provenance, again.name) == ("simulated", "emulated-host")
    mode = PowerMode(4, 1497600, 0, 0)
    assert mode in again.power_mode_space()
    own = os.sched_getaffinity(0)
    limit = root / "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"
    with again.session():
        assert again.apply(mode) == mode
        assert limit.read_text().strip() == "1497600"
        found = again.conditions(Case(again.name, "lenet-mnist", named_mode(again, "maxn"), 0, "ssd", 16))
        assert (found["emulated"], found["threads"]) == (True, min(4, len(own)))
    assert limit.read_text().strip() == "2201600"
    assert os.sched_getaffinity(0) == own
    assert "emulated: times are this machine's" in again.remarks[0]
    assert {"measure temperatures", "measure CPU clocks"} <= available(again)


@pytest.mark.training
def test_this_machine_is_recorded_and_runs_from_its_record(run_suite, tmp_path, capsys):
    pytest.importorskip("torch")
    assert main(["doctor", "--record", str(tmp_path / "x.tar.gz"), "--record-seconds", "0"]) == 0
    assert main(["doctor", "--device-root", str(tmp_path / "x.tar.gz")]) == 0
    assert "emulated-host: " in capsys.readouterr().out
    done = run_suite("--device-root", "x.tar.gz", "--workload", "lenet-mnist", "--workers", "0", "--minibatches", "2")
    assert "emulated-host-lenet-mnist-maxn-w0-ssd-bs16 (simulated)" in done.stdout


def test_a_tree_of_nothing_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match=r"neither .*Jetson .*nor"):
        device_root_from(types.SimpleNamespace(getoption=lambda name: str(tmp_path)))


SECRETS = {
    "serial": "1421019012345", "machine": "0d9f5c2ab7e44a6c8f0e1b2c3d4e5f60",
    "ecid": "80012344705DD65C3C00000001FF8040", "product": "4c4c4544-0032-3010-8053-b4c04f4d5a32",
    "disk": "S5H9NS0N123456", "mac": "48:b0:2d:3a:7f:11",
    "mac-dashes": "48-b0-2d-3a-7f-11", "mac-bare": "48b02d3a7f11", "mac-of-another": "48:B0:2D:99:88:77",
    "host": "alices-orin", "user": "alice", "person": "Alice Liddell", "name": "Liddell", "second-user": "kurt99",
    "home-of-nobody-here": "ghost",
}  # fmt: skip


@pytest.mark.exhaustive
def test_a_record_tells_neither_which_board_it_is_nor_whose(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    s = SECRETS
    told = {
        "proc/device-tree/serial-number": f"{s['serial']}\0",
        "proc/device-tree/chosen/ecid": s["ecid"],
        "proc/cpuinfo": f"processor : 0\nSerial\t\t: {s['serial']}\n",
        "etc/machine-id": s["machine"],
        "etc/hostname": f"{s['host']}.example.org",
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnvidia:x:1000:1000::/home/nvidia:/bin/sh\n"
        f"{s['user']}:x:1001:1001:{s['person']},,,:/home/{s['user']}:/bin/sh\n{s['second-user']}:x:1002:1002::/:\n",
        "sys/class/dmi/id/product_uuid": s["product"],
        "sys/class/net/eth0/address": s["mac"],
        "sys/class/hwmon/hwmon0/serial_number": s["disk"],
        "sys/class/thermal/thermal_zone0/note": " ".join(
            s[name] for name in ("mac-dashes", "mac-bare", "mac-of-another", "machine")
        ),
        "etc/nvfancontrol.conf": f"# {s['person']} on {s['host'].upper()}, {s['user']}@{s['host']}.example.org\n"
        f"# Serial: {s['serial']} {s['product'].upper()} by {s['second-user']}\n",
        "etc/systemd/system/nvfancontrol.service": f"ExecStart=/home/{s['home-of-nobody-here']}/fan\n",
    }
    for name, text in told.items():
        (tree.path / name).parent.mkdir(parents=True, exist_ok=True)
        (tree.path / name).write_text(text)
    nvpmodel = tree.path / board_record.NVPMODEL
    nvpmodel.parent.mkdir(parents=True, exist_ok=True)
    nvpmodel.write_text(f"#!/bin/sh\necho 'NV Power Mode: MAXN'; echo {s['host']} {s['mac']} /home/{s['user']}/x\n")
    nvpmodel.chmod(0o755)
    file = tmp_path / "board.tar.gz"
    folder = recorded(tree.path, file, has_own_tools=True)
    content = gzip.decompress(file.read_bytes()).decode(errors="replace").lower()
    assert [what for what, secret in SECRETS.items() if secret.lower() in content] == []
    assert "nv power mode: maxn" in content
    assert "nvidia,tegra234" in (folder / "root/proc/device-tree/compatible").read_text()  # nvidia is a user, too
    assert local_board(Configuration(), folder / "root").name == "emulated-orin-agx"


@pytest.mark.exhaustive
def test_a_record_holds_every_file_that_the_suite_reads_of_a_board(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4", mode="MAXN")
    device, opened, is_heard = local_board(Configuration(), tree.path), set(), [True]

    def hear(event, arguments):
        if is_heard[0] and event == "open" and str(arguments[0]).startswith(tree.root):
            opened.add(os.path.relpath(str(arguments[0]), tree.root))

    sys.addaudithook(hear)
    examine(device, tree.path)
    device.power_mode_space()
    for spec in device.telemetry_sources(Path.cwd()):
        with contextlib.suppress(HarnessError, OSError):
            open_source(spec, "/").read(0.0)
    device.conditions(Case(device.name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16))
    is_heard[0] = False
    assert len(opened) > 100
    held = {os.path.realpath(tree.path / name) for name in board_record._names(tree.path)}
    of_others = ("var/lib/", "tmp/", "run/", "proc/self/", ".", "usr/", "proc/sys/kernel/random/boot_id")
    left_out = ("etc/machine-id", "proc/device-tree/serial-number")
    assert [
        name
        for name in sorted(opened)
        if os.path.realpath(tree.path / name) not in held
        and (tree.path / name).is_file()
        and not name.startswith((*of_others, *left_out))
    ] == []


def test_a_file_that_a_link_leads_to_outside_of_the_tree_is_not_recorded(tmp_path, tree):
    tree.write(HOST)
    (tmp_path / "private").write_text("a private key")
    tree.link("sys/class/thermal/thermal_zone1/type", tmp_path / "private")
    folder = recorded(tree.root, tmp_path / "host.tar.gz")
    said = json.loads((folder / "record.json").read_text())
    assert "leads out of" in said["unreadable"]["sys/class/thermal/thermal_zone1/type"]
    assert not (folder / "root/sys/class/thermal/thermal_zone1/type").exists()


class OnceSource:
    """As jtop's: each sample is given once."""

    def __init__(self):
        self.notes = {"jtop_power_total_mw": "of jtop"}
        self._left = [Reading({"jtop_power_total_mw": 7000.0}, {})]

    def read(self, now_s):
        return self._left.pop() if self._left else Reading({}, {})


def test_what_a_source_says_once_is_in_the_record(tmp_path, tree, monkeypatch):
    tree.write(HOST)
    module = types.ModuleType("harness.board.once")
    module.open_source = lambda root: OnceSource()
    monkeypatch.setitem(sys.modules, "harness.board.once", module)
    monkeypatch.setitem(SOURCES, "jtop", SourceModule("once", "read once"))
    record(tmp_path / "x.tar.gz", tree.path, [SourceSpec("jtop")], 0)
    said = json.loads((unpacked(tmp_path / "x.tar.gz").parent / "record.json").read_text())
    assert said["sources"]["jtop"]["values"] == {"jtop_power_total_mw": 7000.0}


@pytest.mark.exhaustive
def test_a_record_has_long_files_whole_and_is_never_larger_than_a_replay_takes(tmp_path, tree, monkeypatch):
    tree.write(HOST)
    interrupts = "".join(f"{number}: {'0 ' * 200}\n" for number in range(500))
    huge = {f"sys/class/powercap/p{number}/name": "x" * 90_000 for number in range(40)}
    tree.write({"proc/interrupts": interrupts, "proc/stat": "y" * 600_000, **huge})
    tegrastats = tree.path / board_record.TEGRASTATS
    tree.write({board_record.TEGRASTATS: "#!/bin/sh\nyes 'RAM 1/2MB'"})
    tegrastats.chmod(0o755)
    monkeypatch.setattr(board_record, "_MOST_FILE_BYTES", 500_000)
    monkeypatch.setattr(board_record, "_MOST_BYTES", 4_000_000)
    parts = os.read
    monkeypatch.setattr(os, "read", lambda fd, count: parts(fd, min(count, 4096)))  # as /proc gives long files
    record(tmp_path / "x.tar.gz", tree.path, [], 0.2)
    monkeypatch.setattr(os, "read", parts)
    root = root_of(tmp_path / "x.tar.gz")
    assert (root / "proc/interrupts").read_text().strip() == interrupts.strip()
    said = json.loads((root.parent / "record.json").read_text())
    assert "more than 500,000 bytes" in said["unreadable"]["proc/stat"]
    assert 1 < len([why for why in said["unreadable"].values() if "the record is full" in why]) < 40
    assert set(said["programs"][board_record.TEGRASTATS]["lines"]) == {"RAM 1/2MB"}


RECORD = ("record.json", b'{"format": 1}')


def packed(*members, kind=tarfile.REGTYPE, link=""):
    """An archive whose first member is of a kind."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size, kind = kind, link, len(text), tarfile.REGTYPE
            archive.addfile(member, io.BytesIO(text))
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        packed(("root/sys/x", b"1")),  # no record.json
        packed(("../evil", b"1"), RECORD),
        packed(("root/sys/../../../evil", b"1"), RECORD),
        packed(("/tmp/evil", b"1"), RECORD),
        packed(("root/usr/sbin/nvpmodel", b"#!/bin/sh\n"), RECORD),
        packed(("root/sys", b""), RECORD, kind=tarfile.SYMTYPE, link="/etc"),
        packed(("root/sys/x", b""), RECORD, kind=tarfile.SYMTYPE, link="/etc"),
        packed(("root/sys/x", b""), RECORD, kind=tarfile.LNKTYPE, link="/etc/passwd"),
        packed(("root/sys/x", b""), RECORD, kind=tarfile.FIFOTYPE),
        packed(("root/sys/x", b""), RECORD, kind=tarfile.CHRTYPE),
        packed(("root/sys/x", b""), RECORD, kind=tarfile.BLKTYPE),
        packed(("root/sys/x", b"1"), ("root/sys/x/y", b"2"), RECORD),
        packed(("root/sys/x", b"1"), ("root/sys/x", b"2"), RECORD),
        packed(("root/sys/x", bytes(2 << 20)), RECORD),
        packed(*((f"root/sys/{number}", b"") for number in range(50)), RECORD),
        gzip.compress(bytes(80 << 20), compresslevel=1),
        packed(("record.json", b"[" * 100_000)),
        packed(("record.json", b'{"format": 99}')),
    ],
    ids=["no-archive", "no-record", "up", "up-from-within", "absolute", "program", "symlink", "symlink-within", "link",
         "pipe", "character-device", "block-device", "file-as-folder", "twice", "large-file", "many", "large", "nested",
         "newer"],
)  # fmt: skip
def test_what_is_no_record_is_refused_and_lays_nothing_elsewhere(tmp_path, capsys, monkeypatch, content):
    monkeypatch.setattr(board_record, "_MOST_FILES", 50)
    (tmp_path / "whole.tar.gz").write_bytes(packed(("root/sys/x", b"1"), RECORD))
    assert (unpacked(tmp_path / "whole.tar.gz") / "sys/x").read_text() == "1"  # what the others are made of
    (tmp_path / "board.tar.gz").write_bytes(content)
    before = sorted(tmp_path.parent.iterdir())
    assert main(["doctor", "--root", str(tmp_path / "board.tar.gz")]) == 2
    assert "is not a record of a board" in capsys.readouterr().err
    assert sorted(tmp_path.parent.iterdir()) == before
    assert not Path("/tmp/evil").exists()

"""`doctor` describes the host and emulated boards, and says what is wrong with a root; `restore` after a run."""

from __future__ import annotations

import json
import os
import re
from importlib.machinery import ModuleSpec

import pytest
from boards.layouts import PAIRS
from boards.tree import build_board

from harness.__main__ import main
from harness.board import containers, jetson_clocks, saved_state
from harness.board.cpu_clocks import CpuFrequency
from harness.board.lock import locked
from harness.board.saved_state import preserved
from harness.cli.doctor import continuing_command
from harness.core.configuration import Configuration
from harness.devices.host import lock_name
from harness.devices.registry import local_board
from harness.measure.doctor import examine, format_findings, training_capabilities
from tests.messages import says

CONTROL = {
    *("set nvpmodel modes", "switch DVFS off", "take CPUs offline", "set CPU clocks", "set GPU clocks", "set the fan"),
    *("set the memory clock", "set CPU governors", "set GPU and memory governors", "drop the page cache"),
}
MEASURE = {
    *("measure CPU use, own and others'", "measure memory", "measure temperatures", "measure CPU clocks"),
    *("measure power", "measure GPU and memory clocks", "measure block I/O", "notice throttling", "end a run on heat"),
}


def described(tree):
    findings = examine(local_board(Configuration(), tree.path), tree.path)
    return findings, {found["name"]: found for found in findings["capabilities"]}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("board", "l4t"), PAIRS)
def test_a_board_is_described_completely(tmp_path, board, l4t):
    tree = build_board(tmp_path / "root", board, l4t)
    findings, found = described(tree)
    assert CONTROL | MEASURE | {"know the board"} <= set(found)
    assert "unknown" not in json.dumps(findings).lower()
    works = {name for name, capability in found.items() if capability["available"]}
    if board != "thor":  # whose GPU and memory clocks may not be touched
        # Block I/O and the page cache are this machine's, and not every machine gives them.
        elsewhere = {"measure block I/O", "drop the page cache"}
        if board == "orin-nano-super":  # its kernel keeps other masks than every mode has
            elsewhere.add("set nvpmodel modes")
            assert "TPC_PG_MASK 0 instead of 240" in found["set nvpmodel modes"]["detail"]
        assert works | elsewhere >= CONTROL | MEASURE
    assert all(found[name]["detail"] for name in CONTROL | MEASURE)
    assert findings["device"] == f"emulated-{tree.spec.name}"
    assert findings["specification"]["part_number"] in tree.spec.part_numbers
    assert findings["power_modes"]["count"] > 1
    assert set(tree.spec.rails.total) <= set(re.split(r"[,; ]+", found["measure power"]["detail"]))


@pytest.mark.exhaustive
def test_doctor_lists_the_step_of_each_rail(tmp_path):
    _, found = described(build_board(tmp_path / "root", "orin-agx", "r36.4"))
    detail = found["resolve the power of rails"]["detail"]
    steps = (
        "VDD_GPU_SOC 100 mW, VDD_CPU_CV 100 mW, VIN_SYS_5V0 40 mW, VDDQ_VDD2_1V8AO 14.4 mW"  # at the tree's voltages
    )
    assert detail == f"in steps of: {steps}"


@pytest.mark.exhaustive
@pytest.mark.long
def test_doctor_prints_a_board_without_being_told_its_name(tmp_path, capsys):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4", mode="MAXN")
    assert main(["doctor", "--root", tree.root]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    assert words.startswith("emulated-orin-agx: NVIDIA Jetson AGX Orin (emulated) (part_number p3701-0005")
    assert "L4T 36.4.3, JetPack 6.2" in words
    assert max(map(len, text.replace(tree.root, "").splitlines())) <= 100
    free = r"[\d.]+ \wi?B free"  # of this machine's disk, where others write meanwhile
    assert re.sub(free, "", text) == re.sub(free, "", format_findings(described(tree)[0]) + "\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--root", "/no/such/root"), "root /no/such/root is not a folder"),
        (("--device", "nonsense"), "available: host"),
    ],
)
def test_what_is_not_there_is_one_line(capsys, arguments, told):
    assert main(["doctor", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


def test_doctor_says_what_works_what_does_not_and_what_it_takes(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("host: ")
    for topic in ("training", "measure power", "set the core count", "drop the page cache", "Storage found here"):
        assert topic in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.exhaustive
def test_heat_ends_a_run_only_where_a_sensor_with_a_limit_answers(tmp_path):
    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")
    zones = sorted(path.parent for path in tree.path.glob("sys/class/thermal/thermal_zone*/trip_point_*_type"))
    for zone in zones[1:]:
        (zone / "temp").write_text("")
    before = described(tree)[1]["end a run on heat"]
    assert before["available"]
    assert "no value: temperature_" in before["detail"]
    (zones[0] / "temp").write_text("")
    after = described(tree)[1]["end a run on heat"]
    assert not after["available"]
    assert "no sensor with a limit answers" in after["detail"]
    assert "--no-temperature-limit" in str(after)


@pytest.mark.exhaustive
def test_doctor_tells_of_a_killed_run_and_of_one_that_goes_on(killed, tmp_path):
    board = local_board(Configuration(), build_board(tmp_path / "root", "orin-agx", "r36.4").path)
    name = lock_name(board.name, tmp_path / "root")

    def told():
        [one] = [each for each in board.capabilities() if each.name == "have its own settings"]
        return one.available, one.detail, one.hint

    assert told()[0]
    killed.rename(killed.with_name(f"{name}.json"))
    is_clean, what, hint = told()
    assert (is_clean, hint) == (False, "jetwatt restore")
    assert "killed" in what
    with locked(name):
        assert "is in use by process" in told()[1]
    killed.with_name(f"{name}.json").unlink()
    (tmp_path / "root/var/lib/jetwatt").mkdir(parents=True, exist_ok=True)
    (tmp_path / "root/var/lib/jetwatt/jetson_clocks.conf").touch()
    assert "a run that was killed, of another user" in told()[1]


def test_doctor_has_a_way_out_for_clocks_that_cannot_be_set(tmp_path):
    capability = CpuFrequency(str(tmp_path)).available()
    assert not capability.available
    assert "virtual machines have none" in capability.hint


@pytest.mark.parametrize(("mib", "available", "hint"), [(64, False, "84m"), (84, True, "")])
def test_doctor_tells_whether_workers_can_hand_over_batches(monkeypatch, mib, available, hint):
    monkeypatch.setattr(containers, "shared_memory_bytes", lambda: (mib << 20, mib << 20))
    told = training_capabilities()[-1]
    assert told.available == available
    assert hint in told.hint


def test_restore_has_nothing_to_do_after_a_run_that_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with preserved([], "host"):
        pass
    assert main(["restore"]) == 0
    assert says(capsys.readouterr().out, "nothing to restore", f"{tmp_path}/jetwatt")


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """What a killed run on an emulated board leaves, in an empty root."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("JETWATT_LOCK_DIR", str(tmp_path / "locks"))
    state = {"format": saved_state.FORMAT, "device": "emulated-orin-agx-28c3d59d", "root": str(tmp_path), "knobs": []}
    file = tmp_path / "jetwatt/emulated-orin-agx-28c3d59d.json"
    file.parent.mkdir()
    file.write_text(json.dumps(state))
    return file


@pytest.mark.parametrize("name", ["orin-agx", "emulated-orin-agx", "emulated-orin-agx-28c3d59d"])
def test_restore_takes_the_name_that_a_run_takes(killed, name, capsys):
    assert main(["restore", "--device", name]) == 0
    assert "emulated-orin-agx-28c3d59d: restored" in capsys.readouterr().out
    assert not killed.exists()


@pytest.mark.parametrize("name", ["orin-nano", "../../x", "a\nb", "x" * 300])
def test_restore_of_a_device_without_a_saved_state_names_those_that_have_one(killed, name, tmp_path, capsys):
    assert main(["restore", "--device", name]) == 2
    assert "emulated-orin-agx-28c3d59d" in capsys.readouterr().err
    assert not (tmp_path / "locks").exists()


def test_restore_does_not_wait_for_what_is_no_file(killed, capsys):
    killed.unlink()
    os.mkfifo(killed)
    assert main(["restore"]) == 2
    assert "is not believed" in capsys.readouterr().err


def test_restore_tells_of_a_run_of_another_user(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "jetson_clocks.conf"
    file.touch()
    monkeypatch.setattr(jetson_clocks, "stored_clocks", lambda root, are_held=False: file)
    assert main(["restore"]) == 2
    assert "a run that was killed, of another user" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "module", "command"),
    [
        ("/usr/bin/jetwatt doctor --accept", None, "jetwatt doctor --accept"),
        ("jetwatt doctor --accept=again --device host", None, "jetwatt doctor --accept --device host"),
        ("/x/harness/__main__.py doctor --accept again", "harness.__main__", "python -m harness doctor --accept"),
        (
            "/x/boards/__main__.py out/board orin-agx/r36.4 jetwatt doctor --accept --accept-scale 0.01",
            "tests.boards.__main__",
            "python -m tests.boards out/board orin-agx/r36.4 jetwatt doctor --accept --accept-scale 0.01",
        ),
        ("/x/pytest tests", None, "jetwatt doctor --accept"),
    ],
    ids=["script", "again", "module", "emulated", "python"],
)
def test_the_command_that_continues_an_acceptance_test_is_the_one_typed(words, module, command):
    spec = None if module is None else ModuleSpec(module, None)
    assert continuing_command(words.split(), spec) == command

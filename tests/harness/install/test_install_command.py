"""The installation itself: real virtual environments and a real pip, with a folder of wheels for a package index."""

from __future__ import annotations

import ast
import ensurepip
import json
import subprocess
import sys
import types

import pytest

from harness.core.errors import HarnessError
from harness.install import command, environment_folder
from harness.install.__main__ import NEWEST, OLDEST, refusal
from harness.install.command import PROJECT, base_python, board_release, check_torch_is_the_systems, main
from harness.install.plan import JETPACK_OWNS

needs_modern_pip = pytest.mark.skipif(
    tuple(map(int, ensurepip.version().split(".")[:2])) < (21, 3),
    reason="this Python makes environments with a pip below 21.3, and the tests have no newer one to upgrade to",
)


def seen_in(environment):
    """Versions and places of torch and torchvision as the environment's Python sees them."""
    code = (
        "import importlib.metadata as m, json; found = {d.metadata['Name']: (d.version, str(d.locate_file('')))"
        " for d in m.distributions()}; print(json.dumps(found))"
    )
    answer = subprocess.run([str(environment / "bin/python"), "-c", code], stdout=subprocess.PIPE, check=True)
    return json.loads(answer.stdout)


def expect_no_command(monkeypatch):
    def run(argv, **_):
        raise AssertionError(f"ran {argv}")

    monkeypatch.setattr(subprocess, "run", run)


@needs_modern_pip
def test_a_machine_gets_everything_once_and_nothing_is_run_the_second_time(project, index, machine, monkeypatch, capfd):
    assert main(["--extras", "train"], project, machine) == 0
    assert "--editable '.[train]'" in capfd.readouterr().out
    seen = seen_in(project / ".venv")
    assert seen["torch"][0] == seen["torchvision"][0] == "99.0"
    assert {"jetwatt", "light", "ultralytics-opencv-headless", "ultralytics-thop"} <= set(seen)
    expect_no_command(monkeypatch)
    assert main(["--extras", "train"], project, machine) == 0
    assert capfd.readouterr() == ("", "")


@needs_modern_pip
def test_a_board_keeps_the_torch_of_its_jetpack(project, index, board, give_system):
    give_system("torch", "2.0.0+nv23.05")
    give_system("torchvision", "0.15.1a0+42759b1")
    assert main(["--extras", "train"], project, board) == 0
    seen = seen_in(project / ".venv")
    assert seen["torch"][0] == "2.0.0+nv23.05"
    assert seen["torchvision"][0] == "0.15.1a0+42759b1"
    assert {"light", "ultralytics-opencv-headless", "ultralytics-thop"} <= set(seen)
    environment = str((project / ".venv").resolve())
    assert not any(seen[name][1].startswith(environment) for name in JETPACK_OWNS)
    assert seen["ultralytics-opencv-headless"][1].startswith(environment)


@needs_modern_pip
def test_a_board_without_torch_gets_the_rest_and_a_note(project, index, board, capfd):
    assert main(["--extras", "train"], project, board) == 0
    assert "sees no torch and no torchvision on this board (R36 (release)" in capfd.readouterr().out
    seen = seen_in(project / ".venv")
    assert {"light", "ultralytics-opencv-headless"} <= set(seen)
    assert not set(JETPACK_OWNS) & set(seen)


@needs_modern_pip
def test_on_a_board_a_package_that_begins_to_ask_for_torch_stops_the_installation(
    project, index, board, give_system, write_wheel, capfd
):
    give_system("torch", "2.3.0a0+gitabcdef")
    write_wheel(index, "light", "1.0", "torch>=1.8")
    assert main(["--extras", "train"], project, board) == 1
    assert "could not install train" in capfd.readouterr().err
    assert seen_in(project / ".venv")["torch"][0] == "2.3.0a0+gitabcdef"
    assert not environment_folder.holds_torch(project / ".venv")


@pytest.mark.parametrize("seen", [{"torch": "99.0"}, {}])
def test_a_board_whose_environment_does_not_see_the_systems_torch_is_an_error(seen, project, monkeypatch):
    monkeypatch.setattr(command, "installed_versions", lambda python: seen)
    with pytest.raises(HarnessError, match=r"on a board they are one; remove the environment"):
        check_torch_is_the_systems(project / ".venv", {"torch": "2.0.0+nv23.05"})


def test_a_second_torch_of_the_same_version_in_a_boards_environment_is_an_error(project, monkeypatch):
    monkeypatch.setattr(command, "installed_versions", lambda python: {"torch": "2.3.0"})
    check_torch_is_the_systems(project / ".venv", {"torch": "2.3.0"})
    (project / ".venv/lib/python3.10/site-packages/torch").mkdir(parents=True)
    with pytest.raises(HarnessError, match="on a board they are one"):
        check_torch_is_the_systems(project / ".venv", {"torch": "2.3.0"})


def test_a_failed_download_says_what_it_may_mean_and_is_not_taken_for_done(project, machine, monkeypatch, capfd):
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: types.SimpleNamespace(returncode=int("pip" in argv)))
    assert main(["--extras", "dev"], project, machine) == 1
    error = capfd.readouterr().err
    assert "-m pip install --disable-pip-version-check 'pip>=21.3'` ended with 1" in error
    assert "an installation needs the network" in error
    key = json.loads((project / ".venv" / environment_folder.STAMP).read_text())["key"]
    assert key == "incomplete"


def test_an_environment_that_cannot_be_made_is_one_line_and_no_traceback(project, machine, monkeypatch, capfd):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert main(["--extras", "dev"], project, machine) == 1
    error = capfd.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert "-venv" in error
    assert not (project / ".venv").exists()


def test_a_cut_off_environment_is_removed_before_it_is_made_anew(project, machine, monkeypatch, capfd):
    environment_folder.begin(project / ".venv", remove=False)
    (project / ".venv/half").write_text("")
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: types.SimpleNamespace(returncode=0))
    assert main(["--extras", "dev"], project, machine) == 0
    assert "anew: an installation was cut off in it" in capfd.readouterr().out
    assert not (project / ".venv/half").exists()


def test_what_will_be_removed_counts_as_free_space(project, machine):
    environment_folder.begin(project / ".venv", remove=False)
    (project / ".venv/large").write_bytes(b"x" * 2**20)
    size = environment_folder.size_bytes(project / ".venv")
    assert size >= 2**20
    request = command.Request(project, project / ".venv", ("dev",), base_python(), sys.version_info[:2])
    kept = command.gather_facts(request, board="", remake=False)
    remade = command.gather_facts(request, board="", remake=True)
    assert (kept.reusable, remade.reusable) == (True, False)
    # Others write to the disk meanwhile: half of what is given back is far more than the tests' own share.
    assert remade.free_bytes > kept.free_bytes - 2**30
    assert command.gather_facts(request._replace(environment=project / "a/b"), "", remake=False).free_bytes > 0


def test_a_board_is_known_by_its_l4t_release(machine):
    assert board_release(machine) == ""
    (machine / "etc/nv_tegra_release").write_text("# R35 (release), REVISION: 4.1, GCID: 33958178\n")
    assert board_release(machine) == "R35 (release), REVISION: 4.1, GCID: 33958178"
    (machine / "etc/nv_tegra_release").write_text("")
    assert board_release(machine)


def test_the_environment_is_never_made_of_another_environments_python():
    code = "import sys; print(sys.prefix == sys.base_prefix)"
    assert subprocess.run([base_python(), "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"True\n"


@pytest.mark.parametrize("version", [(2, 7), (3, 6), (3, 7), (3, 14), (4, 0)])
def test_a_python_that_is_too_old_or_too_new_is_told_so_with_the_way_out(version):
    message = refusal(version)
    assert f"this is Python {version[0]}.{version[1]}, and the suite runs on 3.8 to 3.13" in message
    assert "PYTHON=python3.X" in message


def test_every_python_that_the_suite_runs_on_is_let_in():
    assert [refusal((3, minor)) for minor in range(OLDEST[1], NEWEST[1] + 1)] == [""] * 6


@pytest.mark.parametrize("file", ["harness/__init__.py", "harness/install/__init__.py", "harness/install/__main__.py"])
def test_the_door_can_be_read_by_the_python_of_jetpack_4(file):
    source = (PROJECT / file).read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 6))
    futures = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert futures == []

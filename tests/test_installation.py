"""What decides what is installed: pyproject.toml, the constraints, and the Makefile's commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

PROJECT = Path(__file__).resolve().parents[1]
PROJECT_TABLE = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [f"3.{minor}" for minor in range(8, 14)]
JETPACK_OWNS = {"torch", "torchvision", "torchaudio", "triton"}
WITHOUT_DEPENDENCIES = {"ultralytics-opencv-headless", "ultralytics-thop"}

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def requirements(file):
    lines = (PROJECT / file).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


PINS = requirements("constraints.txt")


def pinned(name, python):
    """The versions that a package is pinned to on a Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": "x86_64"}
    return [
        str(pin.specifier) for pin in PINS if pin.name == name and (not pin.marker or pin.marker.evaluate(environment))
    ]


def make(*arguments):
    """What make says by its defaults, whatever the make that runs these tests was given."""
    given = ("EXTRAS", "PYTHON", "VENV", "JOBS", "ARGS", "MAKEFLAGS", "MAKEOVERRIDES")
    environment = {name: value for name, value in os.environ.items() if name not in given}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=str(PROJECT), env=environment, capture_output=True, text=True,
    )  # fmt: skip


def test_torch_is_asked_for_by_the_extra_train_only():
    extras = {name: {Requirement(text).name for text in texts} for name, texts in
              {**PROJECT_TABLE["optional-dependencies"], "": PROJECT_TABLE["dependencies"]}.items()}  # fmt: skip
    assert extras.pop("train") == {"jetwatt", "torch", "torchvision", "ultralytics-opencv-headless"}
    for name, packages in extras.items():
        assert not packages & (JETPACK_OWNS | WITHOUT_DEPENDENCIES), name


@pytest.mark.training
def test_nothing_that_a_board_installs_asks_pip_for_torch():
    """Follows what is installed here from the extras of a board; what it gets without dependencies is not followed."""
    extras = PROJECT_TABLE["optional-dependencies"]
    waiting = [Requirement(text) for name in ("train-without-torch", "report", "dev") for text in extras[name]]
    seen = set()
    while waiting:
        asked = waiting.pop()
        if asked.name in seen or (asked.marker and not asked.marker.evaluate({"extra": ""})):
            continue
        seen.add(asked.name)
        try:
            waiting += [Requirement(text) for text in metadata.requires(asked.name) or []]
        except metadata.PackageNotFoundError:
            continue
    assert {"transformers", "scikit-learn", "matplotlib"} <= seen
    assert not seen & JETPACK_OWNS


@pytest.mark.training
def test_a_board_installs_by_name_whatever_ultralytics_asks_for():
    texts = PROJECT_TABLE["optional-dependencies"]["train-without-torch"] + PROJECT_TABLE["dependencies"]
    named = {Requirement(text).name for text in texts} | JETPACK_OWNS | WITHOUT_DEPENDENCIES
    asked_for = metadata.requires("ultralytics-opencv-headless")
    assert {Requirement(text).name for text in asked_for if "extra ==" not in text} <= named


def test_on_a_board_jetson_stats_stays_at_the_version_of_its_service():
    [pin] = [pin for pin in PINS if pin.name == "jetson-stats"]
    assert not pin.marker.evaluate({"platform_machine": "aarch64"})


def test_on_a_board_pip_stops_rather_than_bring_a_torch():
    assert {str(pin) for pin in requirements("constraints-board.txt")} == {f"{name}<0" for name in JETPACK_OWNS}


@needs_make
def test_make_installs_on_a_board_with_the_boards_constraints(tmp_path):
    release = tmp_path / "nv_tegra_release"
    release.write_text("# R36 (release), REVISION: 4.0\n")
    commands = make("-n", "environment", f"L4T={release}").stdout
    assert "-m venv --system-site-packages" in commands  # outside of one, pip of JetPack 7 refuses (PEP 668)
    installs = [line for line in commands.splitlines() if "pip install" in line and "'pip>" not in line]
    project, ultralytics = installs
    assert "-c constraints-board.txt" in project
    assert "train-without-torch" in project
    assert set(ultralytics.rpartition("--no-deps ")[2].split()) == WITHOUT_DEPENDENCIES


@needs_make
def test_make_installs_by_the_commands_of_the_documentation():
    documented = (PROJECT / "docs" / "install.md").read_text(encoding="utf-8")
    for board in ("L4T=Makefile", "L4T=no-such-file"):
        for line in make("-n", "environment", board).stdout.splitlines():
            if "pip install" in line:
                arguments = line.partition("--disable-pip-version-check ")[2].replace('"', "'")
                assert f"pip install {arguments}" in documented


def test_the_pythons_of_the_project():
    assert PROJECT_TABLE["requires-python"] == ">=3.8,<3.14"
    assert [f"Programming Language :: Python :: {python}" for python in PYTHONS] == PROJECT_TABLE["classifiers"][-6:]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_pinned_package_has_one_version_on_each_python(python):
    versions = {name: pinned(name, python) for name in {pin.name for pin in PINS}}
    absent = {name for name, found in versions.items() if not found}
    assert absent <= {"ultralytics-platform"}  # which ultralytics asks for from 3.11 on
    assert all(re.fullmatch(r"==[\d.]+", found[0]) and len(found) == 1 for found in versions.values() if found)


def test_every_package_that_is_asked_for_is_pinned():
    texts = [text for texts in PROJECT_TABLE["optional-dependencies"].values() for text in texts]
    asked_for = {Requirement(text).name for text in texts + PROJECT_TABLE["dependencies"]}
    # JetPack decides on some, and the rest is small and steady
    left_open = {"jetwatt", "nvidia-ml-py", "psutil", "pyyaml", "requests", "setuptools", "tomli"}
    assert asked_for - left_open <= {pin.name for pin in PINS}


def test_no_package_index_is_named():
    for file in ("pyproject.toml", "constraints.txt", "constraints-board.txt", "Makefile", ".ci/run"):
        assert "://" not in (PROJECT / file).read_text(encoding="utf-8"), file


@needs_make
def test_make_alone_lists_every_target_with_what_it_does():
    alone = make().stdout
    assert alone == make("help").stdout
    listed = dict(re.findall(r"^make ([\w-]+) +(\S.+)$", alone, flags=re.MULTILINE))
    targets = "bench clean fleet-demo fleet-test format help install lint record report test test-all"
    assert " ".join(sorted(listed)) == targets
    assert len(alone.splitlines()) == len(listed)


@needs_make
def test_make_says_so_where_the_interpreter_does_not_exist():
    done = make("test", "PYTHON=python3.99")
    assert done.returncode != 0
    assert "there is no python3.99 on the PATH; install a Python from 3.8 to 3.13" in done.stderr

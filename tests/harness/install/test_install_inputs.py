"""The files that decide what is installed, and the Makefile that hands them to the installation."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from harness.core.files import read_toml
from harness.install.__main__ import NEWEST, OLDEST
from harness.install.command import PROJECT
from harness.install.environment_folder import INPUTS
from harness.install.plan import ASK_FOR_TORCH, EXTRAS, JETPACK_OWNS

PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]


@pytest.fixture(scope="module")
def project_table():
    return read_toml(PROJECT / "pyproject.toml")["project"]


@pytest.fixture(scope="module")
def pins():
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pinned(pins, name, python):
    """The versions that a package is pinned to on a Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    return [
        str(pin.specifier) for pin in pins if pin.name == name and (not pin.marker or pin.marker.evaluate(environment))
    ]


def test_the_pythons_of_the_project_are_those_that_the_installation_lets_in(project_table):
    assert project_table["requires-python"] == f">={PYTHONS[0]},<3.{NEWEST[1] + 1}"
    assert [f"Programming Language :: Python :: {python}" for python in PYTHONS] == project_table["classifiers"][-6:]


def test_the_extras_of_the_project_are_those_that_the_installation_knows(project_table):
    assert set(project_table["optional-dependencies"]) == {*EXTRAS, "train-without-torch"}


def test_the_core_is_thin(project_table):
    names = {Requirement(text).name for text in project_table["dependencies"]}
    assert not names & {*JETPACK_OWNS, *ASK_FOR_TORCH, "transformers", "pandas", "pyarrow", "scikit-learn"}


def test_what_a_board_installs_asks_for_no_torch(project_table):
    extras = project_table["optional-dependencies"]
    without_torch = {Requirement(text).name for text in extras["train-without-torch"]}
    everything = {Requirement(text).name for text in extras["train"]}
    assert not without_torch & {*JETPACK_OWNS, *ASK_FOR_TORCH}
    assert everything - {"jetwatt"} == {*JETPACK_OWNS, "ultralytics-opencv-headless"}


def test_a_board_installs_by_name_whatever_ultralytics_asks_for(project_table):
    try:
        asked_for = metadata.requires("ultralytics-opencv-headless") or []
    except metadata.PackageNotFoundError:
        pytest.skip("ultralytics-opencv-headless is not installed here: make install EXTRAS=train,dev")
    extras = project_table["optional-dependencies"]["train-without-torch"] + project_table["dependencies"]
    named = {Requirement(text).name for text in extras} | {*JETPACK_OWNS, *ASK_FOR_TORCH}
    assert {Requirement(text).name for text in asked_for if "extra ==" not in text} <= named


@pytest.mark.parametrize("python", PYTHONS)
def test_every_pinned_package_has_one_version_on_each_python(pins, python):
    versions = {name: pinned(pins, name, python) for name in {pin.name for pin in pins}}
    absent = {name for name, found in versions.items() if not found}
    assert absent <= {"ultralytics-platform"}  # which ultralytics asks for from 3.11 on
    assert all(re.fullmatch(r"==[\d.]+", found[0]) and len(found) == 1 for found in versions.values() if found)


@pytest.mark.parametrize(
    ("python", "torch", "torchvision"),
    [("3.8", "==1.12.1", "==0.13.1"), ("3.9", "==2.8.0", "==0.23.0"), ("3.10", "==2.14.1", "==0.29.2")]
    + [(python, "==2.15.0", "==0.29.2") for python in PYTHONS[3:]],
)  # fmt: skip
def test_torch_and_torchvision_are_pinned_in_pairs_that_were_tried_together(pins, python, torch, torchvision):
    assert pinned(pins, "torch", python) == [torch]
    assert pinned(pins, "torchvision", python) == [torchvision]


def test_the_version_of_jetson_stats_is_left_to_the_board(pins):
    assert not pinned(pins, "jetson-stats", "3.10")


@pytest.mark.parametrize("file", [*INPUTS, "Makefile", ".ci/run"])
def test_no_package_index_is_named(file):
    assert "://" not in (PROJECT / file).read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("arguments", [[], ["help"]])
def test_make_alone_lists_every_target_with_what_it_does(arguments):
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=str(PROJECT), stdout=subprocess.PIPE, check=True
    )
    listed = dict(re.findall(r"^make (\w+) +(\S.+)$", done.stdout.decode(), flags=re.MULTILINE))
    assert sorted(listed) == ["bench", "clean", "format", "help", "install", "lint", "report", "test"]
    assert len(done.stdout.splitlines()) == len(listed)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_says_so_where_the_interpreter_does_not_exist():
    done = subprocess.run(["make", "test", "PYTHON=python3.99"], cwd=str(PROJECT), capture_output=True, text=True)
    assert done.returncode != 0
    assert "there is no python3.99 on the PATH; install a Python from 3.8 to 3.13" in done.stderr

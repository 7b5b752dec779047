"""What decides what is installed: pyproject.toml, the constraints, and the Makefile's commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.messages import says
from tools import first_run, pip_in_lines

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

PROJECT = Path(__file__).resolve().parents[1]
PROJECT_TABLE = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [f"3.{minor}" for minor in range(8, 16)]
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
    assert PROJECT_TABLE["requires-python"] == ">=3.8"
    prefix = "Programming Language :: Python :: "
    listed = [text[len(prefix) :] for text in PROJECT_TABLE["classifiers"] if text.startswith(prefix)]
    assert listed == PYTHONS


def test_a_python_newer_than_the_tested_ones_is_not_held_to_packages_that_were_not_built_for_it():
    compiled = {
        "hypothesis", "matplotlib", "msgspec", "mypy", "numpy", "pandas", "pillow", "pyarrow", "scikit-learn", "scipy",
        "torch", "torchvision",
    }  # fmt: skip
    assert compiled == {pin.name for pin in PINS if pinned(pin.name, PYTHONS[-1]) and not pinned(pin.name, "3.16")}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_pinned_package_has_one_version_on_each_python(python):
    versions = {name: pinned(name, python) for name in {pin.name for pin in PINS}}
    absent = {name for name, found in versions.items() if not found}
    later = {"ultralytics-platform", "furo", "myst-parser", "sphinx", "ipykernel", "nbclient"}  # from 3.11 on
    assert absent <= (later if python in PYTHONS[:3] else set())
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
    targets = "bench clean docs fleet-demo fleet-test format help install lint record report test test-all wheel"
    assert " ".join(sorted(listed)) == targets
    assert len(alone.splitlines()) == len(listed)


@needs_make
def test_make_says_so_where_the_interpreter_does_not_exist():
    done = make("test", "PYTHON=python3.99")
    assert done.returncode != 0
    assert says(done.stderr, "python3.99", "Python 3.8 or later")


@needs_make
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "installing train,report,dev into .venv, once: about 3 GB of downloads, 7 GB on disk, 2 minutes"),
        (("EXTRAS=dev",), "installing dev into .venv, once: about 0.2 GB of downloads, 0.7 GB on disk, a minute"),
        (("L4T=Makefile",), "about 0.5 GB of downloads, 1.5 GB on disk, a few minutes; JetPack's torch stays"),
    ],
)
def test_installing_says_in_advance_how_much_comes_and_how_long_it_takes(arguments, words):
    commands = make("-n", "environment", "L4T=no-such-file", *arguments).stdout
    assert words in commands
    assert commands.index(words) < commands.index("-m venv")


@needs_make
def test_what_first_runs_would_compile_is_loaded_last_while_installing():
    for board in ("L4T=Makefile", "L4T=no-such-file"):
        assert make("-n", "environment", board).stdout.splitlines()[-1].endswith("tools/first_run.py")


PIP = """
WARNING: something of no interest
Collecting torch==2.15.0
  Downloading torch-2.15.0-cp311-none-manylinux.whl.metadata (30 kB)
Collecting click
  Downloading click-8.5.1-py3-none-any.whl (100 kB)
     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 100.0/100.0 kB 3.4 MB/s eta 0:00:00
  Downloading https://somewhere/torch-2.15.0-cp311-none-manylinux.whl (755.1 MB)
  Using cached nvidia_cudnn-9.1-py3-none-manylinux.whl (1.2 GB)
Requirement already satisfied: pip>=21.3 in /somewhere
Installing collected packages: click, nvidia-cudnn, torch
Successfully installed click-8.5.1 nvidia-cudnn-9.1 torch-2.15.0
"""


def test_of_pips_output_large_packages_and_steps_are_a_line_each(tmp_path):
    now_s = [0.0]
    lines = pip_in_lines.Lines(lambda: now_s[0], tmp_path)
    silent = pip_in_lines.Lines(lambda: now_s[0], tmp_path).silence()
    (tmp_path / "pip-25.dist-info").mkdir()
    said = [said for said in map(lines.of, PIP.splitlines()) if said]
    now_s[0] = 61.0
    (tmp_path / "a-1.dist-info").mkdir()
    assert "after 0 s" in silent
    large, cached, unpacking, installed = said
    assert says(large, "downloading", "torch-2.15.0, 755 MB", "2 files, 755 MB")
    assert says(cached, "cache", "nvidia_cudnn-9.1, 1200 MB", "3 files, 1955 MB")
    assert says(unpacking, "3 files, 1955 MB", "3 packages")
    assert says(installed, "3 packages", "0 s")
    assert says(lines.silence(), "after 61 s", "1 of 3 packages")


@needs_make
def test_a_board_whose_torch_lacks_a_library_is_told_which(tmp_path):
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    error = "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory"
    python.write_text(f"#!/bin/sh\necho 'Traceback (most recent call last):' >&2\necho '{error}' >&2\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / "release").write_text("# R36")
    (tmp_path / "ein Python").symlink_to(sys.executable)
    names = (f"L4T={tmp_path / 'release'}", f"VENV={tmp_path}", f"PYTHON={tmp_path / 'ein Python'}", "EXTRAS=train")
    lines = make("-n", "environment", *names).stdout.splitlines()
    [first] = [number for number, line in enumerate(lines) if "'import torch, torchvision'" in line]
    last = next(number for number in range(first, len(lines)) if not lines[number].endswith("\\"))
    command = "\n".join(lines[first : last + 1])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    note, shown = done.stdout.splitlines()
    assert says(note, "torch and torchvision", "Python 3.")
    assert shown == error


def test_pip_that_fails_ends_with_its_own_status_and_the_end_of_its_output(capfd):
    program = "import sys; print('ERROR: No matching distribution found'); sys.exit(3)"
    assert pip_in_lines.run([sys.executable, "-c", program]) == 3
    said = capfd.readouterr().out
    assert "ERROR: No matching distribution found\n" in said
    assert "ended with 3" in said


def test_pip_that_says_nothing_for_long_is_still_at_work(capfd, monkeypatch):
    monkeypatch.setattr(pip_in_lines, "SILENCE_S", 0.05)
    program = "import time; time.sleep(0.5); print('Successfully installed a-1')"
    assert pip_in_lines.run([sys.executable, "-c", program]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0].startswith("  still at work, after ")
    assert any(line.startswith("  installed 1 package, after ") for line in said)


def test_what_first_runs_load_is_compiled_and_failing_to_is_only_said(capsys, monkeypatch):
    asked = []

    def run(command, **options):
        asked.append((command, options["env"]))
        return subprocess.CompletedProcess(command, 1 if "pytest" in command else 0)

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(first_run.subprocess, "run", run)
    monkeypatch.setattr(first_run.importlib.util, "find_spec", lambda name: object())
    first_run.main()
    assert ["pytest" in command for command, _ in asked] == [True, False]
    assert not any("PYTHONDONTWRITEBYTECODE" in environment for _, environment in asked)
    assert "note: `python -m pytest" in capsys.readouterr().out
    asked.clear()
    monkeypatch.setattr(first_run.importlib.util, "find_spec", lambda name: None)
    first_run.main()
    assert len(asked) == 1  # without torch nothing is trained

"""The wheel, built and installed into a fresh environment: what a stranger has in a folder of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENT = PROJECT / "docs" / "own_network.md"
PACKAGES = ("harness", "predictors", "jetwatt", "baselines")


COMMAND_FINDS_THE_CLONE = pytest.mark.skipif(
    int(pytest.__version__.partition(".")[0]) < 9,
    reason="before 9, the command `pytest` loads what is installed before it reads pytest.ini: use python -m pytest",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built offline from a copy that holds nothing but what the project has."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "-w", out, source], check=True)
    [built] = out.glob("jetwatt-*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """The Python of a new environment with the wheel, which sees the other packages that are installed here."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    here = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (folder / "lib" / version / "site-packages" / "others.pth").write_text("\n".join(sorted(here)))
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--ignore-installed", wheel], check=True)
    return python


@pytest.fixture
def run(fresh, tmp_path):
    """Runs a program of the fresh environment in an empty folder, or in another one."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    variables.update(OMP_NUM_THREADS="1", JETWATT_LOCK_DIR=str(tmp_path))

    def run(program, *arguments, cwd=tmp_path):
        command = [str(fresh.parent / program), *map(str, arguments)]
        done = subprocess.run(command, cwd=str(cwd), env=variables, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_wheel_holds_every_file_of_its_packages(wheel):
    tracked = subprocess.run(["git", "ls-files", *PACKAGES], cwd=str(PROJECT), capture_output=True, text=True)
    if tracked.returncode:
        files = {str(path.relative_to(PROJECT)) for name in PACKAGES for path in (PROJECT / name).rglob("*.*")}
        files = {name for name in files if "__pycache__" not in name}
    else:
        files = set(tracked.stdout.split())
    held = set(zipfile.ZipFile(str(wheel)).namelist())
    assert {name for name in files - held if not name.endswith(".md")} == set()
    assert not {name.partition("/")[0] for name in held if ".dist-info/" not in name} - set(PACKAGES)


def test_the_command_and_the_public_names_work_in_an_empty_folder(run):
    script = (
        "import jetwatt, harness; print(harness.__file__, [getattr(jetwatt, name) for name in jetwatt.__all__]);"
        "print(len(jetwatt.load_table('zeus-v100')))"
    )
    code, said = run("python", "-c", script)
    assert code == 0, said
    assert "site-packages" in said.split()[0]
    simulate = ["corpus", "simulate", "--device", "orin-agx", "--workload", "lenet-mnist", "--sample", "5"]
    code, said = run("jetwatt", *simulate, "--out", "c.csv")
    assert code == 0, said


@pytest.mark.parametrize(
    ("in_clone", "as_module"),
    [
        pytest.param(True, True, id="in-the-clone"),
        pytest.param(True, False, id="in-the-clone-by-command", marks=COMMAND_FINDS_THE_CLONE),
        pytest.param(False, False, id="elsewhere"),
    ],
)
def test_pytest_meets_the_plugin_once(run, tmp_path, in_clone, as_module):
    """conftest.py of the clone names the plugin that the entry point has loaded; the modules are the clone's there."""
    arrays = (
        "import numpy, pytest\n@pytest.mark.parametrize('case', [numpy.arange(2)])\ndef test_mine(case):\n    pass\n"
    )
    (tmp_path / "test_mine.py").write_text(arrays)
    file = PROJECT / "tests" / "test_layout.py" if in_clone else tmp_path / "test_mine.py"
    options = ["--trace-config", "--collect-only", "-q", "-p", "no:cacheprovider", file]
    script = "import sys, pytest; sys.path.remove(''); sys.exit(pytest.main())"  # as the command `pytest` does
    start = ["-m", "pytest"] if as_module else ["-c", script]
    code, said = run("python", *start, *options, cwd=PROJECT if in_clone else tmp_path)
    assert code == 0, said
    [registered] = [line for line in said.splitlines() if "registered: <module 'harness.plugin'" in line]
    assert (str(PROJECT / "harness") in registered) == in_clone


TEST_PARTS = """\
import pytest
@pytest.mark.parametrize("cache", ["warm", "evicted"])
def test_parts(device, power_mode, page_cache, telemetry, train, baseline, cache):
    profile = train(minibatches=2)
    assert power_mode.cpu_cores >= 1 and profile.minibatch_time_ms <= baseline(profile)
"""


@pytest.mark.training
def test_a_strangers_test_measures_their_own_network_in_an_empty_folder(run, tmp_path):
    pytest.importorskip("torchvision")
    (tmp_path / "test_parts.py").write_text(TEST_PARTS)
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / name).write_text(code)
    asked = ["--workload", "my_model:WORKLOAD", "--minibatches", "2", "--batch-size", "1", "--results", "r.sqlite"]
    code, said = run("python", "-m", "pytest", "test_mine.py", "test_parts.py", *asked)
    assert code == 0, said
    assert "4 passed" in said
    script = "import jetwatt; print(sorted(jetwatt.open_results('r.sqlite').profiles()['workload']))"
    assert run("python", "-c", script) == (0, f"{['my-net'] * 4}\n")

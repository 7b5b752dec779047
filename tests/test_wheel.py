"""The wheel, built and installed into a fresh environment: what a stranger has in a folder of their own.

All is in the package `jetwatt` there, so that folders of the stranger may be called `harness` or `predictors`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest

from tests.programs import write_python_program
from tools.wheel import one_package, try_lowest, try_wheel

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENT = PROJECT / "docs" / "own_network.md"
PACKAGES = ("harness", "predictors", "jetwatt", "baselines")
MOVED = one_package.FOLDERS


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built offline from a copy that holds nothing but what the project has."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PROJECT / "tools" / "wheel", source / "tools" / "wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "-w", out, source], check=True)
    [built] = out.glob("jetwatt-*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """The Python of a new environment with the wheel, and with links to the other packages that are installed here."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    for path in [path for entry in sys.path if entry.endswith("-packages") for path in Path(entry).iterdir()]:
        is_ours = path.name.startswith(("jetwatt", "__editable__")) or path.suffix == ".pth"
        if not is_ours and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    command = "import sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
    write_python_program(folder / "bin" / "pytest", command, interpreter=str(python))
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


@pytest.mark.exhaustive
def test_the_wheel_has_every_file_of_its_packages_in_one_package_and_nothing_else(wheel):
    tracked = subprocess.run(["git", "ls-files", *PACKAGES], cwd=str(PROJECT), capture_output=True, text=True)
    if tracked.returncode:
        files = {str(path.relative_to(PROJECT)) for name in PACKAGES for path in (PROJECT / name).rglob("*.*")}
        files = {name for name in files if "__pycache__" not in name}
    else:
        files = set(tracked.stdout.split())
    files = {f"jetwatt/{name}" if name.partition("/")[0] in MOVED else name for name in files}
    held = set(zipfile.ZipFile(str(wheel)).namelist())
    assert {name for name in files - held if not name.endswith(".md")} == set()
    assert try_wheel.faults_of(wheel) == []


def test_a_wheel_that_is_too_large_or_has_anything_else_is_refused(tmp_path):
    wrong = tmp_path / "jetwatt-1.whl"
    with zipfile.ZipFile(str(wrong), "w") as archive:
        archive.writestr("jetwatt-1.dist-info/top_level.txt", "harness\njetwatt\n")
        archive.writestr("harness/__init__.py", "")
        archive.writestr("jetwatt/tools/fit.py", "")
        archive.writestr("jetwatt/conftest.py", os.urandom(2_000_000))
    faults = try_wheel.faults_of(wrong)
    words = (
        "bytes, at most",
        "packages harness, jetwatt",
        "harness/__init__.py outside",
        "tools/fit.py",
        "conftest.py",
    )
    assert [word for word, fault in zip(words, faults) if word in fault] == list(words)
    assert len(faults) == len(words)


@pytest.mark.exhaustive
def test_no_text_of_the_wheel_names_a_module_as_a_clone_does(wheel):
    """But for comments in TOML files, whose hashes are in records."""
    with zipfile.ZipFile(str(wheel)) as archive:
        texts = {
            name: archive.read(name).decode("utf-8", "replace")
            for name in archive.namelist()
            if name.endswith((".py", ".pyi")) or "/scripts/" in name or ".dist-info/entry" in name
        }
    left = re.compile(
        r"(?<!jetwatt\.)(?<![\w/])(?:harness|predictors)\.(?:core|board|models|plugin)|-m (?:harness|predictors)"
    )
    assert {name: found for name, text in texts.items() for found in [left.findall(text)] if found} == {}
    assert texts["jetwatt/harness/fleet/scripts/on_board"].count("-m jetwatt.harness.fleet.on_board") == 1


@pytest.mark.parametrize(
    ("clone", "installed"),
    [
        ("from harness.core.units import ms_to_s\n", "from jetwatt.harness.core.units import ms_to_s\n"),
        ("    from predictors import sampling\n", "    from jetwatt.predictors import sampling\n"),
        ("import harness\nharness.__version__\n", "from jetwatt import harness\nharness.__version__\n"),
        ('f"harness.board.{name}"', 'f"jetwatt.harness.board.{name}"'),
        ("run `python -m harness doctor`", "run `python -m jetwatt doctor`"),
        ("-m harness.fleet.on_board", "-m jetwatt.harness.fleet.on_board"),
        ("predictors.items()", "predictors.items()"),
        ("jetwatt.harness.plugin", "jetwatt.harness.plugin"),
        ("see harness/board/gpu.py, my-harness.board", "see harness/board/gpu.py, my-harness.board"),
    ],
)
def test_names_of_modules_are_rewritten_and_nothing_else_is(clone, installed, tmp_path):
    for name in MOVED:
        (tmp_path / name).symlink_to(PROJECT / name)
    assert one_package.in_package(clone, tmp_path) == installed


@pytest.mark.parametrize(
    "source",
    [
        "import harness, json",
        "import jetwatt.harness.core",
        "def f(harness):\n    return jetwatt.harness.core",
        "from predictors.models import base",
    ],
)
def test_an_import_that_cannot_be_rewritten_ends_the_build_with_its_line(source):
    with pytest.raises(ImportError, match=r"here\.py:\d+: .*in the wheel"):
        one_package.refuse_what_is_left(source, Path("here.py"))


@pytest.mark.exhaustive
def test_the_command_and_the_public_names_work_in_an_empty_folder(run):
    script = (
        "import jetwatt; print(jetwatt.__file__, [getattr(jetwatt, name) for name in jetwatt.__all__]);"
        "from jetwatt.harness.core.environment import import_path;"
        "assert str(import_path() / 'jetwatt/__init__.py') == jetwatt.__file__, import_path();"
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
        pytest.param(True, False, id="in-the-clone-by-command"),
        pytest.param(False, False, id="elsewhere"),
    ],
)
@pytest.mark.exhaustive
def test_pytest_meets_the_plugin_once(run, tmp_path, in_clone, as_module):
    """In the clone, conftest.py names the clone's plugin, elsewhere `-p jetwatt` the installed one."""
    arrays = (
        "import numpy, pytest\n@pytest.mark.parametrize('case', [numpy.arange(2)])\ndef test_mine(case):\n    pass\n"
    )
    (tmp_path / "test_mine.py").write_text(arrays)
    file = PROJECT / "tests" / "test_layout.py" if in_clone else tmp_path / "test_mine.py"
    options = ["--trace-config", "--collect-only", "-q", "-p", "no:cacheprovider", file]
    options += [] if in_clone else ["-p", "jetwatt"]
    script = "import sys, pytest; sys.path.remove(''); sys.exit(pytest.main())"  # as the command `pytest` does
    start = ["-m", "pytest"] if as_module else ["-c", script]
    code, said = run("python", *start, *options, cwd=PROJECT if in_clone else tmp_path)
    assert code == 0, said
    [registered] = re.findall(r"registered: <module '((?:jetwatt\.)?harness\.plugin)' from '([^']+)'", said)
    assert registered[0] == ("harness.plugin" if in_clone else "jetwatt.harness.plugin")
    assert registered[1].startswith(str(PROJECT / "harness")) == in_clone


@pytest.mark.exhaustive
def test_an_installed_jetwatt_leaves_the_pytest_of_others_alone(wheel, run, tmp_path):
    with zipfile.ZipFile(str(wheel)) as archive:
        [listed] = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert "pytest11" not in archive.read(listed).decode()
    (tmp_path / "test_others.py").write_text(textwrap.dedent(try_wheel.FILES["test_others.py"]))
    code, said = run("python", "-m", "pytest", "test_others.py")
    assert code == 0, said


@pytest.mark.exhaustive
def test_a_clone_beside_an_installed_copy_says_how_to_run_it(run):
    script = "import sys; sys.path.remove(''); import jetwatt, pytest; pytest.main(sys.argv[1:])"
    _, said = run("python", "-c", script, "--collect-only", cwd=PROJECT)
    assert "two copies of jetwatt" in said
    assert "run `python -m pytest`" in said


@pytest.fixture(scope="module")
def beside_an_editable_clone(tmp_path_factory):
    """A folder with a clone called jetwatt, and an empty environment, `venv`, in which it is installed editable."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "jetwatt").mkdir()
    for name in (*PACKAGES, "tools", "pyproject.toml", "README.md", "LICENSE"):
        (folder / "jetwatt" / name).symlink_to(PROJECT / name)
    build = "import sys; sys.path.insert(0, 'tools/wheel'); import one_package; one_package.build_editable('..')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=str(folder / "jetwatt"), check=True)
    venv.create(folder / "venv", with_pip=False)
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    [built] = folder.glob("*.whl")
    zipfile.ZipFile(str(built)).extractall(packages)
    (folder / "own.py").write_text("import jetwatt\nprint(jetwatt.__file__)\n")
    return folder


@pytest.mark.exhaustive
def test_a_script_beside_an_editable_clone_imports_its_package_not_its_folder(beside_an_editable_clone):
    folder = beside_an_editable_clone
    done = subprocess.run([folder / "venv/bin/python", "own.py"], cwd=str(folder), capture_output=True, text=True)
    assert done.stdout.strip() == str(folder / "jetwatt/jetwatt/__init__.py"), done.stderr


@pytest.mark.exhaustive
def test_mypy_finds_an_editable_clone_from_beside_it(beside_an_editable_clone):
    pytest.importorskip("mypy")
    folder = beside_an_editable_clone
    own = ["--python-executable", folder / "venv/bin/python", "--cache-dir", os.devnull]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--verbose", "--follow-imports", "skip", *own, "own.py"]
    done = subprocess.run(mypy, cwd=str(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert f"{folder / 'jetwatt/jetwatt/__init__.pyi'} (jetwatt)" in done.stderr


def test_a_step_that_prints_something_else_or_fails_is_reported(tmp_path):
    python = Path(sys.executable)

    def fault(program, code):
        step = try_wheel.UserStep("a step", (python.name, "-c", program), "W", code)
        return try_wheel.run_step(step, python.parent, tmp_path)

    assert fault("print('W')", 0) is None
    assert "expected 0 and 'W'" in fault("print()", 0)
    assert "ended with 0, expected 2" in fault("print('W')", 2)


TEST_PARTS = """\
import pytest
@pytest.mark.parametrize("cache", ["warm", "evicted"])
def test_parts(device, power_mode, page_cache, telemetry, train, baseline, cache):
    profile = train(minibatches=2)
    assert power_mode.cpu_cores >= 1 and profile.minibatch_time_ms <= baseline(profile)
"""


@pytest.mark.training
@pytest.mark.exhaustive
@pytest.mark.long
def test_a_strangers_test_measures_their_own_network_in_an_empty_folder(run, tmp_path):
    pytest.importorskip("torchvision")
    (tmp_path / "test_parts.py").write_text(TEST_PARTS)
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / name).write_text(code)
    asked = ["--workload", "my_model:WORKLOAD", "--minibatches", "2", "--batch-size", "1", "--results", "r.sqlite"]
    code, said = run("python", "-m", "pytest", "-p", "jetwatt", "test_mine.py", "test_parts.py", *asked)
    assert code == 0, said
    assert "4 passed" in said
    script = "import jetwatt; print(sorted(jetwatt.open_results('r.sqlite').profiles()['workload']))"
    assert run("python", "-c", script) == (0, f"{['my-net'] * 4}\n")


def test_the_oldest_dependencies_are_tried_with_the_examples_of_readme_that_need_no_torch():
    page = try_lowest.examples((PROJECT / "README.md").read_text(encoding="utf-8"))
    assert "jetwatt.fit(" in page
    assert "jetwatt recommend" in page
    assert "pytest benchmarks --device sim:orin-agx --campaign paper --workload lenet-mnist" in page
    assert "jetwatt run --repeat 3" in page
    assert "--command" in page
    assert "torch" not in page
    with pytest.raises(ValueError, match="of the examples"):
        try_lowest.examples("**1. An example.** And no other.")

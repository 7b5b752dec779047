"""Builds wheel and source distribution and tries the wheel as a user has it: `python -m tools.wheel.try_wheel`.

The wheel is installed into an empty environment of each Python that is named, without torch. There it is used in a
folder that has `harness/`, `predictors/`, `baselines/` and `tools/` of its own, as a user's repository may. Ends with 1
if anything fails, after everything was tried.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence

PROJECT = Path(__file__).resolve().parents[2]
MOST_BYTES = 2_000_000
OWN_FOLDERS = ("harness", "predictors", "baselines", "tools")
TOP_LEVEL = "jetwatt"

FILES = {
    **{f"{name}/__init__.py": f'OWNER = "the user of {name}"\n' for name in OWN_FOLDERS},
    **{f"{name}/{module}.py": 'raise RuntimeError("jetwatt loaded a module of the user")\n'
       for name, module in (("harness", "plugin"), ("harness", "core"), ("predictors", "models"), ("tools", "fit"))},
    "baselines/published/predictors.csv": "not a table of jetwatt\n",
    "test_theirs.py": """\
        import baselines, harness, predictors, pytest, tools


        def test_the_folders_are_the_users():
            assert [module.OWNER.split()[-1] for module in (baselines, harness, predictors, tools)] == [
                "baselines", "harness", "predictors", "tools"
            ]


        @pytest.mark.parametrize("workers", [0, 4])
        def test_a_simulated_board_trains(train, power_mode, workers, baseline):
            profile = train(minibatches=10)
            assert profile.case.workers == workers
            assert profile.minibatch_time_ms <= baseline(profile)
        """,
    "test_others.py": """\
        import sys


        def test_an_installed_jetwatt_leaves_pytest_alone(request):
            assert "jetwatt" not in sys.modules
            assert not [name for name in vars(request.config.option) if name.startswith("jetwatt")]
        """,
    "test_sampler.py": """\
        def test_this_machine_is_sampled_in_another_process(telemetry):
            assert telemetry.stop().series
        """,
}  # fmt: skip
"""The folder of a user whose names are those of this project."""

EVERY_MODULE = """\
import importlib, pkgutil, sys
import jetwatt
late = {"torch", "torchvision", "jtop", "tools", "jinja2", "sklearn", "matplotlib", "psutil", "transformers", "pytest"}
late.add("lightning")
names = [module.name for module in pkgutil.walk_packages(jetwatt.__path__, "jetwatt.")]
loaded = 0
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
        loaded += 1
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in late:
            raise
wrong = sorted({"harness", "predictors", "baselines", "tools"} & set(sys.modules))
assert not wrong, f"jetwatt loaded {wrong} of the user"
assert all(getattr(jetwatt, name) is not None for name in jetwatt.__all__)
print(loaded, "modules and a table of", len(jetwatt.load_table("zeus-v100")))
"""

SIMULATED = ("--device", "orin-nano", "--workload", "resnet18-imagenet,lstm-wikitext", "--sample", "60")
BISECTED = ("--good", "torch==2.8", "--bad", "torch==2.9")
OPTED_IN = ("pytest", "-p", "jetwatt", "test_theirs.py")
SAMPLER = ("pytest", "-p", "jetwatt", "test_sampler.py")
CHOOSE = ("--workload", "resnet18-imagenet", "--power-budget", "10", "--profiles", "8")


class UserStep(NamedTuple):
    """Something that a user does in the folder: a program of the environment, its arguments, and what it must print."""

    name: str
    words: Sequence[str]
    prints: str
    code: int = 0


STEPS = (
    UserStep("every module", ("python", "-c", EVERY_MODULE), "table of 476"),
    UserStep("doctor", ("jetwatt", "doctor"), "power modes:"),
    UserStep("python -m jetwatt", ("python", "-m", "jetwatt", "doctor", "--json"), '"capabilities"'),
    UserStep("recommend", ("jetwatt", "recommend", "--device", "sim:orin-nano", *CHOOSE), "W"),
    UserStep("corpus simulate", ("jetwatt", "corpus", "simulate", *SIMULATED, "--out", "c.csv"), "c.csv"),
    UserStep("recommend of a corpus", ("jetwatt", "recommend", "--device", "replay:c.csv", *CHOOSE), "W"),
    UserStep("fit", ("jetwatt", "fit", "--corpus", "c.csv", "--target", "lstm-wikitext", "--out", "m.jw"), "m.jw"),
    UserStep("advise", ("jetwatt", "advise", "--epochs", "120", "--epoch-minutes", "5"), "closed-loop"),
    UserStep("simulation fit", ("jetwatt", "simulation", "fit"), "needs a clone", code=2),
    UserStep("bisect-versions", ("jetwatt", "bisect-versions", *BISECTED), "needs a clone", code=2),
)
"""What needs no further packages."""
WITH_PYTEST = (
    UserStep("pytest of others", ("pytest", "test_others.py"), "1 passed"),
    UserStep("pytest", (*OPTED_IN, "--device", "sim:orin-agx", "--results", "r.sqlite"), "3 passed"),
    UserStep("python -m pytest", ("python", "-m", *OPTED_IN, "--device", "sim:orin-agx"), "3 passed"),
    UserStep("without the plugin", (*OPTED_IN, "-p", "no:jetwatt", "-k", "folders"), "1 passed"),
    UserStep("the sampler", (*SAMPLER, "--device", "host", "--workload", "lenet-mnist"), "1 passed"),
    UserStep("report without its packages", ("jetwatt", "report", "--results", "r.sqlite"), "jetwatt[report]", code=2),
)
WITH_REPORT = (UserStep("report", ("jetwatt", "report", "--results", "r.sqlite", "--out", "page"), "page"),)


def write_folder(folder: Path) -> Path:
    """Write a user's folder with the names of this project; returns it."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def run_step(step: UserStep, programs: Path, folder: Path) -> Optional[str]:
    """Run a step with the programs of an environment; returns its output if it did not do what it should."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    variables.update(OMP_NUM_THREADS="1", JETWATT_LOCK_DIR=str(folder), COLUMNS="120")
    done = subprocess.run(
        [str(programs / step.words[0]), *step.words[1:]],
        cwd=str(folder), env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode == step.code and step.prints in done.stdout:
        return None
    return f"ended with {done.returncode}, expected {step.code} and {step.prints!r} in:\n{done.stdout}"


def faults_of(wheel: Path) -> List[str]:
    """What a wheel must not be: too large, with anything else than the package, with tests or tools."""
    faults = []
    if wheel.stat().st_size >= MOST_BYTES:
        faults.append(f"{wheel.name} has {wheel.stat().st_size} bytes, at most {MOST_BYTES} are allowed")
    with zipfile.ZipFile(str(wheel)) as archive:
        names = archive.namelist()
        [listed] = [name for name in names if name.endswith(".dist-info/top_level.txt")]
        top_level = archive.read(listed).decode().split()
    if top_level != [TOP_LEVEL]:
        faults.append(f"{wheel.name} declares the top-level packages {', '.join(top_level)}, expected {TOP_LEVEL}")
    for name in names:
        folders = name.split("/")[:-1]
        if not folders or (folders[0] != TOP_LEVEL and not folders[0].endswith(".dist-info")):
            faults.append(f"{wheel.name} has {name} outside the package {TOP_LEVEL}")
        if {"tests", "tools", "benchmarks"} & set(folders) or name.rpartition("/")[2].startswith(("test_", "conftest")):
            faults.append(f"{wheel.name} has {name}, which is not for users")
    return faults


class Trial:
    """Everything that is tried, a line for each; what fails is counted."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.failures = scratch, 0

    def report(self, name: str, began_s: float, fault: Optional[str]) -> bool:
        print(f"{'FAILED' if fault else 'ok':6}  {name}  ({time.monotonic() - began_s:.1f} s)", flush=True)
        if fault:
            self.failures += 1
            print(textwrap.indent(fault, "        "), flush=True)
        return not fault

    def command(self, name: str, *words: Any, **options: Any) -> bool:
        began_s = time.monotonic()
        done = subprocess.run(
            [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )
        return self.report(name, began_s, done.stdout if done.returncode else None)

    def environment(self, name: str, python: str, *packages: str) -> Optional[Path]:
        """The programs of a new environment with packages, in the versions of constraints.txt."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))  # two Pythons may have the same file name
        if not self.command(f"{name}: environment", python, "-m", "venv", folder):
            return None
        return folder / "bin" if self.install(name, folder / "bin", *packages) else None

    def install(self, name: str, programs: Path, *packages: str) -> bool:
        pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile")
        constraints = ("-c", PROJECT / "constraints.txt")
        return self.command(f"{name}: pip install {' '.join(packages)}", *pip, *constraints, *packages)

    def build(self, out: Path) -> Optional[Path]:
        """Build both distributions from the clone, the wheel from the source distribution; returns the wheel."""
        programs = self.environment("build", sys.executable, "build", "twine")
        if programs is None:
            return None
        if not self.command("python -m build", programs / "python", "-m", "build", "--outdir", out, PROJECT):
            return None
        [wheel], [archive] = out.glob("*.whl"), out.glob("*.tar.gz")
        self.command("twine check --strict", programs / "twine", "check", "--strict", wheel, archive)
        self.report(f"{wheel.name}: {wheel.stat().st_size} bytes", time.monotonic(), "\n".join(faults_of(wheel)))
        return wheel

    def use(self, python: str, wheel: Path) -> None:
        """Install the wheel for a Python and do what a user does."""
        name = Path(python).name
        programs = self.environment(name, python, str(wheel))
        if programs is None:
            return
        folder = write_folder(programs.parent.with_name(f"{programs.parent.name}-folder"))
        self.run_steps(name, STEPS, programs, folder)
        if self.install(name, programs, f"{wheel}[pytest]"):
            self.run_steps(name, WITH_PYTEST, programs, folder)
        torch = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is not None)"
        self.command(f"{name}: no torch is installed", programs / "python", "-c", torch)
        if self.install(name, programs, f"{wheel}[report]"):
            self.run_steps(name, WITH_REPORT, programs, folder)

    def run_steps(self, name: str, steps: Sequence[UserStep], programs: Path, folder: Path) -> None:
        for step in steps:
            began_s = time.monotonic()
            self.report(f"{name}: {step.name}", began_s, run_step(step, programs, folder))


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wheel.try_wheel", description=__doc__)
    parser.add_argument("--python", action="append", default=[], metavar="P", help="a Python to try (default: this)")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="a wheel to try; without it one is built")
    parser.add_argument(
        "--out", type=Path, default=PROJECT / "dist", help="folder of the distributions (default: dist)"
    )
    arguments = parser.parse_args(argv)
    old = [*arguments.out.glob("jetwatt-*.whl"), *arguments.out.glob("jetwatt-*.tar.gz")]
    for path in old if arguments.wheel is None else []:
        path.unlink()
    with tempfile.TemporaryDirectory(prefix="jetwatt-try-") as scratch:
        trial = Trial(Path(scratch))
        wheel = arguments.wheel or trial.build(arguments.out)
        if wheel is not None:
            for python in arguments.python or [sys.executable]:
                trial.use(python, wheel)
    print(f"{trial.failures} failures" if trial.failures else "the wheel works", flush=True)
    return int(trial.failures > 0)


if __name__ == "__main__":
    sys.exit(main())

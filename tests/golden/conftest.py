"""What the golden tests share: commands run as anybody would, results of simulated boards, the comparison."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Sequence

import pytest

from tests.golden.golden_files import PROJECT, Golden

HERE = Path(__file__).resolve().parent
CAMPAIGN = HERE / "campaign.toml"
SEVERAL = HERE / "several.py"
DEVICES = "sim:orin-agx,sim:xavier-agx"

SINGLE_THREADED = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
"""Sums are taken in the same order on every machine then."""


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    out: str
    err: str
    code: int


Runs = Callable[..., Said]


@pytest.fixture(scope="session")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the commands keep: state, locks, results."""
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="session")
def environment(own_folder: Path) -> Dict[str, str]:
    """The variables of the commands: nothing of the tests' own, folders that nobody else uses."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "JETWATT_"))}
    variables.update(SINGLE_THREADED)
    variables.update(COLUMNS="120", NO_COLOR="1", TZ="UTC", LC_ALL="C.UTF-8")
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "JETWATT_LOCK_DIR"):
        variables[variable] = str(own_folder / variable)
        (own_folder / variable).mkdir(exist_ok=True)
    return variables


@pytest.fixture(scope="session")
def run(environment: Dict[str, str]) -> Runs:
    """Runs `python -m MODULE ARGUMENTS` in the project's folder; any exit code but `code` fails, None allows all."""

    def run(*arguments: Any, code: Any = 0, cwd: Path = PROJECT) -> Said:
        command = [sys.executable, "-m", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=str(cwd), env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert code is None or done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        return Said(done.stdout, done.stderr, done.returncode)

    return run


@pytest.fixture(scope="session")
def run_each(environment: Dict[str, str]) -> Callable[[Mapping[str, Sequence[Any]]], Dict[str, Said]]:
    """Runs commands by name, one after the other in one process, which spares starting each; any exit code will do."""

    def run_each(commands: Mapping[str, Sequence[Any]]) -> Dict[str, Said]:
        asked = json.dumps([list(map(str, arguments)) for arguments in commands.values()])
        done = subprocess.run(
            [sys.executable, str(SEVERAL)],
            cwd=str(PROJECT), env={**environment, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True,
            input=asked, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return {name: Said(*said) for name, said in zip(commands, json.loads(done.stdout))}

    return run_each


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """Holds values against `files/`."""
    return Golden(
        {f"{re.escape(str(tmp_path_factory.getbasetemp()))}/[^/ ]+": "<folder>", re.escape(str(PROJECT)): "<project>"}
    )


@pytest.fixture(scope="session")
def bench(run: Runs) -> Runs:
    """Runs `pytest benchmarks` on simulated boards, with the campaign beside this file."""

    def bench(results: Path, *arguments: Any, where: str = "benchmarks", code: Any = 0) -> Said:
        lean = [word for plugin in ("cacheprovider", "hypothesispytest", "anyio") for word in ("-p", f"no:{plugin}")]
        return run("pytest", where, "-q", *lean, "--campaign", CAMPAIGN, "--results", results, *arguments, code=code)

    return bench


@pytest.fixture(scope="session")
def campaign(bench: Runs, own_folder: Path) -> Dict[str, Path]:
    """The results of the whole campaign, and how each test of it ended."""
    made = {"results": own_folder / "campaign.sqlite", "outcomes": own_folder / "outcomes.xml"}
    bench(made["results"], "--device", DEVICES, "--assert-takeaways", "--junitxml", made["outcomes"], code=None)
    return made


@pytest.fixture(scope="session")
def sides(bench: Runs, own_folder: Path) -> Dict[str, Path]:
    """Four cases with two seeds: as results files and as the JSON of pytest-benchmark."""
    made = {}
    for seed in (0, 1):
        made[f"results{seed}"] = own_folder / f"side{seed}.sqlite"
        made[f"json{seed}"] = own_folder / f"side{seed}.json"
        bench(
            made[f"results{seed}"], "--device", "sim:xavier-agx", "--seed", seed,
            "--benchmark-json", made[f"json{seed}"], where="benchmarks/test_training.py",
        )  # fmt: skip
    return made


@pytest.fixture(scope="session")
def corpus(run: Runs, own_folder: Path) -> Path:
    """120 simulated modes of two workloads."""
    path = own_folder / "corpus.csv"
    how = ("--workload", "yolov8n-coco,resnet18-imagenet", "--sample", 120, "--seed", 3)
    run("harness", "corpus", "simulate", "--device", "orin-agx", *how, "--out", path)
    return path

"""What does a container cost: the same case bare, and inside one (F17)?

Needs a container engine and an image in which the suite is installed: `--container-image IMAGE`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence

import pytest

from harness.core.profiles import Profile
from harness.core.terminal import Progress
from harness.judge.evidence import WARM, evidence_of
from harness.stats.estimates import quotient
from harness.stats.noise import TIME, over_runs, prior
from harness.store.results import ResultsStore

PROJECT = Path(__file__).resolve().parents[1]
MOST = 1.05
"""A container adds namespaces and a file-system layer, and neither lies in the way of a minibatch."""

ENGINES = ("docker", "podman", "nerdctl")
"""In the order in which they are looked for; all three take the same options here."""


def find_engine(path: Optional[str] = None) -> Optional[str]:
    """The first container engine on the `PATH`, as it is called there; None where there is none."""
    return next((found for engine in ENGINES for found in [shutil.which(engine, path=path)] if found), None)


def container_command(
    engine: str, image: str, folders: Sequence[Path], directory: Path, command: Sequence[str], gpus: bool = False
) -> List[str]:
    """The command that runs another one in a container that sees some folders where they are."""
    mounts = [word for folder in dict.fromkeys(map(str, folders)) for word in ("--volume", f"{folder}:{folder}")]
    accelerator = ["--gpus", "all"] if gpus else []
    before = [engine, "run", "--rm", "--network", "none", *accelerator, *mounts, "--workdir", str(directory)]
    return [*before, image, *command]


@pytest.fixture
def engine(pytestconfig: pytest.Config) -> str:
    """The container engine; skips where there is none, or no image was named."""
    found = find_engine()
    if found is None:
        pytest.skip("there is no container engine on the PATH: install docker or podman")
    answer = subprocess.run([found, "info"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["it says nothing"])[-1]
        pytest.skip(f"{found} has no engine behind it: {last}")
    if not pytestconfig.getoption("jetwatt_container_image"):
        pytest.skip("no image was named: --container-image IMAGE, with the suite installed in it")
    return found


def in_container(engine: str, image: str, bare: Profile, data: Path, results: Path) -> List[str]:
    """The command that measures the case of a bare profile inside a container."""
    case = bare.case
    options = {
        "workload": case.workload, "power-mode": case.power_mode, "workers": case.workers,
        "storage": f"{case.storage}={data}", "batch-size": case.batch_size, "cache": case.settings.cache,
        "minibatches": case.settings.minibatches, "results": results,
    }  # fmt: skip
    command = ["python3", "-m", "pytest", "benchmarks/test_training.py", "-p", "no:cacheprovider"]
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    gpus = bare.conditions.get("accelerator") != "cpu"
    return container_command(engine, image, [PROJECT, data, results.parent], PROJECT, [*command, *words], gpus)


def test_containers(
    engine: str, profile: Callable[[], Profile], pytestconfig: pytest.Config, progress: Progress
) -> None:
    """Measure a case bare, then in a container on the same data: the ratio of their times with its interval."""
    bare = profile()
    if bare.provenance != "measured":
        pytest.skip(f"{bare.case.device} is not a machine that a container could run on")
    image: Any = pytestconfig.getoption("jetwatt_container_image")
    with tempfile.TemporaryDirectory() as folder:
        results, data = Path(folder) / "container.sqlite", Path("out").resolve()
        done = subprocess.run(
            in_container(engine, image, bare, data, results), capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not results.exists():
            pytest.fail(f"the container failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", pytrace=False)
        with ResultsStore(results, read_only=True) as store:
            inside = list(store.profiles())[-1]
    noise = prior(evidence_of(bare).board, TIME)
    times = [over_runs([evidence_of(one).figures["time", WARM]], noise) for one in (bare, inside)]
    found = quotient(*times).interval()
    progress.line(f"    in a container / bare: {found.value:.3f} ({found.low:.3f} to {found.high:.3f})")
    assert found.low <= MOST

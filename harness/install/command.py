"""What `python3 -m harness.install` does: look at the machine, plan, run the commands, check what came of it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

from harness.core.errors import HarnessError
from harness.install import environment_folder
from harness.install.plan import JETPACK_OWNS, Facts, Request, Step, environment_python, make_plan

PROJECT = Path(__file__).resolve().parents[2]

# Versions of the packages named on the command line, as JSON; what is not installed is left out.
_VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def main(arguments: List[str], project: Path = PROJECT, root: Path = Path("/")) -> int:
    """Bring the environment up to date; do nothing where it is.

    Args:
        arguments: the command line.
        project: the clone.
        root: where `/etc` is read.

    Returns:
        The exit status: 0, or 1 after an error was printed.
    """
    parser = argparse.ArgumentParser(prog="python3 -m harness.install", description=__doc__)
    parser.add_argument("--extras", default="train,report,dev", help="extras of pyproject.toml (default: %(default)s)")
    parser.add_argument("--venv", default=".venv", help="folder of the environment (default: %(default)s)")
    options = parser.parse_args(arguments)
    request = Request(
        project=project,
        environment=(project / options.venv).resolve(),
        extras=tuple(extra for extra in options.extras.split(",") if extra),
        python=base_python(),
        version=sys.version_info[:2],
    )
    try:
        install(request, root)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def install(request: Request, root: Path) -> None:
    """Make the environment, or bring it up to date.

    Raises:
        HarnessError: it cannot be made, or a command failed.
    """
    board = board_release(root)
    key = environment_folder.installation_key(request, bool(board))
    environment = request.environment
    if environment_folder.is_up_to_date(environment, key):
        return
    reason = environment_folder.reason_to_remake(request, bool(board))
    facts = gather_facts(request, board, remake=reason is not None)
    plan = make_plan(request, facts)
    for note in plan.notes:
        _say(f"note: {note}")
    if reason is not None:
        _say(f"making {environment} anew: {reason}")
    environment_folder.begin(environment, remove=reason is not None)
    try:
        for step in plan.steps:
            run_step(step, request.project)
        if board:
            check_torch_is_the_systems(environment, facts.visible)
    except HarnessError:
        environment_folder.mark_failed(environment)
        raise
    environment_folder.mark_done(environment, key)


def base_python() -> str:
    """The interpreter that runs this, or the one its virtual environment is made of."""
    if sys.prefix == sys.base_prefix:
        return os.path.realpath(sys.executable)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return os.path.realpath(os.path.join(sys.base_prefix, "bin", f"python{version}"))


def board_release(root: Path) -> str:
    """First line of `/etc/nv_tegra_release`, which every L4T system has; empty elsewhere."""
    try:
        return (root / "etc/nv_tegra_release").read_text().partition("\n")[0].strip("# ") or "unknown L4T release"
    except FileNotFoundError:
        return ""


def gather_facts(request: Request, board: str, remake: bool) -> Facts:
    """Look at the machine.

    Args:
        request: what was asked for.
        board: see `board_release`.
        remake: whether the environment that is there will be deleted.
    """
    environment = request.environment
    reusable = not remake and not environment_folder.is_absent(environment)
    place = next(folder for folder in (environment, *environment.parents) if folder.exists())
    free_bytes = shutil.disk_usage(str(place)).free
    downloads = tempfile.gettempdir()
    return Facts(
        board=board,
        has_venv=all(importlib.util.find_spec(module) is not None for module in ("venv", "ensurepip")),
        visible=installed_versions(request.python) if board else {},
        reusable=reusable,
        has_torch=environment_folder.holds_torch(environment),
        free_bytes=free_bytes + (environment_folder.size_bytes(environment) if remake else 0),
        free_for_downloads_bytes=(
            None if os.stat(downloads).st_dev == place.stat().st_dev else shutil.disk_usage(downloads).free
        ),
    )


def installed_versions(python: str) -> Dict[str, str]:
    """Versions of torch and torchvision as an interpreter sees them; what is not installed is left out."""
    answer = subprocess.run([python, "-c", _VERSIONS, *JETPACK_OWNS], stdout=subprocess.PIPE, check=True)
    return json.loads(answer.stdout)


def run_step(step: Step, project: Path) -> None:
    """Run one command with its output shown.

    Raises:
        HarnessError: it ended with an error.
    """
    command = " ".join(map(shlex.quote, step.argv))
    _say(f"{step.purpose}\n$ {command}")
    # A pip that is set to install for the user would leave the environment as soon as that sees the system's packages.
    ended = subprocess.run(step.argv, cwd=str(project), env={**os.environ, "PIP_USER": "0"})
    if ended.returncode != 0:
        raise HarnessError(
            f"could not {step.purpose}: `{command}` ended with {ended.returncode}, its own message stands above",
            "where it speaks of connections or names: an installation needs the network, later runs do not;"
            " where of space: free some, or set VENV or TMPDIR to a larger disk; then run the same command again",
        )


def check_torch_is_the_systems(environment: Path, visible: Dict[str, str]) -> None:
    """Make sure that a board's environment sees the torch that the system had before, and none of its own.

    Raises:
        HarnessError: it sees another one.
    """
    seen = installed_versions(str(environment_python(environment)))
    if seen != visible or environment_folder.holds_torch(environment):
        raise HarnessError(
            f"{environment} sees {seen or 'no torch'}, the system {visible or 'none'}: on a board they are one",
            "remove the environment (make clean) and run the same command again",
        )


def _say(text: str) -> None:
    print(text, flush=True)

"""The commands that make the environment, as a pure function of what was asked for and what is true of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from harness.core.errors import DependencyError, HarnessError, UnknownNameError

EXTRAS = ("train", "jetson", "report", "dev")
"""What may be asked for."""

JETPACK_OWNS = ("torch", "torchvision")
"""What NVIDIA builds for each JetPack release: on a board nothing may stand in its place."""

ASK_FOR_TORCH = ("ultralytics-opencv-headless", "ultralytics-thop")
"""Packages of the `train` extra that ask pip for torch: a board gets them without what they ask for."""

BYTES_PER_GB = 10**9


class Request(NamedTuple):
    """What was asked for.

    Attributes:
        project: the clone; commands run there.
        environment: the folder of the virtual environment, absolute.
        extras: extras of pyproject.toml.
        python: the interpreter to make it of, itself in no virtual environment.
        version: that interpreter's version.
    """

    project: Path
    environment: Path
    extras: Tuple[str, ...]
    python: str
    version: Tuple[int, int]


class Facts(NamedTuple):
    """What is true of the machine.

    Attributes:
        board: first line of `/etc/nv_tegra_release`; empty where this is no board.
        has_venv: whether the interpreter can make virtual environments with pip in them.
        visible: versions of those of `JETPACK_OWNS` that the interpreter sees outside any virtual environment.
        reusable: whether there is an environment to go on with.
        has_torch: whether that environment holds a torch of its own.
        free_bytes: free space where the environment is, what one that is made anew gives back included.
        free_for_downloads_bytes: free space where pip keeps downloads; None where it is the same.
    """

    board: str
    has_venv: bool
    visible: Dict[str, str]
    reusable: bool
    has_torch: bool
    free_bytes: int
    free_for_downloads_bytes: Optional[int]


class Step(NamedTuple):
    """One command, and what it does, in words that go on after "could not"."""

    purpose: str
    argv: Tuple[str, ...]


class Plan(NamedTuple):
    """The commands, in order, and what a user should know beside them."""

    steps: List[Step]
    notes: List[str]


def environment_python(environment: Path) -> Path:
    """The interpreter in an environment."""
    return environment / "bin" / "python"


def make_plan(request: Request, facts: Facts) -> Plan:
    """Decide what to run.

    Raises:
        UnknownNameError: an extra does not exist.
        DependencyError: the interpreter cannot make virtual environments.
        HarnessError: the disk is too small.
    """
    unknown = [extra for extra in request.extras if extra not in EXTRAS]
    if unknown:  # pip would only warn
        raise UnknownNameError(f"there is no extra {unknown[0]!r}", f"known: {', '.join(EXTRAS)}")
    steps = []
    if not facts.reusable:
        if not facts.has_venv:
            raise DependencyError(
                f"{request.python} lacks the module venv or ensurepip and cannot make {request.environment}",
                f"on Debian and Ubuntu: sudo apt install python{request.version[0]}.{request.version[1]}-venv"
                " (python3-venv where it is the system's python3)",
            )
        steps.append(_make_environment(request, facts))
    _check_disk(request, facts)
    # `--editable` of a pyproject.toml needs pip 21.3, and Ubuntu 20.04 has 20.0. One that is new enough stays.
    steps.append(_pip(request, "get a pip that knows pyproject.toml", "pip>=21.3"))
    if facts.board:
        return Plan([*steps, *_install_on_board(request)], _notes_for_board(request, facts))
    return Plan([*steps, _install_project(request, request.extras)], [])


def _make_environment(request: Request, facts: Facts) -> Step:
    # A board's environment sees the system's packages: JetPack's torch is one of them.
    options = ("--system-site-packages",) if facts.board else ()
    return Step(
        f"make {request.environment} with {request.python}",
        (request.python, "-m", "venv", *options, str(request.environment)),
    )


def _install_on_board(request: Request) -> List[Step]:
    """Everything but torch and torchvision, in a way that pip has no occasion to bring them.

    What asks for torch is installed without what it asks for, the rest under constraints that no torch meets: should a
    package begin to ask for torch, pip stops with an error instead of putting one before JetPack's. JetPack's version
    numbers (`2.3.0a0+git...`, `2.0.0+nv23.05`) are thus never compared with anything.
    """
    extras = tuple("train-without-torch" if extra == "train" else extra for extra in request.extras)
    steps = [_install_project(request, extras, "--constraint", "constraints-board.txt")]
    if "train" in request.extras:
        options = ("--no-deps", "--constraint", "constraints.txt")
        steps.append(_pip(request, "install ultralytics", *options, *ASK_FOR_TORCH))
    return steps


def _install_project(request: Request, extras: Tuple[str, ...], *options: str) -> Step:
    # Editable: `harness` is found whatever the working folder is, and the next `git pull` needs no installation.
    target = f".[{','.join(extras)}]" if extras else "."
    purpose = f"install {', '.join(request.extras) or 'the core'}"
    return _pip(request, purpose, "--constraint", "constraints.txt", *options, "--editable", target)


def _pip(request: Request, purpose: str, *arguments: str) -> Step:
    pip = (str(environment_python(request.environment)), "-m", "pip", "install", "--disable-pip-version-check")
    return Step(purpose, (*pip, *arguments))


def _notes_for_board(request: Request, facts: Facts) -> List[str]:
    absent = [name for name in JETPACK_OWNS if name not in facts.visible]
    if "train" not in request.extras or not absent:
        return []
    return [
        f"{request.python} sees no {' and no '.join(absent)} on this board ({facts.board}): it cannot train yet, and"
        " the rest is installed. Take NVIDIA's PyTorch wheel for this JetPack release and for Python"
        f" {request.version[0]}.{request.version[1]} (NVIDIA's page 'Installing PyTorch for Jetson Platform') and the"
        f" torchvision that goes with it, and install them with `{request.python} -m pip install`, outside any virtual"
        " environment; they are found then without another installation. The package index has no build of them for a"
        " board's GPU"
    ]


class DiskNeed(NamedTuple):
    """Space that an installation takes, in GB, and what takes most of it. Measured on x86-64."""

    installed_gb: float
    downloads_gb: float
    mostly: str


def disk_need(request: Request, on_board: bool) -> DiskNeed:
    """The space for the packages themselves, and for pip's downloads, which are gone afterwards."""
    if "train" not in request.extras:
        return DiskNeed(0.5, 0.2, "pyarrow, SciPy and pandas")
    if on_board:
        return DiskNeed(0.9, 0.3, "OpenCV, SciPy and transformers")
    if request.version == (3, 8):
        return DiskNeed(2.8, 1.6, "torch, 1.8 GB")
    return DiskNeed(7.0, 2.9, "torch with its CUDA packages, 5.4 GB")


def _check_disk(request: Request, facts: Facts) -> None:
    if facts.reusable and (facts.has_torch or facts.board or "train" not in request.extras):
        return  # what is large is there already, or not asked for
    need = disk_need(request, bool(facts.board))
    if facts.free_for_downloads_bytes is None:
        _check_free(f"where {request.environment} is", facts.free_bytes, need.installed_gb + need.downloads_gb, need)
    else:
        _check_free(f"where {request.environment} is", facts.free_bytes, need.installed_gb, need)
        _check_free("for temporary files", facts.free_for_downloads_bytes, need.downloads_gb, need)


def _check_free(place: str, free_bytes: int, needed_gb: float, need: DiskNeed) -> None:
    if free_bytes < needed_gb * BYTES_PER_GB:
        raise HarnessError(
            f"{free_bytes / BYTES_PER_GB:.1f} GB are free {place}, and {needed_gb:.1f} GB are needed there: packages"
            f" take {need.installed_gb:.1f} GB (most of it {need.mostly}), their downloads {need.downloads_gb:.1f} GB",
            "free some, or go elsewhere: VENV=FOLDER for the environment, TMPDIR=FOLDER for the downloads,"
            " EXTRAS=dev for an environment without torch",
        )

"""A project, a package index on disk and a board that the tests of the installation hand to it."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

# A build that needs no network: it hands out the wheel that lies beside it.
BACKEND = """
import os, shutil

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return os.path.basename(shutil.copy("jetwatt-1.0-py3-none-any.whl", wheel_directory))

build_wheel = build_editable
"""


def _write_wheel(folder: Path, name: str, version: str, *requirements: str) -> Path:
    """Write a wheel that holds one empty module; a requirement may carry a marker for one of the extras."""
    module = name.replace("-", "_")
    extras = sorted({text.split("extra == ")[1].strip("'\"") for text in requirements if "extra == " in text})
    metadata = [
        "Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}",
        *(f"Provides-Extra: {extra}" for extra in extras), *(f"Requires-Dist: {text}" for text in requirements),
    ]  # fmt: skip
    information = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": "",
        f"{information}/METADATA": "\n".join(metadata) + "\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{information}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{information}/RECORD"))
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(str(wheel), "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


@pytest.fixture
def write_wheel():
    """Writes a wheel: `write_wheel(folder, name, version, *requirements)`."""
    return _write_wheel


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels that stands in for the package index: pip sees nothing else.

    It holds a torch, newer than any board's, and what asks for it.
    """
    folder = tmp_path / "index"
    folder.mkdir()
    _write_wheel(folder, "torch", "99.0")
    _write_wheel(folder, "torchvision", "99.0", "torch")
    _write_wheel(folder, "ultralytics-opencv-headless", "8.4.190", "torch>=1.8", "torchvision>=0.9", "ultralytics-thop")
    _write_wheel(folder, "ultralytics-thop", "2.2.3", "torch")
    _write_wheel(folder, "light", "1.0")
    for name in [name for name in os.environ if name.startswith(("PIP_", "PYTHON"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    return folder


@pytest.fixture
def project(tmp_path):
    """A clone with the constraints and extras of the real one, as far as `index` has them."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'jetwatt'\nversion = '1.0'\n"
    )
    (folder / "backend.py").write_text(BACKEND)
    (folder / "constraints.txt").write_text("light==1.0\n")
    real_project = Path(__file__).resolve().parents[3]
    (folder / "constraints-board.txt").write_text((real_project / "constraints-board.txt").read_text())
    train = ("light", "torch>=1.12", "torchvision>=0.13", "ultralytics-opencv-headless")
    _write_wheel(
        folder, "jetwatt", "1.0",
        "light; extra == 'train-without-torch'", *(f"{text}; extra == 'train'" for text in train),
    )  # fmt: skip
    return folder


@pytest.fixture
def machine(tmp_path):
    """The root of a machine that is no board."""
    folder = tmp_path / "machine"
    (folder / "etc").mkdir(parents=True)
    return folder


@pytest.fixture
def board(machine):
    """The root of a board."""
    (machine / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.0, GCID: 37537400\n# more\n")
    return machine


@pytest.fixture
def give_system(tmp_path):
    """Installs for the system's Python as `pip install --user` does: the way boards get JetPack's torch."""

    def give(name: str, version: str) -> None:
        site = tmp_path / "user/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        site.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(str(_write_wheel(tmp_path, name, version))) as archive:
            archive.extractall(str(site))

    return give

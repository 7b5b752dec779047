"""The build backend: setuptools, with every folder of the wheel in one package, `jetwatt`.

In a clone and in an editable installation `harness` and `predictors` are packages at the top. Installed like this they
would collide with folders of these names in a user's repository, whichever comes first on the path. In the wheel they
are `jetwatt.harness` and `jetwatt.predictors`, beside `jetwatt.baselines`: the sources are copied, and the names of
modules in them rewritten, in imports as in texts (`import_module("harness.board.gpu")`, "python -m harness doctor").

One name everywhere, by a `jetwatt/__init__.py` that extends its `__path__` in a clone, is what Python would follow, but
mypy and editors do not: `import jetwatt.harness` is "import-not-found" to them.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Iterator, Optional

from setuptools import build_meta

PACKAGE = "jetwatt"
FOLDERS = ("harness", "predictors", "baselines")
TEXTS = (".py", ".pyi", "")
"""Suffixes of files in which modules are named; scripts have none. Records have the hashes of TOML files."""

_FOLDER = rf"(?:{'|'.join(FOLDERS)})"
_MODULE = re.compile(rf"(?<![\w./-])({_FOLDER})\.([a-z]\w*)")
_FROM_FOLDER = re.compile(rf"^(\s*from )({_FOLDER} import )", re.MULTILINE)
_IMPORT_FOLDER = re.compile(rf"^(\s*)(import {_FOLDER})$", re.MULTILINE)
_PROGRAM = re.compile(rf"(?<=-m ){_FOLDER}\b(?!\.)")

# An editable installation and the source distribution have the folders as they are.
build_sdist = build_meta.build_sdist
build_editable = build_meta.build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_editable = build_meta.get_requires_for_build_editable


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    """Build the wheel, as PEP 517 specifies."""
    wheel_directory = os.path.abspath(wheel_directory)
    metadata_directory = metadata_directory and os.path.abspath(metadata_directory)
    with one_package(Path.cwd()):
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Write the metadata that `build_wheel` will put into the wheel, as PEP 517 specifies."""
    metadata_directory = os.path.abspath(metadata_directory)
    with one_package(Path.cwd()):
        return str(build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


@contextlib.contextmanager
def one_package(project: Path) -> Iterator[Path]:
    """Copy the project with its folders in one package, and work in the copy until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="jetwatt-wheel-") as folder:
        copy = Path(folder)
        no_cache = shutil.ignore_patterns("__pycache__")
        shutil.copytree(project / PACKAGE, copy / PACKAGE, ignore=no_cache)
        for name in FOLDERS:
            shutil.copytree(project / name, copy / PACKAGE / name, ignore=no_cache)
        for name in ("README.md", "LICENSE"):
            shutil.copy2(project / name, copy / name)
        configuration = (project / "pyproject.toml").read_text(encoding="utf-8")
        configuration = re.sub(rf'"({_FOLDER}\.)', rf'"{PACKAGE}.\1', configuration)
        (copy / "pyproject.toml").write_text(configuration, encoding="utf-8")
        rename_modules(copy / PACKAGE)
        os.chdir(copy)
        try:
            yield copy
        finally:
            os.chdir(project)


def rename_modules(package: Path) -> None:
    """Rewrite the names of modules in every source of a package, whose folders are those of the clone."""
    for path in sorted(package.rglob("*")):
        is_data = "baselines" in path.relative_to(package).parts
        if path.is_file() and path.suffix in TEXTS and not is_data:
            text = path.read_text(encoding="utf-8")
            renamed = in_package(text, package)
            if path.suffix in (".py", ".pyi"):
                refuse_what_is_left(renamed, path.relative_to(package))
            if renamed != text:
                path.write_text(renamed, encoding="utf-8")


def in_package(text: str, package: Path) -> str:
    """A source with the names that its modules have in the package; a dotted name that is no module stays."""

    def module_name(match: Any) -> str:
        path = package / match[1] / match[2]
        is_module = path.is_dir() or path.with_suffix(".py").is_file()
        return f"{PACKAGE}.{match[0]}" if is_module else match[0]

    text = _MODULE.sub(module_name, text)
    text = _FROM_FOLDER.sub(rf"\1{PACKAGE}.\2", text)
    text = _IMPORT_FOLDER.sub(rf"\1from {PACKAGE} \2", text)
    return _PROGRAM.sub(PACKAGE, text)


def refuse_what_is_left(source: str, path: Path) -> None:
    """Raise if a source imports a module by the name it has in a clone, or has such a name as a text.

    A variable with the name of a folder must not have an attribute with the name of a module: it would be renamed.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            if any(name.startswith(f"{PACKAGE}.") and not alias.asname for name, alias in zip(names, node.names)):
                names += FOLDERS  # `import harness.a` binds `harness`, which is no name of the package
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == PACKAGE:
            names = [node.attr]
        else:
            continue
        left = [name for name in names if name.partition(".")[0] in FOLDERS]
        if left:
            what = f"{path}:{node.lineno}: {left[0]} has no such name in the wheel"
            raise ImportError(f"{what}; write `from {left[0]} import ...`")

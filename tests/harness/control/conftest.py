"""A root directory to put kernel files in, and the rights of a plain user."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

NOBODY = 65534


class Tree:
    """Writes files below a root by their path: `tree.write({"proc/stat": "cpu ..."})`."""

    def __init__(self, root):
        self.path = root
        self.root = str(root)

    def write(self, files):
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")

    def link(self, name, target):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def contents(self):
        """Every file's text by its path."""
        return {str(path.relative_to(self.path)): path.read_text() for path in self.path.rglob("*") if path.is_file()}


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path / "root")


@pytest.fixture
def plain_user():
    """The rest of the test has no privileges, even where the tests are run by root; gives a directory it can write."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield directory
    os.seteuid(user)
    shutil.rmtree(directory)

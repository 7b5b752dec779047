"""A root directory to put kernel files in."""

from __future__ import annotations

import pytest


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


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)

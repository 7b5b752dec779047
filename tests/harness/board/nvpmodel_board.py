"""A board's tree with a fake nvpmodel in it."""

from __future__ import annotations

from pathlib import Path

from harness.board.nvpmodel import Nvpmodel
from harness.board.privileged import STATE
from tests.harness.board.nvpmodel_samples import ORIN_AGX
from tests.programs import write_python_program


class Board:
    """A tree with a fake nvpmodel and an AGX Orin's conf, booted into MAXN."""

    def __init__(self, path):
        self.path = path
        self.conf = self.write("etc/nvpmodel.conf", ORIN_AGX)
        source = (Path(__file__).parent / "fake_nvpmodel.py").read_text()
        self.executable = str(path / "usr/sbin/nvpmodel")
        write_python_program(Path(self.executable), source.replace("from __future__ import annotations\n", ""), "-IS")
        self.status("pmode:0000")

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def status(self, text):
        self.write("var/lib/nvpmodel/status", text)

    def behave(self, *words):
        self.write("behaviour", " ".join(words))

    def kernel(self, path):
        return (self.path / path.lstrip("/")).read_text().strip()

    def lines(self, name):
        file = self.path / name
        return file.read_text().splitlines() if file.exists() else []

    def knob(self, **options):
        return Nvpmodel(str(self.path), **{"timeout_s": 20.0, **options})

    def laid_down(self):
        """The names of the files with custom modes."""
        folder = self.path / STATE
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def stock(self, name):
        return {"conf": self.conf, "mode": name}

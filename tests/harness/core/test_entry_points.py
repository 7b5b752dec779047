"""Entry points of installed packages: a malformed file of one costs a warning that names it, and nothing else."""

from __future__ import annotations

import warnings

import pytest

from harness.core import entry_points as module
from harness.core.entry_points import entry_points
from tests.messages import says

GROUP = "jetwatt.devices"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package with these bytes as its entry_points.txt onto the path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "_MALFORMED", set())

    def put(package: str, content: bytes) -> None:
        about = tmp_path / f"{package}-0.1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        (about / "entry_points.txt").write_bytes(content)

    return put


@pytest.mark.parametrize(
    "content",
    [b"[jetwatt.devices]\nno equals sign\n", b"\xff\xfe[jetwatt.devices]\n"],
    ids=["without-equals-sign", "not-utf-8"],
)
def test_a_malformed_file_is_left_out_with_one_warning_that_names_the_package(install, tmp_path, content):
    install("rivers", content)
    install("brooks", b"[jetwatt.devices]\nbrook = brooks:BROOK\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        points = [point for _ in range(3) for point in entry_points(GROUP) if point.package == "brooks 0.1"]
    assert [point.name for point in points] == ["brook"] * 3
    [text] = [str(warning.message) for warning in caught if "rivers" in str(warning.message)]
    assert says(text, "left out", "rivers 0.1", f"entry_points.txt in {tmp_path}")
    assert text.endswith("; reinstall or uninstall that package")

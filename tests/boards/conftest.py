"""The trees that tests of this package share."""

from __future__ import annotations

import pytest

from boards.jtop_service import jtop_or_skip
from boards.kernel import Kernel
from boards.tree import build_board


@pytest.fixture
def orin(tmp_path):
    """An AGX Orin under JetPack 6, in MODE_30W."""
    return build_board(tmp_path / "root", "orin-agx", "r36.4")


@pytest.fixture
def kernel(orin):
    return Kernel(orin.root)


@pytest.fixture
def jtop_service(orin):
    """The real jtop service on the Orin."""
    with jtop_or_skip(orin.root) as service:
        yield service

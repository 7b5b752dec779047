"""Each test has its own saved states, and a working directory for the data set, which all of them share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    return tmp_path_factory.mktemp("workplace")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch, workplace):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(workplace)

"""Each test has its own saved states, a data set that all share, and power that settles within a short window."""

from __future__ import annotations

import functools

import pytest

from harness.core import metrics
from tests.harness.acceptance.accepted_board import SETTLED_S


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    return tmp_path_factory.mktemp("workplace")


@pytest.fixture(autouse=True)
def one_thread(request, monkeypatch):
    """Threads of torch that wait for each other take a second for a minibatch where other programs run."""
    if request.node.get_closest_marker("training") is None:
        yield
        return
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    yield
    monkeypatch.undo()
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch, workplace):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(workplace)
    monkeypatch.setattr(metrics, "stable_from", functools.partial(metrics.stable_from, window_s=SETTLED_S))

"""A slow medium that was made of this machine's own: held down for its cases alone, and named in every record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from harness.board.control_groups import ReadLimit, find_group
from harness.core.errors import CannotRunError
from harness.store.results import ResultsStore

pytestmark = pytest.mark.training

ASKED = ("--workload", "lenet-mnist", "--workers", "1", "--epochs", "2", "--cache", "evicted", "--interval", "0.1")


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """Skips where the disk with the test's files cannot be held down."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    try:
        ReadLimit().on_disk_under(str(tmp_path), 1_000_000)
    except CannotRunError as error:
        pytest.skip(str(error))


def measured(tmp_path):
    with ResultsStore(tmp_path / "r.sqlite", read_only=True) as store:
        return list(store.profiles())


@pytest.mark.exhaustive
def test_the_limit_holds_for_its_own_cases_and_stands_in_their_records(limited, start_suite, tmp_path):
    storage = f"ssd@1={tmp_path},ssd"
    process = start_suite(*ASKED, "--storage", storage, "--device", "host", "--results", "r.sqlite")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    held_down, free = measured(tmp_path)
    assert held_down.case.storage == "ssd@1"
    assert held_down.conditions["storage_limit_bytes_per_s"] == 1_000_000
    assert any(flag.startswith("storage-throttled: ") for flag in held_down.flags)
    assert free.conditions["storage_limit_bytes_per_s"] is None
    assert not any(flag.startswith("storage-throttled") for flag in free.flags)
    # 1,797 pictures of 28 x 28 bytes take 1.4 s at 1 MB/s, however fast the machine; without the limit 0.4 to 0.8 s.
    assert sum(one.e2e_ms for one in held_down.minibatches if one.epoch == 0) > 1200
    assert "host-lenet-mnist-maxn-w1-ssd@1-bs16-evicted" in out
    assert len([path for path in (tmp_path / "jetwatt-data").iterdir() if path.is_dir()]) == 1
    # Runs of other tests have groups beside it.
    assert not Path(os.path.dirname(find_group("/").path), f"jetwatt-reads-{process.pid}").exists()
    assert list((tmp_path / "state/jetwatt").iterdir()) == []

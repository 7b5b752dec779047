"""A minibatch before anything is measured: it trains, or says why not."""

from __future__ import annotations

import sys

import pytest

from harness.measure.rehearsal import why_not_trained

pytestmark = pytest.mark.training
pytest.importorskip("torch")


def test_a_workload_that_can_be_trained_has_no_reason_not_to():
    assert why_not_trained("lenet-mnist") is None


def test_a_package_that_is_missing_is_the_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.data", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "harness.measure.training_loop", raising=False)
    assert "torch.utils.data is not installed" in why_not_trained("lenet-mnist")


def test_whatever_a_step_raises_is_the_reason(monkeypatch):
    from harness.measure.training_loop import Trainer

    def step(self, batch):
        raise RuntimeError("CUDA error:\nno kernel image is available")

    monkeypatch.setattr(Trainer, "step", step)
    assert why_not_trained("lenet-mnist") == "RuntimeError: CUDA error: no kernel image is available"

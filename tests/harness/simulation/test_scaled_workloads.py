"""A workload that nobody measured, scaled from a known one: how far off the known ones would be."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.boards import load_board as load_spec
from harness.simulation import parameters
from harness.simulation.model import Load, simulate
from harness.simulation.parameters import (
    SIMULATED_WORKLOADS,
    TRAFFIC_PER_PARAMETER,
    load_board,
    load_workload,
    scaled_workload,
)


@pytest.mark.parametrize("board", ["orin-agx", "xavier-agx", "xavier-nx"])
@pytest.mark.parametrize("workload", SIMULATED_WORKLOADS)
def test_a_network_that_is_left_out_is_simulated_to_a_factor_of_little_more_than_two(board, workload, monkeypatch):
    network = workload.partition("-")[0]
    others = tuple(name for name in SIMULATED_WORKLOADS if name.partition("-")[0] != network)
    monkeypatch.setattr(parameters, "SIMULATED_WORKLOADS", others)
    known = load_workload(workload)
    scaled, scaled_from = scaled_workload(
        "unknown",
        samples=round(known.samples),
        files=round(known.samples * known.small_file_share),
        dataset_bytes=known.dataset_bytes,
        input_bytes=known.input_bytes,
        flops_forward=known.flops_forward,
        kernels_forward=known.forward_launches,
        parameters=known.minibatch_bytes / TRAFFIC_PER_PARAMETER,
    )
    assert scaled.name == "unknown"
    assert scaled_from in others
    modes = np.array(load_spec(board).power_mode_space().sample(100))
    told, true = (simulate(load_board(board), one, modes, Load(), rough=False) for one in (scaled, known))
    assert 1 / 2.2 < np.median(told.minibatch_time_ms / true.minibatch_time_ms) < 2.2
    assert 1 / 2.2 < np.median(told.power_mw / true.power_mw) < 2.2


def test_a_known_workload_is_nearest_to_itself():
    resnet = load_workload("resnet18-imagenet")
    _, scaled_from = scaled_workload(
        "again",
        samples=1,
        files=0,
        dataset_bytes=0,
        input_bytes=602_112,
        flops_forward=resnet.flops_forward,
        kernels_forward=resnet.forward_launches,
        parameters=11_689_512,
    )
    assert scaled_from.startswith("resnet18")

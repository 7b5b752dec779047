"""A workload that nobody measured, scaled from a known one: how far off the known ones would be."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.boards import load_board
from harness.simulation import parameters
from harness.simulation.model import Load, simulate
from harness.simulation.parameters import (
    SIMULATED_WORKLOADS,
    TRAFFIC_PER_PARAMETER,
    load_board_parameters,
    load_workload_parameters,
    scaled_workload,
)


@pytest.mark.parametrize("board", ["orin-agx", "xavier-agx", "xavier-nx"])
@pytest.mark.parametrize("workload", SIMULATED_WORKLOADS)
def test_a_network_that_is_left_out_is_simulated_to_a_factor_of_little_more_than_two(board, workload, monkeypatch):
    network, known = workload.partition("-")[0], load_workload_parameters(workload)
    figures = {
        "samples": round(known.samples), "files": round(known.samples * known.small_file_share),
        "dataset_bytes": known.dataset_bytes, "input_bytes": known.input_bytes,
        "flops_forward": known.flops_forward, "kernels_forward": known.forward_launches,
        "parameters": known.minibatch_bytes / TRAFFIC_PER_PARAMETER,
    }  # fmt: skip
    assert scaled_workload("again", **figures)[1].partition("-")[0] == network, "a known one is nearest to itself"
    others = tuple(name for name in SIMULATED_WORKLOADS if name.partition("-")[0] != network)
    monkeypatch.setattr(parameters, "SIMULATED_WORKLOADS", others)
    scaled, scaled_from = scaled_workload("unknown", **figures)
    assert scaled.name == "unknown"
    assert scaled_from in others
    modes = np.array(load_board(board).power_mode_space().sample(100))
    told, true = (simulate(load_board_parameters(board), one, modes, Load(), rough=False) for one in (scaled, known))
    assert 1 / 2.2 < np.median(told.minibatch_time_ms / true.minibatch_time_ms) < 2.2
    assert 1 / 2.2 < np.median(told.power_mw / true.power_mw) < 2.2

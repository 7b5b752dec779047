"""An emulated board that trains: its clocks go into the physical model of the suite, power and use come out."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

import numpy as np

from boards.power_model import Load
from harness.core.power_modes import PowerMode
from harness.simulation import model
from harness.simulation.parameters import load_board, load_workload

DOMAIN_OF = {"base": "soc", "cpu": "cpu", "gpu": "gpu", "memory": "mem"}
"""Part of the simulated module's power to the domain of `power_model` that stands for it."""


class Answer(NamedTuple):
    """What a board does while it trains: power of each domain in mW, and how busy each is."""

    domains_mw: Dict[str, float]
    load: Load


def answer(training: Dict[str, Any], mode: PowerMode, tpc_share: float) -> Answer:
    """What the model says of a training, as `Kernel.train` describes it, in a mode."""
    board, workload = load_board(training["board"]), load_workload(training["workload"])
    how = model.Load(**training["how"])
    response = model.simulate(board, workload, np.array([mode]), how, tpc_share=tpc_share)
    domains = {DOMAIN_OF[rail]: float(power[0]) for rail, power in response.rails_mw.items()}
    return Answer(domains, Load(float(response.cpu_utilisation[0]), float(response.gpu_utilisation[0]), 1.0))

"""Simulated corpora: profiles of a simulated board in many power modes, as rows of the corpus schema."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from harness.core.power_modes import PowerMode
from harness.simulation.model import Load, cached_share, repetition_factors, simulate
from harness.simulation.parameters import load_board, load_workload
from harness.simulation.terms import seed_of


def simulate_corpus(
    board_name: str,
    workload_name: str,
    modes: Sequence[PowerMode],
    *,
    batch_size: int = 16,
    workers: Optional[int] = None,
    storage: str = "ssd",
    task: str = "training",
    seed: int = 0,
    noise: bool = True,
    instance: int = 0,
) -> List[Dict[str, Any]]:
    """Rows of a corpus, with columns `workers` and `storage`, of a workload on copy `instance` of a simulated board.

    `workers` defaults to the papers' number. The page cache has the state after one pass (001 sec. 2.3). The same
    `seed` gives the same noise. Raises UnknownNameError, or InvalidValueError outside the model's range.
    """
    board, workload = load_board(board_name), load_workload(workload_name)
    loaders = workload.default_workers if workers is None else workers
    load = Load(
        batch_size=batch_size,
        workers=loaders,
        storage=storage,
        cached_share=cached_share(board, workload, workers=loaders),
        task=task,
    )
    table = np.array(modes, dtype=np.int64).reshape(-1, len(PowerMode._fields))
    response = simulate(board, workload, table, load, instance=instance)
    time_ms, power_mw = response.minibatch_time_ms, response.power_mw
    if noise:
        what = (board_name, workload_name, tuple(load), seed, *([instance] if instance else []))
        random = np.random.Generator(np.random.PCG64(seed_of(repr(what))))  # each combination has its own noise
        time_ms, power_mw = repetition_factors(board, random, len(table)) * (time_ms, power_mw)
    same = {"device": board_name, "workload": workload_name, "task": task}
    return [
        {
            **same,
            **dict(zip(PowerMode._fields, mode)),
            "batch_size": batch_size,
            "minibatch_time_ms": time,
            "power_mw": power,
            "provenance": "simulated",
            "workers": loaders,
            "storage": storage,
        }
        for mode, time, power in zip(table.tolist(), np.round(time_ms, 4).tolist(), np.round(power_mw).tolist())
    ]

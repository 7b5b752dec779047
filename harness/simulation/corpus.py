"""Simulated corpora: profiles of a simulated board in many power modes, as rows of the corpus schema."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from harness.core.boards import BoardSpec, load_board, own_media
from harness.core.cases import NamedWorkload
from harness.core.configuration import DEFAULT_STORAGE
from harness.core.corpus import POWER_LIMIT, TASKS, Column, listed, write_corpus
from harness.core.errors import InvalidValueError
from harness.core.power_modes import PowerMode
from harness.core.units import mw_to_w, w_to_mw
from harness.simulation.model import Load, cached_share, repetition_factors, seed_of, simulate
from harness.simulation.parameters import (
    SIMULATED_WORKLOADS,
    BoardParameters,
    WorkloadParameters,
    board_and_instance,
    load_board_parameters,
    load_workload_parameters,
)

ALL = "all"  # for a workload: every workload that can be simulated

FURTHER = (Column("workers", int, "num_workers of the DataLoader"), Column("storage", str, "medium of the data set"))
"""Columns that follow those of the schema."""


def simulate_corpus(
    board: str,
    workload: Union[str, NamedWorkload, Sequence[Union[str, NamedWorkload]]],
    modes: Sequence[PowerMode],
    *,
    batch_size: Union[int, Sequence[int]] = 16,
    workers: Optional[int] = None,
    storage: Optional[str] = None,
    task: str = TASKS[0],
    seed: Optional[int] = 0,
    power_limit: Union[str, float, Sequence[float], None] = None,
    out: Union[str, Path, None] = None,
) -> List[Dict[str, Any]]:
    """Profile workloads on a simulated board in some power modes, as `jetwatt corpus simulate` does.

    The page cache has the state after one pass (001 sec. 2.3).

    Args:
        board: `orin-agx`, ...; `orin-agx@2` for another copy of the board, which differs as boards do.
        workload: one or several, by name or as a `Workload`, or `all`.
        modes: power modes.
        batch_size: samples per minibatch, one or several.
        workers: of the DataLoader; None for the papers' number.
        storage: medium of the data set; None for `ssd`, or for the board's own medium if it has no SSD.
        task: `training` or `inference`.
        seed: the same seed gives the same measurement noise; None for profiles without noise.
        power_limit: of a discrete GPU, in W, one or several, or `all`; None for the greatest.
        out: a corpus file to write, `.csv` or `.parquet`; None writes none.

    Returns:
        Rows of a corpus, with columns `workers` and `storage`, in the order of workloads, batch sizes and power limits.
        Those of a GPU with power limits also have `power_limit_mw`.

    Raises:
        HarnessError: a name is unknown, a value is outside the model's range, or the file cannot be written.
    """
    name_of_board, instance = board_and_instance(board)
    named = listed(workload)
    names = SIMULATED_WORKLOADS if named == [ALL] else named
    sizes = [int(batch_size)] if isinstance(batch_size, (int, np.integer)) else list(batch_size)
    medium = own_media(name_of_board, [DEFAULT_STORAGE])[0] if storage is None else storage
    limits_mw = _limits_mw(load_board(name_of_board), power_limit)
    rows, simulated = [], load_board_parameters(name_of_board)
    for name, size, limit_mw in itertools.product(names, sizes, limits_mw):
        parameters = load_workload_parameters(name)
        loaders = parameters.default_workers if workers is None else workers
        load = Load(size, loaders, medium, cached_share(simulated, parameters, workers=loaders), task)
        rows += _simulated_rows(simulated, parameters, modes, load, seed, instance, limit_mw)
    if out is not None:
        is_limited = limits_mw != [None]
        write_corpus(out, rows, (*FURTHER, POWER_LIMIT) if is_limited else FURTHER)
    return rows


def _limits_mw(spec: BoardSpec, power_limit: Union[str, float, Sequence[float], None]) -> Sequence[Optional[int]]:
    """The power limits to simulate; None alone for a board without any."""
    settable = spec.power_limits_mw
    if not settable:
        if power_limit is not None:
            raise InvalidValueError(f"{spec.name} has no power limit to set", "omit power_limit=")
        return [None]
    if power_limit is None:
        return settable[-1:]
    if isinstance(power_limit, str):
        if power_limit != ALL:
            raise InvalidValueError(f"power limit {power_limit!r} is not a number", f"give watts, or {ALL!r}")
        return settable
    chosen = [float(power_limit)] if isinstance(power_limit, (int, float, np.number)) else power_limit
    for limit_w in chosen:
        if not settable[0] <= w_to_mw(limit_w) <= settable[-1]:
            allowed = f"allowed: {mw_to_w(settable[0]):g} to {mw_to_w(settable[-1]):g} W"
            raise InvalidValueError(f"{spec.name} does not accept a power limit of {limit_w:g} W", allowed)
    return [round(w_to_mw(limit_w)) for limit_w in chosen]


def _simulated_rows(
    board: BoardParameters,
    workload: WorkloadParameters,
    modes: Sequence[PowerMode],
    load: Load,
    seed: Optional[int],
    instance: int,
    limit_mw: Optional[int],
) -> List[Dict[str, Any]]:
    table = np.array(modes, dtype=np.int64).reshape(-1, len(PowerMode._fields))
    response = simulate(board, workload, table, load, instance=instance, limit_mw=limit_mw)
    time_ms, power_mw = response.minibatch_time_ms, response.power_mw
    if seed is not None:
        further = [value for value in (instance, limit_mw) if value]
        what = (board.name, workload.name, tuple(load), seed, *further)
        random = np.random.Generator(np.random.PCG64(seed_of(repr(what))))  # each combination has its own noise
        time_ms, power_mw = repetition_factors(board, random, len(table)) * (time_ms, power_mw)
    same = {"device": board.name, "workload": workload.name, "task": load.task}
    return [
        {
            **same,
            **dict(zip(PowerMode._fields, mode)),
            "batch_size": load.batch_size,
            "minibatch_time_ms": time,
            "power_mw": power,
            "provenance": "simulated",
            "workers": load.workers,
            "storage": load.storage,
            **({} if limit_mw is None else {POWER_LIMIT.name: limit_mw}),
        }
        for mode, time, power in zip(table.tolist(), np.round(time_ms, 4).tolist(), np.round(power_mw).tolist())
    ]

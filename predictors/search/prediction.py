"""`predict`: time and power of all modes of a board, with intervals, from a saved predictor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import BoardSpec, board_names, load_board
from harness.core.corpus import POWER_LIMIT, TASKS
from harness.core.errors import UnknownNameError
from harness.core.files import write_output
from harness.core.power_modes import PowerMode, name_under_limit
from harness.core.units import mw_to_w, share_to_percent
from harness.workloads.optional_packages import require
from predictors.evaluation import LEVELS
from predictors.forecast import Forecast, describe_unprofiled
from predictors.models.base import (
    ALL,
    Predictor,
    limits_mw_of,
    modes_without_clocks,
    usual_batch_size,
)
from predictors.models.persistence import load_model
from predictors.settings import PowerLimits

if TYPE_CHECKING:
    import pandas as pd

MAX_DEVIATION = 1e-3  # between machines; a note is given above it


class BoardPrediction(NamedTuple):
    """Predictions for a board; printed, it is the text of `jetwatt predict`."""

    board: str  # its name
    table: pd.DataFrame  # a row for each power mode: medians, intervals, `on_front`
    front: str  # the ends of the predicted Pareto front, or why there is none
    provenance: str  # of the profiles that the model was fitted on
    notes: Tuple[str, ...]  # caveats

    def __repr__(self) -> str:
        return f"{self.front}\n{len(self.table)} power modes of {self.board}, {self.provenance} profiles"


def predict(
    model: Union[str, Path],
    board: str,
    *,
    variant: str = "",
    power_mode: str = "all",
    batch_size: Optional[int] = None,
    power_limit: PowerLimits = None,
    unprofiled: bool = False,
    task: Optional[str] = None,
    out: Union[str, Path, None] = None,
) -> BoardPrediction:
    """Predict time and power of all modes of a board with a saved predictor, as `jetwatt predict` does.

    Args:
        model: a file of `jetwatt fit --out` or of a model's `save`.
        board: `orin-agx`, ...
        variant: module of the board.
        power_mode: which modes, as for `jetwatt modes`.
        batch_size: None for that of the predictor's profiles.
        power_limit: of a discrete GPU, in W, one or several; None for the profiled ones. There is a row for each mode
            and limit, with `power_limit_mw` after `mem_khz`.
        unprofiled: allow modes outside the profiled settings on the front.
        task: `training` or `inference`; None for that of the predictor's profiles.
        out: a file to write, `.csv` or `.parquet`; None writes none.

    Returns:
        The predictions; its `table` is a DataFrame with a row for each mode.

    Raises:
        HarnessError: the model cannot be read, a name is unknown, or the file cannot be written.
    """
    as_parquet = out is not None and Path(out).suffix.lower() == ".parquet"
    if as_parquet:
        require("pyarrow")
    saved = load_model(Path(model))
    spec = _board_of(board, variant, saved.origin)
    is_own = power_mode == ALL and spec.name == saved.origin.get("device")
    modes = modes_without_clocks(saved.predictor) if is_own else None
    if modes is None:
        modes = [mode for _, mode in spec.power_modes(power_mode)]
    size = batch_size or usual_batch_size(saved.predictor)
    limits_mw = limits_mw_of(saved.predictor, power_limit)
    each_limit_mw = None
    if limits_mw is not None:
        each_limit_mw = np.tile(limits_mw, len(modes))
        modes = [mode for mode in modes for _ in limits_mw]
    inputs: Dict[str, Any] = {
        "modes": modes,
        "batch_size": size,
        "task": task or saved.origin.get("task", TASKS[0]),
        **({} if each_limit_mw is None else {POWER_LIMIT.name: each_limit_mw}),
    }
    prediction = saved.predictor.predict(**inputs)
    outside = prediction.unprofiled
    front = (prediction.admitting_all() if unprofiled else prediction).front()
    provenance = f"predicted from {saved.origin.get('provenance', 'unknown')}"
    table = table_of(modes, size, prediction, front, provenance, each_limit_mw)
    if out is not None:
        content = table.to_parquet(index=False) if as_parquet else table.to_csv(index=False, float_format="%.6g")
        write_output(Path(out), content.encode() if isinstance(content, str) else content)
    notes = []
    if outside and not unprofiled:
        notes.append(f"{describe_unprofiled(outside)} without --unprofiled")
    notes += _note_on_reach(saved.predictor, prediction.settings.modes[front])
    learned = saved.origin.get("device")
    if learned != spec.name:
        notes.append(f"the predictor was fitted on {learned}, not {spec.name}")
    if saved.deviation > MAX_DEVIATION:
        off = f"up to {share_to_percent(saved.deviation):.2g} %"
        notes.append(f"with this software its predictions deviate by {off} from those when it was saved")
    if spec.gap:
        notes.append(spec.gap)
    each_limit = [None] * len(modes) if each_limit_mw is None else each_limit_mw.tolist()
    names = [name_under_limit(mode, limit_mw) for mode, limit_mw in zip(modes, each_limit)]
    return BoardPrediction(spec.name, table, _describe(prediction, front, names, size), provenance, tuple(notes))


def _board_of(name: str, variant: str, origin: Mapping[str, Any]) -> BoardSpec:
    try:
        return load_board(name, variant)
    except UnknownNameError as error:
        if name in board_names() or name != origin.get("device"):
            raise
        hint = (
            f"{error.hint}; to add {name}, describe it in a package (docs/own_device.md); "
            "in Python, `jetwatt.load(FILE).predict(modes=...)` accepts any modes"
        )
        raise UnknownNameError(error.what, hint) from None


def _note_on_reach(predictor: Predictor, front: np.ndarray) -> List[str]:
    """Say how many modes of a front, of shape (n, 4), are outside the range of the profiled ones."""
    if not len(front) or not hasattr(predictor, "training_rows_"):
        return []
    profiled = predictor.training_rows_.modes
    if not len(profiled):
        return []
    beyond = (front < profiled.min(axis=0)) | (front > profiled.max(axis=0))
    names = [name for name, rows in zip(PowerMode._fields, beyond.T) if rows.any()]
    if not names:
        return []
    count = beyond.any(axis=1).sum()
    return [
        f"{count} of {len(front)} modes of the front are outside the range of the profiled ones ({', '.join(names)}): "
        "profile one of them before you rely on it"
    ]


def table_of(
    modes: Sequence[PowerMode],
    batch_size: int,
    prediction: Forecast,
    front: np.ndarray,
    provenance: str,
    power_limit_mw: Optional[np.ndarray] = None,
) -> pd.DataFrame:
    """Predictions as a table: the mode, the median of time and power, their intervals, whether it is on the front.

    Figures that the predictor does not give are missing.
    """
    import pandas as pd

    table = pd.DataFrame(modes, columns=PowerMode._fields)
    if power_limit_mw is not None:
        table[POWER_LIMIT.name] = power_limit_mw
    table["batch_size"] = batch_size
    table["minibatch_time_ms"], table["power_mw"] = prediction.time_ms, prediction.power_mw
    for level in LEVELS:
        for what, unit, ends in (
            ("time", "ms", prediction.interval("time_ms", level / 100)),
            ("power", "mw", prediction.interval("power_mw", level / 100)),
        ):
            table[f"{what}_{level}_low_{unit}"], table[f"{what}_{level}_high_{unit}"] = ends
    table["on_front"] = 0
    table.loc[front, "on_front"] = 1
    table["provenance"] = provenance
    return table


def _describe(prediction: Forecast, front: np.ndarray, names: Sequence[str], batch_size: int) -> str:
    if not len(front):
        if np.isfinite([prediction.time_ms, prediction.power_mw]).all():
            return "no front: all of these modes are outside the profiled settings"
        return "no front: the predictor does not give both time and power"
    ends = [
        f"{names[place]} with {prediction.time_ms[place]:.1f} ms at {mw_to_w(prediction.power_mw[place]):.1f} W"
        for place in (front[0], front[-1])
    ]
    return f"front of {len(front)} modes at batch size {batch_size}, from {ends[0]} to {ends[1]}"

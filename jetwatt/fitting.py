"""`fit`: predict time and power of a workload from a few profiled power modes, and choose among all others."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import board_names, is_board, load_board
from harness.core.corpus import POWER_LIMIT, check_corpus, read_corpus
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace
from harness.core.units import mw_to_w
from predictors.evaluation import coverage, fit_to, make_target, mape, predict_rows
from predictors.models.base import DEFAULT, Prediction, Predictor, admitted_rows, describe_unprofiled, usual_batch_size
from predictors.models.persistence import load_model, save_model
from predictors.models.tables import TABLE_KEY, Table, find_table, tables_of
from predictors.search.targets import unprofiled_target
from predictors.strategies.goals import within

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Corpus = Union["pd.DataFrame", str, Path]
Modes = Union[str, Iterable[Sequence[int]]]
LEVEL = 0.8  # share of measurements that intervals should contain


def fit(
    corpus: Corpus,
    *,
    workload: str,
    modes: Optional[int] = 50,
    seed: int = 0,
    reference: Union[str, Sequence[str]] = (),
    predictor: str = DEFAULT,
    device: Optional[str] = None,
    task: str = "training",
) -> FittedModel:
    """Fit a predictor to some profiles of a workload.

    Args:
        corpus: a DataFrame with the columns of a corpus, or a file.
        workload: a workload of the corpus.
        modes: the number of power modes to fit on, drawn by `seed`; None, or more than there are, means all. With 0,
            torch counts the operations of the network, and profiles of `reference` on the same board give their speed.
        seed: the same seed gives the same model.
        reference: other workloads of the corpus that a transfer predictor starts from.
        predictor: a name of `jetwatt evaluate --predictors`.
        device: the device, if the corpus has the workload on several.
        task: `training` or `inference`.

    Raises:
        HarnessError: the corpus is invalid, has no such workload, has it on several devices, or has too few profiles.
    """
    tables = _tables(corpus)
    names = [reference] if isinstance(reference, str) else reference or ()
    if modes == 0:
        target = unprofiled_target(workload, [_one_table(tables, name, task, device) for name in names])
    else:
        table = _one_table(tables, workload, task, device)
        target = make_target(table, [_one_table(tables, name, task, table.device) for name in names])
    table = target.table
    count = len(table) if modes is None else min(modes, len(table))
    learned = target.table.take(target.rows(count, "random", 0, seed))
    learner = target.make(predictor, seed, within_table=False)
    fit_to(learner, learned)
    origin = {name: getattr(table, name) for name in TABLE_KEY}
    origin.update(fitted_rows=count, fitted_sha256=learned.fingerprint, references=list(names), seed=seed)
    return FittedModel(learner, origin)


def load(path: Union[str, Path]) -> FittedModel:
    """Load a model that `save` or `jetwatt fit` wrote; it is fitted again to its stored training rows."""
    saved = load_model(Path(path))
    return FittedModel(saved.predictor, saved.origin)


@dataclasses.dataclass(frozen=True, repr=False)
class FittedModel:
    """A model of time and power of a workload on a device, fitted to some power modes."""

    predictor: Predictor  # fitted
    origin: Dict[str, Any]  # its training data: device, workload, task, provenance, ...

    def __repr__(self) -> str:
        origin = self.origin
        what = f"{origin['workload']} ({origin['task']}) on {origin['device']}, batch size {self.batch_size}"
        learned_from = f"{origin['fitted_rows']} {origin['provenance']} power modes"
        return f"<{self.predictor.name} of {what}: learned from {learned_from}>"

    @property
    def batch_size(self) -> int:
        """The most frequent batch size of the training profiles."""
        return usual_batch_size(self.predictor)

    def predict(
        self,
        device: Optional[str] = None,
        modes: Modes = "all",
        batch_size: Optional[int] = None,
        level: float = LEVEL,
        unprofiled: bool = False,
    ) -> pd.DataFrame:
        """Predict time and power of power modes that were not measured.

        Args:
            device: a board, `orin-agx` or `sim:orin-agx`; None for the board of the profiles. The modes of a device
                that is not a known board are all combinations of the profiled values.
            modes: a selection of its power modes, as for `jetwatt modes --power-mode` (`all`, `grid:paper`,
                `sample:50`, a name), or the modes themselves: (cpu_cores, cpu_khz, gpu_khz, mem_khz).
            batch_size: None for that of the training profiles.
            level: share of measurements that the intervals should contain.
            unprofiled: allow modes outside the profiled range on the front, whose batch size or a setting never varied
                in the profiles; by default they are excluded from the front, with a warning.

        Returns:
            A row for each mode: `power_mode` (its name), `cpu_cores`, `cpu_khz`, `gpu_khz`, `mem_khz`, `batch_size`,
            `time_ms`, `time_low_ms`, `time_high_ms`, `power_mw`, `power_low_mw`, `power_high_mw`, and `on_front`:
            whether no other mode is expected to be better in both time and power. If the profiles have power limits of
            a discrete GPU, there is a row for each mode and profiled limit, with `power_limit_mw` after `mem_khz`.
        """
        table, prediction, admitted = self._predicted(device, modes, batch_size, level, unprofiled)
        table["on_front"] = table.index.isin(prediction.front(admitted))
        return _named(table)

    def best(
        self,
        power_w: Optional[float] = None,
        time_ms: Optional[float] = None,
        risk: Optional[float] = None,
        unprofiled: bool = False,
    ) -> pd.Series:
        """The mode with the least time within a power, or the least power within a time; within both, least energy.

        Args:
            power_w: greatest module power.
            time_ms: greatest minibatch time.
            risk: exclude modes with a greater risk; None uses the predicted figures as they are.
            unprofiled: as for `predict`.

        Returns:
            The row of `predict`, with its `risk`: the probability that the mode exceeds `power_w` or `time_ms` by more
            than 2 %, as of `Goal.breaks`. If no mode keeps the limits, a `CannotRunError` names the nearest one.
        """
        self._refuse_without_power("choose by")
        goal = within(power_w, time_ms)
        table, prediction, admitted = self._predicted(None, "all", None, LEVEL, unprofiled)
        figures = prediction.time_ms, prediction.power_mw, table["batch_size"].to_numpy()
        times, powers = (np.log(figures[0]), prediction.time_log_sd), (np.log(figures[1]), prediction.power_log_sd)
        risks = goal.risk(times, powers, figures[2], prediction.freedom)
        excess = goal.excess(*figures) if risk is None else risks - risk
        excess = np.where(admitted, excess, np.inf)
        if not (excess <= 0).any():
            place = int(excess.argmin())
            near = _named(table.iloc[[place]]).iloc[0]
            nearest = f"{near['time_ms']:.4g} ms at {mw_to_w(near['power_mw']):.4g} W, risk {risks[place]:.2g}"
            raise CannotRunError(
                f"no mode has the {goal.describe()}", f"the nearest, {near['power_mode']}, has {nearest}"
            )
        best = int(np.where(excess <= 0, goal.objective(*figures), np.inf).argmin())
        row = table.iloc[[best]].assign(on_front=prediction.is_on_front(best, admitted), risk=risks[best])
        return _named(row).iloc[0]

    def score(self, test: Corpus) -> pd.Series:
        """Errors (MAPE) and coverage of the 80 % intervals, in %, on held-out profiles.

        `test` is a corpus with the workload on the same device; rows that the model was fitted on are left out.
        """
        import pandas as pd

        table = _one_table(_tables(test), *(self.origin[name] for name in ("workload", "task", "device")))
        learned = self.predictor.training_rows_.inputs
        limits = [] if learned.power_limit_mw is None else [learned.power_limit_mw]
        training_index = pd.MultiIndex.from_arrays([*learned.modes.T, learned.batch_size, *limits])
        rows = pd.MultiIndex.from_arrays(list(table.settings.T.astype(float)))
        held_out = table.take(~rows.isin(training_index))
        if len(held_out) == 0:
            raise InvalidValueError("the model was fitted on every profile of the test", "hold some out for it")
        prediction = predict_rows(self.predictor, held_out)
        return pd.Series({
            "profiles": len(held_out),
            "time_mape_pct": mape(held_out.time_ms, prediction.time_ms),
            "power_mape_pct": mape(held_out.power_mw, prediction.power_mw),
            "time_in_interval_pct": coverage(held_out.time_ms, *prediction.time_interval_ms(LEVEL)),
            "power_in_interval_pct": coverage(held_out.power_mw, *prediction.power_interval_mw(LEVEL)),
        })  # fmt: skip

    def plot(self, path: Union[str, Path, None] = None) -> Figure:
        """Plot time and power of all modes, their front and the training profiles; saved as a picture if named."""
        from matplotlib.figure import Figure

        self._refuse_without_power("plot")
        table, learned = self.predict(), self.predictor.training_rows_
        figure = Figure(figsize=(7.8, 5), layout="constrained")
        axes = figure.subplots()
        front = table[table["on_front"]].sort_values("power_mw")
        axes.plot(mw_to_w(table["power_mw"]), table["time_ms"], ".", color="#cccccc", markersize=2, label="predicted")
        axes.step(mw_to_w(front["power_mw"]), front["time_ms"], "k-", where="post", label="front")
        axes.plot(mw_to_w(learned.power_mw), learned.time_ms, "+", label="learned from")
        axes.set(xlabel="power (W)", ylabel="minibatch time (ms)", yscale="log", title=repr(self)[1:].split(":")[0])
        axes.legend()
        if path is not None:
            figure.savefig(path)
        return figure

    def save(self, path: Union[str, Path]) -> None:
        """Write a file for `load` and `jetwatt predict`; it contains no code."""
        save_model(Path(path), self.predictor, self.origin)

    def _refuse_without_power(self, what: str) -> None:
        if np.isnan(self.predictor.training_rows_.power_mw).all():
            hint = "fit to profiles with power_mw; predict and score work for time"
            raise CannotRunError(f"there is no power to {what}: the model was fitted to time only", hint)

    def _predicted(
        self, device: Optional[str], modes: Modes, batch_size: Optional[int], level: float, unprofiled: bool
    ) -> Tuple[pd.DataFrame, Prediction, np.ndarray]:
        import pandas as pd

        chosen = self._modes(device, modes)
        table = pd.DataFrame(chosen, columns=list(PowerMode._fields))
        limits = self.predictor.training_rows_.inputs.power_limit_mw
        if limits is not None:
            of_limits = pd.DataFrame({POWER_LIMIT.name: np.unique(limits).astype(np.int64)})
            table = table.merge(of_limits, how="cross")
        complete = table[list(PowerMode._fields)].clip(lower=1)  # as in `_tables`
        table["batch_size"] = self.batch_size if batch_size is None else batch_size
        conditions = {"batch_size": table["batch_size"].to_numpy(), "task": self.origin["task"]}
        if limits is not None:
            conditions[POWER_LIMIT.name] = table[POWER_LIMIT.name].to_numpy()
        prediction = self.predictor.predict(complete, **conditions)
        outside = self.predictor.unprofiled(complete, **conditions)
        if outside and not unprofiled:
            warnings.warn(f"{describe_unprofiled(outside)} without unprofiled=True", stacklevel=3)
        admitted = admitted_rows({} if unprofiled else outside, len(table))
        table["time_ms"] = prediction.time_ms
        table["time_low_ms"], table["time_high_ms"] = prediction.time_interval_ms(level)
        table["power_mw"] = prediction.power_mw
        table["power_low_mw"], table["power_high_mw"] = prediction.power_interval_mw(level)
        return table, prediction, admitted

    def _modes(self, device: Optional[str], modes: Modes) -> List[PowerMode]:
        if not isinstance(modes, str):
            return [PowerMode(*map(int, mode)) for mode in modes]
        name = (device or self.origin["device"]).rpartition(":")[2].partition("@")[0]
        if is_board(name):
            board = load_board(name)
            return list(board.power_mode_space()) if modes == "all" else [mode for _, mode in board.power_modes(modes)]
        if name != self.origin["device"] or modes != "all":
            hint = f"available: {', '.join(board_names())}; for other boards give modes= as tuples"
            raise UnknownNameError(f"the power modes {modes!r} of {name!r} are unknown", hint)
        cores, *clocks = (np.unique(values).astype(int) for values in self.predictor.training_rows_.inputs.modes.T)
        reported = (np.where(values == 1, UNKNOWN_KHZ, values) for values in clocks)
        return list(PowerModeSpace(*(tuple(values.tolist()) for values in (cores, *reported))))


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Predictions with the name of each mode as first column; making 18,096 names takes longer than predicting."""
    modes = table[list(PowerMode._fields)].to_numpy().tolist()
    table = table.copy()
    table.insert(0, "power_mode", [PowerMode(*mode).name for mode in modes])
    return table


def _tables(corpus: Corpus) -> List[Table]:
    """The tables of a corpus; an unknown clock is 1 kHz in all rows, which predictors accept."""
    frame = read_corpus(corpus) if isinstance(corpus, (str, Path)) else check_corpus(corpus, "the corpus")
    return [table.with_clocks() for table in tables_of(frame)]


def _one_table(tables: Sequence[Table], workload: str, task: str, device: Optional[str]) -> Table:
    there = [table for table in tables if device is None or table.device == device]
    devices = sorted({table.device for table in there if (table.workload, table.task) == (workload, task)})
    if len(devices) > 1:
        what = f"the corpus has {task} of {workload!r} on {len(devices)} devices: {', '.join(devices)}"
        raise InvalidValueError(what, f"choose one: device={devices[0]!r}")
    return find_table(there, workload, task).usable()

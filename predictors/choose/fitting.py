"""`fit`: predict time and power of a workload from a few profiled power modes, and choose among all others."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.core.boards import board_names, is_board, load_board, type_of
from harness.core.corpus import TASKS, check_modes, listed
from harness.core.errors import CannotRunError, InvalidValueError, UnknownNameError
from harness.core.files import file_sha256
from harness.core.mode_texts import MAXN, parse_power_modes
from harness.core.notes import note
from harness.core.power_modes import UNKNOWN_KHZ, PowerMode, PowerModeSpace
from harness.core.terminal import available_hint, counted
from harness.core.units import mw_to_w, share_to_percent
from harness.workloads import get_workload
from predictors.choose.corpora import (
    OF_ROWS,
    Conditions,
    Corpus,
    check_conditions,
    note_on_medians,
    read_profiles,
)
from predictors.choose.learning import count_networks, load_prior
from predictors.choose.request import RISK
from predictors.evaluation import Target, coverage, mape
from predictors.forecast import LEVEL, Forecast, describe_unprofiled
from predictors.goals import Goal, note_out_of_reach, within
from predictors.models.base import (
    ALL,
    Predictor,
    check_number,
    check_probability,
    checks_names,
    limits_mw_of,
    usual_batch_size,
)
from predictors.models.persistence import load_model, save_model
from predictors.models.registry import DEFAULT, make_predictor, own_parameters, predictor_class
from predictors.profiles import TABLE_KEY, Profiles, find_reference, note_on_modes
from predictors.sampling import check_sampling, rows_to_fit
from predictors.settings import PowerLimits, Settings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from predictors.choose.request import WorkloadLike

Modes = Union[str, Iterable[Sequence[int]]]
MOST_DEVIATION = 1e-3  # of predictions on this machine from those that were saved; a note is given above it
FEW_PROFILES = 3  # a fit to no more of them is noted


def fit(
    corpus: Corpus,
    *,
    workload: WorkloadLike,
    modes: Optional[int] = None,
    sampling: str = "random",
    seed: int = 0,
    predictor: Union[str, Predictor] = DEFAULT,
    prior: Union[str, Path, None] = None,
    reference: Union[str, Sequence[str]] = (),
    reference_corpus: Optional[Corpus] = None,
    **conditions: Unpack[Conditions],
) -> FittedModel:
    """Fit a predictor to some profiles of a workload, as `jetwatt fit` does; warns of what makes it unsure.

    Args:
        corpus: a corpus or results: a file, a DataFrame, what `jetwatt.open_results` returns, or a name of
            `jetwatt.load_table`. Of results, the newest profile of each conditions counts, unless it was disturbed or
            throttled; a warning says what is left out. Of a table that repeats a case, the medians of its rows count.
        workload: a workload of the corpus, by its name or as a `Workload`.
        modes: the number of profiles to fit on, chosen by `sampling`; None, or more than there are, means all. With 0,
            torch counts the operations of the network, and profiles of `reference` on the same board give their speed.
        sampling: how the modes are chosen.
        seed: the same seed gives the same model.
        predictor: a name of `jetwatt evaluate --predictors`; for other parameters than its own, an unfitted predictor:
            `make_predictor(predictor_class("nn"), loss="mape")`.
        prior: a file written by `prior learn`; None for the suite's prior.
        reference: other workloads that a transfer predictor starts from, on the same device if profiled there.
        reference_corpus: where their profiles are, if not in `corpus`.
        conditions: which profiles of the workload, if the corpus has several tables of it: `device`, `task` (`training`
            or `inference`; the default is `training`), `workers` and `storage`.

    Raises:
        HarnessError: the corpus is invalid, has no such workload, has it on several devices, or has too few profiles.
    """
    check_conditions(conditions, fit)
    check_sampling(sampling)
    check_number("modes", modes, whole=True)
    check_number("seed", seed, whole=True)
    if modes == 0:
        _refuse_conditions_of_rows(conditions)
    loaded = read_profiles(corpus)
    of_references = loaded if reference_corpus is None else read_profiles(reference_corpus)
    there = of_references.tables()
    hierarchy = None if prior is None else load_prior(prior)
    task = conditions.get("task", TASKS[0])
    [profiled] = listed(workload)
    counts = None
    if modes == 0:
        references = tuple(find_reference(there, name, task, conditions.get("device")) for name in listed(reference))
        table = _unprofiled(profiled, references)
        counts = count_networks([table, *references])
    else:
        table = loaded.table(profiled, conditions).learnable()
        references = table.admissible([find_reference(there, name, task, table.device) for name in listed(reference)])
    count = len(table) if modes is None else min(modes, len(table))
    is_all = count == len(table)
    rows = np.arange(count) if is_all else rows_to_fit(table, count, sampling, seed, references)
    learned = table.take(rows)
    if isinstance(predictor, str):
        kind, parameters = predictor_class(predictor), {}
    else:
        kind, parameters = predictor_class(predictor.name), own_parameters(predictor)
    # No space: the corpus may lack modes of the device, and predictions cover all of them.
    learner = make_predictor(
        kind,
        references=references,
        board=table.device,
        workload=table.workload,
        hierarchy=hierarchy,
        counts=counts,
        seed=seed,
        **parameters,
    )
    start_s = time.perf_counter()
    learner.fit(learned.applied())
    fitting = Fitting(table, rows, references, time.perf_counter() - start_s, modes)
    origin = describe_origin(
        loaded.file,
        table,
        learned,
        sampling=ALL if is_all else sampling,
        seed=seed,
        references=[f"{other.device}/{other.workload}" for other in references],
        reference_corpus_sha256=None if reference_corpus is None else _sha256(of_references.file),
    )
    model = FittedModel(learner, origin, fitting=fitting)
    for text in model.notes():
        note(text)
    return model


def _refuse_conditions_of_rows(conditions: Conditions) -> None:
    """Refuse conditions that choose among profiles of the workload, where it has none."""
    for name in OF_ROWS:
        if conditions.get(name) is not None:
            what = f"{name}= has no effect with modes=0, as no profile of the workload is read"
            raise InvalidValueError(what, "omit it")


def _unprofiled(workload: str, references: Sequence[Profiles]) -> Profiles:
    """The empty table of a workload, `module:NAME` or the suite's, on the board of the references."""
    if not references:
        raise InvalidValueError(
            f"no profiles of the board that {workload} will run on", "name reference workloads profiled on it"
        )
    return dataclasses.replace(references[0].take(slice(0)), workload=get_workload(workload).name)


def load(path: Union[str, Path]) -> FittedModel:
    """Load a model that `save` or `jetwatt fit` wrote; it is fitted again to its stored training rows."""
    saved = load_model(Path(path))
    return FittedModel(saved.predictor, saved.origin, saved.deviation)


class Fitting(NamedTuple):
    """What a model was fitted to; not stored with it."""

    table: Profiles  # of the workload
    rows: np.ndarray  # indices of the fitted profiles, shape (n,)
    references: Tuple[Profiles, ...]
    seconds: float  # that the fit took
    asked: Optional[int]  # number of profiles asked for; None for all


@dataclasses.dataclass(frozen=True, repr=False)
class FittedModel:
    """A model of time and power of a workload on a device, fitted to some power modes."""

    predictor: Predictor  # fitted
    origin: Dict[str, Any]  # its training data, as of `describe_origin`
    # the greatest relative difference between the predictions for its training rows now and when it was saved
    deviation: float = 0.0
    fitting: Optional[Fitting] = None  # None for a loaded model

    def __repr__(self) -> str:
        origin = self.origin
        what = f"{origin['workload']} ({origin['task']}) on {origin['device']}, batch size {self.batch_size}"
        learned_from = f"{origin['fitted_rows']} {origin['provenance']} profiles"
        return f"<{self.predictor.name} of {what}: learned from {learned_from}>"

    @property
    def batch_size(self) -> int:
        """The most frequent batch size of the training profiles."""
        return usual_batch_size(self.predictor)

    def summary(self) -> str:
        """What a newly fitted model learned from, and its errors on the profiles left out of the fit."""
        table, rows, _, seconds, _ = self._newly_fitted()
        figures = Target(table).figures(self.predictor.predict(table), rows)
        errors = {what: figures[f"{what}_mape"] for what in ("time", "power")}
        errors_text = ", ".join(f"{what} {value:.2f} %" for what, value in errors.items() if np.isfinite(value))
        tested = f"MAPE on the profiles left out of the fit: {errors_text}" if errors_text else ""
        return (
            f"{self.predictor.name} learned {table.workload} on {table.device} ({table.provenance}) "
            f"from {len(rows)} of {len(table)} profiles in {seconds:.2f} s\n"
            f"{tested or 'fitted to every profile, so its errors were not measured: run `jetwatt evaluate`'}"
        )

    def notes(self) -> List[str]:
        """Caveats of a newly fitted model: medians or few profiles, doubtful ones, references without effect."""
        table, rows, references, _, asked = self._newly_fitted()
        notes = note_on_medians([self.predictor.name], [table])
        if asked is not None and asked > len(table):
            notes.append(f"{asked} profiles were asked for, and there are {len(table)}: fitted to all")
        if len(rows) <= FEW_PROFILES:
            notes.append(f"fitted to only {counted(len(rows), 'profile')}, so errors may be large: fit to 10 or more")
        learned, doubtful = self.predictor.training_rows_, self.predictor.doubtful()
        if len(doubtful):
            names = [learned.mode_name(index) for index in doubtful]
            notes.append(note_on_modes("contradict all others and carry almost no weight", names))
        notes += table.notes_on_unapplied()
        idle = [
            f"{reference.workload} on {reference.device}"
            for reference in references
            if reference.device != table.device and reference.workload != table.workload
        ]
        if idle and self.predictor.name == DEFAULT:
            notes.append(f"{', '.join(idle)} is not used: it differs in both workload and board")
        return notes

    @checks_names
    def predict(
        self,
        device: Optional[str] = None,
        modes: Modes = "all",
        batch_size: Optional[int] = None,
        level: float = LEVEL,
        unprofiled: bool = False,
        power_limit: PowerLimits = None,
        task: Optional[str] = None,
        variant: str = "",
    ) -> pd.DataFrame:
        """Predict time and power of power modes that were not measured; warns of what makes predictions unsure.

        Args:
            device: a board, `orin-agx` or `sim:orin-agx`; None for the board of the profiles. The modes of a device
                that is not a known board are combinations of the profiled values.
            modes: a selection of its power modes, as for `jetwatt modes --power-mode` (`all`, `grid:paper`,
                `sample:50`, a name), or the modes themselves: (cpu_cores, cpu_khz, gpu_khz, mem_khz).
            batch_size: None for that of the training profiles.
            level: share of measurements that the intervals should contain.
            unprofiled: allow modes outside the profiled range on the front, whose batch size or a setting never varied
                in the profiles; by default they are excluded from the front, with a warning.
            power_limit: of a discrete GPU, in W, one or several; None for the profiled ones.
            task: `training` or `inference`; None for that of the training profiles.
            variant: module of the board.

        Returns:
            A row for each mode: `power_mode` (its name), `cpu_cores`, `cpu_khz`, `gpu_khz`, `mem_khz`, `batch_size`,
            `time_ms`, `time_low_ms`, `time_high_ms`, `power_mw`, `power_low_mw`, `power_high_mw`, `on_front`: whether
            no other mode is expected to be better in both time and power, and `provenance`, that of the profiles. If
            the profiles have power limits of a discrete GPU, there is a row for each mode and limit, with
            `power_limit_mw` after `mem_khz` and the limit in its name.
        """
        check_probability("level", level, certain=False)
        chosen = self._modes(device, modes, variant)
        forecast = self._forecast(chosen, batch_size, unprofiled, power_limit, task)
        for text in self._notes_on(forecast, device, variant):
            note(text)
        return self._frame(forecast, level)

    @checks_names
    def best(
        self,
        power_w: Optional[float] = None,
        time_ms: Optional[float] = None,
        risk: Optional[float] = RISK,
        unprofiled: bool = False,
        batch_size: Optional[int] = None,
        power_limit: PowerLimits = None,
        device: Optional[str] = None,
        modes: Modes = "all",
        task: Optional[str] = None,
        variant: str = "",
    ) -> pd.Series:
        """The mode with the least time within a power, or the least power within a time; within both, least energy.

        A model that was fitted to time only gives the slowest mode within a time, with a warning. A power that excludes
        no mode is warned of, as it may be in another unit. A GPU that kept a power limit in the profiles is
        expected to keep it, and greater ones.

        Args:
            power_w: greatest module power, in W.
            time_ms: greatest minibatch time, in ms.
            risk: of the modes whose predicted figures keep the limits, as the measured ones of `recommend` do, exclude
                those with a greater risk; None excludes none.
            unprofiled: this and the next six: as for `predict`.
            batch_size: likewise.
            power_limit: likewise.
            device: likewise.
            modes: likewise.
            task: likewise.
            variant: likewise.

        Returns:
            The row of `predict`, with its `risk`: the probability that the mode exceeds `power_w` or `time_ms` by more
            than 2 %, as of `Goal.breaks`. If no mode keeps the limits, a `CannotRunError` names the nearest one.
        """
        check_number("power_w", power_w, above=True)
        check_number("time_ms", time_ms, above=True)
        check_probability("risk", risk)
        if power_w is not None:
            self._refuse_without_power("choose by")
        goal = within(power_w, time_ms)
        forecast = self._forecast(self._modes(device, modes, variant), batch_size, unprofiled, power_limit, task)
        out_of_reach = note_out_of_reach(goal, forecast.greatest_power_mw) if self._has_power else ""
        if out_of_reach:
            note(out_of_reach)
        if not forecast.admitted.any():
            what = f"no mode of batch size {int(forecast.batch_size[0])} is within what was profiled"
            raise CannotRunError(what, "unprofiled=True chooses by extrapolation")
        chosen = forecast.best(goal, risk) if self._has_power else _slowest_within(forecast, goal, risk)
        if chosen is None:
            near = forecast.take([forecast.nearest_miss(goal, risk)])
            nearest = f"{near.settings.mode_name(0)} at batch size {int(near.batch_size[0])}"
            predicted = f"{near.time_ms[0]:.4g} ms"
            if self._has_power:
                predicted += f" at {mw_to_w(near.power_mw[0]):.4g} W"
            raise CannotRunError(
                f"no mode meets the goal: {goal.describe()}{'' if risk is None else f' at a risk of at most {risk:g}'}",
                f"the nearest is {nearest}: predicted {predicted}, risk {near.risk(goal)[0]:.2g}",
            )
        best = forecast.take([chosen])
        on_front = np.array([forecast.is_on_front(chosen)])
        return self._frame(best, on_front=on_front).assign(risk=best.risk(goal)).iloc[0]

    def score(self, test: Corpus) -> pd.Series:
        """Errors (MAPE) and coverage of the 80 % intervals, in %, on held-out profiles.

        `test` is a corpus with the workload on the same device; rows that the model was fitted on are left out.
        """
        import pandas as pd

        task, device = self.origin["task"], self.origin["device"]
        table = read_profiles(test).table(self.origin["workload"], {"task": task, "device": device}).usable()
        learned = self.predictor.training_rows_
        training_index = pd.MultiIndex.from_arrays(list(learned.table.T))
        rows = pd.MultiIndex.from_arrays(list(table.table.T))
        held_out = table.take(~rows.isin(training_index))
        if len(held_out) == 0:
            raise InvalidValueError("the model was fitted on every profile of the test", "hold some out for it")
        prediction = self.predictor.predict(held_out)
        return pd.Series({
            "profiles": len(held_out),
            "time_mape_pct": mape(held_out.time_ms, prediction.time_ms),
            "power_mape_pct": mape(held_out.power_mw, prediction.power_mw),
            "time_in_interval_pct": coverage(held_out.time_ms, *prediction.interval("time_ms", LEVEL)),
            "power_in_interval_pct": coverage(held_out.power_mw, *prediction.interval("power_mw", LEVEL)),
        })  # fmt: skip

    def plot(self, path: Union[str, Path, None] = None, ax: Optional[Axes] = None) -> Axes:
        """Plot time and power of all modes, their front and the training profiles.

        Args:
            path: also save the figure as a picture.
            ax: matplotlib's Axes to draw on; None for those of a new figure.

        Returns:
            The Axes, for changes of your own.
        """
        from predictors.plots import axes_to_draw_on, draw_time_and_power

        self._refuse_without_power("plot")
        table, learned = self.predict(), self.predictor.training_rows_
        front = table[table["on_front"]].sort_values("power_mw")
        title = f"{repr(self)[1:].split(':')[0]}, {self.origin['provenance']}"
        with axes_to_draw_on(ax, path) as axes:
            draw_time_and_power(axes, mw_to_w(table["power_mw"]), table["time_ms"], "predicted")
            axes.set_title(title)
            axes.step(mw_to_w(front["power_mw"]), front["time_ms"], "k-", where="post", label="front")
            axes.plot(mw_to_w(learned.power_mw), learned.time_ms, "+", label="learned from")
            axes.legend()
        return axes

    def _repr_html_(self) -> str:
        from predictors.choose.notebook import html_table

        origin = self.origin
        row = {
            "predictor": self.predictor.name,
            **{name: origin[name] for name in ("workload", "task", "device")},
            "batch size": self.batch_size,
            "learned from": f"{origin['fitted_rows']} profiles",
            "provenance": origin["provenance"],
        }
        return html_table("Fitted model", [row])

    def save(self, path: Union[str, Path]) -> None:
        """Write a file for `load` and `jetwatt predict`; it contains no code."""
        save_model(Path(path), self.predictor, self.origin)

    def _newly_fitted(self) -> Fitting:
        if self.fitting is None:
            raise CannotRunError(
                "the model was loaded, and its file does not have the profiles left out of the fit",
                "score it on a corpus, or fit it again",
            )
        return self.fitting

    @property
    def _has_power(self) -> bool:
        return self.predictor.training_rows_.has_power

    def _refuse_without_power(self, what: str) -> None:
        if not self._has_power:
            hint = "fit to profiles with power_mw; predict and score work for time"
            raise CannotRunError(f"there is no power to {what}: the model was fitted to time only", hint)

    def _forecast(
        self,
        modes: Sequence[PowerMode],
        batch_size: Optional[int],
        unprofiled: bool,
        power_limit: PowerLimits,
        task: Optional[str] = None,
    ) -> Forecast:
        check_number("batch_size", batch_size, above=True, whole=True)
        limits_mw = limits_mw_of(self.predictor, power_limit)
        each_limit_mw = None if limits_mw is None else np.tile(limits_mw, len(modes))
        each_mode = modes if limits_mw is None else [mode for mode in modes for _ in limits_mw]
        size = self.batch_size if batch_size is None else batch_size
        forecast = self.predictor.predict(Settings.of(each_mode, size, task or self.origin["task"], each_limit_mw))
        if limits_mw is not None and self._has_power:
            forecast = forecast.keeping_limits_from(self.predictor.training_rows_.least_kept_limit_mw())
        if unprofiled:
            return forecast.admitting_all()
        if forecast.unprofiled:
            note(f"{describe_unprofiled(forecast.unprofiled)} without unprofiled=True")
        return forecast

    def _frame(self, forecast: Forecast, level: float = LEVEL, on_front: Optional[np.ndarray] = None) -> pd.DataFrame:
        provenance = f"predicted from {self.origin.get('provenance', 'unknown')}"
        return forecast.to_frame(level, on_front).assign(provenance=provenance)

    def _notes_on(self, forecast: Forecast, device: Optional[str], variant: str) -> List[str]:
        """Caveats of predictions for a device."""
        learned, front = self.predictor.training_rows_, forecast.settings.take(forecast.front())
        notes = []
        if len(learned) and len(front):
            beyond = (front.modes < learned.modes.min(axis=0)) | (front.modes > learned.modes.max(axis=0))
            names = ", ".join(name for name, rows in zip(PowerMode._fields, beyond.T) if rows.any())
            if names:
                notes.append(
                    f"{beyond.any(axis=1).sum()} of {len(front)} modes of the front are outside the range of the "
                    f"profiled ones ({names}): profile one of them before you rely on it"
                )
        name, own = type_of(device or self.origin["device"]), self.origin["device"]
        if name != own:
            notes.append(f"the predictor was fitted on {own}, not {name}")
        if self.deviation > MOST_DEVIATION:
            off = f"up to {share_to_percent(self.deviation):.2g} %"
            notes.append(f"with this software its predictions deviate by {off} from those when it was saved")
        gap = load_board(name, variant).gap if is_board(name) else ""
        return [*notes, gap] if gap else notes

    def _modes(self, device: Optional[str], modes: Modes, variant: str = "") -> List[PowerMode]:
        if device is not None and not isinstance(device, str):
            raise InvalidValueError(f"device is a {type(device).__name__}, expected a name", "for modes, give modes=")
        name = type_of(device or self.origin["device"])
        if not isinstance(modes, str):
            return _given_modes(modes, name)
        is_own = name == self.origin["device"]
        learned = self.predictor.training_rows_
        if is_own and modes == ALL and len(learned) and not learned.has_clocks:
            # Those of a board would be outside the profiled range, as all of them have clocks.
            return [PowerMode(int(cores), *[UNKNOWN_KHZ] * 3) for cores in np.unique(learned.modes[:, 0])]
        if is_board(name):
            if learned.power_limit_mw is not None and not is_own:
                raise InvalidValueError(
                    f"{name} has no power limits, and the model learned those of {self.origin['device']}",
                    f"fit to profiles of {name}, or leave the device out",
                )
            board = load_board(name, variant)
            return list(board.power_mode_space()) if modes == ALL else [mode for _, mode in board.power_modes(modes)]
        if not is_own:
            own_first = dict.fromkeys([self.origin["device"], *board_names()])
            hint = f"{available_hint(name, own_first)}; for other boards give modes= as tuples"
            raise UnknownNameError(f"the power modes {modes!r} of {name!r} are unknown", hint)
        space = PowerModeSpace.spanned_by([learned.mode(index) for index in range(len(learned))])
        return [mode for _, mode in parse_power_modes(modes, space, {MAXN: space.greatest})]


def _slowest_within(forecast: Forecast, goal: Goal, risk: Optional[float]) -> Optional[int]:
    """The slowest admitted row that keeps the goal's limit of time; None if none does."""
    keeps = forecast.admitted & forecast.keeps(goal, risk)
    if not keeps.any():
        return None
    note("no power was measured: the slowest mode within the time is chosen, in place of the one that draws the least")
    return int(np.where(keeps, forecast.time_ms, -np.inf).argmax())


def _given_modes(modes: Iterable[Sequence[int]], device: str) -> List[PowerMode]:
    """Power modes that were given as tuples, checked."""
    try:
        given = [PowerMode(*map(int, mode)) for mode in modes]
    except (TypeError, ValueError) as error:
        fields = ", ".join(PowerMode._fields)
        hint = f"of a DataFrame: table[{list(PowerMode._fields)}].to_numpy()"
        raise InvalidValueError(f"modes is a {type(modes).__name__}, expected tuples of {fields}", hint) from error
    check_modes(given, device)
    return given


def describe_origin(corpus: Optional[Path], table: Profiles, fitted: Profiles, **further: Any) -> Dict[str, Any]:
    """The training data of a predictor, as plain values: the corpus file, the workload's table, the fitted rows.

    Without a file, for a table in memory, its name and hash are None.
    """
    return {
        **{name: getattr(table, name) for name in TABLE_KEY},
        "corpus": None if corpus is None else corpus.name,
        "corpus_sha256": _sha256(corpus),
        "fitted_rows": len(fitted),
        "fitted_sha256": fitted.fingerprint,
        **further,
    }


def _sha256(file: Optional[Path]) -> Optional[str]:
    return None if file is None else file_sha256(file)

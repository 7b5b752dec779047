"""What `recommend` answers: the chosen modes, as text, plain values, frames, a plot and an nvpmodel conf."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from harness.core.boards import board_of, load_board
from harness.core.device import Device, is_pool
from harness.core.device_types import EMULATED
from harness.core.errors import CannotRunError, InvalidValueError
from harness.core.files import write_output
from harness.core.power_modes import PowerMode
from harness.core.units import mw_to_w
from predictors.choose.on_device import profiler_of
from predictors.choose.recommendation_report import (
    format_shared,
    format_workload,
    limits_within_reach,
    plain_answer,
    plain_recommendation,
)
from predictors.choose.request import RISK, Budget, peak_mw_of
from predictors.choose.whole_training import (
    BoardForecast,
    Training,
    feasible_boards,
    forecasts_of,
    format_forecasts,
    plain_forecasts,
)
from predictors.strategies.recommendation import Recommendation, SharedMode, shared_mode

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Answer:
    """The power mode to train with, and all results of the search; printed, it is the text of `jetwatt recommend`.

    `recommendations` has a list for each workload, with a recommendation for each goal.
    """

    def __init__(self, device: Device, case_device: str, budget: Budget) -> None:
        self.device = device
        self.case_device = case_device  # as the cases name it
        self.budget = budget
        self.recommendations: List[List[Recommendation]] = []
        self.trainings: List[Optional[Training]] = []  # of each workload, if the whole training has a limit
        self.boards: List[List[BoardForecast]] = []  # of each workload, the boards that can train it within its limits
        self.shared: List[Optional[SharedMode]] = []  # for several workloads, the common mode for each goal
        self._texts: List[Callable[[], str]] = []  # that write what is printed, one after the other

    @property
    def power_mode(self) -> PowerMode:
        """The chosen mode, of the first workload and goal."""
        return self.recommendations[0][0].choice.power_mode

    @property
    def power_limit_mw(self) -> Optional[int]:
        """The power limit of the chosen mode, for a discrete GPU; None for other devices."""
        return self.recommendations[0][0].choice.power_limit_mw

    @property
    def keeps_limits(self) -> bool:
        """Whether every choice is expected to keep its limits; for a pool, on at least one of its boards."""
        return not self._missed()

    def _missed(self) -> List[Recommendation]:
        return [
            recommendation
            for recommendations, boards in zip(self.recommendations, self.boards)
            for recommendation in recommendations
            if not recommendation.choice.feasible and not (is_pool(self.device) and feasible_boards(boards))
        ]

    def __repr__(self) -> str:
        return "\n".join(text() for text in self._texts)

    def add(
        self,
        workload: str,
        recommendations: List[Recommendation],
        training: Optional[Training] = None,
    ) -> Callable[[], str]:
        """Add a workload's recommendations; returns what writes their text.

        Forecasts of `training` are for the first goal, and for minibatches within the budget's time.
        """
        self.recommendations.append(recommendations)
        self.trainings.append(training)
        boards: List[BoardForecast] = []
        if training is not None:
            boards = forecasts_of(self.device, recommendations[0], training, self.budget.time_ms)
        self.boards.append(boards)
        compared = self.device.describe() if is_pool(self.device) else ""  # as of now: its boards change

        def text() -> str:
            lines = [format_workload(self.device, workload, recommendations, peak_mw_of(self.budget))]
            if compared:
                lines.append(compared)
            if training is not None:
                lines.append(format_forecasts(training, boards, self.device.provenance))
            return "\n".join(lines)

        self._texts.append(text)
        return text

    def share(self) -> Callable[[], str]:
        """Choose the mode that serves all workloads best, for each goal; returns what writes the text on it."""
        for_goals = list(zip(*self.recommendations))
        self.shared += [shared_mode(recommendations, RISK) for recommendations in for_goals]

        def text() -> str:
            return "\n".join(f"\n{format_shared(*each)}" for each in zip(for_goals, self.shared))

        self._texts.append(text)
        return text

    def front(self) -> pd.DataFrame:
        """The modes that no other is expected to beat in both time and power, by rising power; 80 % intervals."""
        import pandas as pd

        return pd.json_normalize(plain_recommendation(self.recommendations[0][0])["front"], sep="_")

    def forecasts(self) -> pd.DataFrame:
        """Which boards keep the training's deadline and energy budget: rows as of `whole_training.BoardForecast`."""
        import pandas as pd

        if self.trainings[0] is None:
            raise CannotRunError("the whole training has no limit", "give a budget with deadline_h= or energy_wh=")
        return pd.json_normalize(plain_forecasts(self.trainings[0], self.boards[0])["boards"], sep="_")

    def plot(self, path: Union[str, Path, None] = None, ax: Optional[Axes] = None) -> Axes:
        """Plot time and power of all modes, the front, the profiled modes and the recommended one.

        Args:
            path: also save the figure as a picture.
            ax: matplotlib's Axes to draw on; None for those of a new figure.

        Returns:
            The Axes, for changes of your own.
        """
        from predictors.plots import axes_to_draw_on, draw_recommendation

        with axes_to_draw_on(ax, path) as axes:
            draw_recommendation(self.recommendations[0][0], axes, self.device.provenance)
        return axes

    def _repr_html_(self) -> str:
        from predictors.choose.notebook import html_table

        rows = [
            {
                "workload": profiler_of(recommendation.history).template.workload,
                "goal": recommendation.goal.describe(),
                "power mode": recommendation.mode.name,
                "batch size": recommendation.choice.batch_size,
                "time (ms)": recommendation.mode.time_ms.value,
                "power (W)": mw_to_w(recommendation.mode.power_mw.value),
                "keeps the limits": "yes" if recommendation.choice.feasible else "no, it is the nearest",
                "provenance": self.device.provenance,
            }
            for recommendations in self.recommendations
            for recommendation in recommendations
        ]
        return html_table(f"Recommended on {self.device.name}", rows)

    def write_conf(
        self, path: Union[str, Path], root: Union[str, Path] = "/", name: str = "JETWATT"
    ) -> Tuple[int, bool]:
        """Write an nvpmodel conf with the mode, as `--write-conf` does.

        Args:
            path: the file to write.
            root: root of the board's /etc and /var, if this is the board.
            name: of the mode in the conf.

        Returns:
            The number of the mode, and whether it was made from the board's own conf; else from its specification.

        Raises:
            HarnessError: the device has no nvpmodel, or its conf cannot be extended.
        """
        from harness.devices.nvpmodel_making import make_conf, off_board_conf, on_board_conf

        board = board_of(self.device)
        if not board:
            raise InvalidValueError(f"{self.device.name} has no nvpmodel", "a mode of a board has a conf")
        on_board = self.device.name in (board, f"{EMULATED}{board}")
        mode = self.power_mode
        base = on_board_conf(Path(root), mode) if on_board else off_board_conf(load_board(board), mode)
        number, text = make_conf(*base, name)
        command = f"jetwatt recommend --device {self.case_device}"
        origin = f"# Chosen by `{command}`: {self.device.provenance} profiles.\n"
        write_output(Path(path), (origin + text).encode())
        return number, on_board

    def plain(self) -> Dict[str, Any]:
        """The answer as plain values, for JSON."""
        plain = plain_answer(self.device, self.recommendations, self.shared, peak_mw_of(self.budget))
        trainings = [
            plain_forecasts(training, boards)
            for training, boards in zip(self.trainings, self.boards)
            if training is not None
        ]
        if trainings:
            plain["training"] = trainings[0] if len(trainings) == 1 else trainings
        return plain

    def refuse_missed(self) -> None:
        """Raise a `CannotRunError` with limits that can be kept if no mode is expected to keep those of the goal."""
        missed = self._missed()
        if missed:
            raise CannotRunError(
                f"no mode meets the goal: {'; '.join(recommendation.goal.describe() for recommendation in missed)}",
                limits_within_reach(missed[0], peak_mw_of(self.budget)),
            )

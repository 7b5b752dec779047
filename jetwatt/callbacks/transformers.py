"""`PowerCallback` for the Trainer of transformers: time, power and energy in its log.

PowerCallback(workload="my-run", results="r.sqlite").attach(trainer)
trainer.train()
"""

from __future__ import annotations

from typing import Any, Dict

from transformers import Trainer, TrainerCallback  # noqa: TID253 (who imports this module has loaded it)

from harness.core.notes import note
from jetwatt.callbacks.power_log import ENERGY_PER_EPOCH, PowerLog


class PowerCallback(PowerLog, TrainerCallback):
    """Logs `step_time_s`, `power_w` and `energy_per_step_j` with each entry of the log, `energy_per_epoch_j` per epoch.

    A step is an optimizer step, with all its accumulated gradients. Evaluations and checkpoints do not count.
    """

    _is_ahead = False  # of the callbacks that log

    def attach(self, trainer: Trainer) -> PowerCallback:
        """Register ahead of the callbacks that log, so that TensorBoard, W&B and others receive the figures too."""
        trainer.callback_handler.callbacks.insert(0, self)
        self._is_ahead = True
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.report_to and not self._is_ahead:
            loggers = ", ".join(args.report_to)
            note(f"{loggers} will not have the figures: register by .attach(trainer), ahead of what logs")
        samples = args.train_batch_size * args.gradient_accumulation_steps
        self.begin(samples, kwargs.get("model"), kwargs.get("train_dataloader"))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin_epoch()
        self._of_epoch: Dict[str, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.step()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._of_epoch = {name: value for name, value in self.of_epoch().items() if name == ENERGY_PER_EPOCH}

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.resume()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.resume()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if logs is None or any(name.startswith("eval_") for name in logs):
            return
        figures = {**self.since_log(), **getattr(self, "_of_epoch", {})}
        self._of_epoch = {}
        logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end()

"""`PowerCallback` for the models of ultralytics: time, power and energy of an epoch in results.csv and its loggers.

PowerCallback(workload="my-run", results="r.sqlite").attach(model)
model.train(data="coco8.yaml")
"""

from __future__ import annotations

import math
from typing import Any

from jetwatt.callbacks.power_log import ENERGY_PER_EPOCH, FIGURES, PowerLog


class PowerCallback(PowerLog):
    """Adds `power/step_time_s`, `power/power_w`, `power/energy_per_step_j` and `power/energy_per_epoch_j` to an epoch.

    They are columns of results.csv, and TensorBoard, W&B and others log them; what is unknown is NaN there, as all rows
    have the same columns. A step is a batch; validation does not count. On several GPUs ultralytics trains in processes
    of its own, which have no callbacks: nothing is measured.
    """

    def attach(self, model: Any) -> PowerCallback:
        """Register with a model of ultralytics, ahead of the callbacks that log."""
        hooks = {
            "on_train_start": self._on_train_start,
            "on_train_epoch_start": lambda trainer: self.begin_epoch(),
            "on_train_batch_end": lambda trainer: self.step(),
            "on_train_epoch_end": self._on_train_epoch_end,
            "on_train_end": lambda trainer: self.end(),
        }
        for event, hook in hooks.items():
            model.add_callback(event, hook)
            model.callbacks[event].insert(0, model.callbacks[event].pop())
        return self

    def _on_train_start(self, trainer: Any) -> None:
        self.begin(trainer.batch_size, trainer.model, trainer.train_loader)

    def _on_train_epoch_end(self, trainer: Any) -> None:
        """Add them beside the learning rates, which ultralytics hands to results.csv and to each logger."""
        of_epoch = self.of_epoch()
        for name in (*FIGURES, ENERGY_PER_EPOCH):
            trainer.lr[f"power/{name}"] = of_epoch.get(name, math.nan)

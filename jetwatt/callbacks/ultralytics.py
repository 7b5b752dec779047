"""`PowerCallback` for the models of ultralytics: time, power and energy among the metrics of an epoch.

PowerCallback(workload="my-run", results="r.sqlite").attach(model)
model.train(data="coco8.yaml")
"""

from __future__ import annotations

from typing import Any

from jetwatt.callbacks.power_log import PowerLog


class PowerCallback(PowerLog):
    """Adds `power/step_time_s`, `power/power_w`, `power/energy_per_step_j` and `power/energy_per_epoch_j` to an epoch.

    They are metrics of the trainer, which TensorBoard, W&B and others log. A step is a batch; validation does not
    count.
    """

    def attach(self, model: Any) -> PowerCallback:
        """Register with a model of ultralytics, ahead of the callbacks that log."""
        hooks = {
            "on_train_start": self._on_train_start,
            "on_train_epoch_start": lambda trainer: self.begin_epoch(),
            "on_train_batch_end": lambda trainer: self.step(),
            "on_train_epoch_end": self._on_train_epoch_end,
            "on_fit_epoch_end": self._on_fit_epoch_end,
            "on_train_end": lambda trainer: self.end(),
        }
        for event, hook in hooks.items():
            model.add_callback(event, hook)
            model.callbacks[event].insert(0, model.callbacks[event].pop())
        return self

    def _on_train_start(self, trainer: Any) -> None:
        self.begin(trainer.batch_size, trainer.model, trainer.train_loader)

    def _on_train_epoch_end(self, trainer: Any) -> None:
        self._of_epoch = {f"power/{name}": value for name, value in self.of_epoch().items()}

    def _on_fit_epoch_end(self, trainer: Any) -> None:
        if self._loop is not None:  # ultralytics evaluates its best weights once more after training
            trainer.metrics.update(self._of_epoch)
            self.resume()

"""`PowerCallback` for the Trainer of Lightning: time, power and energy in its loggers.

trainer = Trainer(callbacks=[PowerCallback(workload="my-run", results="r.sqlite")])
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from jetwatt.callbacks.power_log import ENERGY_PER_EPOCH, PowerLog


class PowerCallback(PowerLog, Callback):
    """Logs `step_time_s`, `power_w` and `energy_per_step_j` every `log_every_n_steps`, `energy_per_epoch_j` per epoch.

    A step is a training batch. Validation and checkpoints do not count. Each `fit` has a profile of its own; one that
    begins in another, with a callback too, ends the measurement of that.
    """

    _has_saved = False  # a checkpoint, since the last batch

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        loader = trainer.train_dataloader
        self.begin(getattr(loader, "batch_size", None), pl_module, loader)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.begin_epoch()
        self._has_saved = False

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        self._has_saved = True  # which lasts on, and has no hook at its end

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._has_saved:
            self._has_saved = False
            self.resume()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.step()
        if (batch_idx + 1) % max(1, trainer.log_every_n_steps) == 0:
            pl_module.log_dict(self.since_log(), batch_size=1)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        of_epoch = self.of_epoch()
        if ENERGY_PER_EPOCH in of_epoch:
            pl_module.log(ENERGY_PER_EPOCH, of_epoch[ENERGY_PER_EPOCH], batch_size=1)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.end(exception)

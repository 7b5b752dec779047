"""`PowerCallback` for the Trainer of Lightning: time, power and energy in its loggers.

trainer = Trainer(callbacks=[PowerCallback(workload="my-run", results="r.sqlite")])
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from jetwatt.callbacks.power_log import PowerLog


class PowerCallback(PowerLog, Callback):
    """Logs `step_time_s`, `power_w` and `energy_per_step_j` every `log_every_n_steps`, `energy_per_epoch_j` per epoch.

    A step is a training batch. Validation and checkpoints do not count.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        loader = trainer.train_dataloader
        self.begin(getattr(loader, "batch_size", None), pl_module, loader)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.begin_epoch()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.step()
        if (batch_idx + 1) % max(1, trainer.log_every_n_steps) == 0:
            pl_module.log_dict(self.since_log(), batch_size=1)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        of_epoch = self.of_epoch()
        if "energy_per_epoch_j" in of_epoch:
            pl_module.log("energy_per_epoch_j", of_epoch["energy_per_epoch_j"], batch_size=1)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.end(exception)

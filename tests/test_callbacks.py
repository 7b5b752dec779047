"""The callbacks with the real libraries, on small random networks: figures in their logs, a profile in the results."""

from __future__ import annotations

import contextlib
import csv
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.core.errors import InvalidValueError, StoreError
from harness.core.notes import NoteWarning
from harness.core.profiles import Minibatches
from harness.measure.own_loop import OwnLoop, StepFigures
from harness.store.results import ResultsStore

torch = pytest.importorskip("torch")

from jetwatt.callbacks import power_log  # noqa: E402 (loads torch's users)
from jetwatt.callbacks.power_log import PowerLog, named  # noqa: E402
from predictors.choose.request import Search  # noqa: E402

pytestmark = [
    pytest.mark.training,
    pytest.mark.one_python,
    pytest.mark.filterwarnings("ignore::harness.core.notes.NoteWarning"),  # of doubts that this machine decides
]

PROJECT = Path(__file__).resolve().parents[1]

REHEARSAL = {"simulated_workload": "lenet-mnist", "results": "r.sqlite", "workload": "my-run"}
"""Simulated boards have power on any machine."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


def stored():
    with ResultsStore("r.sqlite", read_only=True) as store:
        return list(store.profiles())


PAUSE_S = 0.5


def paused_after(profile):
    """The minibatches after which the training did something else for a while, whose time is in none."""
    columns = Minibatches.of(profile.minibatches).columns
    begins_s, ends_s = columns["start_s"], columns["start_s"] + columns["e2e_ms"] / 1000
    pauses_s = begins_s[1:] - ends_s[:-1]
    return np.flatnonzero(pauses_s > 0.8 * PAUSE_S).tolist()


class Network(torch.nn.Module):
    """Returns a loss as a model of transformers does."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.evaluation_s = 0.0

    def forward(self, x, labels):
        if not self.training:
            time.sleep(self.evaluation_s)
        return {"loss": torch.nn.functional.cross_entropy(self.layer(x), labels)}


def samples(count):
    return [{"x": torch.rand(4), "labels": torch.tensor(number % 2)} for number in range(count)]


def trainer_of_transformers(**options):
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    settings = {
        "output_dir": "out",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 2,
        "logging_steps": 5,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "no",
        "eval_strategy": "epoch",
        **options,
    }
    arguments = transformers.TrainingArguments(**settings)
    return transformers.Trainer(Network(), arguments, train_dataset=samples(80), eval_dataset=samples(8))


def test_the_log_of_transformers_has_time_power_and_energy():
    trainer = trainer_of_transformers()
    from jetwatt.callbacks.transformers import PowerCallback

    callback = PowerCallback("sim:orin-agx", **REHEARSAL).attach(trainer)
    seen = []

    class Logger(type(trainer.callback_handler.callbacks[-1])):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    trainer.add_callback(Logger)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 4
    for entry in logged:
        assert entry["step_time_s"] > 0
        assert entry["energy_per_step_j"] == pytest.approx(entry["power_w"] * entry["step_time_s"])
    assert any("energy_per_epoch_j" in entry for entry in trainer.state.log_history)
    assert [entry for entry in seen if "power_w" in entry], "a callback that logs comes later and receives them"
    assert len(callback.profile.minibatches) == 20  # two epochs of ten steps
    assert callback.profile.case.batch_size == 8
    [profile] = stored()
    assert profile.case.workload == "my-run"
    assert profile.conditions["model_fingerprint"]


def test_evaluations_and_checkpoints_of_transformers_do_not_count(monkeypatch):
    own = {"num_train_epochs": 1, "eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 3}
    trainer = trainer_of_transformers(**own)
    from jetwatt.callbacks.transformers import PowerCallback

    trainer.model.evaluation_s = PAUSE_S
    save_model = trainer.save_model

    def save_slowly(*args, **options):
        time.sleep(PAUSE_S)
        save_model(*args, **options)

    monkeypatch.setattr(trainer, "save_model", save_slowly)
    callback = PowerCallback(workload="my-run").attach(trainer)
    trainer.train()
    assert paused_after(callback.profile) == [2, 3, 5, 7, 8]


def test_a_callback_of_transformers_that_comes_after_the_loggers_says_how_it_comes_before_them():
    trainer = trainer_of_transformers(num_train_epochs=1)
    from jetwatt.callbacks.transformers import PowerCallback

    trainer.args.report_to = ["tensorboard"]  # which need not be installed
    trainer.add_callback(PowerCallback("sim:orin-agx", **REHEARSAL))
    with pytest.warns(NoteWarning, match=r"tensorboard.*attach"):
        trainer.train()
    attached = trainer_of_transformers(num_train_epochs=1)
    attached.args.report_to = ["tensorboard"]
    PowerCallback("sim:orin-agx", **REHEARSAL).attach(attached)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attached.train()
    assert not [each for each in caught if "attach" in str(each.message)]


def test_training_on_this_machine_is_measured():
    trainer = trainer_of_transformers(eval_strategy="no")
    from jetwatt.callbacks.transformers import PowerCallback

    callback = PowerCallback(workload="my-run", results="r.sqlite").attach(trainer)
    trainer.train()
    assert callback.profile.provenance == "measured"
    assert len(callback.profile.minibatches) == 20
    [profile] = stored()
    assert profile.minibatch_time_ms == callback.profile.minibatch_time_ms
    assert profile.fetch_stall_ms is None  # the library's own loop fetches


def test_within_a_power_budget_a_mode_is_searched_and_the_profile_is_of_that_mode():
    lines = []
    log = PowerLog("sim:orin-agx", power_budget_w=25, report=lines.append, **REHEARSAL)
    log.begin(16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none of the search, which is not stored
        while log.is_searching:
            time.sleep(0.0002)  # the search thinks in another thread
            log.step()
            assert not log.is_searching or log.since_log() == log.of_epoch() == {}  # it has another mode all the time
    for _ in range(1500):
        log.step()
    assert log.since_log()["power_w"] <= 25
    log.end()
    assert any("settled on" in line for line in lines)
    assert log.profile.case.power_mode.name != "maxn"
    assert log.profile.power_mw <= 25_000
    assert len(log.profile.minibatches) == 1500
    assert len(stored()) == 1


def test_a_training_that_ends_before_its_search_has_no_profile_and_says_so():
    lines = []
    log = PowerLog("sim:orin-agx", power_budget_w=25, report=lines.append, **REHEARSAL)
    log.begin(16)
    log.step()
    log.end()
    assert any("no profile" in line for line in lines)
    assert log.profile is None
    assert stored() == []


def test_a_short_training_gets_a_smaller_search():
    lines = []
    log = PowerLog(
        "sim:orin-agx", power_budget_w=25, search=Search(profiles=2, minibatches=5), report=lines.append, **REHEARSAL
    )
    log.begin(16)
    while log.is_searching:
        log.step()
    log.end()
    assert [line.split(":")[0] for line in lines if line.startswith("profile ")] == ["profile 1 of 2", "profile 2 of 2"]


def test_another_rank_does_not_search(monkeypatch):
    log = PowerLog("sim:orin-agx", power_budget_w=25, report=lambda line: None, **REHEARSAL)
    log.begin(16)
    monkeypatch.setenv("RANK", "1")
    other = PowerLog("sim:orin-agx", power_budget_w=25, report=lambda line: None, **REHEARSAL)
    other.begin(16)
    other.step()
    assert not other.is_searching
    assert other.since_log() == {}
    other.end()
    monkeypatch.delenv("RANK")
    log.end()


def test_a_training_that_cannot_be_measured_leaves_no_search(monkeypatch):
    held = []

    @contextlib.contextmanager
    def search(*args, **options):
        held.append("held")
        try:
            yield
        finally:
            held.pop()

    monkeypatch.setattr(power_log, "tuning", search)
    log = PowerLog("sim:orin-agx", workload="my-run", power_budget_w=25)
    with pytest.raises(InvalidValueError, match="simulated_workload="):
        log.begin(16)
    assert held == []
    assert not log.is_searching


def test_a_results_file_that_cannot_be_written_is_refused_before_the_search(monkeypatch):
    monkeypatch.setattr(power_log, "tuning", lambda *args, **options: pytest.fail("it searched"))
    Path("r.sqlite").mkdir()
    log = PowerLog("sim:orin-agx", power_budget_w=25, **REHEARSAL)
    with pytest.raises(StoreError):
        log.begin(16)


def test_a_budget_and_a_mode_are_refused_together_as_is_an_unknown_batch_size():
    with pytest.raises(InvalidValueError, match="power_budget_w="):
        PowerLog(workload="my-run", power_budget_w=20, power_mode="maxn")
    with pytest.raises(InvalidValueError, match="power_budget_w="):
        PowerLog(workload="my-run", search=Search(profiles=2))
    with pytest.raises(InvalidValueError, match="batch_size="):
        PowerLog(workload="my-run").begin(None)


def ends():
    """What ended the stored trainings early, in their order; None for one that ended well."""
    return [profile.conditions.get("ended_by") for profile in stored()]


def test_an_error_that_a_library_reports_is_named():
    log = PowerLog("sim:orin-agx", **REHEARSAL)
    log.begin(16)
    log.step()
    log.end(ValueError("of the user"))
    assert ends() == ["ValueError"]


def test_a_training_whose_end_no_hook_tells_is_kept_at_the_next_begin_and_flagged():
    log = PowerLog("sim:orin-agx", **REHEARSAL)
    log.begin(16)
    log.step()
    log.begin(16)
    log.step()
    log.end()
    assert ends() == ["UnreportedError", None]
    assert [any(flag.startswith("ended-early") for flag in profile.flags) for profile in stored()] == [True, False]


def test_a_training_whose_end_no_hook_tells_is_kept_when_another_callback_begins():
    first, second = (PowerLog("sim:orin-agx", **REHEARSAL) for _ in range(2))
    first.begin(16)
    first.step()
    second.begin(16)
    second.step()
    first.step()  # of a training that goes on after one in it: measured no more
    second.end()
    first.end()
    assert ends() == ["UnreportedError", None]
    assert [len(profile.minibatches) for profile in stored()] == [1, 1]


def test_a_process_that_a_variable_calls_another_rank_says_so(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    log = PowerLog("sim:orin-agx", **REHEARSAL)
    with pytest.warns(NoteWarning, match="RANK=2"):
        log.begin(16)


def test_a_training_whose_end_no_hook_tells_is_kept_at_the_end_of_the_program_and_flagged():
    script = (
        "from jetwatt.callbacks.power_log import PowerLog\n"
        f"log = PowerLog('sim:orin-agx', **{REHEARSAL!r})\n"
        "log.begin(16)\nlog.step()\nraise SystemExit(3)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 3
    assert ends() == ["UnreportedError"]


class LaggingLoop(OwnLoop):
    """A loop on a GPU that is two minibatches behind."""

    @property
    def ended(self):
        return max(0, self.minibatches - 2)

    def step(self, samples=None):
        self.minibatches += 1

    def figures(self, since=0):
        count = self.ended - since
        return StepFigures(count, 1.0, 1.0, float(count)) if count else None


def test_each_minibatch_is_in_one_entry_of_the_log_and_in_one_epoch(monkeypatch):
    loop = LaggingLoop()
    monkeypatch.setattr(power_log, "measuring", lambda *args, **options: contextlib.nullcontext(loop))
    log = PowerLog(workload="my-run")
    log.begin(16)
    of_log_j = of_epochs_j = 0.0
    for _ in range(3):
        log.begin_epoch()
        for number in range(10):
            log.step()
            if number % 5 == 4:
                before = log._logged
                of_log_j += log.since_log()["energy_per_step_j"] * (log._logged - before)
        of_epochs_j += log.of_epoch()["energy_per_epoch_j"]
    log.end()
    assert of_log_j == of_epochs_j == loop.ended == 28


def test_figures_that_are_missing_are_not_logged():
    assert named(None) == {}
    assert named(StepFigures(4, 0.5, None, None)) == {"step_time_s": 0.5}
    assert named(StepFigures(4, 0.5, 10.0, 20.0)) == {"step_time_s": 0.5, "power_w": 10.0, "energy_per_step_j": 5.0}


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning")


def module_of(lightning, in_batch=lambda number: None):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            in_batch(batch_idx)
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Module()


def loader_of_lightning():
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(80, 4)), batch_size=8)


def trainer_of_lightning(lightning, callback, **options):
    from lightning.pytorch.loggers import CSVLogger

    settings = {
        "max_epochs": 2,
        "callbacks": [callback],
        "enable_checkpointing": False,
        "logger": CSVLogger("out"),
        **options,
    }
    silent = {"enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(accelerator="cpu", log_every_n_steps=5, **silent, **settings)


def test_the_loggers_of_lightning_have_time_power_and_energy(lightning):
    from jetwatt.callbacks.lightning import PowerCallback

    callback = PowerCallback("sim:orin-agx", **REHEARSAL)
    trainer_of_lightning(lightning, callback).fit(module_of(lightning), loader_of_lightning())
    [table] = Path("out").rglob("metrics.csv")
    with table.open() as lines:
        rows = list(csv.DictReader(lines))
    assert sum(bool(row["power_w"]) for row in rows) == 4
    assert sum(bool(row["energy_per_epoch_j"]) for row in rows) == 2
    assert len(callback.profile.minibatches) == 20
    assert callback.profile.case.batch_size == 8
    assert len(stored()) == 1


def test_each_fit_of_lightning_has_a_profile(lightning):
    from jetwatt.callbacks.lightning import PowerCallback

    callback = PowerCallback("sim:orin-agx", **REHEARSAL)
    trainer = trainer_of_lightning(lightning, callback, max_epochs=1, logger=False)
    network = module_of(lightning)
    trainer.fit(network, loader_of_lightning())
    trainer.fit_loop.max_epochs = 3
    trainer.fit(network, loader_of_lightning())  # goes on
    assert [len(profile.minibatches) for profile in stored()] == [10, 20]
    assert len(callback.profile.minibatches) == 20
    assert ends() == [None, None]


def test_the_time_of_a_validation_of_lightning_does_not_count(lightning):
    from jetwatt.callbacks.lightning import PowerCallback

    callback = PowerCallback(workload="my-run")
    network = module_of(lightning)
    network.validation_step = lambda batch, batch_idx: time.sleep(PAUSE_S / 10)
    options = {"max_epochs": 1, "val_check_interval": 4, "logger": False}
    trainer_of_lightning(lightning, callback, **options).fit(network, loader_of_lightning(), loader_of_lightning())
    assert paused_after(callback.profile) == [3, 7]


@pytest.mark.parametrize("is_same", [True, False], ids=["the same callback", "another one"])
def test_a_fit_of_lightning_in_a_fit_ends_the_measurement_of_the_outer_one(lightning, is_same):
    from jetwatt.callbacks.lightning import PowerCallback

    callback = PowerCallback("sim:orin-agx", **REHEARSAL)

    def inner(number):
        if number == 3:
            own = callback if is_same else PowerCallback("sim:orin-agx", **REHEARSAL)
            trainer_of_lightning(lightning, own, max_epochs=1, logger=False).fit(
                module_of(lightning), loader_of_lightning()
            )

    trainer_of_lightning(lightning, callback, max_epochs=1).fit(module_of(lightning, inner), loader_of_lightning())
    assert [len(profile.minibatches) for profile in stored()] == [3, 10]
    assert ends() == ["UnreportedError", None]


def test_the_time_of_a_checkpoint_of_lightning_does_not_count(lightning, monkeypatch):
    from lightning.pytorch.callbacks import ModelCheckpoint

    from jetwatt.callbacks.lightning import PowerCallback

    class SlowCheckpoint(ModelCheckpoint):
        def _save_checkpoint(self, trainer, filepath):
            super()._save_checkpoint(trainer, filepath)
            time.sleep(PAUSE_S)

    callback = PowerCallback(workload="my-run")
    saves = SlowCheckpoint("saved", every_n_train_steps=4)
    options = {"callbacks": [callback, saves], "enable_checkpointing": True, "max_epochs": 1, "logger": False}
    trainer_of_lightning(lightning, callback, **options).fit(module_of(lightning), loader_of_lightning())
    assert list(Path("saved").iterdir())
    assert paused_after(callback.profile) == [3, 7]


def test_the_metrics_of_ultralytics_have_time_power_and_energy(tmp_path):
    ultralytics = pytest.importorskip("ultralytics")
    image = pytest.importorskip("PIL.Image")
    from jetwatt.callbacks.ultralytics import PowerCallback

    generator = np.random.default_rng(0)
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for number in range(8):
        pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        image.fromarray(pixels).save(tmp_path / "images" / f"{number}.jpg")
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "data.yaml").write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: [thing]\n")
    model = ultralytics.YOLO("yolov8n.yaml")
    callback = PowerCallback("sim:orin-agx", **REHEARSAL).attach(model)
    seen = []
    model.add_callback("on_train_epoch_end", lambda trainer: seen.append(dict(trainer.lr)))  # as loggers take them
    settings = {"epochs": 2, "imgsz": 32, "batch": 4, "workers": 0, "device": "cpu", "project": str(tmp_path)}
    model.train(data=str(tmp_path / "data.yaml"), plots=False, save=False, verbose=False, amp=False, **settings)
    names = ["power/step_time_s", "power/power_w", "power/energy_per_step_j", "power/energy_per_epoch_j"]
    assert [[epoch[name] > 0 for name in names] for epoch in seen] == [[True] * 4] * 2
    with model.trainer.csv.open() as lines:
        rows = list(csv.DictReader(lines, skipinitialspace=True))
    for row, epoch in zip(rows, seen):
        assert [float(row[name]) for name in names] == pytest.approx([epoch[name] for name in names], rel=1e-4)
        assert None not in row  # as many columns as names
    assert len(rows) == 2
    assert len(callback.profile.minibatches) == 4
    assert callback.profile.case.batch_size == 4
    assert len(stored()) == 1


def test_what_is_unknown_of_an_epoch_of_ultralytics_is_no_number_so_that_its_columns_stay(monkeypatch):
    pytest.importorskip("ultralytics")
    from jetwatt.callbacks.ultralytics import PowerCallback

    callback = PowerCallback(workload="my-run")
    monkeypatch.setattr(callback, "of_epoch", lambda: {"step_time_s": 0.5})
    trainer = SimpleNamespace(lr={"lr/pg0": 0.1})
    callback._on_train_epoch_end(trainer)
    assert trainer.lr.pop("power/step_time_s") == 0.5
    assert trainer.lr.pop("lr/pg0") == 0.1
    assert len(trainer.lr) == 3
    assert all(value != value for value in trainer.lr.values())

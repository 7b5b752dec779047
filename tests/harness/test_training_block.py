"""`jetwatt.measuring`: loops of a user's own on this machine, as found and held, interrupted, rehearsed and gated."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

import jetwatt
from harness.board.lock import locked
from harness.core.cases import DVFS
from harness.core.configuration import Configuration
from harness.core.errors import CannotRunError, ControlError, InvalidValueError, StoreError
from harness.core.notes import NoteWarning
from harness.devices.host import HostDevice
from harness.measure.recording import Instruments
from harness.store.results import ResultsStore
from tests.harness.bare_machine import make_bare
from tests.harness.board.kernel_trees import policy
from tests.messages import says

PROJECT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.filterwarnings("ignore::harness.core.notes.NoteWarning")
"""Of doubts about figures that the machine of the tests decides."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Neither a configuration, a stored threshold nor a sensor of this machine plays a part."""
    make_bare(monkeypatch, tmp_path / "bare")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def train(run, minibatches=45, step_s=0.0005):
    for _ in run.fetch(range(minibatches)):
        time.sleep(step_s)
        run.step()


def loop_of(minibatches=45, device="host", **options):
    with jetwatt.measuring(device, **{"workload": "my-run", "batch_size": 16, **options}) as run:
        train(run, minibatches)
    return run


def measured(minibatches=45, device="host", **options):
    return loop_of(minibatches, device, **options).profile


def stored(path):
    with ResultsStore(path, read_only=True) as store:
        return list(store.profiles())


def kinds(profile):
    return {flag.partition(":")[0] for flag in profile.flags}


def unflagged(path):
    """As if nothing had disturbed the runs: what else this machine does is not in the hands of a test."""
    with ResultsStore(path, read_only=True) as store:
        rows = list(zip(store.records(), store.profiles()))
    path.unlink()
    with ResultsStore(path) as store:
        for record, profile in rows:
            store.add(dataclasses.replace(profile, flags=[]), record.environment, record.run_id)


def test_the_slurm_job_of_a_training_is_in_its_record(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    measured(results="r.sqlite")
    [profile] = stored("r.sqlite")
    assert (profile.conditions["slurm_job"], profile.conditions["slurm_restarts"]) == ("12", 2)


def test_a_profile_is_stored_with_what_is_known_of_the_training_and_nothing_else():
    profile = measured(results="r.sqlite")
    assert profile.provenance == "measured"
    assert profile.aggregates["clean_minibatches"] == 44
    assert profile.minibatch_time_ms > 0.5
    assert profile.fetch_stall_ms is not None
    assert profile.aggregates["samples_per_s"] == pytest.approx(44 * 16 / profile.aggregates["e2e_s"])
    assert profile.conditions["trained_by"] == "caller"
    assert profile.conditions["device_held"] is False
    assert profile.conditions["python"]
    assert not {"data_source", "data_samples", "storage_medium", "cache_method"} & set(profile.conditions)
    assert (profile.case.workers, profile.case.storage) == (None, None)
    [again] = stored("r.sqlite")
    assert again == profile


def test_a_loop_that_does_not_show_its_fetches_is_stored_without_a_stall():
    with jetwatt.measuring("host", workload="my-run", batch_size=16, results="r.sqlite") as run:
        for _ in range(5):
            run.step()
    [profile] = stored("r.sqlite")
    assert profile.fetch_stall_ms is None
    assert profile.aggregates["compute_ms"] is None
    assert profile.minibatch_time_ms > 0


def test_the_profile_is_in_the_named_file_although_the_training_changes_the_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with jetwatt.measuring("host", workload="my-run", batch_size=16, results="r.sqlite") as run:
        os.chdir("elsewhere")
        train(run, 3)
    assert len(stored(tmp_path / "r.sqlite")) == 1


def test_too_few_minibatches_are_kept_and_noted():
    profile = measured(minibatches=3, results="r.sqlite")
    assert "few-minibatches" in kinds(profile)
    assert "few-minibatches" not in kinds(measured())
    only_first = measured(minibatches=1, results="r.sqlite")
    assert only_first.minibatch_time_ms is None
    assert len(only_first.minibatches) == 1
    assert len(stored("r.sqlite")) == 2


def test_a_block_without_a_step_says_so_and_has_no_profile():
    with pytest.warns(NoteWarning, match=r"call step\(\)") as notes, jetwatt.measuring(
        "host", workload="my-run", batch_size=16, results="r.sqlite"
    ) as run:
        pass
    assert {note.filename for note in notes} == {__file__}
    assert run.profile is None
    assert says(repr(run), "without a profile", "minibatches reported: 0")
    assert stored("r.sqlite") == []


def nested(before=lambda: None):
    """A block in a block."""
    with jetwatt.measuring("host", workload="outer", batch_size=16) as run:
        train(run, 5)
        before()
        with jetwatt.measuring("sim:orin-agx", workload="lenet-mnist", batch_size=16):
            pytest.fail("the inner block ran")


@pytest.mark.exhaustive
def test_a_block_in_a_block_is_refused_and_the_next_one_is_not():
    with pytest.raises(InvalidValueError, match="measuring 'outer' already"):
        nested()
    assert measured(minibatches=2) is not None
    with pytest.raises(ValueError, match="of the user"), jetwatt.measuring("host", workload="a", batch_size=1):
        raise ValueError("of the user")
    assert measured(minibatches=2) is not None


def test_a_forked_child_may_measure_a_training_of_its_own_in_a_block_of_its_parent():
    with jetwatt.measuring("host", workload="my-run", batch_size=16) as run:
        child = os.fork()
        if not child:
            try:
                os._exit(0 if measured(minibatches=2) is not None else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        train(run, 3)
    assert len(run.profile.minibatches) == 3


@pytest.mark.parametrize("device", ["host", "sim:orin-agx"])
def test_a_step_after_the_end_of_its_block_is_refused(device):
    with jetwatt.measuring(device, workload="lenet-mnist", batch_size=16) as run:
        train(run, 3)
    with pytest.raises(InvalidValueError, match="after the end"):
        run.step()
    assert len(run.profile.minibatches) == run.minibatches == 3


def notes_of(**options):
    """What a measured training notes, as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measured(**options)
    assert {each.filename for each in caught} <= {__file__}
    return "\n".join(str(each.message) for each in caught)


def test_flags_and_missing_power_are_noted_at_the_end(tree):
    tree.write({"proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\n"})
    without_sensors = notes_of(device=HostDevice(Configuration(), tree.path), minibatches=3)
    assert says(without_sensors, "power and energy", "no power sensor")
    assert "few-minibatches: 2 of at least 40" in without_sensors
    rehearsed = notes_of(device="sim:orin-agx", workload="lenet-mnist", minibatches=400)
    assert "missing" not in rehearsed


def failing(error, before=lambda: None):
    """A training that ends with an error of its own."""
    with jetwatt.measuring("host", workload="my-run", batch_size=16, results="r.sqlite") as run:
        train(run)
        before()
        raise error("of the user")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_of_the_training_goes_on_and_what_was_measured_is_kept(error):
    with pytest.raises(error, match="of the user"):
        failing(error)
    [profile] = stored("r.sqlite")
    assert "ended-early" in kinds(profile)
    assert profile.conditions["ended_by"] == error.__name__
    assert profile.aggregates["clean_minibatches"] == 44


SCRIPT = """
import time
from pathlib import Path
import pytest
import jetwatt
from tests.harness.bare_machine import make_bare
make_bare(pytest.MonkeyPatch(), Path("of-the-script"))
with jetwatt.measuring("host", workload="my-run", batch_size=16, results="r.sqlite") as run:
    for number in range(100_000):
        time.sleep(0.001)
        run.step()
        if number == 60:
            print("trains", flush=True)
"""


@pytest.mark.exhaustive
def test_ctrl_c_ends_the_script_as_without_measuring_and_keeps_the_profile(tmp_path):
    # In a shell's background job SIGINT is ignored, and Python then leaves it so.
    script = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler){SCRIPT}"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, cwd=tmp_path)
    assert process.stdout.readline() == b"trains\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    [profile] = stored(tmp_path / "r.sqlite")
    assert profile.conditions["ended_by"] == "KeyboardInterrupt"
    assert profile.aggregates["clean_minibatches"] >= 55


def test_the_error_of_a_results_file_is_raised_before_and_never_replaces_one_of_the_training(tmp_path):
    Path("no-file").mkdir()
    with pytest.raises(StoreError), jetwatt.measuring("host", workload="my-run", batch_size=16, results="no-file"):
        pytest.fail("the block ran")
    with pytest.raises(ValueError, match="of the user"), pytest.warns(NoteWarning, match="not stored"):
        failing(ValueError, lambda: Path("r.sqlite").write_text("no results file any more"))


def test_nothing_of_the_process_is_changed():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    random.seed(7)

    def state():
        handlers = [signal.getsignal(number) for number in numbers]
        affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        start_method = multiprocessing.get_start_method(allow_none=True)
        return handlers, affinity, dict(os.environ), random.getstate(), start_method

    before = state()
    with jetwatt.measuring("host", workload="my-run", batch_size=16) as run:
        assert state() == before
        train(run)
        assert state() == before
    assert state() == before


@pytest.mark.training
def test_nothing_of_torch_is_changed():
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(4, 4)

    def state():
        cudnn = torch.backends.cudnn
        return torch.get_num_threads(), torch.initial_seed(), cudnn.benchmark, cudnn.deterministic

    before, random_before = state(), torch.get_rng_state()
    profile = measured(model=network, data=torch.utils.data.TensorDataset(torch.zeros(8, 4)))
    assert state() == before
    assert torch.equal(torch.get_rng_state(), random_before)
    assert profile.conditions["torch"] == torch.__version__
    assert profile.conditions["threads"] == torch.get_num_threads()
    assert profile.conditions["accelerator"] == "cpu"


@pytest.mark.exhaustive
def test_torch_is_not_loaded():
    script = (
        "import sys, jetwatt\n"
        "with jetwatt.measuring('host', workload='a', batch_size=1) as run:\n    run.step()\n"
        "assert 'torch' not in run.profile.conditions\nassert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variables", [{"RANK": "1"}, {"RANK": "2", "LOCAL_RANK": "0"}, {"LOCAL_RANK": "3"}], ids=str)
def test_another_rank_of_the_training_does_not_measure(variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.warns(NoteWarning, match=f"{min(variables)}|{max(variables)}") as notes:
        run = loop_of(results="r.sqlite")
    assert [note.filename for note in notes] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it has said so
        assert run.profile is None
    assert not Path("r.sqlite").exists()


def test_a_rank_of_a_process_group_says_why_it_has_no_profile_when_it_is_asked(monkeypatch):
    distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 3)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = loop_of()
    with pytest.warns(NoteWarning, match="its rank is 3"):
        assert run.profile is None


def test_the_first_rank_measures_and_the_others_are_no_disturbance(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    asked = []

    made_of = Instruments.of

    def instruments(device, sources, *others):
        asked.extend(sources)
        return made_of(device, sources, *others)

    monkeypatch.setattr(Instruments, "of", instruments)
    assert measured() is not None
    assert {source.options["pid"] for source in asked if "pid" in source.options} == {os.getppid()}


def _measure_in_worker(queue):
    queue.put(measured() is None)


def test_a_worker_that_reaches_the_block_does_not_measure():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=_measure_in_worker, args=(queue,), daemon=True)
    worker.start()
    assert queue.get(timeout=60)
    worker.join(60)


def test_a_forked_child_that_leaves_the_block_leaves_the_sampler_to_its_parent():
    parent = os.getpid()
    try:
        with jetwatt.measuring("host", workload="my-run", batch_size=16) as run:
            if not os.fork():
                sys.exit(0)
            os.wait()
            left_s = time.monotonic()
            train(run)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    telemetry = run.profile.telemetry
    assert max(times_s[-1] for times_s, _ in telemetry.series.values()) > left_s
    assert "telemetry-lost" not in kinds(run.profile)


@pytest.fixture
def emulated(tree):
    """This machine with clocks that can be set, of a tree of files."""
    tree.write(policy(0, "0 1 2 3"))
    return HostDevice(Configuration(), tree.path, is_emulated=True)


def limits(tree):
    folder = tree.path / "sys/devices/system/cpu/cpufreq/policy0"
    return [(folder / f"scaling_{name}_freq").read_text().strip() for name in ("min", "max")]


def test_a_device_that_is_not_held_is_left_and_recorded_as_found(tree, emulated):
    before = tree.contents()
    profile = measured(device=emulated)
    assert tree.contents() == before
    assert profile.conditions["dvfs"] == "on"
    assert profile.case.settings.clocks == DVFS
    assert profile.conditions["power_mode"]["cpu_khz"] == 2201600
    assert profile.provenance == "simulated"
    tree.write(policy(0, "0 1 2 3", limits=(729600, 729600)))
    profile = measured(device=emulated)
    assert profile.conditions["dvfs"] == "off"
    assert profile.conditions["power_mode"]["cpu_khz"] == 729600
    assert profile.case.power_mode.name == profile.case.power_mode.mode.name


@pytest.mark.parametrize("fails", [False, True], ids=["well", "by an error"])
def test_a_held_device_has_the_mode_and_is_restored_however_the_block_ends(tree, emulated, fails):
    before = limits(tree)
    mode = "1c-729.6-0-0"
    try:
        with jetwatt.measuring(emulated, workload="my-run", batch_size=16, hold=True, power_mode=mode) as run:
            assert limits(tree) == ["729600", "729600"]
            train(run)
            assert not fails or run.no_such_attribute
    except AttributeError:
        assert fails
    assert limits(tree) == before
    assert run.profile.conditions["device_held"] is True
    assert run.profile.conditions["power_mode"]["cpu_khz"] == 729600
    assert run.profile.conditions["dvfs"] == "off"


def test_a_device_in_use_is_measured_and_not_held():
    with locked("host"):
        assert measured() is not None
        with pytest.raises(ControlError, match="in use"):
            measured(hold=True)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"workload": " "}, InvalidValueError, "workload"),
        ({"workload": "a\nb"}, InvalidValueError, "workload"),
        ({"batch_size": 0}, InvalidValueError, "batch_size"),
        ({"batch_size": "16"}, InvalidValueError, "batch_size"),
        ({"power_mode": "maxn"}, InvalidValueError, "hold=True"),
        ({"clocks": "dvfs"}, InvalidValueError, "hold=True"),
        ({"model": 3}, InvalidValueError, "model="),
        ({"data": iter(())}, InvalidValueError, "data="),
        ({"device": "sim:orin-agx"}, InvalidValueError, "simulated_workload="),
        ({"device": "orin-agx"}, CannotRunError, "is not this machine"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_refused_before_the_block(options, error, words):
    with pytest.raises(error, match=words):
        measured(**options)


def test_a_rehearsal_has_the_times_of_the_board_and_counts_each_minibatch():
    options = {"workload": "my-run", "batch_size": 16, "simulated_workload": "lenet-mnist", "results": "r.sqlite"}
    with jetwatt.measuring("sim:orin-nano", **options) as run:
        for _ in range(1500):
            run.step()
        figures = run.figures(since=1490)
    profile = run.profile
    assert profile.provenance == "simulated"
    assert profile.case.workload == "my-run"
    assert len(profile.minibatches) == 1500
    assert figures.minibatches == 10
    assert figures.time_s * 1000 == pytest.approx(profile.minibatch_time_ms, rel=0.3)
    assert figures.power_w * 1000 == pytest.approx(profile.power_mw, rel=0.1)
    assert profile.conditions["simulated_workload"] == "lenet-mnist"
    assert profile.power_mw > 1000
    [again] = stored("r.sqlite")
    assert again == profile
    with jetwatt.measuring("sim:orin-nano", **options) as run:
        run.step()
    assert "few-minibatches" in kinds(run.profile)


@pytest.mark.exhaustive
def test_stored_profiles_are_compared_gated_judged_and_reported():
    Path("r.toml").write_text('[[require]]\nworkload = "my-run"\np50_ms = 1000\n')
    for path in (Path("a.sqlite"), Path("b.sqlite")):
        for _ in range(2):
            measured(results=path, model="version 1")
        unflagged(path)
    compared = jetwatt.compare("a.sqlite", "b.sqlite")
    [times] = [case for case in compared["cases"] if case["figure"] == "minibatch time"]
    assert "my-run" in times["name"]
    assert times["counts"] == [2, 2]
    assert not compared["refused"]
    assert len(jetwatt.record_baseline("a.sqlite", "b.json").cases) == 1
    checked = jetwatt.check_baseline("b.sqlite", "b.json", threshold=100.0)
    assert "my-run" in checked["case"][0]
    assert "slower" not in set(checked["status"])  # by a hundred times
    assert list(jetwatt.check_requirements("b.sqlite", "r.toml")["status"]) == ["PASS"]
    assert jetwatt.history(["a.sqlite", "b.sqlite"])
    jetwatt.report("a.sqlite", out="page")
    assert any("my-run" in page.read_text(encoding="utf-8") for page in Path("page").rglob("*.html"))


@pytest.mark.exhaustive
def test_a_slower_training_fails_the_gate():
    measured(results="a.sqlite")
    with jetwatt.measuring("host", workload="my-run", batch_size=16, results="b.sqlite") as run:
        train(run, step_s=0.02)
    for path in (Path("a.sqlite"), Path("b.sqlite")):
        unflagged(path)
    jetwatt.record_baseline("a.sqlite", "b.json")
    checked = jetwatt.check_baseline("b.sqlite", "b.json")
    assert "slower" in set(checked["status"])


@pytest.mark.exhaustive
def test_only_a_training_of_equal_model_data_and_name_is_compared():
    Path("data").mkdir()
    Path("data/one").write_text("1234")
    measured(results="a.sqlite", model="version 1", data=Path("data"))
    keys = {record.key for record in records("a.sqlite")}
    measured(results="b.sqlite", model="version 1", data=Path("data"))
    assert {record.key for record in records("b.sqlite")} == keys
    Path("data/two").write_text("1234")
    others = [
        {"model": "version 1", "data": Path("data")},
        {"model": "version 2"},
        {"model": "version 1"},
        {"model": "version 1", "workload": "other"},
    ]
    for number, options in enumerate(others):
        measured(results=f"{number}.sqlite", **options)
        keys |= {record.key for record in records(f"{number}.sqlite")}
    assert len(keys) == 5


def records(path):
    with ResultsStore(path, read_only=True) as store:
        return list(store.records())


def test_a_model_is_known_by_its_parts_and_not_by_its_weights():
    torch = pytest.importorskip("torch")
    from harness.measure.fingerprint import fingerprint_data, fingerprint_model

    network, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    assert fingerprint_model(network) == fingerprint_model(other)
    assert fingerprint_model(network) != fingerprint_model(torch.nn.Linear(4, 5))
    assert fingerprint_model(torch.nn.Sequential(network, torch.nn.ReLU())) != fingerprint_model(
        torch.nn.Sequential(network, torch.nn.GELU())
    )
    samples = torch.utils.data.TensorDataset(torch.zeros(8, 4))
    assert fingerprint_data(samples) == fingerprint_data(torch.utils.data.DataLoader(samples, 2))
    assert fingerprint_data(samples) != fingerprint_data(torch.utils.data.TensorDataset(torch.zeros(9, 4)))

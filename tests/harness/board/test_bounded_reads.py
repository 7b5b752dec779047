"""No file holds up a reading: in place of any that sources and doctor read, a pipe costs its channels and is named."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from pathlib import Path

import pytest
from boards.tree import build_board

from harness.board import bounded_reads, kernel_file, privileged
from harness.board.bounded_reads import StuckError, bounded, unanswered, watched
from harness.board.kernel_file import KeptFile, read_below, read_int, read_setting, read_text, text_of, write
from harness.board.sampler import SAMPLER, Sampler
from harness.board.source import SourceSpec, open_watched, read_watched
from harness.core.cases import Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import ControlError
from harness.devices.host import HostDevice
from harness.devices.registry import local_board
from harness.measure.doctor import unread_files
from tests.harness.board.kernel_trees import policy

BOARD = ("orin-agx", "r36.4")


@pytest.fixture(autouse=True)
def pipes(monkeypatch):
    """Puts pipes in the place of files, as drivers that never answer; nothing is left waiting."""
    made = []

    @contextlib.contextmanager
    def pipe_at(path):
        content = os.path.realpath(path)
        aside = f"{content}.aside"
        os.rename(content, aside)
        os.mkfifo(content)
        made.append(content)
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):  # no reader waits
                os.close(os.open(content, os.O_WRONLY | os.O_NONBLOCK))
            os.replace(aside, content)

    for name, seconds in (("WAIT_S", 0.01), ("HANG_S", 0.05), ("NEXT_S", 0.05), ("WRITE_S", 0.05)):
        monkeypatch.setattr(bounded_reads, name, seconds)
    return pipe_at


def forget():
    for memory in (bounded_reads.silent, bounded_reads.unread, bounded_reads._hangs, privileged.unread):
        memory.clear()


READERS = {
    "read_text": read_text,
    "read_int": read_int,
    "text_of": text_of,
    "read_setting": read_setting,
    "read_below": lambda path: read_below("/", path),
    "kept": lambda path: KeptFile(path).read_int(),
    "write": lambda path: write(path, 1),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_pipe(tree, pipes, reader):
    tree.write({"sys/value": 1})
    path = f"{tree.root}/sys/value"
    with pipes(path):
        try:
            said = str(READERS[reader](path))
        except (OSError, ControlError) as error:
            said = str(error)
        assert path in said or path in bounded_reads.unread


def test_a_file_that_answers_after_all_is_read_again_until_it_has_hung_twice(tree, pipes):
    tree.write({"sys/value": 7})
    path = f"{tree.root}/sys/value"
    for _ in range(bounded_reads.MOST_HANGS):
        before = threading.active_count()
        with pipes(path), pytest.raises(OSError, match="gave no answer within"):
            read_text(path)
        for _ in range(1000):  # the thread that was abandoned ends
            if threading.active_count() <= before:
                break
            threading.Event().wait(0.005)
        if bounded_reads._hangs[path] < bounded_reads.MOST_HANGS:
            assert read_text(path) == "7"
    with pytest.raises(OSError, match="is not read again"):
        read_text(path)


def test_a_reading_that_a_file_holds_up_begins_anew_without_it_and_the_old_one_never_goes_on(tree, pipes):
    tree.write({"sys/a": 1, "sys/b": 2})
    done = []

    def act():
        done.append("began")
        try:
            first = read_text(f"{tree.root}/sys/a")
        except OSError as error:
            first = error.errno
        done.append(first)
        return first, read_text(f"{tree.root}/sys/b")

    with pipes(f"{tree.root}/sys/a"):
        assert watched(act) == (errno.ETIMEDOUT, "2")
    assert done == ["began", "began", errno.ETIMEDOUT]


def test_what_hangs_without_a_file_ends_in_its_time_with_its_name():
    ended = threading.Event()
    with pytest.raises(StuckError, match=r"source mine .*within"):
        watched(lambda: ended.wait(60), 0.03, "telemetry source mine")
    ended.set()


def test_a_thread_that_gets_no_cpu_is_not_held_up(tree, monkeypatch):
    """A loop in Python waits for the interpreter, and is ready to run all the time."""
    tree.write({"sys/value": 1})
    go_on = threading.Event()
    waits = []

    def wants_cpu(reader):
        waits.append(reader.file)
        if len(waits) > 20:
            go_on.set()
        return True

    monkeypatch.setattr(bounded_reads._ReaderThread, "wants_cpu", wants_cpu)
    assert bounded(f"{tree.root}/sys/value", lambda: go_on.wait(60)) is True
    assert not bounded_reads.silent


def test_of_several_acts_the_one_that_hangs_is_given_up_and_the_others_are_done_once():
    ended, calls = threading.Event(), []
    acts = {
        "first": lambda: calls.append("first"),
        "hanging": lambda: ended.wait(60),
        "failing": lambda: 1 / 0,
        "last": lambda: calls.append("last"),
    }
    results = bounded_reads.watched_each(acts, 0.03, "source")
    ended.set()
    assert calls == ["first", "last"]
    assert "source hanging gave no answer" in str(results["hanging"])
    assert isinstance(results["failing"], ZeroDivisionError)


def test_errors_of_what_is_watched_are_the_callers():
    with pytest.raises(ZeroDivisionError):
        watched(lambda: 1 / 0)


def test_a_fork_has_no_threads_of_readers(tree):
    tree.write({"sys/value": 1})
    read_text(f"{tree.root}/sys/value")
    assert bounded_reads._idle
    child = os.fork()
    if child == 0:
        os._exit(0 if read_text(f"{tree.root}/sys/value") == "1" and len(bounded_reads._idle) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


# -- every source, every file ------------------------------------------------------------------------------------------


def readings(specs, root):
    """The values of each channel, what is said of the others, and the sources that could not be opened or read."""
    values, failed = {}, {}
    for spec in specs:
        try:
            source = open_watched(spec, root)
            for now_s in (0.0, 1.0):
                reading = read_watched(spec.name, source, now_s)
                values.update(reading.values)
                failed.update(reading.failed)
        except Exception as error:
            failed[spec.name] = str(error)
    return values, {channel: why for channel, why in failed.items() if channel not in values}


def files_read(act, root, monkeypatch):
    """The kernel's files below `root` that an act reads, and what it returns."""
    files = {}

    def entered(path, read):
        files[os.path.abspath(path)] = None
        return bounded(path, read)

    with monkeypatch.context() as patch:
        patch.setattr(kernel_file, "bounded", entered)
        result = act()
    return [path for path in files if path.startswith(f"{root}/sys/") and os.path.exists(path)], result


def host_tree(tree):
    rapl = {
        "intel-rapl:0": ("package-0", 100),
        "intel-rapl:0:0": ("core", 50),
        "intel-rapl:1": ("psys", 900),
    }
    for zone, (name, energy_uj) in rapl.items():
        place = f"sys/class/powercap/{zone}"
        tree.write({f"{place}/name": name, f"{place}/energy_uj": energy_uj, f"{place}/max_energy_range_uj": 10**9})
    hwmon = "sys/class/hwmon/hwmon0"
    tree.write({f"{hwmon}/name": "coretemp", f"{hwmon}/temp1_input": 50_000, f"{hwmon}/temp1_label": "Package"})
    tree.write({f"{hwmon}/temp2_input": 40_000, **policy(0, "0 1"), **policy(2, "2 3")})
    return HostDevice(Configuration(), tree.path, is_emulated=True)


def of_the_tree(device, root):
    """Its sources whose files lie in the tree."""
    return [spec for spec in device.telemetry_sources(Path("/")) if spec.root == root]


@pytest.fixture
def machine(request, tmp_path, tree):
    if request.param == "host":
        device, root = host_tree(tree), tree.root
    else:
        root = build_board(tmp_path / "board", *request.param).root
        device = local_board(Configuration(), Path(root))
    return device, of_the_tree(device, root), root


MACHINES = [
    pytest.param("host", id="host"),
    pytest.param(BOARD, id="orin-agx"),
    *(
        pytest.param(one, id=one[0], marks=pytest.mark.exhaustive)
        for one in (("thor", "r38.2"), ("nano", "r32.7"), ("xavier-nx", "r35.4"))
    ),
]


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
def test_a_file_that_never_answers_is_named_and_costs_its_channels_alone(machine, pipes, monkeypatch):
    _, specs, root = machine
    files, (before, _) = files_read(lambda: readings(specs, root), root, monkeypatch)
    assert len(files) > 2
    for path in files:
        forget()
        with pipes(path):
            values, failed = readings(specs, root)
            said = "\n".join([*failed.values(), *unanswered([]), *privileged.unread])
        assert path in said
        lost = set(before) - set(values)
        assert len(lost) <= 2, (path, lost)  # its own, and a sum that it is part of


GARBAGE = ["", "N/A", "99 N/A"]


@pytest.mark.parametrize("content", GARBAGE, ids=["empty", "not-available", "a-number-and-a-word"])
@pytest.mark.parametrize("machine", MACHINES[:2], indirect=True)
def test_a_file_with_garbage_costs_its_channels_alone(machine, monkeypatch, content):
    _, specs, root = machine
    files, (before, _) = files_read(lambda: readings(specs, root), root, monkeypatch)
    for path in files:
        forget()
        text = Path(path).read_text()
        Path(path).write_text(content)
        values, _ = readings(specs, root)
        Path(path).write_text(text)
        lost = set(before) - set(values)
        assert len(lost) <= 2, (path, lost)


def test_a_sampler_names_files_that_never_answer_and_goes_on(tmp_path, pipes):
    root = build_board(tmp_path / "board", *BOARD).root
    device = local_board(Configuration(), Path(root))
    specs = of_the_tree(device, root)
    found = {
        "gpu_khz": "sys/class/devfreq/17000000*/cur_freq",
        "temperature_cpu_thermal_c": "sys/class/thermal/thermal_zone0/temp",
        "cpu0_khz": "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq",
        "power_vdd_gpu_soc_mw": "sys/bus/i2c/devices/1-0040/hwmon/hwmon*/curr1_input",
    }
    paths = {channel: str(next(Path(root).glob(pattern))) for channel, pattern in found.items()}
    with contextlib.ExitStack() as stack:
        for path in paths.values():
            stack.enter_context(pipes(path))
        with Sampler(specs, 0.05, root=root) as sampler:
            while sampler.samples < 3:
                threading.Event().wait(0.02)
            telemetry = sampler.stop()
    assert SAMPLER not in telemetry.missing
    for channel, path in paths.items():
        assert channel not in telemetry.series
        assert path in telemetry.missing[channel]
    assert {"cpu4_khz", "power_vdd_cpu_cv_mw", "fan_pwm", "temperature_gpu_thermal_c"} <= set(telemetry.series), (
        telemetry.missing
    )


def test_a_source_that_hangs_by_itself_is_given_up_and_the_others_go_on(tree, monkeypatch, tmp_path):
    (tmp_path / "hanging.py").write_text(
        "import sys, time\nfrom harness.board import source\nsys.modules['__main__'].READ_S = 0.3\n"
        "def open_source(root):\n    return source.Source({}, lambda now_s: time.sleep(600))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    tree.write({"sys/class/thermal/thermal_zone0/type": "cpu", "sys/class/thermal/thermal_zone0/temp": 40_000})
    with Sampler([SourceSpec("hanging:open_source"), SourceSpec("thermal")], 0.05, root=tree.root) as sampler:
        while sampler.samples < 3:
            threading.Event().wait(0.02)
        telemetry = sampler.stop()
    assert "gave no answer within 0.3 s" in telemetry.missing["hanging:open_source"]
    assert len(telemetry.series["temperature_cpu_c"].values) == len(sampler._record._times_s)


# -- every file that a device opens ------------------------------------------------------------------------------------

CHECKED = (  # to be regular files, which the kernel or the boot loader keeps in memory
    "etc/machine-id",
    "etc/nv_tegra_release",
    "proc/cpuinfo",
    "proc/device-tree/model",
    "proc/device-tree/serial-number",
    "proc/meminfo",
)

_opened = []  # what is opened while it is a list of lists; an audit hook stays for the life of the process


def _note(event, arguments):
    if event == "open" and _opened:
        path, _, flags = arguments
        reads = isinstance(path, str) and not flags & (os.O_WRONLY | os.O_RDWR)
        if reads and threading.current_thread().name != "jetwatt-reader" and not flags & (os.O_NONBLOCK | os.O_PATH):
            _opened[-1].append(path)


@pytest.fixture(scope="module")
def audited():
    sys.addaudithook(_note)


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
@pytest.mark.exhaustive
def test_no_file_of_a_device_is_opened_by_who_would_wait_for_it(machine, audited):
    """All but those checked before are opened by the thread that is watched, or without waiting."""
    device, _, root = machine
    case = Case(device.name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16, CaseSettings())
    _opened.append([])
    try:
        device = local_board(Configuration(), Path(root)) if device.name != "emulated-host" else device
        device.identity()
        device.power_mode_space()
        device.capabilities()
        device.conditions(case)
        device.as_found(case)
    finally:
        opened = _opened.pop()
    places = {os.path.relpath(path, root) for path in opened if path.startswith(f"{root}/") and os.path.isfile(path)}
    assert places <= set(CHECKED)


# -- doctor ------------------------------------------------------------------------------------------------------------

OF_KNOBS = (
    "etc/nvpmodel.conf",
    "sys/class/devfreq/17000000*/available_frequencies",
    "sys/class/devfreq/17000000*/cur_freq",
    "sys/class/devfreq/17000000*/governor",
    "sys/class/hwmon/*/pwm1",
    "sys/class/thermal/thermal_zone0/trip_point_0_type",
    "sys/devices/system/cpu/cpu1/online",
    "sys/devices/system/cpu/cpufreq/policy8/cpuinfo_max_freq",
    "sys/devices/system/cpu/cpufreq/policy4/related_cpus",
    "sys/devices/system/cpu/cpufreq/policy4/scaling_available_frequencies",
    "sys/bus/i2c/devices/1-0040/name",
    "sys/bus/i2c/devices/1-0041/hwmon/hwmon*/in1_label",
)


@pytest.mark.parametrize(
    "patterns",
    [pytest.param(OF_KNOBS, id="all"), *(pytest.param((one,), marks=pytest.mark.exhaustive) for one in OF_KNOBS)],
)
@pytest.mark.parametrize("kind", ["pipe", "garbage"])
@pytest.mark.exhaustive
def test_doctor_goes_on_and_names_the_file(tmp_path, pipes, patterns, kind):
    root = build_board(tmp_path / "board", *BOARD).path
    paths = [str(sorted(root.glob(pattern))[0]) for pattern in patterns]
    with contextlib.ExitStack() as stack:
        for path in paths:
            if kind == "pipe":
                stack.enter_context(pipes(path))
            else:
                Path(path).write_text("N/A")
        device = local_board(Configuration(), root)
        assert len(device.power_mode_space()) > 1
        found = device.capabilities()
        found += unread_files(root, [each.detail for each in found])
    details = "\n".join(each.detail for each in found)
    assert len(found) > 20
    if kind == "pipe":
        for path in paths:
            assert os.path.join(*path.split(os.sep)[-2:]) in details

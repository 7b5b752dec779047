"""Sensors that only root may read: what the helper's stream reads, one process for a run, and clear errors without."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from boards.kernel import Kernel
from boards.tree import build_board

from harness.board import cpu, cpu_clocks, helper_stream, power_rails, privileged, privileges
from harness.board.helper_stream import HelperStream, SensorFiles, StreamEnds, read_sensor
from harness.board.privileged import DONE, Machine, RefusedError, sensor_files, serve
from harness.board.sampler import Sampler
from harness.board.source import SourceSpec
from harness.core.cases import Case
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import ControlError, SourceUnavailableError
from harness.devices.board_record import record, unpacked
from harness.devices.host import source_capability
from harness.devices.jetson import JetsonDevice
from harness.devices.jetson_board import read_board
from tests.harness.board.conftest import ON_A_TREE, PROJECT, install_sudo
from tests.harness.board.killed import end, is_alive
from tests.harness.board.test_power_rails import I2C, agx_orin, hwmon_chip, iio_chip
from tests.messages import says
from tests.programs import python_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's kernel files")

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
RAILS = f"{I2C}/1-0040/hwmon/hwmon3"


@pytest.fixture
def board(tree):
    tree.write(
        {
            **agx_orin(),
            f"{RAILS}/curr1_crit": 5000,
            f"{POLICY}/affected_cpus": "0",
            f"{POLICY}/related_cpus": "0",
            f"{POLICY}/scaling_cur_freq": 729600,
            f"{POLICY}/cpuinfo_cur_freq": 649000,
            "etc/shadow": "secret",
        }
    )
    return tree


# -- the helper's side -------------------------------------------------------------------------------------------------


def answers(tree, *requests):
    """What the helper answers to lines of requests; the first answer names its processes."""
    given, output = io.BytesIO("".join(requests).encode()), io.BytesIO()
    assert serve(Machine(tree.root, os.getuid()), given, output) == DONE
    first, *others = map(json.loads, output.getvalue().splitlines())
    assert first == {"pids": [os.getpid(), os.getppid()]}
    assert all(answer.pop("cpu_s") > 0 for answer in others)
    return others


def request(tree, *names, number="7-1"):
    return "\t".join([number, *(f"{tree.root}/{name}" for name in names)]) + "\n"


def test_rails_and_measured_clocks_are_read_all_of_a_request_in_one_answer(board):
    names = [f"{RAILS}/in1_label", f"{RAILS}/in1_input", f"{RAILS}/curr1_crit", f"{POLICY}/cpuinfo_cur_freq"]
    assert answers(board, request(board, *names), request(board, names[0], number="8-2")) == [
        {"id": "7-1", "files": ["VDD_GPU_SOC\n", "20000\n", "5000\n", "649000\n"]},
        {"id": "8-2", "files": ["VDD_GPU_SOC\n"]},
    ]


def test_each_reading_is_new_and_no_file_is_opened_twice(board, monkeypatch):
    opened = []
    plain = privileged._open_node
    monkeypatch.setattr(privileged, "_open_node", lambda path, *rest: opened.append(path) or plain(path, *rest))

    class Requests(io.BytesIO):
        def readline(self, size=-1):
            board.write({f"{RAILS}/in1_input": 100 + len(opened) + self.tell()})
            return super().readline(size)

    output = io.BytesIO()
    given = Requests(2 * request(board, f"{RAILS}/in1_input").encode())
    serve(Machine(board.root, os.getuid()), given, output)
    first, second = (json.loads(line)["files"] for line in output.getvalue().splitlines()[1:])
    assert first != second
    assert len(opened) == 1


def test_the_files_of_every_layout_of_rails_are_on_the_list(tree):
    tree.write({**iio_chip("6-0040", [("POM_5V_IN", 2130)]), **hwmon_chip("1-0041", [("VDD_IN", 5000, 10)], "hwmon7")})
    tree.write({f"{I2C}/6-0040/iio:device0/crit_current_limit_0": 5, f"{I2C}/2-0044/name": "other"})
    tree.write(
        {f"{I2C}/2-0044/in1_input": 1, "sys/class/hwmon/hwmon1/name": "nct", "sys/class/hwmon/hwmon1/in1_input": 1}
    )
    names = {path[len(tree.root) + 1 :].rpartition("/")[2] for path in sensor_files(tree.root)["ina"]}
    assert names == {
        *("in1_label", "in1_input", "curr1_input"),
        *("rail_name_0", "in_voltage0_input", "in_current0_input", "in_power0_input", "crit_current_limit_0"),
    }
    read = {path for rail in power_rails.find_rails(tree.root) for path in rail.paths}
    assert len(read) == 3
    assert read <= set(sensor_files(tree.root)["ina"])


@pytest.mark.parametrize(
    "name",
    [
        "etc/shadow",
        f"{RAILS}/../../../../../../../etc/shadow",
        f"{RAILS}/name",
        f"{RAILS}/in7_input",
        f"{POLICY}/scaling_cur_freq",
        f"{RAILS}/in1_input\0",
        RAILS,
        "",
    ],
)
def test_no_other_file_is_read(board, name):
    [answer] = answers(board, request(board, name))
    [[_, reason]] = answer["files"]
    assert reason.startswith("refused: ")


def _linked_file(board):
    file = board.path / RAILS / "in1_input"
    file.unlink()
    file.symlink_to(board.path / "etc/shadow")


def _linked_chip(board):
    outside = board.path / "home/evil"
    outside.mkdir(parents=True)
    (outside / "name").write_text("ina3221")
    (outside / "in1_input").write_text("secret")
    (board.path / I2C / "9-0040").symlink_to(outside)


def _pipe(board):
    file = board.path / RAILS / "in1_input"
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("lay", "name"),
    [(_linked_file, f"{RAILS}/in1_input"), (_linked_chip, f"{I2C}/9-0040/in1_input"), (_pipe, f"{RAILS}/in1_input")],
)
def test_a_listed_name_that_leads_out_or_is_no_regular_file_is_not_read(board, lay, name):
    lay(board)
    [answer] = answers(board, request(board, name))
    [outcome] = answer["files"]
    assert isinstance(outcome, list), outcome
    assert "secret" not in json.dumps(answer)


def test_no_more_than_a_page_of_a_file_is_read(board):
    board.write({f"{RAILS}/in1_label": "x" * 100_000})
    [answer] = answers(board, request(board, f"{RAILS}/in1_label"))
    assert len(answer["files"][0]) == 4096


@pytest.mark.parametrize("line", ["7-1\t" + "x" * 20_000 + "\n", "no number\t/x\n", "7-1\t/cut"])
def test_a_request_of_another_form_ends_the_stream(board, line):
    output = io.BytesIO()
    with pytest.raises(RefusedError, match="a request is a number and paths"):
        serve(Machine(board.root, os.getuid()), io.BytesIO(line.encode()), output)
    assert len(output.getvalue().splitlines()) == 1


# -- the run's side ----------------------------------------------------------------------------------------------------


@pytest.fixture
def closed(board, tmp_path, monkeypatch):
    """Sensors of the board are root's to read; a `sudo` that writes down each start runs the helper on its tree."""
    log = tmp_path / "log"
    shut = set()

    def close(paths, root=board.root):
        shut.update(paths)
        script = ON_A_TREE.format(project=str(PROJECT), log=str(log), limit=str(tmp_path / "none"), root=root)
        install_sudo(tmp_path, monkeypatch, python_program(script, "-IS"))

    close([path for paths in sensor_files(board.root).values() for path in paths])
    monkeypatch.setattr(privileges, "needed", lambda root: True)
    monkeypatch.setattr(helper_stream, "may_read", lambda path: path not in shut)
    helper_stream.close()
    board.close = close
    board.starts = lambda: log.read_text().splitlines() if log.exists() else []
    board.helper = tmp_path / "privileged"
    yield board
    helper_stream.close()


def test_rails_whose_labels_and_values_are_closed_are_read_by_one_process(closed):
    source = power_rails.open_source(closed.root, ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"])
    measured = cpu_clocks.open_source(closed.root, measured=True)
    assert source.read(0.0) == source.read(1.0)
    assert source.read(2.0).values == {
        "power_vdd_gpu_soc_mw": 3000, "power_vdd_cpu_cv_mw": 1000, "power_vin_sys_5v0_mw": 4000,
        "power_vddq_vdd2_1v8ao_mw": 500, "power_total_mw": 8000,
    }  # fmt: skip
    assert measured.read(0.0).values == {"cpu0_khz": 729600, "cpu0_measured_khz": 649000}
    [(channel, limit_mw, origin)] = power_rails.current_limits(closed.root)
    assert (channel, limit_mw) == ("power_vdd_gpu_soc_mw", 100_000)
    assert says(origin, "VDD_GPU_SOC", "curr1_crit")
    assert closed.starts() == ["stream"]


def test_all_closed_rails_of_a_sample_are_one_request(closed, monkeypatch):
    source = power_rails.open_source(closed.root)
    asked = []
    plain = HelperStream.read
    monkeypatch.setattr(HelperStream, "read", lambda self, paths: asked.append(paths) or plain(self, paths))
    source.read(0.0)
    assert [len(paths) for paths in asked] == [8]


def test_the_samplers_of_a_run_share_the_helper_which_ends_with_the_run(closed):
    for _ in range(3):
        sampler = Sampler([SourceSpec("ina"), SourceSpec("cpufreq", {"measured": True})], 0.01, root=closed.root)
        with sampler:
            helper = helper_stream.pids()
            assert all(map(is_alive, helper))
        assert "power_vdd_cpu_cv_mw" in sampler.stop().series
    assert closed.starts() == ["stream"]
    helper_stream.close()
    assert end(helper)


def test_a_run_without_closed_sensors_starts_no_helper(closed, monkeypatch):
    monkeypatch.setattr(helper_stream, "may_read", lambda path: True)
    with Sampler([SourceSpec("ina")], 0.01, root=closed.root):
        pass
    assert closed.starts() == []


def test_a_helper_that_has_ended_fails_its_readings_with_the_reason_and_the_run_starts_another(closed):
    path = f"{closed.root}/{RAILS}/in1_input"
    files = SensorFiles([path], closed.root)
    files.refresh()
    stream = helper_stream.opened()
    stream.process.kill()
    stream.process.wait()
    for _ in range(2):
        [error] = stream.read([path]).values()
        assert says(str(error), path, "ended")
    files.refresh()
    assert files.read_int(path) == 20000
    assert helper_stream.open_for([SourceSpec("ina")], closed.root) is not stream
    assert closed.starts() == ["stream", "stream"]


def test_an_answer_that_a_killed_sampler_left_is_passed_over(closed):
    stream = helper_stream.opened()
    path = f"{closed.root}/{RAILS}/in2_label"
    os.write(stream.ends.to_helper, request(closed, f"{RAILS}/in1_label", number="99999-1").encode())
    os.write(stream.ends.to_helper, request(closed, f"{RAILS}/in1_label", number="99999-2").encode())
    os.read(stream.ends.from_helper, 5)  # and a part of one that it took
    assert stream.read([path]) == {path: "VDD_CPU_CV\n"}


def test_a_helper_that_gives_no_answer_is_an_error_not_a_wait(closed, monkeypatch):
    monkeypatch.setattr(helper_stream, "_ANSWER_S", 0.05)
    stream = helper_stream.opened()
    os.kill(stream.process.pid, signal.SIGSTOP)
    try:
        [error] = stream.read(["/x"]).values()
    finally:
        os.kill(stream.process.pid, signal.SIGCONT)
    assert says(str(error), "/x", "within 0.05 s")


@pytest.fixture
def hanging(closed, monkeypatch):
    """A file on which every helper hangs while `closed.hangs` exists, as in a kernel that does not return."""
    monkeypatch.setattr(helper_stream, "_ANSWER_S", 0.3)
    monkeypatch.setattr(helper_stream, "_END_S", 0.0)
    closed.hangs = closed.path / "hangs"
    sudo = closed.helper.parent / "sudo"
    hang = f"import time\nwhile os.path.exists({str(closed.hangs)!r}): time.sleep(0.01)\n"
    script = sudo.read_text()
    place = "    sys.exit(privileged.serve("
    patch = (
        f"    plain = privileged._answer\n    privileged._answer = lambda *rest: [exec({hang!r}), plain(*rest)][1]\n"
    )
    assert place in script
    sudo.write_text(script.replace(place, patch + place))
    yield closed
    closed.hangs.unlink(missing_ok=True)


def test_a_helper_that_hangs_is_replaced_for_the_next_profile(hanging, monkeypatch):
    first = helper_stream.opened()
    hanging.hangs.touch()
    assert not first.is_answering()
    hanging.hangs.unlink()
    monkeypatch.setattr(helper_stream, "_ANSWER_S", 20.0)
    with Sampler([SourceSpec("ina")], 0.05, root=hanging.root) as sampler:
        pass
    assert "power_vdd_cpu_cv_mw" in sampler.stop().series
    assert "helper" not in str(sampler.stop().missing)
    assert helper_stream.opened() is not first


def test_a_file_that_hangs_each_helper_is_given_up_with_the_reason(hanging):
    stream = helper_stream.opened()
    hanging.hangs.touch()
    path = f"{hanging.root}/{RAILS}/in1_input"
    files = SensorFiles([path], hanging.root)
    words = []
    for _ in range(4):
        files.refresh()
        with pytest.raises(OSError, match="gave no answer within") as refusal:
            files.read_int(path)
        words.append(str(refusal.value))
    assert all(says(text, path, "within 0.3 s") for text in words)
    assert ["no further helper is started after 2" in text for text in words] == [False, False, True, True]
    assert "see `dmesg`" in words[3]
    assert hanging.starts() == ["stream", "stream"]
    assert helper_stream.bequest([SourceSpec("ina")], hanging.root).refusal[0] in words[3]
    assert stream.failure


def test_a_driver_that_is_gone_fails_its_own_files_alone(closed):
    files = [f"{closed.root}/{RAILS}/in1_input", f"{closed.root}/{POLICY}/cpuinfo_cur_freq"]
    (closed.path / RAILS / "in1_input").unlink()
    gone, clock = helper_stream.opened().read(files).values()
    assert says(str(gone), "in1_input", "refused")
    assert clock == "649000\n"


def test_the_helper_ends_when_the_run_is_killed(closed):
    """Also while a DataLoader worker, which a fork made, still lives."""
    run = (
        "import os, sys, time\n"
        "from harness.board import helper_stream, privileges\n"
        f"privileges.HELPER = {str(closed.helper)!r}\n"
        "print(*helper_stream.opened().ends.pids[:2], flush=True)\n"
        "worker = os.fork()\n"
        "if worker: print(worker, flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True, env=environment) as process:
        helper = [int(pid) for pid in process.stdout.readline().split()]
        worker = int(process.stdout.readline())
        try:
            assert all(map(is_alive, helper))
            process.kill()
            process.wait()
            assert end(helper)
            assert is_alive(worker)
        finally:
            os.kill(worker, signal.SIGKILL)


# -- without the helper ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("install", "why"),
    [
        (lambda helper: helper.unlink(), "cannot be read: No such file or directory"),
        (lambda helper: helper.write_text("older"), "is of another version than this suite"),
        (
            lambda helper: (helper.parent / "sudo").write_text(
                "#!/bin/sh\necho sudo: a password is required >&2\nexit 1"
            ),
            "sudo: a password is required",
        ),
    ],
    ids=["none", "older", "not allowed"],
)
def test_without_the_helper_every_error_names_the_way_out(closed, install, why):
    install(closed.helper)
    with pytest.raises(ControlError, match=r"only root .*doctor --sudoers"):
        helper_stream.opened()
    with pytest.raises(SourceUnavailableError, match=r"label .*cannot be read: .*doctor --sudoers") as no:
        power_rails.open_source(closed.root)
    assert why in str(no.value)
    values, failed = cpu_clocks.open_source(closed.root, measured=True).read(0.0)
    assert list(values) == ["cpu0_khz"]
    assert why in failed["cpu0_measured_khz"]
    assert "doctor --sudoers" in failed["cpu0_measured_khz"]
    assert len(closed.starts()) == 0


def test_doctor_says_no_where_values_are_closed_and_yes_where_the_helper_reads_them(closed, monkeypatch):
    rails = SourceSpec("ina", {"total": ("VDD_GPU_SOC",)})
    assert source_capability(rails, closed.root).available
    helper_stream.close()
    closed.helper.write_text("older")
    may_read = helper_stream.may_read
    monkeypatch.setattr(helper_stream, "may_read", lambda path: path.endswith("_label") or may_read(path))
    capability = source_capability(rails, closed.root)
    assert not capability.available
    assert says(capability.detail, "3 readings", "power_vdd_gpu_soc_mw")
    assert "is of another version" in capability.detail
    assert "doctor --sudoers" in capability.hint


@pytest.mark.exhaustive
def test_a_board_whose_labels_are_closed_is_examined_and_runs_without_power(closed, tmp_path):
    board = build_board(tmp_path / "orin", "orin-agx", "r36.4")
    labels = [path for path in sensor_files(board.root)["ina"] if path.endswith("_label")]
    closed.close(labels)
    closed.helper.unlink()
    device = JetsonDevice(read_board(board.path), Configuration(), board.path)
    [power] = [one for one in device.capabilities() if one.name == "measure power"]
    assert not power.available
    assert "label of a power rail" in power.detail
    assert "doctor --sudoers" in power.hint
    case = Case(device.name, "lenet-mnist", named_mode(device, "maxn"), 0, "ssd", 16)
    limits = device.conditions(case)["power_limits"]
    assert [channel for channel, _, _ in limits] == ["power_total_mw"]


@pytest.mark.parametrize(("name", "l4t"), [("nano", "r32.7"), ("orin-agx", "r36.4"), ("thor", "r38.2")])
def test_every_sensor_of_every_kind_of_board_can_be_roots_alone(closed, tmp_path, name, l4t):
    board = build_board(tmp_path / "board", name, l4t)
    Kernel(board.root).observe()
    spec = JetsonDevice(read_board(board.path), Configuration(), board.path).telemetry_sources(Path.cwd())[5]
    before = power_rails.open_source(board.root, **spec.options).read(0.0)
    closed.close(itertools.chain(*sensor_files(board.root).values()), board.root)
    source = power_rails.open_source(board.root, **spec.options)
    assert source.read(0.0) == before
    assert before.values["power_total_mw"] > 0
    assert closed.starts() == ["stream"]


def test_a_record_of_the_board_has_the_sensors_that_only_root_may_read(closed, tmp_path, monkeypatch):
    plain = os.open

    def closed_to_this_user(path, *rest, **options):
        if str(path).startswith(closed.root) and not helper_stream.may_read(str(path)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return plain(path, *rest, **options)

    closed.close([f"{closed.root}/{RAILS}/name"])
    monkeypatch.setattr(os, "open", closed_to_this_user)
    record(tmp_path / "board.tar.gz", closed.path, [], 0.0)
    monkeypatch.undo()
    recorded = unpacked(tmp_path / "board.tar.gz")
    assert (recorded / RAILS / "in1_label").read_text() == "VDD_GPU_SOC\n"
    assert (recorded / POLICY / "cpuinfo_cur_freq").read_text() == "649000\n"
    unreadable = json.loads((recorded.parent / "record.json").read_text())["unreadable"]
    assert unreadable == {f"{RAILS}/name": "Permission denied"}  # what the helper does not read either


def test_a_file_that_this_user_may_read_needs_no_helper(board):
    assert read_sensor(f"{board.root}/{RAILS}/in1_label", board.root) == "VDD_GPU_SOC"


# -- whose CPU time it is ----------------------------------------------------------------------------------------------


def test_the_helpers_cpu_time_is_the_samplers_and_neither_the_runs_nor_others(tree, monkeypatch):
    ticks = os.sysconf("SC_CLK_TCK")

    def use(all_s, helper_s):
        used_s = {100: (1, 10), 101: (100, 3), 102: (101, helper_s)}  # the run, sudo, the helper: parent, seconds
        tree.write({"proc/stat": f"cpu  {all_s * ticks} 0 0 0 0 0 0 0 0 0"})
        for pid, (parent, seconds) in used_s.items():
            times = f"{seconds * ticks} 0 0 0"
            tree.write({f"proc/{pid}/stat": f"{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 {times} 20 0 1 0 77"})

    monkeypatch.setattr(helper_stream, "_stream", HelperStream(StreamEnds(-1, -1, -1, [101, 102])))
    use(all_s=20, helper_s=4)
    source = cpu.open_source(tree.root, pid=100)
    source.read(0.0)
    use(all_s=30, helper_s=9)
    values = source.read(10.0).values
    assert values["cpu_own_cores"] == 0
    assert values["cpu_sampler_cores"] == pytest.approx(0.5, abs=0.05)
    assert values["cpu_other_cores"] == pytest.approx(0.5, abs=0.05)


def test_the_helpers_cpu_time_is_the_samplers_where_proc_hides_its_processes(tree, monkeypatch):
    """/proc mounted with `hidepid=2`: the helper reports its own time."""
    ticks = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(cpu, "_helper_ticks", {})
    stream = HelperStream(StreamEnds(-1, -1, -1, [101, 102]))
    monkeypatch.setattr(helper_stream, "_stream", stream)

    def use(all_s, helper_s):
        stream.cpu_s = helper_s
        tree.write({"proc/stat": f"cpu  {all_s * ticks} 0 0 0 0 0 0 0 0 0"})
        tree.write({"proc/100/stat": f"100 (x) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 77"})

    use(all_s=20, helper_s=4)
    source = cpu.open_source(tree.root, pid=100)
    source.read(0.0)
    use(all_s=30, helper_s=9)
    values = source.read(10.0).values
    assert values["cpu_sampler_cores"] == pytest.approx(0.5, abs=0.05)
    assert values["cpu_other_cores"] == pytest.approx(0.5, abs=0.05)


def test_the_helper_reports_the_cpu_time_of_its_answers(closed):
    stream = helper_stream.opened()
    path = f"{closed.root}/{RAILS}/in1_input"
    stream.read([path])
    assert stream.cpu_s == 0.0
    for _ in range(20):
        stream.read([path])
    assert 0.0 < stream.cpu_s < 20.0

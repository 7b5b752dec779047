"""A command from outside: what is recorded of it, what tells it from others, and how it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.core import metrics
from harness.core.cases import COMMAND, Case, CaseSettings
from harness.core.configuration import Configuration
from harness.core.device import named_mode
from harness.core.errors import CannotRunError, InvalidValueError, OverheatedError
from harness.core.metrics import end_s
from harness.core.profiles import CLEAN, FIRST, Telemetry
from harness.devices.host import HostDevice
from harness.devices.simulated import SimulatedDevice
from harness.measure import command_process, recording
from harness.measure.command import CommandFailedError, ShownMinibatches, refuse_failed
from harness.measure.command_device import CommandDevice, command_case
from harness.measure.command_process import CommandEnd, CommandProcess
from harness.store.conditions import comparable_conditions
from harness.workloads.command import Command
from harness.workloads.command_secrets import without_secrets
from predictors.choose.device_profiler import figures_of
from tests.harness.board import killed
from tests.harness.board.killed import is_alive
from tests.harness.counting_rapl import POWER_W

PYTHON = [sys.executable, "-I", "-S", "-c"]

BUSY = "import time\nend = time.monotonic() + {}\nblock = bytearray({})\nwhile time.monotonic() < end: pass\n"


def profile_of(command, root, interval_s=0.2, **settings):
    """The profile of a command on a machine whose files lie below a root."""
    device = CommandDevice(HostDevice(Configuration(), root), command)
    case = command_case("host", command, named_mode(device, "maxn"), CaseSettings(interval_s=interval_s, **settings))
    with device.session():
        return device.profile(case)


@pytest.fixture(autouse=True)
def own_state(monkeypatch, tmp_path):
    monkeypatch.setattr(metrics, "MAX_GAP_INTERVALS", 240)  # on a busy machine the sampler may get no core for long
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.exhaustive
def test_a_command_has_time_energy_memory_and_cpu_time_of_its_own_and_no_minibatches(machine_with_rapl):
    command = Command([*PYTHON, BUSY.format(1.0, 64 << 20)], name="busy")
    profile = profile_of(command, machine_with_rapl)
    figures = profile.aggregates
    assert profile.case.id == "host-busy-maxn-command"
    assert profile.minibatches == []
    assert figures["minibatch_time_ms"] is None
    assert figures["fetch_stall_ms"] is None
    assert figures["wall_time_s"] >= 1.0
    assert figures["energy_mwh"] * 3.6 == pytest.approx(POWER_W * figures["wall_time_s"], rel=0.02)
    for name in ("power_mw", "power_peak_mw", "power_mean_mw"):
        assert figures[name] == pytest.approx(POWER_W * 1000, rel=0.02)
    assert 64 << 20 <= figures["memory_peak_bytes"] < 128 << 20  # this process, which has pandas, is not in it
    assert 0 < figures["cpu_time_s"] <= figures["wall_time_s"] + 0.1  # it took some before it began
    assert figures["other_cpu_time_s"] is not None


@pytest.mark.exhaustive
def test_the_memory_of_all_its_processes_at_a_time_is_that_of_the_command(machine_with_rapl):
    holds = "import time; block = bytearray(40 << 20); time.sleep(2.5)"
    text = f"import subprocess, sys; [each.wait() for each in [subprocess.Popen({[*PYTHON, holds]}) for _ in range(2)]]"
    figures = profile_of(Command([*PYTHON, text]), machine_with_rapl).aggregates
    assert 80 << 20 <= figures["process_memory_peak_bytes"] < 160 << 20


def test_a_command_shorter_than_an_interval_has_power_too(machine_with_rapl):
    figures = profile_of(Command([*PYTHON, "pass"]), machine_with_rapl, interval_s=0.5).aggregates
    assert figures["wall_time_s"] < 0.5
    assert figures["power_mw"] == pytest.approx(POWER_W * 1000, rel=0.05)
    assert figures["energy_mwh"] * 3.6 == pytest.approx(POWER_W * figures["wall_time_s"], rel=0.05)


READS = """
import os, sys
with open("data", "wb") as file:
    file.write(os.urandom(1 << 20))
    os.fsync(file.fileno())
if not os.fork():
    number = os.open("data", os.O_RDONLY)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    os.read(number, 1 << 20)
    with open("/proc/self/io") as file:
        print(*[line.split()[1] for line in file if line.startswith("read_bytes")], flush=True)
    os._exit(0)
os.wait()
"""


def test_a_command_that_heats_the_device_above_its_limit_is_ended(machine_with_rapl, tmp_path):
    sensor = machine_with_rapl / "sys/class/thermal/thermal_zone0/temp"
    command = Command(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo 90000 > {sensor}; sleep 60"])
    with pytest.raises(OverheatedError):
        profile_of(command, machine_with_rapl, max_temperature_c=80.0)
    assert killed.end([int((tmp_path / "pid").read_text())])


def test_what_its_processes_read_from_storage_is_counted(machine_with_rapl, monkeypatch, tmp_path, capfd):
    if not Path("/proc/self/io").exists():
        pytest.skip("this kernel does not account for it")
    monkeypatch.chdir(tmp_path)
    read_bytes = profile_of(Command([*PYTHON, READS]), machine_with_rapl).aggregates["process_read_bytes"]
    [by_child] = map(int, capfd.readouterr().out.split())
    assert read_bytes is not None
    assert by_child <= read_bytes < by_child + (64 << 20)  # its interpreter is read, too
    assert by_child in (0, 1 << 20)  # 0 in a file system in memory


def test_lines_of_its_output_show_minibatches_and_pass_through_unchanged(machine_with_rapl, capfdbinary):
    lines = b"a\xff\r\n" + b"".join(b"step %d: %d.5 ms\n" % (number, 20 + number) for number in range(6))
    text = f"import sys; sys.stdout.buffer.write({lines!r})"
    command = Command([*PYTHON, text], name="steps", minibatch_pattern=r"step \d+: (?P<ms>[\d.]+) ms")
    profile = profile_of(command, machine_with_rapl)
    assert [each.e2e_ms for each in profile.minibatches] == [20.5, 21.5, 22.5, 23.5, 24.5, 25.5]
    assert profile.minibatches[0].phase == FIRST
    assert {each.phase for each in profile.minibatches[1:]} == {CLEAN}
    assert profile.aggregates["minibatch_time_ms"] == 23.5
    assert profile.aggregates["fetch_stall_ms"] is None
    assert capfdbinary.readouterr().out == lines


@pytest.mark.parametrize(
    ("pattern", "times_ms"),
    [(r"step", [1000.0, 3000.0]), (r"(?P<s>[\d.]+) s", [500.0, 250.0]), (r"(?P<ms>[\d.]+) s", [0.5, 0.25])],
)
def test_a_line_without_a_time_ends_a_minibatch_that_began_with_the_line_before(pattern, times_ms):
    shown = ShownMinibatches(pattern)
    for came_s, line in ((10.0, "step"), (11.0, "step 0.5 s"), (11.5, "saved"), (14.0, "step 0.25 s")):
        shown.take(line, came_s)
    minibatches = shown.minibatches(Telemetry(1.0))
    assert [each.e2e_ms for each in minibatches] == pytest.approx(times_ms)
    assert end_s(minibatches[-1]) == pytest.approx(14.0)


@pytest.mark.parametrize(
    ("line", "time_ms"),
    [
        ("1,234 ms", 1234.0),
        ("1,234.5 ms", 1234.5),
        ("0,234 ms", 0.234),
        ("1,25 ms", 1.25),
        ("1,234 s", 1234.0),
        ("1,234.5 s", 1234500.0),
    ],
)
def test_a_comma_groups_thousands_where_it_can(line, time_ms):
    shown = ShownMinibatches(r"(?P<ms>[\d.,]+) ms|(?P<s>[\d.,]+) s")
    shown.take(line, 10.0)
    assert [each.e2e_ms for each in shown.minibatches(Telemetry(1.0))] == pytest.approx([time_ms])


def test_waits_for_the_cpu_quota_during_a_command_are_flagged(machine_with_rapl, monkeypatch):
    periods = iter([3, 10])
    monkeypatch.setattr(recording, "throttled_periods", lambda root: next(periods))
    profile = profile_of(Command([*PYTHON, "pass"]), machine_with_rapl)
    assert profile.conditions["cpu_quota_throttled_periods"] == 7
    assert any(flag.startswith("cpu-quota: ") for flag in profile.flags)


@pytest.mark.parametrize(
    ("text", "pattern", "words"),
    [
        ("for step in range(50): print('step', step); time.sleep(0.002)", "step", "buffers"),
        ("for step in range(50): print('step', step, flush=True)", "epoch", "no line"),
        ("print('step')", "step", "no minibatch counts"),
    ],
    ids=["buffered", "no-match", "one"],
)
def test_a_pattern_that_gives_no_minibatches_is_flagged_and_the_whole_command_is_not_one(
    machine_with_rapl, text, pattern, words
):
    command = Command([*PYTHON, f"import time\n{text}"], name="steps", minibatch_pattern=pattern)
    profile = profile_of(command, machine_with_rapl)
    [flag] = [flag for flag in profile.flags if flag.startswith("no-minibatches: ")]
    assert words in flag
    assert profile.minibatches == []
    assert profile.aggregates["minibatch_time_ms"] is None
    with pytest.raises(CannotRunError, match=r"no minibatch time.*" + words):
        figures_of(profile)


def test_a_program_text_that_is_longer_than_a_file_name_may_be_names_no_script():
    assert "script" not in Command([*PYTHON, "#" * 5000]).identity()


def test_a_command_is_comparable_with_its_like_only(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")

    def comparable(*words):
        command = Command(["/usr/bin/python3", str(script), *words])
        case = command_case("host", command, named_mode(HostDevice(Configuration()), "maxn"))
        assert case.workload == "train"
        return comparable_conditions({**command.identity()}, case)

    before = comparable("--epochs", "3")
    assert comparable("--epochs", "3") == before
    assert comparable("--epochs", "4") != before
    script.write_text("print(2)\n")
    assert comparable("--epochs", "3") != before


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python train.py --config a.py", "train"),
        ("python -m my.training --epochs 3", "my-training"),
        ("/usr/bin/yolo train", "yolo"),
        ("bash -c 'exit 3'", "bash"),
    ],
    ids=["script", "module", "program", "shell"],
)
def test_a_command_is_named_for_what_it_runs(text, name):
    assert Command(text).workload == name
    assert Command(text, name="mine").workload == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ["--token", "abc"],
        ["--token", "-abc"],
        ["--token", "--password", "abc"],
        ["--password", "abc"],
        ["--api-key=abc"],
        ["--hfToken=abc"],
        ["HF_TOKEN=abc"],
        ["--env=HF_TOKEN=abc"],
        ["--set=wandb.api_key=abc"],
        ["http://h?x=1&token=abc"],
        ["https://user:p@abc@host/x"],
        ["-H", "Authorization: Bearer abc"],
        ["-H", "Authorization:", "Bearer", "abc"],
        ["-c", "python t.py --token abc"],
        ["-c", "python t.py --token 'a abc'; ls"],
        ["-c", "password='abc"],
        ['{"api_key": "abc", "lr": 1}'],
    ],
    ids=lambda words: "-".join(words).replace("/", "").replace(" ", "-"),
)
def test_secrets_of_a_command_are_neither_recorded_nor_told(words):
    command = Command(["train", *words, "--lr", "0.1"])
    identity = command.identity()
    assert "abc" not in str(identity)
    assert identity["command"].endswith("--lr 0.1")
    end = CommandEnd(0.0, 1.0, 3, 0.0, 0.0)
    with pytest.raises(CommandFailedError) as failed:
        refuse_failed(end, command)
    assert "abc" not in str(failed.value)


def test_a_command_that_cannot_be_read_or_run_tells_no_secret():
    with pytest.raises(InvalidValueError) as unread:
        Command("train --token abc 'x")
    command = Command("HF_TOKEN=abc python train.py")
    with pytest.raises(CannotRunError) as not_run:
        CommandDevice(HostDevice(Configuration()), command)
    assert "abc" not in f"{unread.value} {not_run.value} {Command('HF_TOKEN=abc train').workload}"


@pytest.mark.parametrize("option", ["--max-tokens", "--tokenizer", "--author", "--passes", "--monkey"])
def test_options_that_merely_contain_a_secrets_name_are_recorded(option):
    assert without_secrets(["t.py", option, "64", f"{option}=64"]) == ["t.py", option, "64", f"{option}=64"]


def test_commands_that_differ_in_what_is_masked_are_two():
    def comparable(*words):
        command = Command(["train", *words])
        case = command_case("host", command, named_mode(HostDevice(Configuration()), "maxn"))
        return comparable_conditions(command.identity(), case)

    assert comparable("--pad-token", "a") != comparable("--pad-token", "b")
    assert comparable("--pad-token", "a") == comparable("--pad-token", "a")
    assert "command_digest" not in comparable("--max-tokens", "64")


@pytest.mark.exhaustive
def test_a_command_that_fails_has_no_profile_and_its_exit_code_is_handed_on(machine_with_rapl):
    for text, exit_code in (("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 128 + 9)):
        with pytest.raises(CommandFailedError) as failed:
            profile_of(Command([*PYTHON, text]), machine_with_rapl)
        assert failed.value.exit_code == exit_code


def test_what_is_no_program_is_refused_before_the_device_is_touched():
    with pytest.raises(CannotRunError, match="no-such-program cannot be run"):
        CommandDevice(HostDevice(Configuration()), Command(["no-such-program"]))


@pytest.mark.parametrize(
    "changes", [{"argv": []}, {"argv": "a 'b"}, {"name": "a+b"}, {"minibatch_pattern": "("}], ids=str
)
def test_what_is_no_command_is_refused(changes):
    with pytest.raises(InvalidValueError):
        Command(**{"argv": ["true"], **changes}).words  # noqa: B018


def test_only_a_command_may_have_no_length():
    named = named_mode(HostDevice(Configuration()), "maxn")
    endless = CaseSettings(minibatches=None)
    Case("host", "train", named, None, None, 1, endless, COMMAND)
    with pytest.raises(InvalidValueError, match="length"):
        Case("host", "lenet-mnist", named, 0, "ssd", 16, endless)


LEAVES_ONE = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True)"


def test_what_a_killed_command_left_running_is_ended_too(tmp_path):
    text = f"{LEAVES_ONE}; import time; time.sleep(60)"
    ended = []
    with CommandProcess([*PYTHON, text], lambda line, came_s: ended.append(int(line))) as process:
        killer = threading.Thread(target=_kill_after_a_line, args=(process.pid, ended))
        killer.start()
        end = process.run(lambda: None)
        killer.join()
    assert end.exit_code == 128 + signal.SIGKILL
    assert not is_alive(process.pid)
    assert not is_alive(ended[0])


@pytest.mark.parametrize("exit_code", [0, 3])
def test_what_a_command_left_running_is_ended_and_counted(exit_code):
    lines = []
    with CommandProcess(
        [*PYTHON, f"{LEAVES_ONE}; sys.exit({exit_code})"], lambda line, _: lines.append(line)
    ) as process:
        end = process.run(lambda: None)
        assert not is_alive(int(lines[0]))
    assert (end.exit_code, end.left_behind) == (exit_code, 1)


def test_a_profile_whose_command_left_processes_running_is_flagged(machine_with_rapl):
    profile = profile_of(Command(["sh", "-c", "sleep 60 & sleep 0.1"]), machine_with_rapl)
    assert any(flag.startswith("left-behind: 1 ") for flag in profile.flags)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("is_keeper_stopped", [False, True], ids=["guard", "guard and keeper"])
def test_a_run_ends_although_its_guard_does_not(monkeypatch, is_keeper_stopped):
    monkeypatch.setattr(command_process, "_GUARD_S", 0.3)
    process = CommandProcess([*PYTHON, f"{LEAVES_ONE}; import time; time.sleep(60)"], lambda line, _: pids.append(line))
    pids = []

    def overheats():
        if not pids:
            return
        guard = parent_of(process.pid)
        pids.extend([guard, process.pid])
        if is_keeper_stopped:
            os.kill(parent_of(guard), signal.SIGSTOP)
        os.kill(guard, signal.SIGSTOP)
        raise RuntimeError("too hot")

    def run():
        with process:
            process.run(overheats, tick_s=0.01)

    warned = pytest.warns(UserWarning, match="left behind") if is_keeper_stopped else contextlib.nullcontext()
    with warned, pytest.raises(RuntimeError, match="too hot"):
        run()
    if is_keeper_stopped:
        left, guard, command = map(int, pids)
        os.kill(guard, signal.SIGKILL)
        assert killed.end([command])  # by the kernel
        os.kill(left, signal.SIGKILL)
    assert killed.end(pids)


def test_a_command_that_cannot_be_started_leaves_no_file_open(monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(sys, "executable", "/no-such-python")
    with pytest.raises(FileNotFoundError), CommandProcess(["true"], lambda line, came_s: None):
        pass
    monkeypatch.undo()
    with CommandProcess(["true"], lambda line, came_s: None):
        pass  # `run` was not called
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_command_smaller_than_what_started_it_has_no_peak_of_that():
    with CommandProcess(["true"]) as process:
        assert process.run(lambda: None).peak_bytes is None
    with CommandProcess([*PYTHON, "bytearray(64 << 20)"]) as process:
        assert process.run(lambda: None).peak_bytes > 64 << 20


def _kill_after_a_line(pid, lines):
    deadline_s = time.monotonic() + 30
    while not lines and time.monotonic() < deadline_s:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


def test_an_error_of_the_run_ends_the_command():
    def overheats():
        raise RuntimeError("too hot")

    with pytest.raises(RuntimeError, match="too hot"), CommandProcess(["sleep", "60"]) as process:
        process.run(overheats, tick_s=0.01)
    assert not is_alive(process.pid)


def test_a_command_has_the_signals_and_the_environment_that_the_run_was_given():
    text = "import os, signal; print(signal.getsignal(signal.SIGPIPE), sorted(os.environ))"
    direct = subprocess.run([*PYTHON, text], capture_output=True, text=True, check=True).stdout
    lines = []
    with CommandProcess([*PYTHON, text], lambda line, came_s: lines.append(line)) as process:
        assert process.run(lambda: None).exit_code == 0
    assert lines == direct.splitlines()


def test_a_simulated_board_rehearses_a_command_by_a_workload_and_says_so():
    board = SimulatedDevice("orin-agx")
    with pytest.raises(CannotRunError, match="rehearse_as="):
        CommandDevice(board, Command(["no-such-program"]))
    device = CommandDevice(board, Command(["no-such-program"], rehearse_as="lenet-mnist"))
    slow, fast = (
        device.profile(command_case("sim:orin-agx", device.command, named_mode(device, mode)))
        for mode in ("4c-422.4-114.75-665.6", "maxn")
    )
    assert slow.aggregates["wall_time_s"] > 1.5 * fast.aggregates["wall_time_s"]
    assert slow.provenance == "simulated"
    assert slow.conditions["rehearsed_as"] == "lenet-mnist"
    assert any(flag.startswith("rehearsed: the command was not started") for flag in slow.flags)
    assert dataclasses.asdict(slow.case.settings)["minibatches"] is None

"""What was before a run comes back: at its end, on errors and signals, and after it was killed anywhere."""

from __future__ import annotations

import json
import os
import pwd
import signal
import sys
import types

import pytest

from harness.__main__ import main
from harness.board import lock, saved_state
from harness.board.cpu_clocks import CpuFrequency
from harness.board.knob import KNOBS, Knob, KnobSpec, open_knob
from harness.board.lock import interrupt_kept, locked
from harness.board.saved_state import default_state_dir, left_behind, preserved, restore
from harness.core.errors import ControlError
from tests.another_user import give_away
from tests.harness.board.kernel_trees import policy
from tests.harness.board.killed import die_before_change, in_a_child
from tests.messages import says

DEVICE = "host"

pytestmark = pytest.mark.usefixtures("states")


class Dial(Knob):
    """A number in a file; `moves` is a second file that a write sets too, as a power-mode preset sets clock limits."""

    def __init__(self, file, moves=None):
        self._spec = KnobSpec("dial", {"file": str(file), "moves": moves and str(moves)})
        self.name = f"dial {file}"
        self._file, self._moves = str(file), moves and str(moves)

    def usable(self):
        return ""

    def read(self):
        with open(self._file) as file:
            text = file.read().strip()
        if not text.isdigit():
            raise ControlError(f"{self._file} holds {text!r}")
        return int(text)

    def apply(self, value):
        for file in filter(None, [self._file, self._moves]):
            with open(file, "w") as out:
                out.write(f"{value}\n")


@pytest.fixture(autouse=True)
def dial_module(monkeypatch):
    """Lets a saved state find `Dial` as it finds every knob: by its name."""
    module = types.ModuleType("harness.board.dial")
    module.open_dial = lambda root, file, moves: Dial(file, moves)
    monkeypatch.setitem(sys.modules, "harness.board.dial", module)
    monkeypatch.setitem(KNOBS, "dial", "dial:open_dial")


@pytest.fixture
def dial(tmp_path):
    def make(name, value=1, moves=None):
        file = tmp_path / name
        file.write_text(f"{value}\n")
        return Dial(file, moves and tmp_path / moves)

    return make


def run(knobs):
    return preserved(knobs, DEVICE)


def test_the_state_is_on_disk_before_the_first_change_and_gone_after_the_last(dial, states):
    knob, signals = dial("a", 1), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = list(map(signal.getsignal, signals))
    with run([knob]):
        assert left_behind() == [DEVICE]
        saved = json.loads((states / "host.json").read_text())
        assert saved["knobs"] == [{"module": "dial", "options": knob.spec.options, "value": 1}]
        knob.set(2)
    assert knob.read() == 1
    assert left_behind() == restore(DEVICE) == []
    assert list(map(signal.getsignal, signals)) == handlers


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_puts_everything_back(dial, error):
    knobs = [dial("a"), dial("b", 7)]

    def fail_after(changes):
        for knob, value in changes:
            knob.set(value)
        raise error

    with pytest.raises(error), run(knobs):
        fail_after(zip(knobs, (2, 3)))
    assert [knob.read() for knob in knobs] == [1, 7]


def test_restore_goes_on_past_a_device_that_it_cannot_restore(dial, monkeypatch, capsys, tmp_path):
    """Two emulated boards may have been killed, and each is restored where its own kernel is."""

    class StuckDial(Dial):
        def apply(self, value):
            raise ControlError("the kernel took 0, not 1", "restore it there")

    class_of = {str(tmp_path / "other"): StuckDial}
    opened = types.SimpleNamespace(open_dial=lambda root, file, moves: class_of.get(file, Dial)(file, moves))
    other, own = dial("other"), dial("own")
    root = str(tmp_path / "other-board")
    with preserved([other], "emulated-a", root=root), preserved([own], "emulated-b", root="/"):
        own.set(2)
        other.set(2)
        monkeypatch.setitem(sys.modules, "harness.board.dial", opened)
        assert main(["restore"]) == 2
        printed = capsys.readouterr()
        assert says(printed.out, "emulated-a: NOT restored", root)
        assert "the kernel took 0, not 1" in printed.out
        assert "emulated-b: restored dial" in printed.out
        assert says(printed.err, "1 of 2 devices", "emulated-a")
        assert "--device NAME" in printed.err
        assert own.read() == 1
        assert left_behind() == ["emulated-a"]
        assert main(["restore"]) == 2
        assert "the kernel took 0, not 1" in capsys.readouterr().err


def test_a_knob_that_was_not_changed_is_not_written(dial, monkeypatch):
    knobs = [dial("a"), dial("b")]
    with run(knobs):
        knobs[0].set(2)
        monkeypatch.setattr(knobs[1], "apply", lambda value: pytest.fail("it stands right already"))
    assert knobs[0].read() == 1


def test_a_knob_that_another_moves_stands_right_in_the_end(dial):
    """Restoring the preset moves the clock, which was put back first."""
    clock = dial("clock", 5)
    preset = dial("preset", 1, moves="clock")
    with run([preset, clock]):
        preset.set(2)
        clock.set(3)
    assert (preset.read(), clock.read()) == (1, 5)


def test_two_knobs_that_move_each_other_are_not_said_to_stand_right(dial):
    first, second = dial("first", 1, moves="second"), dial("second", 5, moves="first")

    def change_both():
        first.set(2)

    with pytest.raises(ControlError, match="host is not as it was before"), run([first, second]):
        change_both()
    assert left_behind() == [DEVICE]


def test_a_knob_that_cannot_be_put_back_is_named_and_the_others_are(dial, monkeypatch):
    """And nothing is forgotten that its restore may need."""
    knobs, forgotten = [dial("a"), dial("b"), dial("c")], []
    monkeypatch.setattr(Dial, "forget", lambda self, saved: forgotten.append(self))

    def refuse(value):
        raise ControlError("b is stuck")

    def change_all():
        for knob in knobs:
            knob.set(2)
        monkeypatch.setattr(knobs[1], "apply", refuse)

    stuck = pytest.raises(ControlError, match=r"host .*b is stuck.*jetwatt restore")
    with stuck, run(knobs):
        change_all()
    assert [knob.read() for knob in knobs] == [1, 2, 1]
    assert (left_behind(), forgotten) == ([DEVICE], [])
    restore(DEVICE)
    assert (knobs[1].read(), len(forgotten)) == (1, 3)


def test_knobs_are_put_back_in_reverse_order_and_what_they_laid_down_goes_once_all_stand_as_before(dial, monkeypatch):
    knobs, order = [dial("a"), dial("b"), dial("c")], []
    monkeypatch.setattr(Dial, "restore", lambda self, saved: (order.append(("restore", self)), self.set(saved)))
    monkeypatch.setattr(Dial, "forget", lambda self, saved: order.append(("forget", self, saved)))
    with run(knobs):
        for knob in knobs[:2]:  # the last one is not changed
            knob.set(2)
    assert order == [*(("restore", knob) for knob in knobs[1::-1]), *(("forget", knob, 1) for knob in knobs[::-1])]


def test_what_cannot_be_removed_is_named_and_tried_again_by_restore(dial, monkeypatch):
    knob = dial("a")

    def refuse(self, saved):
        raise ControlError("its file cannot be removed")

    with monkeypatch.context() as patch:
        patch.setattr(Dial, "forget", refuse)
        with pytest.raises(ControlError, match="left over: its file"), run([knob]):
            knob.set(2)
    assert knob.read() == 1
    assert restore(DEVICE) == [knob.name]


def test_after_a_kill_a_knob_that_sets_in_steps_is_put_back_whatever_it_reads(dial, tmp_path, monkeypatch):
    """A program that was killed may have set the second of its files, of which the first tells nothing."""
    monkeypatch.setattr(Dial, "sets_in_steps", True)
    (tmp_path / "beside").write_text("1\n")
    knob = dial("a", 1, moves="beside")

    def work():
        with run([knob]):
            (tmp_path / "beside").write_text("2\n")
            os.kill(os.getpid(), signal.SIGKILL)

    in_a_child(work)
    restore(DEVICE)
    assert (tmp_path / "beside").read_text() == "1\n"


def test_garbage_in_a_knob_is_mended(dial):
    knob = dial("a", 1)
    with run([knob]):
        knob.set(2)
        with open(knob.spec.options["file"], "w") as file:
            file.write("garbage")
    assert knob.read() == 1


def test_a_state_left_behind_is_never_overwritten(dial):
    knob = dial("a", 1)
    in_a_child(lambda: kill_in(knob))
    refused = pytest.raises(ControlError, match=r"killed .*jetwatt restore")
    with refused, run([knob]):
        pytest.fail("nothing may run before the restore")
    assert restore(DEVICE) == [knob.name]
    assert knob.read() == 1
    with run([knob]):
        pass


def kill_in(knob):
    with run([knob]):
        knob.set(2)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_puts_everything_back_and_ends_the_run(dial, number):
    knob = dial("a", 1)

    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
        with run([knob]):
            knob.set(2)
            os.kill(os.getpid(), number)
            os._exit(5)  # not reached

    assert os.WEXITSTATUS(in_a_child(work)) == 130
    assert knob.read() == 1
    assert left_behind() == []


def test_a_signal_during_the_restore_waits_for_its_end(dial, monkeypatch):
    knobs = [dial("a", 1), dial("b", 1)]

    def interrupt_and_set(self, saved):
        os.kill(os.getpid(), signal.SIGTERM)
        self.set(saved)

    def work():
        monkeypatch.setattr(Dial, "restore", interrupt_and_set)
        with run(knobs):
            for knob in knobs:
                knob.set(2)
        os._exit(5)  # not reached: the signal acts once all is back

    assert os.WEXITSTATUS(in_a_child(work)) == 130
    assert [knob.read() for knob in knobs] == [1, 1]
    assert left_behind() == []


def fail_as_torch_does(*_):
    raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")


def end_with_a_worker():
    """Get SIGTERM and the death of a worker, which it ended too, in one moment."""
    both = (signal.SIGTERM, signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, fail_as_torch_does)
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    for number in both:
        os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)


def end_while_another_error_is_raised():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        fail_as_torch_does()


class EndedWhileFinalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("end", [end_with_a_worker, end_while_another_error_is_raised, EndedWhileFinalized])
def test_a_lost_interrupt_ends_the_run_all_the_same(dial, end):
    knob = dial("a", 1)

    def work():
        sys.unraisablehook = lambda _: None  # Python prints the interrupt that it drops
        with run([knob]):
            knob.set(2)
            end()

    assert os.WEXITSTATUS(in_a_child(work)) == 130
    assert knob.read() == 1
    assert left_behind() == []


def test_a_lost_interrupt_is_raised_before_the_next_step(dial):
    def work():
        sys.unraisablehook = lambda _: None
        with run([dial("a", 1)]):
            EndedWhileFinalized()
            with interrupt_kept():
                os._exit(5)  # not reached

    assert os.WEXITSTATUS(in_a_child(work)) == 130


def test_signals_that_follow_the_first_do_not_stop_the_restore(dial, monkeypatch):
    """A closed ssh session: SIGHUP, then SIGTERM, here just before signals are held back."""
    knob = dial("a", 1)

    def signals_wait_later():
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        return lock.signals_wait()

    def work():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
        monkeypatch.setattr(saved_state, "signals_wait", signals_wait_later)
        with run([knob]):
            knob.set(2)
            os.kill(os.getpid(), signal.SIGHUP)
            os._exit(5)  # not reached

    assert os.WEXITSTATUS(in_a_child(work)) == 130
    assert knob.read() == 1


def test_an_interrupt_concerns_one_run(dial):
    """In a notebook the next run begins in the same process."""
    with pytest.raises(KeyboardInterrupt), run([dial("a")]):
        os.kill(os.getpid(), signal.SIGINT)
    with run([dial("a")]), interrupt_kept():
        pass
    with interrupt_kept():
        pass


def test_a_worker_that_ends_in_the_middle_puts_nothing_back(dial):
    knob = dial("a", 1)
    try:
        with run([knob]):
            knob.set(2)
            worker = os.fork()
            if worker == 0:
                raise SystemExit  # unwinds the worker's own copy of this block
            os.waitpid(worker, 0)
            assert knob.read() == 2
            assert left_behind() == [DEVICE]
    except SystemExit:
        os._exit(0)
    assert knob.read() == 1


def test_what_ends_with_the_process_is_not_saved(dial):
    knob = dial("a")
    knob.outlives_process = False
    with run([knob]):
        assert left_behind() == []
        knob.set(2)
    assert knob.read() == 1


def test_a_running_device_is_not_restored(dial):
    knob = dial("a", 1)
    with locked(DEVICE), run([knob]):
        knob.set(2)
        with pytest.raises(ControlError, match="host is in use by process"):
            restore(DEVICE)
        assert knob.read() == 2


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", '{"format": 99}', '{"format": 1}', '{"format": 2}', '{"format": 2, "root": "/"}',
        '{"format": 2, "knobs": []}', '{"format": 2, "root": "/", "knobs": [{"module": "dial"}]}',
        '{"format": 2, "device": "host", "root": "/", "knobs": [{"module": "emc", "options": {"x": 1}, "value": 1}]}',
        '{"format": 2, "device": "nano", "root": "/", "knobs": []}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_state_is_named_and_kept(states, text):
    path = states / "host.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ControlError, match=r"host\.json"):
        restore(DEVICE)
    assert path.read_text() == text


@pytest.mark.parametrize("version", [1, 99])
def test_a_state_of_another_version_is_refused_by_its_version(states, version):
    path = states / "host.json"
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"format": {version}}}')
    with pytest.raises(ControlError, match=rf"host\.json .*format {version}, not 2"):
        restore(DEVICE)


@pytest.mark.parametrize(
    ("module", "options", "value"),
    [
        ("fan", {"systemctl": "/home/user/program"}, {"service": True}),
        ("nvpmodel", {}, {"conf": "/home/user/own.conf", "mode": "MAXN"}),
        ("nvpmodel", {}, {"conf": "ROOT/etc/../home/own.conf", "mode": "MAXN"}),
        ("cpufreq", {}, {"../../../../../home/user": [1, 2]}),
        ("governor", {"of": "cpu"}, {"policy0": "../performance"}),
        ("devfreq", {}, {"15340000.vic": [1, 2]}),
        ("emc", {}, {"cap_hz": "1 /etc/shadow"}),
        ("jetson_clocks", {}, {"dvfs": "/home/user/program"}),
        ("read_limit", {"path": "/home/jetwatt-reads-1", "origin": "ROOT/sys/fs/cgroup", "file": "io.max"}, None),
        ("read_limit", {"path": "ROOT/sys/fs/cgroup/own", "origin": "ROOT/sys/fs/cgroup", "file": "io.max"}, None),
    ],
)
def test_what_no_run_on_this_board_saved_is_not_put_back(tree, states, module, options, value):
    """`sudo ... restore` of a file in a user's home would run programs and write files that the user chose."""
    tree.write({"sys/class/devfreq/15340000.vic/min_freq": 1, "sys/class/devfreq/15340000.vic/max_freq": 1})
    entry = {"module": module, "options": options, "value": value}
    text = json.dumps({"format": 2, "device": "host", "root": "ROOT", "knobs": [entry]}).replace("ROOT", tree.root)
    states.mkdir(parents=True)
    (states / "host.json").write_text(text)
    before = tree.contents()
    with pytest.raises(
        ControlError, match=r"the saved value of|unexpected keyword argument|no control group|no GPU 15340000\.vic"
    ):
        restore("host")
    assert tree.contents() == before


@pytest.mark.parametrize("lay", [give_away, lambda path, monkeypatch: path.chmod(0o666)], ids=["theirs", "open"])
def test_a_file_that_another_user_may_have_written_is_refused(states, monkeypatch, lay):
    path = states / "host.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 2, "device": "host", "root": "/", "knobs": []}')
    lay(path, monkeypatch)
    with pytest.raises(ControlError, match=r"not believed: user .*as the user"):
        restore("host")
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ControlError, match="cannot be read"):
        restore("host")


def test_a_state_that_cannot_be_saved_stops_the_run_before_a_change(dial, states):
    states.parent.write_text("a file where a directory should be")
    refused = pytest.raises(ControlError, match=r"nothing was changed.*XDG_STATE_HOME")
    with refused, run([dial("a")]):
        pytest.fail("nothing may be changed")


def test_the_state_lies_where_xdg_says_or_at_home(monkeypatch, tmp_path):
    def no_entry(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / "jetwatt"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / ".local/state/jetwatt"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    with pytest.raises(ControlError, match=r"HOME is not set.*set XDG_STATE_HOME"):
        default_state_dir()


@pytest.fixture
def board(tree):
    tree.write({**policy(0, "0"), **policy(4, "4", limits=(729600, 729600))})
    return tree


def sweep(board):
    """A run that goes up, down and up again, and puts everything back."""
    knob = CpuFrequency(board.root)
    saved = preserved([knob], DEVICE, root=board.root)
    with locked(DEVICE), saved:
        for khz in (2201600, 115200, 1497600):
            knob.set(knob.pinned(khz))


@pytest.mark.exhaustive
def test_restore_survives_a_kill_between_any_two_changes(board):
    before = board.contents()
    kills = 0
    while True:
        kills += 1

        def work(number=kills):
            die_before_change(number)
            sweep(board)

        status = in_a_child(work)
        killed = os.WIFSIGNALED(status)
        assert killed or os.WEXITSTATUS(status) == 0
        for device in left_behind():
            assert restore(device) == ["CPU frequency limits"]
        assert board.contents() == before, f"killed before change {kills}"
        if not killed:
            break
    # The lock, the saved state, three settings of two policies with two limits, and those limits put back.
    assert kills > 2 + 3 * 2 * 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cpu_online", {}),
        ("cpufreq", {}),
        ("devfreq", {}),
        ("emc", {}),
        ("fan", {}),
        ("governor", {"of": "cpu"}),
        ("jetson_clocks", {"timeout_s": 90.0}),
        ("nvpmodel", {"timeout_s": 30.0}),
        ("read_limit", {"path": "/p", "origin": "/o", "file": "io.max"}),
    ],
)
def test_a_knob_is_opened_by_the_name_and_options_that_it_is_saved_with(tmp_path, name, options):
    assert open_knob(KnobSpec(name, options), str(tmp_path)).spec == KnobSpec(name, options)
    assert isinstance(open_knob(KnobSpec("cluster_limits"), str(tmp_path)), CpuFrequency)  # its name for them
    with pytest.raises(ControlError, match=r"'lamp'.*available: cluster_limits, "):
        open_knob(KnobSpec("lamp"), "/")

"""Setting nvpmodel's modes: by file and name, never with a reboot, and put back; whatever nvpmodel does instead."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness.board import privileged, privileges
from harness.board.bounded_process import run_bounded
from harness.board.nvpmodel import Nvpmodel, custom_name
from harness.board.nvpmodel_conf import read_conf
from harness.board.nvpmodel_modes import to_power_mode
from harness.board.saved_state import preserved, restore
from harness.core.errors import ControlError
from harness.core.power_modes import PowerMode
from tests.harness.board.killed import end
from tests.harness.board.nvpmodel_board import Board
from tests.harness.board.nvpmodel_samples import ORIN_AGX
from tests.harness.board.privileged_user import needs_linux
from tests.messages import says
from tests.time_limit import ended_after

LOW = PowerMode(8, 1728000, 612000, 3199000)
LOWER = PowerMode(2, 115200, 306000, 204000)
pytestmark = pytest.mark.usefixtures("states")

SHORT_S = 3.0  # what a hanging nvpmodel is given in a test; others start within it on a busy machine


@pytest.fixture
def board(tmp_path):
    return Board(tmp_path / "board")


@pytest.fixture(params=["board", "helped_board"], ids=["root", "plain user"])
def either(request):
    """A board as root uses it, and as a plain user does, for whom the helper does what needs root."""
    return request.getfixturevalue(request.param)


def _outside_by_dots(tree, node):
    (tree.parent / "outside").write_text("240")
    return "/../outside"


def _outside_by_a_link(tree, node):
    (tree.parent / "outside").write_text("240")
    node.symlink_to(tree.parent / "outside")


def _pipe(tree, node):
    os.mkfifo(node)


def _endless(tree, node):
    node.write_text(" " * (2 << 20) + "240")


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (_outside_by_dots, "leads out of"),
        (_outside_by_a_link, "leads out of"),
        (_pipe, "is not a regular file"),
        (_endless, "has more than 1,048,576 bytes"),
    ],
)
def test_a_conf_of_a_stranger_reads_nothing_but_short_regular_files_of_its_own_tree(board, hostile, why):
    node = Path(board.path, "sys/mask")
    node.parent.mkdir(parents=True, exist_ok=True)
    named = hostile(board.path, node) or "/sys/mask"
    board.write("etc/nvpmodel.conf", ORIN_AGX.replace("/sys/devices/17000000.ga10b/tpc_pg_mask", named))
    with ended_after(60), pytest.raises(ControlError, match=why):
        board.knob().kernel_value("TPC_POWER_GATING", "TPC_PG_MASK")


def test_a_mask_within_the_tree_is_read_through_links_that_stay_there(board):
    board.write("sys/devices/gpu/mask", "240\n")
    Path(board.path, "sys/mask").symlink_to("devices/gpu/mask")
    board.write("etc/nvpmodel.conf", ORIN_AGX.replace("/sys/devices/17000000.ga10b/tpc_pg_mask", "/sys/mask"))
    assert board.knob().kernel_value("TPC_POWER_GATING", "TPC_PG_MASK") == 240


@pytest.mark.parametrize("harmless", ["", "warnings", "odd-status"])
def test_a_mode_is_set_by_its_name_whatever_its_id_and_whatever_is_said_beside_it(board, harmless):
    board.behave(harmless)
    knob = board.knob()
    knob.set(board.stock("MODE_50W"))
    assert knob.read() == board.stock("MODE_50W")
    board.write("etc/nvpmodel.conf", ORIN_AGX.replace("ID=3 ", "ID=13 "))
    knob.set(board.stock("MODE_50W"))
    assert board.lines("var/lib/nvpmodel/status") == ["pmode:0013"]


def test_custom_modes_copy_the_mode_that_was_booted_and_not_the_one_before(board):
    knob = board.knob()
    for mode in (LOWER, LOW):
        value = knob.custom(mode, "MAXN")
        knob.set(value)
    conf = read_conf(Path(value["conf"])).conf
    assert conf.model(value["mode"]).value("CPU_A78_0", "MIN_FREQ") == "729600"


@pytest.mark.exhaustive
def test_a_mode_that_was_declined_is_not_taken_for_the_one_before_it(board):
    """An ID is all that nvpmodel remembers: under the same one, the new conf would give the old mode a new name."""
    knob = board.knob()
    before = knob.custom(LOW, "MAXN")
    knob.set(before)
    board.behave("ask-always")
    value = knob.custom(LOWER, "MAXN")
    with pytest.raises(ControlError, match=f"{custom_name(LOWER)} was not set.*{custom_name(LOW)} is in effect"):
        knob.set(value)
    assert knob.read() == before


@pytest.mark.exhaustive
def test_a_custom_mode_is_known_also_where_an_unknown_id_is_answered_with_the_default_mode(board):
    board.behave("default-for-unknown")
    knob = board.knob()
    for mode in (LOW, LOWER):
        value = knob.custom(mode, "MAXN")
        knob.set(value)
        assert knob.read() == value
    knob.custom(LOW, "MAXN")  # written and not set
    assert knob.read() == value


def test_a_damaged_file_of_ours_does_not_hide_the_board_s_mode(board):
    board.write("var/lib/jetwatt/custom-1.conf", "half a l")
    assert board.knob().read() == board.stock("MAXN")


def test_a_board_whose_conf_changed_gets_no_name_from_an_old_file(board):
    knob = board.knob()
    knob.set(knob.custom(LOW, "MAXN"))
    own = ORIN_AGX.replace("< POWER_MODEL ID=3", "< POWER_MODEL ID=4 NAME=MINE >\n\n< POWER_MODEL ID=3")
    board.write("etc/nvpmodel.conf", own)
    assert knob.read() == board.stock("MINE")


# What nvpmodel does instead


@pytest.mark.parametrize(
    ("behaviour", "mode", "message"),
    [
        (
            "",
            "MODE_30W",
            r"nvpmodel mode MODE_30W was not set: it takes a reboot, which was declined: TPC_PG_MASK 240 differs from "
            r"MAXN \(MAXN is in effect\); "
            r"boot into it: `sudo nvpmodel -m 2`, answer YES, and run again after the reboot",
        ),
        # Seen where the GPU cannot gate what the conf gates: its masks read 0 whatever mode it boots with.
        ("ask-always", "MODE_50W", "its masks are those of MAXN, but not those that the board booted with"),
        (
            "refuse",
            "MODE_50W",
            r"MODE_50W was not set: nvpmodel printed: NVPM ERROR: failed to set power mode! \(MAXN is in effect\)",
        ),
        (
            "mask-busy",
            "MODE_50W",
            r"MODE_50W was not set: writing 0 to /sys/devices/17000000\.ga10b/tpc_pg_mask was refused: No such device "
            r"\(MAXN is in effect\); the GPU takes power-gating masks at boot only: reboot, then try again",
        ),
        (
            "no-right",
            "MODE_50W",
            r"opening /sys/devices/system/cpu/cpu0/online was refused: Permission denied .*; only root may set modes",
        ),
        (
            "forget",
            "MODE_50W",
            r"nvpmodel mode MODE_50W of .*conf was requested, and MAXN of .*conf is in effect",
        ),
    ],
)
def test_a_mode_that_did_not_take_is_an_error_that_says_why(either, behaviour, mode, message):
    either.behave(behaviour)
    knob = either.knob()
    with pytest.raises(ControlError, match=message):
        knob.set(either.stock(mode))
    assert set(either.lines("answers")) <= {"n"}  # to whether it may reboot
    assert knob.read() == either.stock("MAXN")


def test_a_custom_mode_with_other_masks_is_to_be_made_anew(board):
    knob = board.knob()
    value = knob.custom(LOW, "MODE_15W")
    with pytest.raises(ControlError, match=r"mode .*booted with"):
        knob.set(value)
    assert board.lines("answers") == ["n"]


def test_an_nvpmodel_that_hangs_is_ended_with_its_children(board):
    board.behave("hang-on-set")
    message = r"MODE_50W was not set: `.*nvpmodel -f .* -m 3` did not end within 3 s and was ended \(MAXN is in effect"
    with pytest.raises(ControlError, match=message):
        board.knob(timeout_s=SHORT_S).set(board.stock("MODE_50W"))
    assert end(board.lines("pids")[0].split())


def test_ctrl_c_ends_nvpmodel_before_anything_else_runs(board):
    board.behave("hang-on-set")
    thread = threading.Thread(target=interrupt_once_it_hangs, args=(board,))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        board.knob().set(board.stock("MODE_50W"))
    thread.join()
    assert end(board.lines("pids")[0].split())


def test_ctrl_c_waits_for_a_process_of_roots_which_it_may_not_end(tmp_path, monkeypatch):
    """As that of sudo: what puts things back must not run beside it."""

    def interrupted(self, *arguments, **options):
        monkeypatch.undo()
        monkeypatch.setattr(os, "killpg", refuse)
        raise KeyboardInterrupt

    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    command = ["/bin/sh", "-c", f"sleep 0.5; echo ended > {tmp_path}/log"]
    with pytest.raises(KeyboardInterrupt):
        run_bounded(command, timeout_s=20)
    assert (tmp_path / "log").read_text() == "ended\n"


def interrupt_once_it_hangs(board):
    for _ in range(1000):
        if any(len(line.split()) == 2 for line in board.lines("pids")):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (
            "garbage",
            r"does not name a mode of .*nvpmodel\.conf .* it printed: .*; set one with `sudo nvpmodel -m ID`: 0 MAXN",
        ),
        ("never-set", r"it printed: NVPM ERROR: bad power mode; set one with"),
        pytest.param("hang", r"nvpmodel -q -f .* did not end within 3 s", marks=pytest.mark.exhaustive),
    ],
)
def test_what_names_no_mode_is_an_error_that_says_how_to_set_one(board, behaviour, message):
    board.behave(behaviour)
    if behaviour == "never-set":
        (board.path / "var/lib/nvpmodel/status").unlink()
    with pytest.raises(ControlError, match=message):
        board.knob(timeout_s=SHORT_S).read()


def test_a_file_that_nvpmodel_reads_otherwise_is_not_applied(board):
    knob = board.knob()
    value = knob.custom(LOW, "MAXN")
    board.behave("blind-to-custom")
    with pytest.raises(ControlError, match=r"custom-1\.conf .*MAXN, MODE_15W"):
        knob.set(value)
    assert not any("-m" in call.split() for call in board.lines("calls"))


def test_what_cannot_be_set_or_made_says_why(board):
    knob = board.knob()
    with pytest.raises(ControlError, match=r"nvpmodel\.conf.*'MODE_40W' .*available: MAXN"):
        knob.set(board.stock("MODE_40W"))
    with pytest.raises(ControlError, match=r"13c-.*13 CPU cores .*1 to 12"):
        knob.custom(PowerMode(13, *LOW[1:]), "MAXN")
    board.write("var/lib/jetwatt", "a file where a folder should be")
    with pytest.raises(ControlError, match=r"var/lib/jetwatt/custom-1\.conf cannot be written"):
        knob.custom(LOW, "MAXN")


# What is there, and what this user may do


def test_it_is_available_where_nvpmodel_answers_and_its_conf_is_understood(board):
    assert board.knob().available()[1:] == (True, "MAXN of MAXN, MODE_15W, MODE_30W, MODE_50W", "")
    for text in ("", "CORE_0 nonsense"):
        board.write("etc/nvpmodel.conf", text)
        capability = board.knob().available()
        assert not capability.available
        assert "etc/nvpmodel.conf" in capability.detail
    Path(board.executable).unlink()
    capability = board.knob().available()
    assert capability[1:3] == (False, f"there is no {board.executable}")
    assert "nvidia-l4t-nvpmodel" in capability.hint


# Putting back


@pytest.mark.exhaustive
def test_a_run_puts_the_board_s_own_mode_back_and_leaves_no_file(either):
    knob = either.knob()
    before = either.lines("var/lib/nvpmodel/status")
    with preserved([knob], "orin-agx"):
        for mode in (LOWER, LOW):
            value = knob.custom(mode, "MAXN")
            knob.set(value)
            assert knob.read() == value
        conf = read_conf(Path(value["conf"])).conf
        assert to_power_mode(conf, conf.model(value["mode"])) == LOW
        assert either.kernel("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq") == "1728000"
        assert either.kernel("/sys/devices/system/cpu/cpu7/online") == "1"
        assert either.kernel("/sys/devices/system/cpu/cpu8/online") == "0"
        assert either.kernel("/sys/devices/17000000.ga10b/tpc_pg_mask") == "0"
    assert either.lines("var/lib/nvpmodel/status") == before
    assert knob.read() == either.stock("MAXN")
    assert either.laid_down() == []


@pytest.mark.exhaustive
def test_another_process_puts_back_what_a_killed_run_left(either):
    knob = either.knob()
    child = os.fork()
    if child == 0:
        try:
            with preserved([knob], "orin-agx", root=str(either.path)):
                knob.set(knob.custom(LOW, "MAXN"))
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert knob.read()["mode"] == custom_name(LOW)
    assert restore("orin-agx") == ["nvpmodel mode"]
    assert knob.read() == either.stock("MAXN")
    assert either.laid_down() == []


@pytest.mark.parametrize("fault", ["mask-busy", pytest.param("hang-on-set", marks=pytest.mark.exhaustive)])
def test_a_mode_that_was_set_in_part_is_undone_although_nvpmodel_names_the_one_before(board, states, fault):
    knob = board.knob(timeout_s=SHORT_S)
    board.behave(fault)

    def fail():
        try:
            knob.set(board.stock("MODE_50W"))
        finally:
            assert knob.read() == board.stock("MAXN")
            board.behave()

    with pytest.raises(ControlError, match="MODE_50W was not set"), preserved([knob], "b"):
        fail()
    assert [call for call in board.lines("calls") if "-m" in call.split()][-1] == f"-f {board.conf} -m 0"
    assert list(states.iterdir()) == []


@pytest.mark.exhaustive
def test_a_restore_that_takes_a_reboot_says_so(board):
    knob = board.knob()

    def boot_otherwise():
        knob.set(board.stock("MODE_50W"))
        board.write("booted_mask", "240")

    failed = pytest.raises(ControlError, match=r"MAXN was not set.*reboot.*`sudo nvpmodel -m 0`")
    with failed, preserved([knob], "orin-agx"):
        boot_otherwise()


# -- as a plain user ---------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_the_helper_is_asked_by_names_and_numbers(helped_board):
    knob = helped_board.knob()
    with preserved([knob], "orin-agx"):
        for mode in (LOW, LOWER):
            knob.set(knob.custom(mode, "MAXN"))
    assert helped_board.asked() == [
        "store-conf custom-1",
        "nvpmodel custom-1 4",
        "store-conf custom-2",
        "nvpmodel custom-2 5",
        "nvpmodel own 0",
        "forget-conf custom-1",
        "forget-conf custom-2",
    ]


def test_a_draft_that_a_kill_left_is_removed(helped_board):
    knob = helped_board.knob()
    before = knob.read()
    helped_board.write("var/lib/jetwatt/custom-2.conf.part", "half a l")
    knob.forget(before)
    assert helped_board.laid_down() == []
    assert helped_board.asked() == ["forget-conf custom-2"]


@pytest.mark.exhaustive
def test_an_nvpmodel_that_hangs_is_ended_with_its_children_and_named(helped_board):
    helped_board.behave("hang-on-set")
    helped_board.helper_waits(SHORT_S)
    knob = helped_board.knob()
    message = r"MODE_50W was not set: `.*nvpmodel -f .* -m 3` did not end within 3 s and was ended \(MAXN is in"
    with pytest.raises(ControlError, match=message):
        knob.set(knob.own("MODE_50W"))
    assert end(helped_board.lines("pids")[0].split())
    with pytest.raises(ControlError, match="may have set a part of it"):
        knob.verify(knob.own("MAXN"))


def test_a_conf_that_the_helper_refuses_is_an_error_with_its_words(helped_board):
    """Of a board whose own conf others may change, the helper believes nothing."""
    os.chmod(helped_board.conf, 0o666)
    knob = helped_board.knob()
    with pytest.raises(ControlError, match=r"store-conf custom-1` .*refused: .*conf may be changed by"):
        knob.custom(LOW, "MAXN")
    with pytest.raises(ControlError, match=r"status 2 .*refused: .*conf may be changed by"):
        knob.set(knob.own("MODE_50W"))


def test_without_the_rule_nothing_is_changed_and_the_command_is_shown_that_prints_it(helped_board, monkeypatch):
    knob = helped_board.knob()
    monkeypatch.setattr(privileges, "HELPER", str(helped_board.path / "none"))
    capability = knob.available()
    assert not capability.available
    assert says(capability.detail, "MAXN of MAXN, MODE_15W, MODE_30W, MODE_50W", "only root")
    assert "doctor --sudoers" in capability.hint
    with pytest.raises(ControlError, match=r"store-conf custom-1` .*root.*doctor --sudoers"):
        knob.custom(LOW, "MAXN")
    with pytest.raises(ControlError, match=r"MODE_50W was not set.*root.*doctor --sudoers"):
        knob.set(knob.own("MODE_50W"))
    knob.verify(knob.own("MAXN"))
    assert helped_board.asked() == []


@needs_linux
def test_only_this_machine_is_reached_through_the_helper(plain_user):
    assert privileges.needed("/")
    assert privileges.needed("/usr/..")
    assert not privileges.needed(str(plain_user))


def test_confs_lie_where_the_helper_has_them():
    knob = Nvpmodel("/")
    assert knob.own("MAXN") == {"conf": "/etc/nvpmodel.conf", "mode": "MAXN"}
    assert knob._custom_files() == [f"/{privileged.STATE}/{name}.conf" for name in privileged.CUSTOM_CONFS]

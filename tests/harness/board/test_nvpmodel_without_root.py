"""Setting nvpmodel's modes as a plain user: by the helper's own operations, with every trap handled as for root."""

from __future__ import annotations

import os
import signal

import pytest

from harness.board import privileged, privileges
from harness.board.nvpmodel import Nvpmodel, custom_name
from harness.board.saved_state import preserved, restore
from harness.core.errors import ControlError
from harness.core.power_modes import PowerMode
from tests.harness.board.nvpmodel_board import end
from tests.harness.board.privileged_user import needs_linux

LOW = PowerMode(8, 1728000, 612000, 3199000)
LOWER = PowerMode(2, 115200, 306000, 204000)


def test_custom_modes_are_stored_set_and_forgotten_through_the_helper_only(helped_board):
    knob = helped_board.knob()
    assert knob.available().available
    status = helped_board.lines("var/lib/nvpmodel/status")
    with preserved([knob], "orin-agx", state_dir=helped_board.path.parent / "saved"):
        for mode in (LOW, LOWER):
            value = knob.custom(mode, "MAXN")
            knob.set(value)
            assert knob.read() == value
        assert helped_board.kernel("/sys/devices/system/cpu/cpu1/online") == "1"
        assert helped_board.kernel("/sys/devices/system/cpu/cpu2/online") == "0"
    assert helped_board.lines("var/lib/nvpmodel/status") == status
    assert helped_board.laid_down() == []
    assert helped_board.asked() == [
        "store-conf custom-1",
        "nvpmodel custom-1 4",
        "store-conf custom-2",
        "nvpmodel custom-2 5",
        "nvpmodel own 0",
        "forget-conf custom-1",
        "forget-conf custom-2",
    ]


def test_a_mode_of_the_board_s_own_is_set_from_its_own_conf(helped_board):
    knob = helped_board.knob()
    knob.set(knob.own("MODE_50W"))
    assert helped_board.asked() == ["nvpmodel own 3"]


def test_a_killed_run_of_a_plain_user_is_put_back_by_the_same_user(helped_board):
    places = {"state_dir": helped_board.path.parent / "saved"}
    knob = helped_board.knob()
    child = os.fork()
    if child == 0:
        try:
            with preserved([knob], "orin-agx", root=str(helped_board.path), **places):
                knob.set(knob.custom(LOW, "MAXN"))
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert knob.read()["mode"] == custom_name(LOW)
    assert restore("orin-agx", lock_dir=helped_board.path.parent / "lock", **places) == ["nvpmodel mode"]
    assert knob.read() == helped_board.stock("MAXN")
    assert helped_board.laid_down() == []


def test_a_draft_that_a_kill_left_is_removed(helped_board):
    knob = helped_board.knob()
    before = knob.read()
    helped_board.write("var/lib/jetwatt/custom-2.conf.part", "half a l")
    knob.forget(before)
    assert helped_board.laid_down() == []
    assert helped_board.asked() == ["forget-conf custom-2"]


def test_a_reboot_is_declined(helped_board):
    knob = helped_board.knob()
    message = (
        r"MODE_30W was not set: it takes a reboot, .* differs from MAXN \(MAXN is in effect\); boot into it: `sudo"
    )
    with pytest.raises(ControlError, match=message):
        knob.set(knob.own("MODE_30W"))
    assert helped_board.lines("answers") == ["n"]
    knob.verify(knob.own("MAXN"))


def test_a_mask_that_is_refused_names_file_cause_and_way_out(helped_board):
    helped_board.behave("mask-busy")
    knob = helped_board.knob()
    with pytest.raises(
        ControlError, match=r"tpc_pg_mask was refused: No such device .*; the GPU takes .* at boot only"
    ):
        knob.set(knob.own("MODE_50W"))


def test_an_nvpmodel_that_hangs_is_ended_with_its_children_and_named(helped_board):
    helped_board.behave("hang-on-set")
    helped_board.helper_waits(1.5)
    knob = helped_board.knob()
    message = r"MODE_50W was not set: `.*nvpmodel -f .* -m 3` did not end within 1\.5 s and was ended \(MAXN is in"
    with pytest.raises(ControlError, match=message):
        knob.set(knob.own("MODE_50W"))
    assert end(helped_board.lines("pids")[0].split())
    with pytest.raises(ControlError, match="may have set a part of it"):
        knob.verify(knob.own("MAXN"))


def test_a_mode_that_did_not_take_is_an_error_although_nvpmodel_was_content(helped_board):
    helped_board.behave("forget")
    knob = helped_board.knob()
    with pytest.raises(ControlError, match=r"MODE_50W of .*conf was asked for, and MAXN of .*conf is in effect"):
        knob.set(knob.own("MODE_50W"))


def test_a_conf_that_the_helper_refuses_is_an_error_with_its_words(helped_board):
    """Of a board whose own conf others may change, the helper believes nothing."""
    os.chmod(helped_board.conf, 0o666)
    knob = helped_board.knob()
    with pytest.raises(ControlError, match=r"store-conf custom-1` failed: refused: .*conf may be changed by"):
        knob.custom(LOW, "MAXN")
    with pytest.raises(ControlError, match=r"status 2 and said: refused: .*conf may be changed by"):
        knob.set(knob.own("MODE_50W"))


def test_without_the_rule_nothing_is_changed_and_the_command_is_shown_that_prints_it(helped_board, monkeypatch):
    knob = helped_board.knob()
    monkeypatch.setattr(privileges, "HELPER", str(helped_board.path / "none"))
    capability = knob.available()
    assert not capability.available
    assert "MAXN of MAXN, MODE_15W, MODE_30W, MODE_50W, which only root may change: " in capability.detail
    assert "doctor --sudoers" in capability.hint
    with pytest.raises(ControlError, match=r"store-conf custom-1` needs root: .*doctor --sudoers"):
        knob.custom(LOW, "MAXN")
    with pytest.raises(ControlError, match=r"MODE_50W was not set: it needs root: .*doctor --sudoers"):
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

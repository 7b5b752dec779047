"""The fan: at full speed with nobody who changes it, and given back to whoever had it."""

from __future__ import annotations

import pytest
from boards.emulator import intercepted
from boards.kernel import Kernel
from boards.tools_in_process import tools_in_process
from boards.tree import build_board

from harness.board import fan
from harness.board.fan import Fan
from harness.core.errors import ControlError, SourceUnavailableError

PWM = "sys/class/hwmon/hwmon3/pwm1"
TARGET, AUTOMATIC = "sys/devices/pwm-fan/target_pwm", "sys/devices/pwm-fan/temp_control"


@pytest.fixture
def orin(tree):
    """L4T r35 on: a fan in hwmon among sensors, and the service, run by a systemctl that keeps its state in a file."""
    tree.write(
        {
            PWM: 77,
            "sys/class/hwmon/hwmon3/name": "pwmfan",
            "sys/class/hwmon/hwmon1/name": "ina3221",
            "sys/class/hwmon/hwmon2/name": "other",
            "sys/class/hwmon/hwmon2/pwm1": 1,
            "etc/systemd/system/nvfancontrol.service": "[Service]",
            "run/service": "active",
            "usr/bin/systemctl": f"""#!/bin/sh
echo "$@" >> {tree.root}/run/log
case "$1" in
is-active) read state < {tree.root}/run/service; echo $state; [ $state = active ];;
stop) [ ! -e {tree.root}/run/stuck ] || {{ echo "Failed to stop"; exit 1; }}; echo inactive > {tree.root}/run/service;;
start) echo active > {tree.root}/run/service; echo 50 > {tree.root}/{PWM};;
esac""",
        }
    )
    (tree.path / "usr/bin/systemctl").chmod(0o755)
    return tree


def test_the_service_is_stopped_for_full_speed_and_started_again(orin):
    knob = Fan(orin.root)
    assert "nvfancontrol is stopped during a run" in knob.available().detail
    before = knob.read()
    assert before == {"service": True}  # the speed is the service's, and moves
    knob.set(knob.maximum())
    assert knob.read() == {"service": False, "pwm": [255]}
    assert (orin.path / PWM).read_text() == "255\n"
    knob.restore(before)
    assert knob.read() == before
    acts = [line.split()[0] for line in (orin.path / "run/log").read_text().splitlines()]
    assert [act for act in acts if act != "is-active"] == ["stop", "start"]


def test_a_fan_that_nobody_sets_gets_its_speed_back(orin):
    orin.write({"run/service": "inactive"})
    knob = Fan(orin.root)
    before, contents = knob.read(), (orin.path / PWM).read_text()
    assert before == {"service": False, "pwm": [77]}
    knob.set(knob.maximum())
    knob.restore(before)
    assert (orin.path / PWM).read_text() == contents


def test_a_service_that_does_not_stop_is_an_error(orin):
    orin.write({"run/stuck": ""})
    knob = Fan(orin.root)
    with pytest.raises(ControlError, match="systemctl stop nvfancontrol` failed: Failed to stop"):
        knob.set(knob.maximum())
    assert (orin.path / PWM).read_text() == "77\n"


@pytest.mark.parametrize(
    ("own", "before", "full"),
    [({AUTOMATIC: 1}, {"automatic": 1}, {"automatic": 0, "pwm": [255]}), ({}, {"pwm": [80]}, {"pwm": [255]})],
    ids=["the kernel's own control", "the speed alone"],
)
def test_without_a_service_what_there_is_is_set_and_put_back(tree, own, before, full):
    tree.write({TARGET: 80, **own})
    knob = Fan(tree.root)
    assert knob.read() == before
    knob.set(knob.maximum())
    assert knob.read() == full
    knob.restore(before)
    assert knob.read() == before
    with pytest.raises(ControlError, match=r"2 fan speeds .*1 fans"):
        knob.set({"pwm": [1, 2]})


def test_a_fan_is_found_again_under_another_number(orin):
    """The numbers of hwmon change from boot to boot, and a power cut comes with one."""
    orin.write({"run/service": "inactive"})
    saved = Fan(orin.root).read()
    (orin.path / "sys/class/hwmon/hwmon3").rename(orin.path / "sys/class/hwmon/hwmon5")
    knob = Fan(orin.root)
    knob.set(knob.maximum())
    knob.restore(saved)
    assert (orin.path / "sys/class/hwmon/hwmon5/pwm1").read_text() == "77\n"


# -- the thermal governor of L4T r36 and later -------------------------------------------------------------------------


@pytest.fixture(params=[("orin-agx", "r36.4"), ("orin-nano", "r36.4"), ("thor", "r38.2")], ids="-".join)
def governed(request, tmp_path):
    """The kernel of a board whose thermal governor sets the fan where no service does."""
    tree = build_board(tmp_path / "root", *request.param)
    with tools_in_process(tree.root), intercepted(Kernel(tree.root)):
        yield Kernel(tree.root)


@pytest.mark.parametrize("service", [True, False])
def test_the_fan_is_held_at_full_speed_and_its_thermal_zones_get_their_governor_back(governed, service):
    governed.set_fan_service(service)
    [policy], (pwm, *_) = (governed.state()["places"][name] for name in ("fan_policies", "fan"))
    knob = Fan(governed.root)
    before = knob.read()
    assert before == {"service": service, "policy": ["step_wise"]}  # without the speed, which moves
    knob.set(knob.maximum())
    governed.set_load(gpu=1.0)  # the kernel has a reason to set it
    assert knob.read() == {"service": False, "policy": ["user_space"], "pwm": [255]}
    assert (governed.read(policy), governed.read(pwm)) == ("user_space", "255")
    knob.restore(before)
    assert knob.read() == before
    assert governed.read(policy) == "step_wise"


def test_a_zone_that_already_leaves_the_fan_alone_gets_the_speed_back(governed):
    [policy], (pwm, *_) = (governed.state()["places"][name] for name in ("fan_policies", "fan"))
    governed.set_fan_service(False)
    governed.write(policy, "user_space")
    governed.write(pwm, 120)
    knob = Fan(governed.root)
    before = knob.read()
    assert before == {"service": False, "policy": ["user_space"], "pwm": [120]}
    knob.set(knob.maximum())
    knob.restore(before)
    assert (governed.read(policy), governed.read(pwm)) == ("user_space", "120")


def test_a_state_that_an_earlier_version_saved_is_put_back(governed):
    knob = Fan(governed.root)
    governed.set_fan_service(False)
    knob.restore({"service": True})
    assert knob.read()["service"] is True


def test_another_number_of_zones_than_was_saved_is_an_error(governed):
    with pytest.raises(ControlError, match=r"2 thermal policies .*1 thermal zones"):
        Fan(governed.root).apply({"policy": ["step_wise", "step_wise"]})


def test_zones_without_fan_or_user_space_and_boards_with_a_switch_keep_their_governor(tree):
    thermal = "sys/class/thermal"
    for zone, (device, policies) in enumerate(
        [("pwm-fan", "step_wise user_space"), ("cpufreq", "step_wise user_space"), ("pwm-fan", "step_wise")]
    ):
        tree.write(
            {
                f"{thermal}/thermal_zone{zone}/policy": "step_wise",
                f"{thermal}/thermal_zone{zone}/available_policies": policies,
                f"{thermal}/thermal_zone{zone}/cdev0/type": device,
            }
        )
    tree.write({PWM: 77, "sys/class/hwmon/hwmon3/name": "pwmfan"})
    assert Fan(tree.root).maximum() == {"policy": ["user_space"], "pwm": [255]}
    Fan(tree.root).apply(Fan(tree.root).maximum())
    policies = [(tree.path / f"{thermal}/thermal_zone{zone}/policy").read_text().strip() for zone in range(3)]
    assert policies == ["user_space", "step_wise", "step_wise"]
    tree.write({AUTOMATIC: 1, TARGET: 80})
    assert "policy" not in Fan(tree.root).maximum()


# -- what it does ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [("nano", "r32.7"), ("xavier-nx", "r35.4"), ("orin-agx", "r36.4")], ids="-".join)
def test_speed_and_turns_of_every_release_are_read(tmp_path, pair):
    kernel = Kernel(build_board(tmp_path / "root", *pair).root)
    kernel.observe()
    assert fan.open_source(kernel.root).read(0.0).values == {"fan_pwm": 66, "fan_rpm": 1320}


def test_several_fans_are_numbered_and_a_board_without_one_says_so(tree):
    with pytest.raises(SourceUnavailableError, match="no fan is in"):
        fan.open_source(tree.root)
    for number, pwm in ((2, 10), (10, 20)):
        tree.write({f"sys/class/hwmon/hwmon{number}/name": "pwmfan", f"sys/class/hwmon/hwmon{number}/pwm1": pwm})
    assert fan.open_source(tree.root).read(0.0).values == {"fan_pwm": 10, "fan_2_pwm": 20}

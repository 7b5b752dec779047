"""The fan: at full speed with nobody who changes it, and given back to whoever had it."""

from __future__ import annotations

import pytest

from harness.board.fan import Fan
from harness.core.errors import ControlError

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
    assert "nvfancontrol is stopped for as long" in knob.available().detail
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
    with pytest.raises(ControlError, match="2 fan speeds were given; there are 1 fans"):
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

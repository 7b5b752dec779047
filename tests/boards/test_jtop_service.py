"""The real jtop service reads a tree as it would a board."""

from __future__ import annotations

import json
import os

import pytest

from boards.emulator import Emulator
from boards.kernel import Kernel

READ = """
import json
from jtop import jtop
with jtop(interval=0.5) as jetson:
    assert jetson.ok()
    jetson.ok()
    print(json.dumps({
        "power": jetson.power, "gpu": dict(jetson.gpu.items()), "emc": jetson.memory["EMC"], "cpu": jetson.cpu["cpu"],
        "model": str(jetson.nvpmodel), "temperature": jetson.temperature, "board": jetson.board["hardware"],
        "fan": dict(jetson.fan.items()),
    }))
"""


def test_the_real_client_reads_what_the_emulated_board_shows(orin, jtop_service):
    Kernel(orin.root).set_load(cpu=0.5, gpu=1.0, mem=0.5)
    with Emulator(orin.root):
        seen = json.loads(jtop_service.python(READ).splitlines()[-1])
    assert set(seen["power"]["rail"]) == set(orin.spec.rails.labels)  # without NC and the sum of shunts
    assert seen["gpu"]["gpu"]["freq"]["cur"] == seen["gpu"]["gpu"]["freq"]["max"] == 612000
    assert seen["gpu"]["gpu"]["status"]["load"] == pytest.approx(100)
    assert seen["emc"]["max"] == 3199000
    assert [core["online"] for core in seen["cpu"]] == [True] * 8 + [False] * 4
    assert seen["cpu"][0]["freq"]["max"] == 1728000
    assert seen["model"] == "MODE_30W"
    assert seen["board"]["L4T"] == "36.4.3"
    assert seen["temperature"]["cpu"]["temp"] > 30
    rails = seen["power"]["rail"]
    kernel_mw = {label: rail["volt"] * rail["curr"] / 1000 for label, rail in rails.items()}
    assert {label: rail["power"] for label, rail in rails.items()} == pytest.approx(kernel_mw, abs=1)
    # The sum of all four rails: jtop counts VDDQ_VDD2_1V8AO, which lies inside VIN_SYS_5V0, twice.
    assert seen["power"]["tot"]["power"] > sum(rails[label]["power"] for label in orin.spec.rails.total)


def test_the_machine_is_as_before(jtop_service):
    assert not os.path.exists("/run/jtop.sock")
    assert not os.path.exists("/usr/bin/jetson_clocks")

"""The real jtop service reads a tree as it would a board; the sampler hears it, also past its death."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from boards.emulator import Emulator
from boards.jtop_service import SERVE, skip_or_fail
from boards.kernel import Kernel

pytestmark = pytest.mark.exhaustive

READ = """
import json, time
from jtop import JtopException, jtop

def read():
    with jtop(interval=0.5) as jetson:
        assert jetson.ok()
        jetson.ok()
        return {
            "power": jetson.power, "gpu": dict(jetson.gpu.items()), "emc": jetson.memory["EMC"],
            "cpu": jetson.cpu["cpu"], "model": str(jetson.nvpmodel), "temperature": jetson.temperature,
            "board": jetson.board["hardware"], "fan": dict(jetson.fan.items()),
        }

deadline_s = time.monotonic() + 40
while True:
    try:
        print(json.dumps(read()))
        break
    except JtopException:  # a client gives up after three intervals, and the service may take longer on a busy machine
        if time.monotonic() > deadline_s:
            raise
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


SAMPLE = """
import dataclasses, json, os, signal, subprocess, sys, time
from pathlib import Path
from harness.board.sampler import Sampler
from harness.board.source import SourceSpec

service, serve, prefix, *rails = sys.argv[1:]
jtop = SourceSpec("jtop", {"interval_s": 2.0, "answer_s": 30.0})  # on a busy machine, the service is slow
sampler = Sampler([SourceSpec("ina", {"total": rails}), SourceSpec("devfreq"), jtop], 0.1)

def wait_for(channel, more):
    def samples():
        sampler.poll()
        series = sampler.series(channel)
        return 0 if series is None else len(series.values)
    enough, deadline_s = samples() + more, time.monotonic() + 40
    while samples() < enough:
        assert time.monotonic() < deadline_s, channel
        time.sleep(0.05)

with sampler:
    wait_for("jtop_power_total_mw", 2)
    os.killpg(int(service), signal.SIGKILL)
    killed_s = time.monotonic()
    wait_for("power_total_mw", 20)
    Path("/run/jtop.sock").unlink()
    again = subprocess.Popen([sys.executable, "-c", serve, prefix], stdout=sys.stderr, start_new_session=True)
    wait_for("jtop_power_total_mw", 2)
os.killpg(again.pid, signal.SIGKILL)
print(json.dumps({"killed_s": killed_s, **dataclasses.asdict(sampler.stop())}))
"""


@pytest.mark.exhaustive
def test_the_sampler_hears_the_service_records_its_death_and_hears_it_again(orin, jtop_service, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    arguments = [str(jtop_service.process.pid), SERVE, str(tmp_path / "prefix"), *orin.spec.rails.total]
    seen = json.loads(jtop_service.python(SAMPLE, *arguments, timeout_s=150.0).splitlines()[-1])
    series = seen["series"]

    for channel in ("power_vdd_gpu_soc_mw", "power_vddq_vdd2_1v8ao_mw", "gpu_khz", "gpu_load_share", "emc_khz"):
        assert series[channel][1][0] == pytest.approx(series[f"jtop_{channel}"][1][0], abs=1)
    # Both totals stand side by side, and only jtop's counts a rail twice.
    inside = series["power_vddq_vdd2_1v8ao_mw"][1][0]
    totals = [series[channel][1][0] for channel in ("power_total_mw", "jtop_power_total_mw")]
    assert totals[1] == pytest.approx(totals[0] + inside, abs=3)
    assert "not added: VDDQ_VDD2_1V8AO" in seen["notes"]["power_total_mw"]
    assert "twice" in seen["notes"]["jtop_power_total_mw"]

    own_s, jtop_s = series["power_total_mw"][0], series["jtop_power_total_mw"][0]
    assert len(jtop_s) < len(own_s) / 2  # each of its samples is given once
    assert "jtop" in seen["missing"]
    assert "power_total_mw" not in seen["missing"]
    assert len([time_s for time_s in own_s if time_s > seen["killed_s"]]) >= 20
    assert jtop_s[0] < seen["killed_s"] < jtop_s[-1]


def test_the_machine_is_as_before(jtop_service):
    assert not os.path.exists("/run/jtop.sock")
    assert not os.path.exists("/usr/bin/jetson_clocks")


SKIPPED, FAILED = pytest.skip.Exception, pytest.fail.Exception


@pytest.mark.parametrize(("variables", "outcome"), [({}, SKIPPED), ({"CI": "true"}, FAILED)], ids=["elsewhere", "ci"])
def test_where_the_service_cannot_run_its_tests_are_skipped_and_fail_in_ci(variables, outcome):
    with pytest.raises(outcome, match="there is no unshare"):
        skip_or_fail("there is no unshare", variables)

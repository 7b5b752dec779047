"""The real jtop service on a board's tree: its client reads it through the sampler, also past its death."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).with_name("jtop_beside_a_board.py")
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def why_not() -> str:
    """What keeps the service from running here; empty where nothing does."""
    if importlib.util.find_spec("jtop") is None:
        return "jetson-stats is not installed (`pip install jetson-stats`)"
    if os.geteuid() != 0:
        return "the jtop service runs as root only"
    if shutil.which("unshare") is None:
        return "there is no unshare (package util-linux)"
    tried = subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True, text=True)
    return f"this machine gives no mount namespace: {tried.stderr.strip()}" if tried.returncode else ""


def agx_orin():
    """Paths and texts of `/sys`, as far as the service and our own sensors look."""
    cpus = os.cpu_count()
    files = {f"devices/system/cpu/{name}": f"0-{cpus - 1}" for name in ("online", "possible", "present")}
    for cpu in range(cpus):
        directory = f"devices/system/cpu/cpu{cpu}"
        files.update({f"{directory}/online": 1, f"{directory}/cpufreq/scaling_governor": "schedutil"})
        for kind in ("scaling", "cpuinfo"):
            for limit, khz in (("cur", 1728000), ("min", 115200), ("max", 2201600)):
                files[f"{directory}/cpufreq/{kind}_{limit}_freq"] = khz
    gpu = "class/devfreq/17000000.ga10b"
    for name, text in {
        "cur_freq": 1300500000,
        "min_freq": 306000000,
        "max_freq": 1300500000,
        "governor": "podgov",
    }.items():
        files[f"{gpu}/{name}"] = text
    for name, text in {"of_node/name": "ga10b", "load": 735, "railgate_enable": 0, "tpc_pg_mask": 0}.items():
        files[f"{gpu}/device/{name}"] = text
    for name, text in {"rate": 3199000000, "max_rate": 3199000000, "min_rate": 204000000, "mrq_rate_locked": 0}.items():
        files[f"kernel/debug/bpmp/debug/clk/emc/{name}"] = text
    files["kernel/actmon_avg_activity/mc_all"] = 12 * 3199000
    first = [("VDD_GPU_SOC", 20000, 150), ("VDD_CPU_CV", 20000, 50), ("VIN_SYS_5V0", 5000, 800)]
    second = [("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 5000, 100)]
    for address, hwmon, rails in (("1-0040", "hwmon3", first), ("1-0041", "hwmon4", second)):
        files[f"bus/i2c/devices/{address}/name"] = "ina3221"
        for number, (label, millivolt, milliampere) in enumerate(rails, start=1):
            directory = f"bus/i2c/devices/{address}/hwmon/{hwmon}"
            files[f"{directory}/in{number}_label"] = label
            files[f"{directory}/in{number}_input"] = millivolt
            files[f"{directory}/curr{number}_input"] = milliampere
    files["devices/virtual/thermal/thermal_zone0/type"] = "cpu-thermal"
    files["devices/virtual/thermal/thermal_zone0/temp"] = 48500
    return files


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the sampler saw: the service, its death, and the service again."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("board")
    for name, text in agx_orin().items():
        path = directory / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    for empty in ("class/hwmon", "class/power_supply"):
        (directory / "sys" / empty).mkdir(parents=True)
    # Output into files: whatever the service leaves running cannot keep a pipe open.
    out, errors = directory / "out", directory / "errors"
    with out.open("w") as stdout, errors.open("w") as stderr:
        done = subprocess.run(
            [*NAMESPACES, sys.executable, str(SCRIPT), str(directory)],
            cwd=str(PROJECT),
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            timeout=150,
        )
    assert done.returncode == 0, errors.read_text()
    return json.loads(out.read_text())


def values(seen, channel):
    return set(seen["series"][channel][1])


def test_both_totals_stand_side_by_side_and_only_jtops_counts_twice(seen):
    assert values(seen, "power_total_mw") == {8000}
    assert values(seen, "jtop_power_total_mw") == {8500}
    assert "not added: VDDQ_VDD2_1V8AO" in seen["notes"]["power_total_mw"]
    assert "twice" in seen["notes"]["jtop_power_total_mw"]


def test_the_service_and_our_own_sensors_agree(seen):
    for channel in ("power_vdd_gpu_soc_mw", "power_vddq_vdd2_1v8ao_mw", "gpu_khz", "gpu_load_share", "emc_khz"):
        assert values(seen, channel) == values(seen, f"jtop_{channel}")
    assert values(seen, "jtop_cpu0_khz") == {1728000}
    assert values(seen, "jtop_temperature_cpu_c") == {48.5}
    assert values(seen, "jtop_emc_load_share") == {0.12}


def test_each_of_its_samples_is_given_once(seen):
    jtop, own = seen["series"]["jtop_power_total_mw"][0], seen["series"]["power_total_mw"][0]
    assert len(jtop) < len(own) / 2


def test_its_death_is_recorded_and_the_boards_sensors_go_on(seen):
    assert "jtop" in seen["missing"]
    after = [time_s for time_s in seen["series"]["power_total_mw"][0] if time_s > seen["killed_s"]]
    assert len(after) >= 20
    assert "power_total_mw" not in seen["missing"]


def test_it_is_heard_again_once_it_is_back(seen):
    times_s = seen["series"]["jtop_power_total_mw"][0]
    assert times_s[0] < seen["killed_s"] < times_s[-1]

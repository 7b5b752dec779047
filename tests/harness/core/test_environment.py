"""The environment: what is known travels with a profile, what is not is left out, boards are recognised."""

from __future__ import annotations

import json

import pytest

from harness.core.environment import cpu_model, describe_environment, l4t_release, package_version, short_cpu_model


def test_what_this_machine_tells_is_plain_and_holds_variables_that_change_speed_and_no_others(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    environment = describe_environment()
    assert json.loads(json.dumps(environment)) == environment
    assert environment["python"]
    assert environment["packages"]["pytest"] == package_version("pytest")
    assert package_version("no-such-distribution") is None
    assert environment["variables"]["OMP_NUM_THREADS"] == "3"
    assert "SECRET_TOKEN" not in environment["variables"]


def test_what_a_machine_does_not_tell_is_left_out(tmp_path):
    environment = describe_environment(tmp_path)
    assert None not in environment.values()
    assert "cpu_model" not in environment
    assert "l4t" not in environment


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("AMD EPYC", "AMD EPYC"),
        ("Intel(R) Xeon(R) Processor @ 2.80GHz", "Intel Xeon"),
        ("Intel(R) Core(TM) i7-8565U CPU @ 1.80GHz", "Intel Core i7-8565U"),
        ("Intel(R) Xeon(R) Platinum 8488C", "Intel Xeon Platinum 8488C"),
        ("AMD Ryzen Threadripper PRO 7995WX 96-Cores", "AMD Ryzen Threadripper PRO 79..."),
    ],
    ids=["plain", "clock", "cpu-and-clock", "marks", "long"],
)
def test_a_message_has_a_short_name_of_the_cpu(tmp_path, model, name):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: fpu\n")
    assert short_cpu_model(tmp_path) == name
    assert cpu_model(tmp_path) == model


def test_an_arm_cpu_has_no_name_in_cpuinfo(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n")
    assert short_cpu_model(tmp_path) == "a CPU of unknown make"
    assert cpu_model(tmp_path) is None


def test_a_board_is_told_by_its_device_tree_and_its_release(tmp_path):
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"NVIDIA Jetson AGX Orin Developer Kit\0")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic\n")
    environment = describe_environment(tmp_path)
    assert environment["board"] == environment["cpu_model"] == "NVIDIA Jetson AGX Orin Developer Kit"
    assert environment["l4t"] == l4t_release(tmp_path) == "36.4.0"

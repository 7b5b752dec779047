"""The environment: what is known travels with a profile, what is not is left out, boards are recognised."""

from __future__ import annotations

import json

from harness.core.environment import describe_environment, l4t_release, package_version


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


def test_a_board_is_told_by_its_device_tree_and_its_release(tmp_path):
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"NVIDIA Jetson AGX Orin Developer Kit\0")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic\n")
    environment = describe_environment(tmp_path)
    assert environment["board"] == environment["cpu_model"] == "NVIDIA Jetson AGX Orin Developer Kit"
    assert environment["l4t"] == l4t_release(tmp_path) == "36.4.0"

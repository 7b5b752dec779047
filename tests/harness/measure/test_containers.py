"""Container engines and the command that runs a case inside one."""

from __future__ import annotations

from pathlib import Path

from benchmarks.test_containers import container_command, find_engine


def test_the_first_engine_on_the_path_is_taken(tmp_path):
    assert find_engine(str(tmp_path)) is None
    for name in ("podman", "nerdctl"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_engine(str(tmp_path)) == str(tmp_path / "podman")


def test_folders_are_mounted_where_they_are_once_each():
    command = container_command("docker", "image", [Path("/a"), Path("/b"), Path("/a")], Path("/a"), ["run", "it"])
    assert command[:5] == ["docker", "run", "--rm", "--network", "none"]
    assert command.count("/a:/a") == 1
    assert command[-3:] == ["image", "run", "it"]
    assert "--gpus" not in command
    assert "--gpus" in container_command("docker", "image", [], Path("/"), [], gpus=True)

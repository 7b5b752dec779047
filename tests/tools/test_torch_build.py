"""Which build of torch is installed: from a local index with small wheels, as the machine and the user decide."""

from __future__ import annotations

import contextlib
import functools
import http.server
import platform
import socket
import subprocess
import sys
import threading
import zipfile

import pytest

from tests.messages import says
from tools import torch_build

pytestmark = pytest.mark.one_python

VERSIONS = {"torch": "2.15.0", "torchvision": "0.29.2"}
METADATA = "Metadata-Version: 2.1\nName: {0}\nVersion: {1}+cpu\nRequires-Dist: a-package-that-exists-nowhere\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def index(tmp_path):
    """The address of a package index with a small wheel of each package."""
    for name, version in VERSIONS.items():
        folder, info = tmp_path / "index" / name, f"{name}-{version}+cpu.dist-info"
        folder.mkdir(parents=True)
        file = f"{name}-{version}+cpu-py3-none-any.whl"
        with zipfile.ZipFile(str(folder / file), "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "BUILD = 'cpu'\n")
            wheel.writestr(f"{info}/METADATA", METADATA.format(name, version))
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        (folder / "index.html").write_text(f'<a href="{file.replace("+", "%2B")}">{file}</a>')
    handler = functools.partial(Quiet, directory=str(tmp_path / "index"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def decide(monkeypatch, capsys):
    """What is printed and which pip commands run, on a machine that is described."""

    def decide(*arguments, gpu=False, machine=("Linux", "x86_64"), installed=None, answers=True, code=0, expected=0):
        commands = []
        monkeypatch.setattr(torch_build, "has_nvidia_gpu", lambda: gpu)
        monkeypatch.setattr(torch_build, "installed_build", lambda: installed)
        monkeypatch.setattr(torch_build, "answers", lambda index: answers)
        monkeypatch.setattr(platform, "system", lambda: machine[0])
        monkeypatch.setattr(platform, "machine", lambda: machine[1])
        monkeypatch.setattr(torch_build.pip_in_lines, "run", lambda command: commands.append(command) or code)
        assert torch_build.main(arguments) == expected
        printed = capsys.readouterr()
        return printed.out + printed.err, commands

    return decide


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the wheels have the versions for Python from 3.11 on")
def test_both_packages_and_nothing_else_come_from_the_index(index, tmp_path, monkeypatch):
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert torch_build.answers(index, limit_s=60)
    subprocess.run(torch_build.pip_command(index, "--quiet", "--target", str(tmp_path / "to")), check=True)
    assert {path.name for path in (tmp_path / "to").iterdir() if "-" not in path.name} == set(VERSIONS)


def test_an_index_without_torch_or_that_does_not_answer_is_left_out(index):
    assert not torch_build.answers(f"{index}/nothing", limit_s=60)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        assert not torch_build.answers(f"http://127.0.0.1:{silent.getsockname()[1]}", limit_s=0.1)
    assert not torch_build.answers("no address", limit_s=60)


def test_without_a_gpu_the_cpu_build_is_taken_if_its_index_answers(decide):
    printed, [command] = decide()
    assert command[command.index("--index-url") + 1] == torch_build.INDEX
    assert "--extra-index-url" not in command
    assert "--no-deps" in command
    assert says(printed, "CPU build", torch_build.INDEX, "no NVIDIA GPU", "TORCH=")
    printed, commands = decide(answers=False)
    assert says(printed, "within 3 s", "TORCH=cpu", "TORCH=default", "TORCH_INDEX=URL")
    assert commands == []
    printed, _ = decide(code=1)
    assert "could not be installed" in printed


def test_with_a_gpu_or_on_another_machine_pip_decides(decide):
    printed, commands = decide(gpu=True)
    assert says(printed, "NVIDIA GPU", "TORCH=cpu", "TORCH=default")
    assert commands == []
    for machine in (("Linux", "aarch64"), ("Darwin", "arm64")):
        assert decide(machine=machine) == ("", [])


def test_the_user_decides_first(decide):
    printed, commands = decide("default")
    assert "TORCH=default" in printed
    assert commands == []
    printed, [command] = decide("cpu", "http://here", gpu=True, answers=False, code=3, expected=3)
    assert command[command.index("--index-url") + 1] == "http://here"
    assert "as TORCH=cpu says" in printed
    printed, _ = decide("gpu", expected=2)
    assert "TORCH is gpu, expected cpu or default" in printed


def test_an_installed_torch_stays(decide):
    assert decide(installed="cpu") == decide("cpu", installed="cpu") == decide("", installed="default") == ("", [])
    printed, commands = decide("cpu", installed="default", expected=1)
    assert "make clean first" in printed
    assert commands == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"proc/driver/nvidia/version": ""}, True),
        ({"dev/dxg": ""}, True),
        ({"sys/bus/pci/devices/0/vendor": "0x10de\n", "sys/bus/pci/devices/0/class": "0x030000\n"}, True),
        ({"sys/bus/pci/devices/0/vendor": "0x10de\n", "sys/bus/pci/devices/0/class": "0x040300\n"}, False),
        ({"sys/bus/pci/devices/0/vendor": "0x8086\n", "sys/bus/pci/devices/0/class": "0x030000\n"}, False),
    ],
    ids=["nothing", "driver", "wsl", "card", "sound", "another-maker"],
)
def test_an_nvidia_gpu_is_found_by_its_driver_or_as_a_device(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert torch_build.has_nvidia_gpu(tmp_path) == expected

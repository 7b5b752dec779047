"""Runs in namespaces of its own: the real jtop service and the sampler, on a board's tree in the place of `/sys`.

    python jtop_beside_a_board.py DIRECTORY      DIRECTORY/sys is the tree; prints what the sampler saw, as JSON

Everything that the service writes goes into a file system in memory that ends with the namespaces.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.board.sampler import Sampler
from harness.board.source import SourceSpec

SOCKET = Path("/run/jtop.sock")
SERVICE = """
import platform
platform.machine = lambda: "aarch64"  # elsewhere it asks for the DMI of a PC
from jtop.service import JtopServer
JtopServer(force=True).loop_for_ever()
"""
PATIENCE_S = 40


def hide_the_machine(directory: Path) -> None:
    def mount(*arguments: object) -> None:
        subprocess.run(["mount", *map(str, arguments)], check=True)

    layers = directory / "layers"
    layers.mkdir()
    mount("-t", "tmpfs", "tmpfs", layers)
    for number, place in enumerate(["/etc", sys.base_prefix]):  # it keeps its settings below the interpreter
        upper, work = layers / f"upper{number}", layers / f"work{number}"
        upper.mkdir()
        work.mkdir()
        mount("-t", "overlay", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", place)
    mount("-t", "tmpfs", "tmpfs", "/run")
    mount("--bind", directory / "sys", "/sys")
    with open("/etc/group", "a") as groups:
        groups.write("jtop:x:47110:\n")
    Path("/etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.0, GCID: 1, BOARD: generic, EABI: aarch64\n")


def start_service() -> subprocess.Popen:
    service = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=sys.stderr, start_new_session=True)
    wait_for(SOCKET.exists)
    return service


def wait_for(condition) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            sys.exit(f"waited {PATIENCE_S} s for {condition}")
        time.sleep(0.05)


def main() -> None:
    hide_the_machine(Path(sys.argv[1]))
    service = start_service()
    sources = [SourceSpec("ina", {"total": ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]}), SourceSpec("devfreq")]
    sampler = Sampler([*sources, SourceSpec("jtop", {"interval_s": 0.5, "answer_s": 8.0})], 0.1)

    def samples(channel: str) -> int:
        sampler.poll()
        series = sampler.series(channel)
        return 0 if series is None else len(series.values)

    with sampler:
        wait_for(lambda: samples("jtop_power_total_mw") >= 2)
        os.killpg(service.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        before = samples("power_total_mw")
        wait_for(lambda: samples("power_total_mw") >= before + 20)
        before = samples("jtop_power_total_mw")
        SOCKET.unlink()
        service = start_service()
        wait_for(lambda: samples("jtop_power_total_mw") >= before + 2)
    os.killpg(service.pid, signal.SIGKILL)
    print(json.dumps({"killed_s": killed_s, **dataclasses.asdict(sampler.stop())}))


if __name__ == "__main__":
    main()

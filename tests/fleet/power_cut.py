"""A plugin of pytest that cuts the power of the simulated board it runs on at some cases, as a case that kills it."""

import os
import subprocess
import time
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/simulated_lab.sh"


def pytest_addoption(parser):
    parser.addoption("--cut-power-at", default="", help="power modes, separated by commas")


def pytest_runtest_setup(item):
    modes = item.config.getoption("cut_power_at").split(",")
    board = os.environ.get("SIMULATED_BOARD")
    if board and any(mode and f"-{mode}-" in item.nodeid for mode in modes):
        with open(Path(board).parent / "killed", "a") as killed:
            killed.write(f"{Path(board).name}\n")
        # what cuts the power is no process of the board, nor does it descend from one
        others = {name: value for name, value in os.environ.items() if name != "SIMULATED_BOARD"}
        switches = f"sleep 1; {TOOL} cut {board}; sleep 2; {TOOL} start {board}"
        command = f"(setsid bash -c '{switches}' &> /dev/null < /dev/null &)"
        subprocess.run(["bash", "-c", command], env=others, check=True)
        time.sleep(60)

"""A plugin of pytest that holds a run at its second case while a file with its board's name exists.

A test then acts in the midst of a slice, however slow the machine is.
"""

import os
import time
from pathlib import Path

begun = []


def pytest_addoption(parser):
    parser.addoption("--gate", default="", help="the folder of these files")


def pytest_runtest_setup(item):
    begun.append(item.nodeid)
    board = os.environ.get("SIMULATED_BOARD")
    if board and item.config.getoption("gate"):
        gate = Path(item.config.getoption("gate")) / Path(board).name
        while len(begun) > 1 and gate.exists():
            time.sleep(0.05)

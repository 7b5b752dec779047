"""The fan service of a tree, nvfancontrol: its conf, and its answer to a query (L4T r35 on)."""

from __future__ import annotations

from typing import List

CONF = """\
POLLING_INTERVAL 2

<FAN 1>
\tFAN_GOVERNOR pid {
\t\tSTEP_SIZE 10
\t}
\tFAN_CONTROL close_loop {
\t\tRPM_TOLERANCE 100
\t}
\tFAN_PROFILE quiet {
\t\t#TEMP HYST PWM RPM
\t\t0 0 0 0
\t\t105 0 255 2900
\t}
\tFAN_PROFILE cool {
\t\t0 0 66 1000
\t\t105 0 255 2900
\t}
\tFAN_DEFAULT_CONTROL close_loop
\tFAN_DEFAULT_PROFILE quiet
\tFAN_DEFAULT_GOVERNOR pid
\tKICKSTART_PWM 0
"""


def main(root: str, arguments: List[str]) -> int:
    for what, value in (("PROFILE", "quiet"), ("GOVERNOR", "pid"), ("CONTROL", "close_loop")):
        print(f"FAN1:FAN_{what}:{value}")
    return 0

"""Queries of Slurm through its own commands: nodes, jobs, reservations."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from harness.board.bounded_process import run_within
from harness.core.errors import CannotRunError
from harness.fleet.lab import program

_OF_THE_CALLER = ("SLURM", "SBATCH_", "SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SACCT_", "SALLOC_", "SRUN_")
"""Variables that change what Slurm's commands ask or print: options of the caller, or of a job that calls this."""

_TIMEOUT_S = 60.0
_ATTEMPTS = 5


class Node(NamedTuple):
    name: str  # of a board
    state: str  # `idle`, `allocated`, `drained`, ...
    mode: str  # the features that are active
    reason: str  # why it is drained or down; empty otherwise


class SlurmJob(NamedTuple):
    id: str
    user: str
    state: str  # `PENDING`, `RUNNING`, ...
    nodes: str
    slice: Optional[int]  # its number in the array
    reason: str  # why it waits
    name: str


class Slurm:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def call(self, name: str, *arguments: str) -> str:
        if not (self._folder / "slurm.conf").exists():
            raise CannotRunError(f"there is no fleet in {self._folder}", "run jetwatt fleet init lab.toml")
        path = program(name)
        if path is None:
            raise CannotRunError(f"{name} not found", "apt-get install slurm-wlm")
        daemons = self._folder / "run/daemons.pid"
        own = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_CALLER)}
        environment = {**own, "SLURM_CONF": str(self._folder / "slurm.conf")}
        options: Dict[str, Any] = {"env": environment}
        hint = f"check that the daemons run: {self._folder}/bin/daemons starts them, {self._folder}/log has their logs"
        try:
            for _ in range(_ATTEMPTS):
                done = run_within(_TIMEOUT_S, [path, *arguments], **options)
                output, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
                if "Unable to contact slurm controller" not in errors or not daemons.exists():
                    break
                time.sleep(1.0)  # a killed daemon is started again
        except subprocess.TimeoutExpired:
            raise CannotRunError(f"{name} did not answer in {_TIMEOUT_S:g} s", hint) from None
        if done.returncode != 0:
            raise CannotRunError(f"{name}: {errors.strip() or f'exit code {done.returncode}'}", hint)
        return output

    def nodes(self) -> List[Node]:
        rows = self._rows("sinfo", "-N", "-o", "%N|%T|%b|%E")
        return [
            # `planned`: idle and reserved for a waiting job; `allocated#`: boots first
            Node(
                name,
                state.replace("planned", "idle").replace("#", ", boots"),
                mode.replace("(null)", ""),
                "" if reason == "none" else reason,
            )
            for name, state, mode, reason in rows
        ]

    def jobs(self, name: str = "") -> List[SlurmJob]:
        """All jobs that wait or run, arrays task by task; only those with a name, if given."""
        which = [f"--name={name}"] if name else []
        rows = self._rows("squeue", "-r", *which, "-o", "%i|%u|%T|%N|%K|%r|%j")
        return [
            SlurmJob(
                number, user, state, nodes, int(place) if place.isdecimal() else None, why.replace("None", ""), called
            )
            for number, user, state, nodes, place, why, called in rows
        ]

    def reservations(self) -> List[Dict[str, str]]:
        """Reservations of users, by keyword: `ReservationName`, `StartTime`, `EndTime`, `Nodes`, `Users`."""
        text = self.call("scontrol", "show", "reservation", "-o")
        reservations = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines()]
        return [reservation for reservation in reservations if "ReservationName" in reservation]

    def _rows(self, *command: str) -> Sequence[List[str]]:
        count = command[-1].count("|")
        return [line.split("|", count) for line in self.call(command[0], "-h", *command[1:]).splitlines() if line]

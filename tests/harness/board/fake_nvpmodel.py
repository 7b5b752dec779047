"""An nvpmodel for tests: the command line, the words and the traps of the real one, acting on a tree.

Run as `fake_nvpmodel.py -q|-m ID|-p [--verbose] [-f FILE]` from a copy in `TREE/usr/sbin`. It remembers the ID of the
mode that was set, and no more, in `TREE/var/lib/nvpmodel/status`; asks for a reboot where a mode's TPC mask is not the
one in `TREE/booted_mask`; and misbehaves as the words in `TREE/behaviour` say.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))


def file(name):
    return os.path.join(TREE, name)


def load(name, default=""):
    if not os.path.exists(file(name)):
        return default
    with open(file(name)) as content:
        return content.read()


def conf_modes(path):
    """ID to name and lines."""
    modes, lines = {}, []
    with open(path) as conf:
        for line in conf.read().splitlines():
            head = re.match(r"< POWER_MODEL ID=(\d+) NAME=(\S+) >$", line)
            if head:
                lines = []
                modes[int(head[1])] = (head[2], lines)
            elif line.startswith("<"):
                lines = []
            elif line and not line.startswith("#"):
                lines.append(line.split())
    return modes


def paths(path):
    """(PARAM, ARGUMENT) to kernel file."""
    found, param = {}, ""
    with open(path) as conf:
        for line in conf.read().splitlines():
            head = re.match(r"<.*\bPARAM\b.* NAME=(\S+) >$", line)
            words = line.split()
            if head:
                param = head[1]
            elif line.startswith("<"):
                param = ""
            elif param and len(words) == 2:
                found[param, words[0]] = words[1]
    return found


def main(arguments):
    behaviour = load("behaviour").split()
    setting = "-m" in arguments
    with open(file("calls"), "a") as calls:
        calls.write(" ".join(arguments) + "\n")
    if "hang" in behaviour or (setting and "hang-on-set" in behaviour):
        child = subprocess.Popen(["/bin/sleep", "600"])  # inherits the output
        with open(file("pids"), "w") as pids:
            pids.write(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    if "garbage" in behaviour:
        os.write(1, bytes(range(256)) * 4)
        return 0
    conf = arguments[arguments.index("-f") + 1] if "-f" in arguments else file("etc/nvpmodel.conf")
    modes = conf_modes(conf)
    if "-p" in arguments:
        for number, (name, _) in modes.items():
            if not ("blind-to-custom" in behaviour and name.startswith("CUSTOM")):
                print(f"NVPM VERB: POWER_MODEL: ID={number} NAME={name}")
        return 0
    if "-q" in arguments:
        return query(modes, behaviour)
    return switch(int(arguments[arguments.index("-m") + 1]), modes, paths(conf), behaviour)


def query(modes, behaviour):
    status = int(load("var/lib/nvpmodel/status", "pmode:-1").split(":")[1])
    if "warnings" in behaviour:
        print("NVPM WARN: fan mode is not set!")
        print("NV Fan Mode:quiet")
    if status not in modes and "default-for-unknown" in behaviour:
        status = min(modes)
    if status not in modes:
        print("NVPM ERROR: bad power mode")
        return 255
    print(f"NV Power Mode: {modes[status][0]}")
    if "warnings" in behaviour:
        print("NVPM WARN: something else")
    print(status)
    if "warnings" in behaviour:
        print("NVPM ERROR: Error opening /sys/kernel/nvpmodel_emc_cap/emc_iso_cap: 13", file=sys.stderr)
        print("NVPM ERROR: failed to read PARAM EMC: ARG MAX_FREQ: PATH /sys/kernel/x", file=sys.stderr)
    return 0


def switch(number, modes, kernel_files, behaviour):
    if "refuse" in behaviour:
        print("NVPM ERROR: failed to set power mode!")
        return 255
    if number not in modes:
        print(f"NVPM ERROR: request for bad power mode {number}")
        return 255
    lines = modes[number][1]
    mask = next((line[2] for line in lines if line[1] == "TPC_PG_MASK"), "0")
    if mask != load("booted_mask", "0").strip() or "ask-always" in behaviour:
        print("NVPM WARN: Golden image context is already created")
        print(f"NVPM WARN: Reboot required for changing to this power mode: {number}")
        print("NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:", flush=True)
        answer = sys.stdin.readline().strip()
        with open(file("answers"), "a") as answers:
            answers.write(answer + "\n")
        print("NVPM ERROR: optMask is 1, no request for power mode")
        return 255
    for param, argument, value in lines:
        path = kernel_files[param, argument]
        if "mask-busy" in behaviour and argument.endswith("_PG_MASK"):
            print(f"NVPM ERROR: Error writing {value} to {path}: 19")
            print(f"NVPM ERROR: failed to write PARAM {param}: ARG {argument}: PATH: {path} VAL: {value}")
            print("NVPM ERROR: failed to set power mode!")
            return 255
        if "no-right" in behaviour:
            print(f"NVPM ERROR: Error opening {path}: 13")
            print(f"NVPM ERROR: failed to write PARAM {param}: ARG {argument}: PATH: {path} VAL: {value}")
            return 255
        os.makedirs(os.path.dirname(TREE + path), exist_ok=True)
        with open(TREE + path, "w") as kernel_file:
            kernel_file.write(value + "\n")
    if "forget" not in behaviour:
        os.makedirs(file("var/lib/nvpmodel"), exist_ok=True)
        with open(file("var/lib/nvpmodel/status"), "w") as status:
            status.write(f"pmode:{number:04}")
    return 255 if "odd-status" in behaviour else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The power mode of nvpmodel, set by its command line: by file and name, never answering yes to a reboot.

    query -- write a conf with the custom mode -- let nvpmodel list it -- nvpmodel -f FILE -m ID -- query

A mode's ID is looked up in the file that is handed over, each time: releases of L4T renumber them. nvpmodel remembers
an ID only and not the file, so a custom mode has an ID that the board's own conf does not have, and two custom modes
that follow each other have different ones: what a query returns is then never another mode of the same ID.
"""

from __future__ import annotations

import errno
import glob
import os
import re
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

from harness.board import privileges
from harness.board.bounded_process import Finished, run_bounded
from harness.board.cpu import CpuOnline
from harness.board.kernel_file import read_below, text_of
from harness.board.knob import Knob, KnobSpec
from harness.board.nvpmodel_conf import Conf, PowerModel, parse, write
from harness.board.nvpmodel_modes import MASK, custom_conf, masks
from harness.board.privileged import CUSTOM_CONFS, DRAFT, NVPMODEL, NVPMODEL_TIMEOUT_S, OWN_CONF, STATE, TIMED_OUT
from harness.core.errors import ControlError, HarnessError, InvalidValueError, UnknownNameError
from harness.core.files import write_durably
from harness.core.power_modes import PowerMode

STATUS = "var/lib/nvpmodel/status"  # `pmode:0002`, on some releases with more words

Mode = Dict[str, str]  # `conf`, the path of a conf file, and `mode`, the name of a mode in it
_COMMENT = "Made for one run; the board's own modes are repeated so that they keep their IDs."


class RebootNeededError(ControlError):
    """A mode whose power-gating masks are not those that the GPU has."""


def custom_name(mode: PowerMode) -> str:
    return "_".join(["CUSTOM", *map(str, mode)])


class Nvpmodel(Knob):
    """The mode in effect, as `{"conf": FILE, "mode": NAME}`."""

    name = "nvpmodel mode"
    topic = "set nvpmodel modes"
    sets_in_steps = True

    def __init__(self, root: str = "/", *, timeout_s: float = NVPMODEL_TIMEOUT_S, foreign: str = "") -> None:
        """`foreign`: why its conf is that of another board, so that none of its modes is set; empty if it is not."""
        self._foreign = foreign
        self._root = os.path.abspath(root)
        self._executable = os.path.join(self._root, NVPMODEL)
        self._conf = os.path.join(self._root, OWN_CONF)
        self._state_dir = os.path.join(self._root, STATE)
        self._timeout_s = timeout_s
        self._half_set = ""
        self._spec = KnobSpec("nvpmodel", {"timeout_s": timeout_s})

    def usable(self) -> str:
        if not os.path.exists(self._executable):
            hint = "on a Jetson: `sudo apt install nvidia-l4t-nvpmodel`"
            raise ControlError(f"there is no {self._executable}", hint)
        if self._foreign:
            raise ControlError(self._foreign, f"link {self._conf} to this board's own file in /etc/nvpmodel")
        waiting = self.waiting()
        if waiting:
            raise ControlError(f"{waiting} waits for a reboot", "`sudo reboot`, and run again")
        names = ", ".join(model.name for model in self.own_conf().models)
        modes = f"{self.read()['mode']} of {names}"
        stuck = self._other_masks()
        if stuck:  # Orin Nano Super: 0, and every mode has 240
            why = f"the kernel has {stuck}, so that nvpmodel asks for a reboot at each mode: {modes}"
            raise ControlError(why, "cores and clocks are set through sysfs")
        privileges.check(self._root, f"{modes}, which only root may change")
        return modes

    def waiting(self) -> str:
        """The own mode that was chosen and takes effect at the next boot, by nvpmodel's file; empty if none waits.

        The file names the mode that the next boot sets. It waits if another one is in effect, or if the kernel has the
        masks of another: a kernel whose masks are those of no mode (Orin Nano Super) keeps them at each boot.
        """
        try:
            match = re.search(r"pmode:\s*(\d+)", text_of(os.path.join(self._root, STATUS)))
        except OSError:  # not every user may read it
            return ""
        models = self.own_conf().models
        chosen = next((model for model in models if match and model.id == int(match[1])), None)
        if chosen is None:
            return ""
        if chosen.name != self.read()["mode"]:
            return chosen.name
        kernels = {mask: self._kernels_mask(chosen, mask) for mask in masks(chosen)}
        others = [model for model in models if self._has_masks(model, kernels)]
        return chosen.name if others and chosen not in others else ""

    def _kernels_mask(self, model: PowerModel, mask: str) -> Optional[int]:
        return next(self.kernel_value(one.param, mask) for one in model.settings if one.argument == mask)

    def _has_masks(self, model: PowerModel, kernels: Mapping[str, Optional[int]]) -> bool:
        own = masks(model)
        return all(value is None or int(own.get(mask, str(value)), 0) == value for mask, value in kernels.items())

    def own_conf(self) -> Conf:
        return self._read(self._conf)._replace(cores=tuple(CpuOnline(self._root).cpus()) or None)

    def read_conf(self) -> Conf:
        """The conf as its file has it, cores that are not here too."""
        return self._read(self._conf)

    def own(self, name: str) -> Mode:
        return {"conf": self._conf, "mode": name}

    def custom(self, mode: PowerMode, booted: str) -> Mode:
        """Write a conf with a mode for `mode`, ready to be set; its masks are those of the own mode `booted`."""
        own = self.own_conf()
        in_use = self.read()["conf"]
        number, file = next((number, file) for number, file in enumerate(self._custom_files()) if file != in_use)
        model_id = 1 + max(model.id for model in own.models) + number
        try:
            text = write(custom_conf(own, booted, mode, custom_name(mode), model_id=model_id), _COMMENT)
        except HarnessError as error:
            raise ControlError(f"no nvpmodel mode can be made for {mode.name}: {error.what}", error.hint) from error
        # The helper checks what it stores: who may have root's nvpmodel read any conf may write any file, for a conf
        # names the paths.
        if privileges.needed(self._root):
            privileges.call("store-conf", _word(file), given=text)
            return {"conf": file, "mode": custom_name(mode)}
        try:
            write_durably(Path(file), text.encode())
        except OSError as error:
            raise ControlError(f"{file} cannot be written: {error.strerror}", "free space there") from error
        return {"conf": file, "mode": custom_name(mode)}

    def read(self) -> Mode:
        own = self.own_conf()
        for path in filter(os.path.exists, self._custom_files()):
            try:
                conf = self._read(path)
            except ControlError:
                continue  # nvpmodel could not have taken its mode either
            # Only where it was made of the board's conf as it is now: in another, an ID may mean another mode.
            if conf.models[:-1] == own.models and _names(self._run("-q", "-f", path).output, conf.models[-1]):
                return {"conf": path, "mode": conf.models[-1].name}
        output = self._run("-q", "-f", self._conf).output
        for model in own.models:
            if _names(output, model):
                return {"conf": self._conf, "mode": model.name}
        modes = ", ".join(f"{model.id} {model.name}" for model in own.models)
        what = f"nvpmodel does not name a mode of {self._conf} as the one in effect, it printed: {quote(output)}"
        raise ControlError(what, f"set one with `sudo nvpmodel -m ID`: {modes}")

    def in_effect(self) -> PowerModel:
        return self._find(self.read())

    def kernel_value(self, param: str, argument: str) -> Optional[int]:
        """The kernel's value of an argument of a PARAM, by the file for newer kernels first; None if there is none.

        ControlError: the conf names something other than a regular file below the root.
        """
        section = self.own_conf().param(param)
        named = {entry.name: entry.path for entry in section.arguments} if section else {}
        for name in (f"{argument}_KNEXT", argument):
            try:
                return int(read_below(self._root, named[name]), 0)
            except (KeyError, OSError, ValueError):
                continue  # not there under this release
        return None

    def _other_masks(self) -> str:
        """The power-gating masks of the kernel that differ from those of the mode in effect; empty if none does."""
        settings = self.in_effect().settings
        masks_now = {one: self.kernel_value(one.param, one.argument) for one in settings if one.argument.endswith(MASK)}
        return ", ".join(
            f"{one.argument} {mask} instead of {one.value}"
            for one, mask in masks_now.items()
            if mask is not None and mask != int(one.value, 0)
        )

    def apply(self, value: Mode) -> None:
        model = self._find(value)
        listed = parse_listing(self._run("-p", "--verbose", "-f", value["conf"]).output)
        if listed and (model.id, model.name) not in listed:
            names = ", ".join(name for _, name in listed)
            raise self._not_set(value, f"in {value['conf']} nvpmodel finds no other modes than {names}")
        why_not = privileges.refusal(self._root)
        if why_not:
            raise self._not_set(value, f"it needs root: {why_not}", privileges.ASK_FOR_RULE)
        before, self._half_set = self._half_set, value["mode"]
        try:
            finished = self._switch(value["conf"], model)
        except ControlError as error:
            raise self._not_set(value, error.what, error.hint) from error
        if asks_for_reboot(finished.output):
            self._half_set = before  # it asks before it changes anything
            reason = f"it takes a reboot, which was declined: {self._compare_masks(model)}"
            declined = self._not_set(value, reason, self._way_through_reboot(value, model))
            raise RebootNeededError(declined.what, declined.hint)
        refusal = find_refusal(finished.output)
        if refusal is not None:
            raise self._not_set(value, *refusal)
        # The exit status alone is not reliable: it was 255 for modes that had taken effect.
        if finished.status != 0 and self.read() != value:
            raise self._not_set(value, f"it ended with status {finished.status} and said: {quote(finished.output)}")
        self._half_set = ""

    def verify(self, value: Mode) -> None:
        """Query and compare; after a failure, nvpmodel may name the mode before, whatever it has set already."""
        if self._half_set:
            raise ControlError(f"nvpmodel failed to set mode {self._half_set} and may have set a part of it")
        current = self.read()
        if current != value:
            requested, in_effect = (f"{mode['mode']} of {mode['conf']}" for mode in (value, current))
            hint = self._way_through_reboot(value, self._find(value))
            raise ControlError(f"nvpmodel mode {requested} was requested, and {in_effect} is in effect", hint)

    def check(self, saved: Mode) -> None:
        """A conf names the files that nvpmodel writes as root: the board's own and those made here alone are taken."""
        confs = [self._conf, *self._custom_files()]
        if not (isinstance(saved, dict) and set(saved) == {"conf", "mode"} and saved["conf"] in confs):
            raise ControlError(f"the saved value of {self.name} is {saved!r}, expected one of {', '.join(confs)}")

    def forget(self, saved: Mode) -> None:
        """Remove the confs with custom modes, and what a kill left of one that was being written."""
        for path in self._custom_files():
            if path != saved["conf"] and any([os.path.exists(path), *_drafts(path)]):
                self._remove(path)

    def _remove(self, path: str) -> None:
        if privileges.needed(self._root):
            privileges.call("forget-conf", _word(path))
            return
        try:
            for file in [*_drafts(path), path]:
                Path(file).unlink(missing_ok=True)
        except OSError as error:
            raise ControlError(f"{path} cannot be removed: {error.strerror}", "remove it by hand") from error

    def _switch(self, conf: str, model: PowerModel) -> Finished:
        if not privileges.needed(self._root):
            return self._run("-f", conf, "-m", str(model.id))
        answer = privileges.ask("nvpmodel", "own" if conf == self._conf else _word(conf), str(model.id))
        if answer.status == TIMED_OUT:
            raise ControlError(answer.output.strip())
        return answer

    def _run(self, *arguments: str) -> Finished:
        return run_bounded([self._executable, *arguments], timeout_s=self._timeout_s, answer="n\n")  # to a reboot

    def _find(self, value: Mode) -> PowerModel:
        try:
            return self._read(value["conf"]).model(value["mode"])
        except (UnknownNameError, InvalidValueError) as error:
            raise ControlError(f"{value['conf']}: {error.what}", error.hint) from error

    def _read(self, path: str) -> Conf:
        try:
            return parse(read_below(self._root, os.path.relpath(path, self._root)), path).conf
        except OSError as error:
            raise ControlError(f"the nvpmodel conf {path} cannot be read: {error.strerror}") from error
        except InvalidValueError as error:
            raise ControlError(error.what, error.hint) from error

    def _custom_files(self) -> List[str]:
        return [os.path.join(self._state_dir, f"{name}.conf") for name in CUSTOM_CONFS]

    def _not_set(self, value: Mode, reason: str, hint: str = "") -> ControlError:
        try:
            state = f"{self.read()['mode']} is in effect"
        except ControlError:
            state = "the mode in effect cannot be read"
        return ControlError(f"nvpmodel mode {value['mode']} was not set: {reason} ({state})", hint)

    def _compare_masks(self, model: PowerModel) -> str:
        try:
            now = self.in_effect()
        except ControlError:
            return "the masks that the board booted with cannot be read"
        before = masks(now)
        changed = [f"{mask} {value}" for mask, value in masks(model).items() if before.get(mask, value) != value]
        if not changed:
            return f"its masks are those of {now.name}, but not those that the board booted with"
        return f"{', '.join(changed)} differs from {now.name}"

    def _way_through_reboot(self, value: Mode, model: PowerModel) -> str:
        if value["conf"] != self._conf:
            return "make the mode from the one that the board booted with, so that it keeps its masks"
        return f"boot into it: `sudo nvpmodel -m {model.id}`, answer YES, and run again after the reboot"


def _word(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _drafts(path: str) -> List[str]:
    """What a kill may leave of a conf: the helper's draft, and those of `write_durably`."""
    folder, name = os.path.split(glob.escape(path))
    return glob.glob(f"{folder}/{name}{DRAFT}") + glob.glob(f"{folder}/.{name}.*{DRAFT}")


def _names(output: str, model: PowerModel) -> bool:
    return parse_query(output) in ((model.name, model.id), (model.name, None))


_MODE = re.compile(r"NV Power Mode:[ \t]*(\S+)")
_LISTED = re.compile(r"POWER_MODEL:[ \t]*ID=(\d+)[ \t]+NAME=(\S+)")
_REBOOT = re.compile(r"reboot required|reboot now", re.IGNORECASE)
_FILE_ERROR = re.compile(r"Error (?:writing (?P<value>\S+) to|opening) (?P<path>\S+): (?P<number>\d+)")
_NOT_SET = re.compile(r"failed to (?:write|set)|Error writing|bad power mode|no request for power mode")


def parse_query(text: str) -> Optional[Tuple[str, Optional[int]]]:
    """The answer of `nvpmodel -q`: name, and ID if printed; warnings, and errors without root, may be around it."""
    match = _MODE.search(text)
    if match is None:
        return None
    lines = (line.strip() for line in text[match.end() :].splitlines())
    return match[1], next((int(line) for line in lines if re.fullmatch(r"\d{1,9}", line, re.ASCII)), None)


def parse_listing(text: str) -> List[Tuple[int, str]]:
    return [(int(match[1]), match[2]) for match in _LISTED.finditer(text)]


def asks_for_reboot(text: str) -> bool:
    """Whether `nvpmodel -m` wanted to reboot: power-gating masks change, and the GPU was in use since the boot."""
    return _REBOOT.search(text) is not None


def find_refusal(text: str) -> Optional[Tuple[str, str]]:
    """Why `nvpmodel -m` did not set the mode, or not all of it, and a hint; None if it does not say so."""
    if not _NOT_SET.search(text):
        return None
    match = _FILE_ERROR.search(text)
    if match is None:
        return f"nvpmodel printed: {quote(text)}", ""
    number, hint = int(match["number"]), ""
    if match["path"].endswith("_pg_mask"):
        # Seen on Orin when switching back to a mode with other masks; only the next boot takes them.
        hint = "the GPU takes power-gating masks at boot only: reboot, then try again"
    elif number in (errno.EACCES, errno.EPERM):
        hint = "only root may set modes"
    action = f"writing {match['value']} to" if match["value"] else "opening"
    return f"{action} {match['path']} was refused: {os.strerror(number)}", hint


def quote(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "NVPM ERROR" in line]
    line = " / ".join(errors or lines) or "nothing"
    return line if len(line) <= 300 else f"{line[:300]} ..."

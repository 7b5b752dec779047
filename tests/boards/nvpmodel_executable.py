"""The nvpmodel of a tree: reads the conf, prints what the real one prints, and writes by the kernel's rules."""

from __future__ import annotations

import glob
import os
import sys
import time
from typing import Dict, List, Optional, TextIO

from boards.kernel import Kernel
from harness.board.nvpmodel_conf import Conf, PowerModel, Setting, parse
from harness.core.errors import InvalidValueError

STATUS = "var/lib/nvpmodel/status"
CONF = "etc/nvpmodel.conf"
FAILED = 255

NO_LIMIT = 2**31 - 1
_WARNINGS = {  # board and release to what comes before the answer of a query
    ("nano", "r32.7"): "NVPM WARN: fan mode is not set!",
    ("xavier-agx", "r32.7"): "NV Fan Mode:quiet",
    ("xavier-nx", "r32.7"): "NV Fan Mode:quiet",
}


class Nvpmodel:
    """The command line of nvpmodel, on a tree."""

    def __init__(self, kernel: Kernel, output: TextIO = sys.stdout, answers: TextIO = sys.stdin) -> None:
        self._kernel = kernel
        self._output = output
        self._answers = answers

    def run(self, arguments: List[str]) -> int:
        """A call; returns the exit status."""
        state = self._kernel.state()
        if state["nvpmodel_hangs"]:
            time.sleep(3600)
        path = arguments[arguments.index("-f") + 1] if "-f" in arguments else os.path.join(self._kernel.root, CONF)
        try:
            with open(path) as file:
                conf = parse(file.read(), path).conf
        except (OSError, InvalidValueError) as error:
            self._say(f"NVPM ERROR: failed to parse {path}: {error}")
            return FAILED
        verbose = "--verbose" in arguments
        if verbose:
            self._say(f"NVPM VERB: Config file: {path}")
            self._say(f"NVPM VERB: parsing done for {path}")
        if "-p" in arguments:
            return self._list(conf) if verbose else 0
        if "-q" in arguments:
            return self._query(conf, verbose, _WARNINGS.get((state["board"], state["l4t"])))
        if "-m" in arguments:
            return self._switch(conf, arguments[arguments.index("-m") + 1])
        self._say("NVPM ERROR: optMask is 0, no request for power mode")
        return FAILED

    def boot(self, mode: str = "") -> None:
        """What the nvpmodel service does at boot: the mode that was wanted last, with its masks."""
        with open(os.path.join(self._kernel.root, CONF)) as file:
            conf = parse(file.read()).conf
        if mode:
            model = conf.model(mode)
        else:
            wanted = [model for model in conf.models if model.id in (self._in_effect(), conf.default)]
            model = next((model for model in wanted if model.id == self._in_effect()), wanted[0])
        self._apply(conf, model)

    def _say(self, text: str) -> None:
        print(text, file=self._output, flush=True)

    def _in_effect(self) -> Optional[int]:
        _, _, number = self._kernel.read(STATUS).partition("pmode:")
        return int(number) if number.isdigit() else None

    def _remember(self, model: PowerModel) -> None:
        with open(os.path.join(self._kernel.root, STATUS), "w") as file:
            file.write(f"pmode:{model.id:04}\n")

    def _list(self, conf: Conf) -> int:
        for param in conf.params:
            for argument in param.arguments:
                node = f" NODE {argument.node}" if argument.node else ""
                self._say(f"NVPM VERB: PARAM {param.name}: ARG {argument.name}: PATH {argument.path}{node}")
        for model in conf.models:
            self._say(f"NVPM VERB: POWER_MODEL: ID={model.id} NAME={model.name}")
            for setting in model.settings:
                self._say(f"NVPM VERB:   {' '.join(setting)}")
        default = next((model.name for model in conf.models if model.id == conf.default), "?")
        self._say(f"NVPM VERB: PM_CONFIG: DEFAULT={default}({conf.default})")
        return 0

    def _query(self, conf: Conf, verbose: bool, warning: Optional[str]) -> int:
        number = self._in_effect()
        if warning:
            self._say(warning)
        model = next((model for model in conf.models if model.id == number), None)
        if model is None:
            self._say(f"NVPM ERROR: bad power mode {number}")
            return FAILED
        self._say(f"{'NVPM VERB: Current mode: ' if verbose else ''}NV Power Mode: {model.name}")
        self._say(str(number))
        if verbose:
            for setting in model.settings:
                path = self._path_of(conf, setting)
                real = self._kernel.read(path) if path else "?"
                words = f"PARAM {setting.param}: ARG {setting.argument}: PATH {path}"
                self._say(f"NVPM VERB: {words}: REAL_VAL: {real} CONF_VAL: {setting.value}")
        return 0

    def _switch(self, conf: Conf, wanted: str) -> int:
        model = next((model for model in conf.models if str(model.id) == wanted), None)
        if model is None:
            self._say(f"NVPM ERROR: bad power mode {wanted}")
            self._say("NVPM ERROR: optMask is 1, no request for power mode")
            return FAILED
        state = self._kernel.state()
        if state["gpu_context"] and self._changes_masks(conf, model):
            self._say("NVPM WARN: Golden image context is already created")
            self._say(f"NVPM WARN: Reboot required for changing to this power mode: {model.id}")
            self._say("NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:")
            if self._answers.readline().strip() not in ("YES", "yes"):
                self._say("NVPM ERROR: bad input!")
                self._say("NVPM ERROR: optMask is 1, no request for power mode")
                return FAILED
            self._remember(model)
            self._kernel.want_reboot(model.name)
            self._say("NVPM WARN: rebooting")
            return 0
        return self._apply(conf, model)

    def _changes_masks(self, conf: Conf, model: PowerModel) -> bool:
        settings = [setting for setting in model.settings if setting.argument.endswith("_PG_MASK")]
        return any(self._kernel.read(self._path_of(conf, setting)) != setting.value for setting in settings)

    def _apply(self, conf: Conf, model: PowerModel) -> int:
        """Write a mode's lines in their order; those that were refused once more at the end.

        The second round is for minima, which come before their maxima: a raise would fail on kernels that check.
        """
        with self._kernel.together():
            errors = self._write_all(conf, list(model.settings))
            errors = self._write_all(conf, list(errors))
        for setting, error in errors.items():
            path = self._path_of(conf, setting)
            self._say(f"NVPM ERROR: Error writing {setting.value} to {path}: {error.errno}")
            self._say(f"NVPM ERROR: failed to write PARAM {setting.param}: ARG {setting.argument}: PATH {path}")
        if any(setting.argument.endswith("_PG_MASK") for setting in errors):
            self._say("NVPM ERROR: failed to set power mode!")
            return FAILED
        self._remember(model)
        return FAILED if errors else 0

    def _write_all(self, conf: Conf, settings: List[Setting]) -> Dict[Setting, OSError]:
        errors: Dict[Setting, OSError] = {}
        for setting in settings:
            path = self._path_of(conf, setting)
            param = conf.param(setting.param)
            free = param is not None and param.type == "CLOCK" and setting.value == "-1"
            try:
                self._kernel.write(path, NO_LIMIT if free else setting.value)
            except OSError as error:
                errors[setting] = error
        return errors

    def _path_of(self, conf: Conf, setting: Setting) -> str:
        """The kernel file of a setting: its own, or that of its twin for newer kernels where that one is not there."""
        param = conf.param(setting.param)
        arguments = {} if param is None else {argument.name: argument for argument in param.arguments}
        paths = []
        for name in (setting.argument, f"{setting.argument}_KNEXT"):
            if name in arguments:
                argument = arguments[name]
                pattern = f"{argument.path}/hwmon*/{argument.node}" if argument.node else glob.escape(argument.path)
                found = glob.glob(self._kernel.root + pattern)
                paths += [path[len(self._kernel.root) :] for path in found] or [argument.path]
        there = [path for path in paths if os.path.exists(self._kernel.root + path)]
        return next(iter(there or paths), "")


def main(root: str, arguments: List[str]) -> int:
    return Nvpmodel(Kernel(root)).run(arguments)

"""The suite's pytest options, and the campaign that results from them; loaded by all pytest runs."""

from __future__ import annotations

import datetime
import functools
import re
import shlex
from pathlib import Path
from typing import Any, Container, Dict, List, Mapping, Optional, Tuple

import pytest

from harness.core import cases
from harness.core.campaigns import SHIPPED, Campaign, check_axis, load_campaign
from harness.core.configuration import DEFAULT_RESULTS, FILE_NAME, Configuration, load_configuration
from harness.core.errors import HarnessError, InvalidValueError, in_options
from harness.core.files import read_toml
from harness.core.units import parse_duration, percent_to_share
from harness.opt_in import OPTIONS_FILE

DEFAULT_CAMPAIGN = "quick"

NONE: Mapping[str, str] = {}

_TYPES = {"int": int, "float": float}
_DEFAULTS = {"--idle-seconds": cases.DEFAULT_IDLE_S, "--results": str(DEFAULT_RESULTS), "--config": FILE_NAME}
_IN_BRACES = {
    "campaigns": ", ".join(SHIPPED),
    "campaign": DEFAULT_CAMPAIGN,
    "minibatches": cases.DEFAULT_MINIBATCHES,
    "cut_minibatches": cases.CUT_MINIBATCHES,
    "cache_states": ", ".join(cases.CACHE_STATES),
    "clocks": ", ".join(cases.CLOCKS),
    "disturbed_cores": cases.DISTURBED_CORES,
    "idle_s": cases.DEFAULT_IDLE_S,
    "results": DEFAULT_RESULTS,
    "config": FILE_NAME,
}


_SETTINGS_BY_OTHER_NAMES: Mapping[str, str] = {
    "interval_s": "interval", "limit_s": "case_limit", "max_temperature_c": "max_temperature",
    "disturbance_cores": "disturbance", "power_limit_w": "power_limit",
}  # fmt: skip
"""The options, without `jetwatt_`, of settings of a case that have another name."""


@functools.lru_cache(maxsize=None)
def _options_by_argument() -> Dict[str, str]:
    """The option for each argument of a call that errors name."""
    options = {name[2:].replace("-", "_"): name for name in read_toml(OPTIONS_FILE)}
    return {**options, **{argument: options[name] for argument, name in _SETTINGS_BY_OTHER_NAMES.items()}}


def in_words_of_pytest(error: HarnessError) -> str:
    """The text of an error, with the options of a run in the place of a call's arguments."""
    return in_options(str(error), _options_by_argument())


def add_options(parser: pytest.Parser, taken: Container[str] = (), remarks: Mapping[str, str] = NONE) -> None:
    """Add the options of `options.toml`, each as `--NAME` and `--jetwatt-NAME`; `taken` ones by the second only.

    Destinations begin with `jetwatt_`. `remarks` go before the help of an option.
    """
    heading = "measuring DNN training (jetwatt): what to run; --NAME is --jetwatt-NAME too"
    group = parser.getgroup("jetwatt", heading)
    for name, option in read_toml(OPTIONS_FILE).items():
        arguments: Dict[str, Any] = {"action": "store_true"}
        if "takes" in option:
            arguments = {"metavar": option["takes"], "default": _default(name, option)}
        if "type" in option:
            arguments["type"] = _TYPES[option["type"]]
        long = f"--jetwatt-{name[2:]}"
        words = [long] if name in taken else [name, long]
        text = option["help"].format(**_IN_BRACES)
        if name in remarks:
            text = f"({remarks[name]}) {text}"
        group.addoption(*words, dest=long[2:].replace("-", "_"), help=text, **arguments)


def set_defaults(config: pytest.Config) -> None:
    """Give each option its default, where the arguments were parsed before the options were added."""
    for name, option in read_toml(OPTIONS_FILE).items():
        default = _default(name, option) if "takes" in option else False
        destination = f"jetwatt_{name[2:].replace('-', '_')}"
        if not hasattr(config.option, destination):
            setattr(config.option, destination, default)


def _default(name: str, option: Mapping[str, Any]) -> Any:
    return option.get("default", _DEFAULTS.get(name))


def campaign_from(config: pytest.Config) -> Campaign:
    axes: Dict[str, Tuple[Any, ...]] = {}
    for axis in cases.AXES:
        given = config.getoption(f"jetwatt_{axis}")
        if given is not None:
            values = [value.strip() for value in given.split(",") if value.strip()]
            axes[axis] = check_axis(
                axis, [value.partition("=")[0] for value in values] if axis == "storage" else values
            )
    if "device" not in axes:
        from harness.devices.registry import local_board

        board = local_board(Configuration(), device_root_from(config))
        if board is not None:
            axes["device"] = (board.name,)
    options = {**_SETTINGS_BY_OTHER_NAMES}
    options.update({name: name for name in ("minibatches", "epochs", "cache", "data_scale", "seed", "clocks")})
    given_settings = {name: config.getoption(f"jetwatt_{option}") for name, option in options.items()}
    settings = {name: value for name, value in given_settings.items() if value is not None}
    if config.getoption("jetwatt_no_temperature_limit"):
        if "max_temperature_c" in settings:
            raise InvalidValueError("--max-temperature and --no-temperature-limit were both given", "give one of them")
        settings["max_temperature_c"] = cases.NO_LIMIT_C
    if "minibatches" in settings and "epochs" in settings:
        raise InvalidValueError("--minibatches and --epochs were both given", "give one of the two")
    return load_campaign(config.getoption("jetwatt_campaign") or DEFAULT_CAMPAIGN).override(axes, settings)


def asks_for_strictness(config: pytest.Config) -> bool:
    """Whether `--strict` was given: an option of pytest itself, whose place differs between versions."""
    try:
        return bool(config.getoption("strict", None)) or bool(config.getini("strict"))
    except (KeyError, ValueError):
        return False


def is_judging(config: pytest.Config) -> bool:
    """Whether `--judge` was given, so that nothing is measured."""
    return config.getoption("jetwatt_judge") is not None


def slowdown_from(config: pytest.Config) -> float:
    given = config.getoption("jetwatt_slowdown") or "0"
    try:
        share = percent_to_share(float(given.rstrip("% ")))
    except ValueError:
        share = -1.0
    if not 0 <= share <= 10:
        raise InvalidValueError(f"--slowdown is {given!r}", "write a percentage from 0 on: 5 or 5%")
    return share


def deadline_from(config: pytest.Config) -> Optional[datetime.datetime]:
    """The local time after which no case may begin, or None. A time of day is its next occurrence after this call."""
    given: str = config.getoption("jetwatt_deadline")
    if not given:
        return None
    now = datetime.datetime.now()
    try:
        if "T" in given:
            at = datetime.datetime.fromisoformat(given)
        else:
            at = datetime.datetime.combine(now.date(), datetime.time.fromisoformat(given))
    except ValueError as error:
        raise InvalidValueError(f"--deadline {given!r} is not a time", "write HH:MM or YYYY-MM-DDTHH:MM") from error
    if at.tzinfo is not None:
        at = at.astimezone().replace(tzinfo=None)
    return at if at > now or "T" in given else at + datetime.timedelta(days=1)


def time_budget_from(config: pytest.Config, campaign: Campaign) -> str:
    """The time that the whole run may take, as `parse_duration` reads it; empty for no limit."""
    given: str = config.getoption("jetwatt_time_budget")
    try:
        if given:
            parse_duration(given)
    except InvalidValueError as error:
        raise InvalidValueError(f"--time-budget {error.what}", error.hint) from error
    return given or campaign.time_budget or ""


_IN_K = re.compile(r"[\w:+.\[\]/-]+")  # a word for pytest's -k


def selection_of(case_id: str) -> str:
    """The option of pytest that selects a case."""
    parts = _IN_K.findall(case_id)  # -k takes no `ssd@20`: the parts before and after the @ select it
    return f"-k {shlex.quote(' and '.join(parts))}"


def command_of(config: pytest.Config) -> str:
    """The command of this run, without its time budget and the cases that it selects."""
    words, kept = iter(config.invocation_params.args), []
    for word in map(str, words):
        if word in ("--time-budget", "--jetwatt-time-budget", "-k"):
            next(words, None)
        elif not word.startswith(("--time-budget=", "--jetwatt-time-budget=")):
            kept.append(word)
    longer = [] if config.getoption("jetwatt_time_budget") else ["--time-budget", "24h"]  # instead of the campaign's
    return " ".join(map(shlex.quote, ["pytest", *kept, *longer]))


def resume_command(config: pytest.Config) -> str:
    """The command of this run, continued: with `--resume`."""
    words = list(map(str, config.invocation_params.args))
    resuming = [] if config.getoption("jetwatt_resume") else ["--resume"]
    return " ".join(map(shlex.quote, ["pytest", *words, *resuming]))


def device_root_from(config: pytest.Config) -> Path:
    """The root in which boards are detected: this machine, or the tree of `--device-root`."""
    given: Optional[str] = config.getoption("jetwatt_device_root")
    if given is None:
        return Path("/")
    from harness.devices.board_record import root_of
    from harness.devices.registry import local_board

    root = root_of(Path(given).expanduser())
    if local_board(Configuration(), root) is None:
        raise InvalidValueError(
            f"--device-root {given} has neither a Jetson board nor another machine",
            "its proc/device-tree/compatible must name a Tegra chip, or its proc/cpuinfo a CPU",
        )
    return root


def listed_cases(config: pytest.Config) -> Optional[List[str]]:
    given: Optional[str] = config.getoption("jetwatt_cases")
    if given is None:
        return None
    try:
        return Path(given).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            f"--cases {given} cannot be read: {error}", "name a file with one test id per line"
        ) from error


def configuration_from(config: pytest.Config) -> Configuration:
    path: Optional[str] = config.getoption("jetwatt_config")
    if path not in (None, FILE_NAME) and not Path(path).is_file():
        raise InvalidValueError(f"--config {path} does not exist", f"name a file, or omit it for {FILE_NAME}")
    given: List[str] = (config.getoption("jetwatt_storage") or "").split(",")
    places = dict(value.strip().split("=", 1) for value in given if "=" in value)
    data_root, holds_thor = (config.getoption(f"jetwatt_{name}") for name in ("data_root", "hold_thor_clocks"))
    return load_configuration(Path(path or FILE_NAME), places, data_root, holds_thor)

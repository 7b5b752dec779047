"""The suite's pytest options, and the campaign that comes out of them; every pytest run loads this."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from harness.core.campaigns import SHIPPED, Campaign, check_axis, load_campaign
from harness.core.cases import CACHE_STATES, CLOCKS, CUT_MINIBATCHES, DEFAULT_IDLE_S, DISTURBED_CORES, NO_LIMIT_C
from harness.core.configuration import DEFAULT_RESULTS, FILE_NAME, Configuration, load_configuration
from harness.core.errors import InvalidValueError
from harness.core.units import percent_to_share

DEFAULT_CAMPAIGN = "quick"

_AXIS_HELP = {
    "device": "devices: host (this machine), nvidia-gpu (this machine with its NVIDIA GPU, nvidia-gpu:1 with another), "
    "a board's name such as orin-agx, sim:BOARD for a simulated one, or replay:CORPUS.csv for what was recorded of one "
    "(default: the board, where this is one)",
    "workload": "workloads, such as lenet-mnist or mobilenetv3-gld23k; an unknown one lists all; "
    "MODULE:NAME for one's own, a jetwatt.Workload",
    "power_mode": "power modes: maxn, default (the papers' mode of the board), 2c (two CPU cores), CORESc-CPU-GPU-MEM "
    "in MHz (12c-2201.6-1300.5-3199), a preset's name, sample:COUNT, grid:paper, all, or FILE.csv",
    "workers": "num_workers of the PyTorch DataLoader: 0 fetches in the training process itself",
    "storage": "storage media by name; NAME=/mount/point says where one lies "
    "(ssd, the default, is the working directory's medium unless said otherwise), "
    "NAME@MB_PER_S holds reads from it to so many megabytes per second, where the kernel lets this user",
    "batch_size": "samples per minibatch",
}


def add_options(parser: pytest.Parser) -> None:
    """Add the option group `jetwatt`; the destinations begin with `jetwatt_`, so that no other plugin's can clash."""
    group = parser.getgroup("jetwatt", "measuring DNN training (jetwatt): what to run")

    def option(name: str, text: str, **how: Any) -> None:
        group.addoption(name, dest="jetwatt_" + name.strip("-").replace("-", "_"), help=text, **how)

    option(
        "--campaign",
        f"which cases: {', '.join(SHIPPED)}, or a TOML file (default: {DEFAULT_CAMPAIGN}). "
        "Each option below replaces that axis or setting in all of the campaign's sweeps.",
        metavar="NAME|FILE",
    )
    for axis, text in _AXIS_HELP.items():
        option("--" + axis.replace("_", "-"), f"comma list of {text}", metavar="LIST")
    option(
        "--device-root",
        "a tree with the /sys, /proc and /etc of a Jetson board or another machine, or a file of `jetwatt doctor "
        "--record`: that is emulated then, training runs on this machine, and every figure says so",
        metavar="DIR|FILE",
    )
    option(
        "--assert-takeaways",
        "fail where measured profiles contradict a take-away of the papers, and where simulated ones do not confirm it "
        "(otherwise verdicts are only reported)",
        action="store_true",
    )
    option(
        "--duration",
        "how long benchmarks/test_variability.py repeats each case (the papers: 54000, that is 15 h; default: three "
        "repetitions)",
        type=float,
        metavar="SECONDS",
        default=0.0,
    )
    option(
        "--deadline",
        "stop before the first case that would begin after this time, HH:MM or YYYY-MM-DDTHH:MM; --resume goes on then",
        metavar="TIME",
        default="",
    )
    option(
        "--case-limit",
        f"once a case has taken so long, {CUT_MINIBATCHES} clean minibatches suffice; it is marked then",
        type=float,
        metavar="SECONDS",
    )
    option(
        "--container-image",
        "the image in which benchmarks/test_containers.py runs its cases; the suite has to be installed in it "
        "(default: one made of this machine's own files)",
        metavar="IMAGE",
        default="",
    )
    option(
        "--container-options",
        "what else the engine is given for each container: '--runtime nvidia' on a Jetson board",
        metavar="WORDS",
        default="",
    )
    option(
        "--engine",
        "the container engine of benchmarks/test_containers.py: docker, podman or nerdctl (default: the first on the "
        "PATH, where the file is named)",
        metavar="NAME",
        default="",
    )
    option("--minibatches", "clean minibatches to record in a case (default: 40)", type=int, metavar="N")
    option("--epochs", "run whole epochs instead; epoch 0 is reported apart", type=int, metavar="N")
    option(
        "--cache",
        f"page cache before a case: {', '.join(CACHE_STATES)} (cold drops all of it and needs root or a sudo rule; "
        "evicted drops the data set's own pages and needs nothing; default: warm, in the paper campaign cold)",
        metavar="STATE",
    )
    option(
        "--clocks",
        f"what clocks do while a case runs: {', '.join(CLOCKS)} (static holds them at the power mode's, dvfs lets them "
        "move below; default: static)",
        metavar="STATE",
    )
    option("--power-limit", "power limit of a discrete GPU (default: the one it has)", type=float, metavar="WATT")
    option(
        "--max-temperature",
        "end the run once a sensor is above this (default: 3 C below a board's own critical trip points; on host: "
        "none)",
        type=float,
        metavar="CELSIUS",
    )
    option(
        "--no-temperature-limit",
        "run on however hot it gets, also where no temperature can be watched: otherwise a board does not start then",
        action="store_true",
    )
    option(
        "--require-fresh-boot",
        "skip the cases of a board that was booted more than an hour before the run; the paper campaign, which asks "
        "for a reboot as the papers do, otherwise marks their profiles (not-fresh)",
        action="store_true",
    )
    option(
        "--hold-thor-clocks",
        "hold GPU and memory clocks of a Thor, too: they are only read otherwise, because reading them was once "
        "reported to hang (docs/jetson.md)",
        action="store_true",
    )
    option(
        "--disturbance",
        "how many cores other processes may use before a profile is flagged disturbed, which export, baseline and "
        f"compare leave out (default: {DISTURBED_CORES:g}); it is recorded with the profile",
        type=float,
        metavar="CORES",
    )
    option(
        "--idle-seconds",
        f"how long benchmarks/test_baseload.py watches each idle state (default: {DEFAULT_IDLE_S:g})",
        type=float,
        metavar="SECONDS",
        default=DEFAULT_IDLE_S,
    )
    option(
        "--socket-meter",
        "FILE.csv, to which a socket meter's logger appends time_s (seconds since 1970) and power_w while cases run: "
        "power at the plug beside the board's own; and STATE=FILE.csv for benchmarks/test_baseload.py: what it "
        "recorded in an idle state that the board cannot tell by itself, such as wol=FILE.csv",
        metavar="LIST",
        default="",
    )
    option(
        "--data-root", "where real data sets lie; those that are not there are written to the storage", metavar="DIR"
    )
    option("--data-scale", "samples of a data set as a share of the real count: 1 is all", type=float, metavar="X")
    option("--interval", "telemetry sampling interval (default: 1)", type=float, metavar="SECONDS")
    option("--seed", "seed of weights, sample order and written data sets (default: 0)", type=int, metavar="N")
    option(
        "--results",
        f"SQLite file that profiles are added to (default: {DEFAULT_RESULTS})",
        metavar="FILE",
        default=str(DEFAULT_RESULTS),
    )
    option(
        "--resume",
        "skip cases whose profile under the same conditions is in --results already; those that were disturbed or "
        "throttled are measured again",
        action="store_true",
    )
    option(
        "--cases",
        "run only the cases that FILE lists, a test's id a line, in its order; --list-cases writes them",
        metavar="FILE",
    )
    option(
        "--list-cases",
        "write the cases that would run to FILE, a JSON object a line: id, key, device, power_mode, mode; best with "
        "--collect-only",
        metavar="FILE",
    )
    option(
        "--baseline",
        "what `jetwatt baseline record` wrote, for the fixture `baseline` to hold profiles against: a slower one "
        "fails, with --strict an inconclusive one too",
        metavar="FILE",
    )
    option(
        "--slowdown",
        "make every minibatch of a simulated board so much slower, to see a gate fail: 5 or 5%%. The profiles are "
        "flagged `injected`, and say so in place of a version of torch; `--by torch` compares them with others",
        metavar="PERCENT",
    )
    option(
        "--config", f"places of storage media and data sets (default: {FILE_NAME})", metavar="FILE", default=FILE_NAME
    )


def campaign_from(config: pytest.Config) -> Campaign:
    axes: Dict[str, Tuple[Any, ...]] = {}
    for axis in _AXIS_HELP:
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
    options = {"interval_s": "interval", "limit_s": "case_limit", "max_temperature_c": "max_temperature"}
    options.update(disturbance_cores="disturbance", power_limit_w="power_limit")
    options.update({name: name for name in ("minibatches", "epochs", "cache", "data_scale", "seed", "clocks")})
    given_settings = {name: config.getoption(f"jetwatt_{option}") for name, option in options.items()}
    settings = {name: value for name, value in given_settings.items() if value is not None}
    if config.getoption("jetwatt_no_temperature_limit"):
        if "max_temperature_c" in settings:
            raise InvalidValueError("--max-temperature and --no-temperature-limit were both given", "give one of them")
        settings["max_temperature_c"] = NO_LIMIT_C
    if "minibatches" in settings and "epochs" in settings:
        raise InvalidValueError("--minibatches and --epochs were both given", "give one of the two")
    return load_campaign(config.getoption("jetwatt_campaign") or DEFAULT_CAMPAIGN).override(axes, settings)


def asks_for_strictness(config: pytest.Config) -> bool:
    """Whether `--strict` was given: an option of pytest itself, which has kept it in several places."""
    try:
        return bool(config.getoption("strict", None)) or bool(config.getini("strict"))
    except (KeyError, ValueError):
        return False


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
    """When no further case may begin; None for never. A time of day is the next one that comes."""
    given: str = config.getoption("jetwatt_deadline")
    if not given:
        return None
    now = datetime.datetime.now()
    try:
        if "T" in given:
            return datetime.datetime.fromisoformat(given)
        at = datetime.datetime.combine(now.date(), datetime.time.fromisoformat(given))
    except ValueError as error:
        raise InvalidValueError(f"--deadline {given!r} is no time", "HH:MM, or YYYY-MM-DDTHH:MM") from error
    return at if at > now else at + datetime.timedelta(days=1)


def device_root_from(config: pytest.Config) -> Path:
    """Where boards are looked for: this machine, or the tree of `--device-root`."""
    given: Optional[str] = config.getoption("jetwatt_device_root")
    if given is None:
        return Path("/")
    from harness.devices.board_record import root_of
    from harness.devices.registry import local_board

    root = root_of(Path(given).expanduser())
    if local_board(Configuration(), root) is None:
        raise InvalidValueError(
            f"--device-root {given} holds no Jetson board and no other machine",
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
            f"--cases {given} cannot be read: {error}", "name a file with a test id a line"
        ) from error


def configuration_from(config: pytest.Config) -> Configuration:
    path: Optional[str] = config.getoption("jetwatt_config")
    if path not in (None, FILE_NAME) and not Path(path).is_file():
        raise InvalidValueError(f"--config {path} is not there", f"name a file, or leave it out for {FILE_NAME}")
    given: List[str] = (config.getoption("jetwatt_storage") or "").split(",")
    places = dict(value.strip().split("=", 1) for value in given if "=" in value)
    data_root, holds_thor = (config.getoption(f"jetwatt_{name}") for name in ("data_root", "hold_thor_clocks"))
    return load_configuration(Path(path or FILE_NAME), places, data_root, holds_thor)

"""What the jtop service of jetson-stats reports, beside the board's own sensors: every channel starts with `jtop_`.

The service samples at an interval of its own that all its clients share, and may die or hang under load. So a thread
keeps the client, and a reading takes what that thread has, or reports what is wrong:

    service   --s1--------s2--------s3---x            x died
    thread    ---s1--------s2--------s3---x..connect..x..connect..
    reading   -|--s1--|--s2--|--  --|--s3--|-- x --|    each sample once; between two of them nothing

jetson-stats is AGPL-3.0: it is imported here, when the source is opened, and nowhere else.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import threading
import time
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from harness.board.power_rails import TOTAL, rail_channel
from harness.board.source import MOST_BOARD_MW, Reading, plain_name, possible_mw
from harness.board.thermal import SENSOR_OFF_C
from harness.core.errors import SourceUnavailableError
from harness.core.units import kib_to_bytes, mhz_to_khz, percent_to_share

PREFIX = "jtop_"
JTOP_TOTAL = PREFIX + TOTAL

ANSWER_S = 5.0  # how long the service may take for its first sample
STALE_INTERVALS = 3  # a sample that is older than as many of the service's intervals is not its present state any more


class Sample(NamedTuple):
    uptime_s: float  # when, in seconds since the boot, by the service's clock
    interval_s: float  # the service's
    values: Dict[str, float]
    failed: Dict[str, str]  # channel to why it has no value


Fields = Dict[str, Callable[[], Optional[float]]]  # channel to what reads it; None where it has no value now


def sample_of(client: Any) -> Sample:
    """The present sample of a started `jtop.jtop`, without what is offline, and `avg`, a mean of two samples.

    A field that jtop lacks, or that raises, costs its own channel.
    """
    values: Dict[str, float] = {}
    failed: Dict[str, str] = {}

    def attempt(channel: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:
            failed[PREFIX + channel] = f"jtop does not report it: {type(error).__name__}: {error}"
            return None

    for part, fields_of in _PARTS.items():
        fields = attempt(part, lambda: fields_of(getattr(client, part))) or {}  # noqa: B023 (called at once)
        for channel, read in fields.items():
            value = attempt(channel, functools.partial(_number, read))
            if value is not None:
                values[PREFIX + channel] = value
    if JTOP_TOTAL not in values and JTOP_TOTAL not in failed:
        has_rails = any(channel.startswith(f"{PREFIX}power_") for channel in values)
        why = "jtop reports 0 mW, and a running board draws more" if has_rails else "jtop has no power sensor"
        failed[JTOP_TOTAL] = failed.get(f"{PREFIX}power", why)
    return Sample(client.uptime.total_seconds(), float(client.interval), values, failed)


def _number(read: Callable[[], Any]) -> Optional[float]:
    value = read()
    return None if value is None else float(value)


def _cpu_fields(cpu: Mapping[str, Any]) -> Fields:
    fields: Fields = {}
    for number, core in enumerate(cpu.get("cpu", [])):
        fields[f"cpu{number}_khz"] = functools.partial(_core_khz, core)
        fields[f"cpu{number}_load_share"] = functools.partial(_core_load_share, core)
    return fields


def _core_khz(core: Mapping[str, Any]) -> Optional[float]:
    return _at(core, "freq", "cur") if core.get("online") else None


def _core_load_share(core: Mapping[str, Any]) -> Optional[float]:
    return 1.0 - percent_to_share(core["idle"]) if core.get("online") and "idle" in core else None


def _gpu_fields(gpus: Mapping[str, Any]) -> Fields:
    fields: Fields = {}
    media_last = sorted(gpus.items(), key=lambda item: "nvd" in item[0].lower())  # the GPU's clock is that of the GPCs
    for number, (_, gpu) in enumerate(media_last):
        name = f"gpu{number or ''}"
        fields[f"{name}_khz"] = functools.partial(_gpu_khz, gpu)
        fields[f"{name}_load_share"] = functools.partial(_gpu_load_share, gpu)
    return fields


def _gpu_khz(gpu: Mapping[str, Any]) -> Optional[float]:
    clock = _at(gpu, "freq", "cur")
    if gpu.get("power_control") == "nvml":  # JetPack 7: MHz, and 0 for what NVML does not support (all on Orin)
        return mhz_to_khz(clock) if clock else None
    return clock


def _gpu_load_share(gpu: Mapping[str, Any]) -> Optional[float]:
    load = _at(gpu, "status", "load")
    is_supported = gpu.get("power_control") != "nvml" or load or _at(gpu, "freq", "cur")
    return percent_to_share(load) if load is not None and is_supported else None


def _memory_fields(memory: Mapping[str, Any]) -> Fields:
    return {
        "memory_used_bytes": functools.partial(_used_bytes, memory, "RAM"),
        "swap_used_bytes": functools.partial(_used_bytes, memory, "SWAP"),
        "emc_khz": functools.partial(_at, memory, "EMC", "cur"),
        "emc_load_share": functools.partial(_emc_load_share, memory),
    }


def _used_bytes(memory: Mapping[str, Any], name: str) -> Optional[float]:
    return kib_to_bytes(memory[name]["used"]) if name in memory else None


def _emc_load_share(memory: Mapping[str, Any]) -> Optional[float]:
    load = _at(memory, "EMC", "val")
    return None if load is None else percent_to_share(load)


def _temperature_fields(sensors: Mapping[str, Any]) -> Fields:
    return {
        f"temperature_{plain_name(name)}_c": functools.partial(_celsius, sensor) for name, sensor in sensors.items()
    }


def _celsius(sensor: Mapping[str, Any]) -> Optional[float]:
    return sensor["temp"] if sensor.get("online", True) and sensor["temp"] != SENSOR_OFF_C else None


def _power_fields(power: Mapping[str, Any]) -> Fields:
    """Rails and jtop's own total; without a sensor jtop reports a total of 0."""
    fields: Fields = {
        rail_channel(label): functools.partial(_rail_mw, rail) for label, rail in power.get("rail", {}).items()
    }
    total = power.get("tot") or {}
    if total.get("name"):
        fields[rail_channel(total["name"])] = functools.partial(total.__getitem__, "power")
    fields[TOTAL] = functools.partial(_total_mw, total)
    return fields


def _rail_mw(rail: Mapping[str, Any]) -> Optional[float]:
    return rail["power"] if rail.get("online", True) else None


def _total_mw(total: Mapping[str, Any]) -> Optional[float]:
    """None where jtop has no total, or one of 0."""
    total_mw = float(total.get("power", 0))
    return total_mw if total_mw > 0 else None


def _at(part: Mapping[str, Any], group: str, name: str) -> Optional[float]:
    return part.get(group, {}).get(name)


_PARTS: Dict[str, Callable[[Mapping[str, Any]], Fields]] = {
    "cpu": _cpu_fields,
    "gpu": _gpu_fields,
    "memory": _memory_fields,
    "temperature": _temperature_fields,
    "power": _power_fields,
}
"""Of each part that a client reports, its channels. A part that cannot be read at all fails by its name, `jtop_gpu`."""

_RESTART = "`sudo systemctl restart jtop`"

_TROUBLES = {
    "not active": (
        "the jtop service does not run",
        "`sudo systemctl start jtop`, or without it `sudo jtop --install-service`; a container needs the host's "
        "/run/jtop.sock",
    ),
    "can't access": ("this user may not speak to the jtop service", "`sudo usermod -aG jtop $USER`, then log in again"),
    "mismatch of python": (
        "the jtop service runs on a Python that does not understand this one's",
        "install jetson-stats for both with one Python",
    ),
    "authentication": ("the jtop service refuses this client", "install service and client of one version"),
    "lost connection": ("the connection to the jtop service was lost", "see `journalctl -u jtop`"),
    "error connection": ("the jtop service sends nothing", _RESTART),
}
"""By words in the text of a `JtopException`, its only distinguishing mark: what is wrong, and a hint."""

_NO_SAMPLE = ("the jtop service has given no sample yet", _RESTART)


def explain(error: Exception) -> Tuple[str, str]:
    if isinstance(error, SourceUnavailableError):
        return error.what, error.hint
    text = " ".join(str(error).split())
    versions = re.search(r"service: \[([^\]]*)\] and client: \[([^\]]*)\]", text)
    if versions:
        return (
            f"the jtop service is of version {versions[1]} and its client here of {versions[2]}",
            f"install the service's: `{sys.executable} -m pip install jetson-stats=={versions[1]}`",
        )
    for words, trouble in _TROUBLES.items():
        if words in text.lower():
            return trouble
    return f"jtop failed: {type(error).__name__}: {text}", _RESTART


class JtopSource:
    """The service's newest sample, given once; `connect` makes a client that is not started yet."""

    def __init__(
        self,
        connect: Callable[[], Any],
        answer_s: float = ANSWER_S,
        retry_s: float = 5.0,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        most_mw: float = MOST_BOARD_MW,
    ) -> None:
        self._most_mw = most_mw
        self._connect, self._answer_s, self._retry_s, self._boot_clock = connect, answer_s, retry_s, boot_clock
        self._newest: Optional[Sample] = None
        self._trouble: Optional[Tuple[str, str]] = None
        self._given_uptime_s: Optional[float] = None
        self._rails: Dict[str, None] = {}
        self._heard = threading.Event()
        self._stopped = threading.Event()
        self.notes = {
            "jtop": "samples of the jtop service, each at the first reading after it; jtop_age_s is its age then",
            JTOP_TOTAL: "jtop's own definition: the input rail where it knows one, else the sum of all its rails; on "
            "AGX Orin that is reported to count VDDQ_VDD2_1V8AO twice",
        }
        self._start_thread()

    def wait(self) -> None:
        if not self._heard.wait(self._answer_s):
            raise SourceUnavailableError(f"the jtop service gave no sample for {self._answer_s:g} s", _RESTART)
        if self._newest is None:
            raise SourceUnavailableError(*(self._trouble or _NO_SAMPLE))

    def read(self, now_s: float) -> Reading:
        sample, trouble = self._newest, self._trouble
        if trouble is not None:
            raise SourceUnavailableError(*trouble)
        if sample is None:
            raise SourceUnavailableError(*_NO_SAMPLE)
        age_s = self._boot_clock() - sample.uptime_s
        if age_s > STALE_INTERVALS * sample.interval_s:
            what = f"the last sample of the jtop service is {age_s:.1f} s old, its interval is {sample.interval_s:g} s"
            raise SourceUnavailableError(what, _RESTART)
        if sample.uptime_s == self._given_uptime_s:
            return Reading({}, {})
        self._given_uptime_s = sample.uptime_s
        values, failed = {**sample.values, PREFIX + "age_s": age_s}, dict(sample.failed)
        for channel in [name for name in values if name.startswith(PREFIX + "power_")]:
            try:
                possible_mw(values[channel], self._most_mw)
            except ValueError as error:
                failed[channel] = str(error)
                failed.setdefault(JTOP_TOTAL, f"its part {channel} gave no value: {error}")
        # jtop leaves out a rail that gives no value, and sums up the rest to a wrong total.
        self._rails.update((channel, None) for channel in values if channel.startswith(PREFIX + "power_"))
        lost = [channel for channel in self._rails if channel not in values and channel != JTOP_TOTAL]
        if lost:
            failed.update(dict.fromkeys(lost, "jtop has lost this rail"))
            failed[JTOP_TOTAL] = f"its part {', '.join(lost)} is lost"
        return Reading({channel: value for channel, value in values.items() if channel not in failed}, failed)

    def close(self) -> None:
        self._stopped.set()

    def _start_thread(self) -> None:
        threading.Thread(target=self._listen, name="jtop", daemon=True).start()

    def _listen(self) -> None:
        # Whatever the client raises is the reason why there are no samples, and is said at every reading.
        try:
            client = self._connect()
            client.attach(self._take)
            client.start()
            try:
                while not self._stopped.is_set():
                    if not client.ok():
                        raise SourceUnavailableError("the jtop service has stopped sending", _RESTART)
            finally:
                client.close()
        except Exception as error:
            self._trouble = explain(error)
        self._heard.set()
        if not self._stopped.wait(self._retry_s):
            # multiprocessing keeps a connection per thread, the broken one too: only a new thread gets a new one.
            self._start_thread()

    def _take(self, client: Any) -> None:
        self._newest = sample_of(client)
        self._trouble = None
        self._heard.set()


def open_source(
    root: str, interval_s: float = 1.0, answer_s: float = ANSWER_S, most_mw: float = MOST_BOARD_MW
) -> JtopSource:
    """Connect to the jtop service of this machine, which has one socket, whatever `root` is."""
    # The service takes the interval only where it has no other client, and is unstable below 0.5 s.
    try:
        module = importlib.import_module("jtop")
    except ImportError as error:
        raise SourceUnavailableError(
            f"jetson-stats cannot be imported: {error}",
            f"`{sys.executable} -m pip install jetson-stats`, in the version of the board's service (on JetPack 7 in a "
            "virtual environment only: docs/install.md); the board's own sensors do without",
        ) from error
    # The client runs half a dozen programs at its start, to look up CUDA, OpenCV and installed packages: not needed
    # here, and they would run beside what is measured.
    client = type("Client", (module.jtop,), {"_load_jetson_libraries": lambda self: None})
    source = JtopSource(lambda: client(interval=interval_s), answer_s, most_mw=most_mw)
    try:
        source.wait()
    except SourceUnavailableError:
        source.close()
        raise
    return source

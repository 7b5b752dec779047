"""The jtop source: samples are given once and in time, and a service that fails in any way never stops the sampler."""

from __future__ import annotations

import datetime
import sys
import threading
import time
import types

import pytest

from harness.board import jtop
from harness.board.jtop import JTOP_TOTAL, JtopSource, sample_of
from harness.core.errors import SourceUnavailableError

INTERVAL_S = 1.0


class JtopException(Exception):  # noqa: N818 - its name in jetson-stats
    """As jetson-stats raises it: the kind is in the text."""


def rail(power_mw, **more):
    return {"online": True, "volt": 5000, "curr": power_mw // 5, "power": power_mw, "avg": 1, **more}


def agx_orin():
    return {
        "cpu": {
            "cpu": [
                {"online": True, "user": 30.0, "system": 5.0, "idle": 65.0, "freq": {"cur": 2201600, "max": 2201600}},
                {"online": False},
            ]
        },
        "gpu": {"ga10b": {"status": {"load": 73.5}, "freq": {"cur": 1300500, "max": 1300500}}},
        "memory": {
            "RAM": {"tot": 2048, "used": 1024},
            "SWAP": {"tot": 0, "used": 10},
            "EMC": {"cur": 3199000, "val": 12},
        },
        "temperature": {"CPU": {"online": True, "temp": 48.5}, "CV0": {"online": False, "temp": -256}},
        "power": {
            "rail": {"VDD_GPU_SOC": rail(3000), "VDD_CPU_CV": rail(1000), "OFF": rail(7, online=False)},
            "tot": {"power": 4000, "avg": 5},
        },
    }


class FakeService:
    """What all clients of one test see; a test changes it while the source listens."""

    def __init__(self):
        self.uptime_s = 1000.0
        self.data = agx_orin()
        self.start_error = None
        self.error = None
        self.hangs = threading.Event()
        self.silent = False
        self.clients = []


class FakeClient:
    """The part of `jtop.jtop` that the source uses."""

    interval = INTERVAL_S

    def __init__(self, service):
        self._service = service
        self._told_s = None
        service.clients.append(self)

    def __getattr__(self, name):
        if name in ("cpu", "gpu", "memory", "temperature", "power"):
            return self._service.data[name]
        raise AttributeError(name)

    @property
    def uptime(self):
        return datetime.timedelta(seconds=self._service.uptime_s)

    def attach(self, observer):
        self._observer = observer

    def start(self):
        if self._service.hangs.is_set():
            threading.Event().wait()
        if self._service.start_error:
            raise self._service.start_error
        self._observer(self)

    def ok(self):
        time.sleep(0.002)
        if self._service.error:
            raise self._service.error
        self._observer(self)
        return not self._service.silent

    def close(self):
        self._service.clients.remove(self)


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def opened(service):
    """A source that hears `service`, whose clock stands where the test puts it."""
    clock = [1000.25]
    source = JtopSource(lambda: FakeClient(service), retry_s=0.01, boot_clock=lambda: clock[0])
    source.clock = clock
    source.wait()
    yield source
    source.close()


def read_until(source, wanted):
    for _ in range(2000):
        try:
            reading = source.read(0.0)
        except SourceUnavailableError as error:
            reading = error
        if wanted(reading):
            return reading
        time.sleep(0.002)
    raise AssertionError("no such reading came")


def is_failure(reading):
    return isinstance(reading, SourceUnavailableError)


def has_values(reading):
    return not is_failure(reading) and bool(reading.values)


def test_every_channel_has_its_prefix_and_the_suites_unit(opened):
    assert opened.read(0.0) == (
        {
            "jtop_cpu0_khz": 2201600,
            "jtop_cpu0_load_share": pytest.approx(0.35),
            "jtop_gpu_khz": 1300500,
            "jtop_gpu_load_share": 0.735,
            "jtop_memory_used_bytes": 2**20,
            "jtop_swap_used_bytes": 10240,
            "jtop_emc_khz": 3199000,
            "jtop_emc_load_share": 0.12,
            "jtop_temperature_cpu_c": 48.5,
            "jtop_power_vdd_gpu_soc_mw": 3000,
            "jtop_power_vdd_cpu_cv_mw": 1000,
            JTOP_TOTAL: 4000,
            "jtop_age_s": 0.25,
        },
        {},
    )
    assert "VDDQ_VDD2_1V8AO twice" in opened.notes[JTOP_TOTAL]


def test_a_sample_is_given_once_and_the_next_one_again(opened, service):
    assert opened.read(0.0).values
    assert opened.read(0.1) == ({}, {})
    service.uptime_s += INTERVAL_S
    opened.clock[0] += INTERVAL_S
    assert read_until(opened, has_values).values["jtop_age_s"] == 0.25


def test_a_service_that_repeats_itself_is_stale_and_not_alive(opened, service):
    assert opened.read(0.0).values
    opened.clock[0] += 3 * INTERVAL_S
    with pytest.raises(SourceUnavailableError, match=r"is 3\.2 s old, its interval is 1 s"):
        opened.read(3.0)
    service.uptime_s = opened.clock[0]
    assert read_until(opened, has_values)


def test_an_input_rail_is_a_rail_too(service):
    service.data["power"] = {"rail": {"VDD_SOC": rail(700)}, "tot": {**rail(5200), "name": "VDD_IN"}}
    values = sample_of(FakeClient(service)).values
    assert values["jtop_power_vdd_in_mw"] == values[JTOP_TOTAL] == 5200


@pytest.mark.parametrize("power", [{}, {"rail": {}, "tot": {"power": 0, "avg": 0}}])
def test_what_the_board_lacks_has_no_channel_and_no_power_sensor_is_no_zero(service, power):
    service.data.update(power=power, cpu={}, gpu={}, memory={}, temperature={})
    sample = sample_of(FakeClient(service))
    assert (sample.values, sample.failed) == ({}, {JTOP_TOTAL: "jtop has no power sensor"})


@pytest.mark.parametrize(
    ("gpu", "khz"),
    [
        ({"freq": {"cur": 1575}, "power_control": "nvml"}, 1_575_000),  # NVML counts in MHz
        ({"freq": {"cur": 0}, "power_control": "nvml"}, None),  # on Orin NVML knows no clock, and jtop says 0
        ({"freq": {"cur": 306_000}, "power_control": "auto"}, 306_000),
    ],
)
def test_a_gpu_that_jtop_sees_through_nvml_is_in_the_suites_unit_too(service, gpu, khz):
    service.data["gpu"] = {"Thor": {"status": {"load": 1.0}, **gpu}}
    service.data["temperature"] = {"CV0": {"temp": -256}, "CPU": {"temp": 40.0}}  # jtop of JetPack 5: no word of off
    values = sample_of(FakeClient(service)).values
    assert values.get("jtop_gpu_khz") == khz
    assert "jtop_temperature_cv0_c" not in values
    assert values["jtop_temperature_cpu_c"] == 40.0


def test_a_total_of_fewer_rails_than_before_is_none(opened, service):
    opened.read(0.0)
    service.data["power"] = {"rail": {"VDD_GPU_SOC": rail(3000)}, "tot": {"power": 3000}}
    service.uptime_s += 1
    values, failed = read_until(opened, has_values)
    assert JTOP_TOTAL not in values
    assert failed == {
        "jtop_power_vdd_cpu_cv_mw": "jtop has lost this rail",
        JTOP_TOTAL: "its part jtop_power_vdd_cpu_cv_mw is lost",
    }


def test_a_service_that_dies_is_recorded_and_heard_again_once_it_is_back(opened, service):
    assert opened.read(0.0).values
    service.start_error = JtopException("The jtop.service is not active. Please run:\nsudo jtop --install-service")
    service.error = JtopException("Lost connection with jtop server")
    read_until(opened, lambda reading: is_failure(reading) and "does not run" in str(reading))
    service.error = service.start_error = None
    service.uptime_s += 1
    assert read_until(opened, has_values)


def test_a_service_that_goes_silent_is_recorded(opened, service):
    opened.read(0.0)
    service.silent = True
    service.hangs.set()
    assert "stopped sending" in str(read_until(opened, is_failure))


def test_a_source_that_has_no_sample_yet_is_a_failure(service):
    waiting = threading.Event()
    source = JtopSource(lambda: waiting.wait(5) and FakeClient(service))
    try:
        with pytest.raises(SourceUnavailableError, match="no sample yet"):
            source.read(0.0)
    finally:
        source.close()
        waiting.set()


def test_a_part_in_another_shape_costs_its_own_channels(opened, service):
    opened.read(0.0)
    service.data["gpu"] = ["ga10b"]
    service.uptime_s += 1
    values, failed = read_until(opened, has_values)
    assert "AttributeError" in failed["jtop_gpu"]
    assert values["jtop_emc_khz"] == 3_199_000


class Raising(dict):
    """A part of the board one of whose fields raises, as jtop's for a GPU that reports no load."""

    def __getitem__(self, name):
        raise KeyError(name)

    get = __getitem__


FIELDS = {
    "cpu0_khz": lambda data: data["cpu"]["cpu"][0].update(freq=Raising()),
    "cpu0_load_share": lambda data: data["cpu"]["cpu"][0].update(idle="N/A"),
    "gpu_khz": lambda data: data["gpu"]["ga10b"].update(freq=Raising()),
    "gpu_load_share": lambda data: data["gpu"]["ga10b"].update(status=Raising()),
    "memory_used_bytes": lambda data: data["memory"].update(RAM={}),
    "swap_used_bytes": lambda data: data["memory"].update(SWAP={"used": None}),
    "emc_load_share": lambda data: data["memory"]["EMC"].update(val="N/A"),
    "temperature_cpu_c": lambda data: data["temperature"]["CPU"].pop("temp"),
    "power_vdd_cpu_cv_mw": lambda data: data["power"]["rail"]["VDD_CPU_CV"].pop("power"),
    "power_vdd_gpu_soc_mw": lambda data: data["power"]["rail"].update(VDD_GPU_SOC=None),
    "power_total_mw": lambda data: data["power"]["tot"].update(power="N/A"),
}


@pytest.mark.parametrize("channel", FIELDS)
def test_a_field_that_raises_costs_its_own_channel(service, channel):
    before = sample_of(FakeClient(service)).values
    FIELDS[channel](service.data)
    sample = sample_of(FakeClient(service))
    assert set(before) - set(sample.values) == {f"jtop_{channel}"} == set(sample.failed)


def test_a_word_in_place_of_a_number_or_nothing_of_a_core_costs_no_other_channel(service):
    service.data["power"]["rail"]["VDD_CPU_CV"]["power"] = "N/A"
    service.data["power"]["tot"]["name"] = None
    service.data["cpu"]["cpu"][1] = None
    sample = sample_of(FakeClient(service))
    assert set(sample.failed) == {"jtop_power_vdd_cpu_cv_mw", "jtop_cpu1_khz", "jtop_cpu1_load_share"}
    assert {"jtop_power_vdd_gpu_soc_mw", JTOP_TOTAL, "jtop_cpu0_khz"} <= set(sample.values)


def test_the_gpus_clock_is_not_that_of_thors_media_engines(service):
    clocks = {"gpu-nvd-0": 1_692_000, "gpu-gpc-0": 1_575_000}
    service.data["gpu"] = {name: {"status": {"load": 1.0}, "freq": {"cur": khz}} for name, khz in clocks.items()}
    values = sample_of(FakeClient(service)).values
    assert (values["jtop_gpu_khz"], values["jtop_gpu1_khz"]) == (1_575_000, 1_692_000)


@pytest.mark.parametrize("part", ["cpu", "gpu", "memory", "temperature", "power"])
def test_a_part_that_raises_costs_its_own_channels(service, part):
    del service.data[part]
    sample = sample_of(FakeClient(service))
    assert f"jtop_{part}" in sample.failed
    assert sample.values


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            "The jtop.service is not active. Please run:\nsudo jtop --install-service",
            "does not run",
            "systemctl start jtop",
        ),
        ("I can't access jtop.service.\nPlease logout or reboot this board.", "this user may not", "usermod -aG jtop"),
        ("Mismatch of Python versions between library and service", "runs on a Python", "one Python"),
        ("Authentication with jetson-stats server failed", "refuses this client", "one version"),
        (
            "Mismatch version jtop service: [4.2.1] and client: [7.2.2]. Please run:\n\nsudo jtop --install-service",
            "version 4.2.1 and its client here of 7.2.2",
            "pip install jetson-stats==4.2.1",
        ),
        ("something new", "jtop failed: JtopException: something new", "restart jtop"),
    ],
)
def test_every_kind_of_refusal_says_the_way_out(monkeypatch, service, text, what, hint):
    service.start_error = JtopException(text)
    install(monkeypatch, service)
    with pytest.raises(SourceUnavailableError) as caught:
        jtop.open_source("/")
    assert what in caught.value.what
    assert hint in caught.value.hint


def install(monkeypatch, service):
    """Put a package `jtop` there whose clients hear `service`."""

    class Client(FakeClient):
        def __init__(self, interval):
            super().__init__(service)
            self.asked_interval_s = interval
            self._load_jetson_libraries()

        def _load_jetson_libraries(self):
            raise AssertionError("this looks up what is installed, beside what is measured")

    monkeypatch.setitem(sys.modules, "jtop", types.SimpleNamespace(jtop=Client))


def test_the_service_is_asked_for_the_interval(monkeypatch, service):
    install(monkeypatch, service)
    service.uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    source = jtop.open_source("/", interval_s=0.5)
    assert service.clients[0].asked_interval_s == 0.5
    assert source.read(0.0).values[JTOP_TOTAL] == 4000
    source.close()


def test_a_service_that_hangs_costs_the_given_time_and_no_more(monkeypatch, service):
    install(monkeypatch, service)
    service.hangs.set()
    with pytest.raises(SourceUnavailableError, match=r"gave no sample for 0\.05 s"):
        jtop.open_source("/", answer_s=0.05)


def test_without_the_package_the_way_out_is_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jtop", None)
    with pytest.raises(SourceUnavailableError, match="pip install jetson-stats"):
        jtop.open_source("/")

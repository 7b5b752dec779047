"""What an emulated board draws: a simple sum of four domains, spread over the board's rails.

    cpu = 0.30 * peak * cores online / cores * (clock / greatest)^2 * (0.1 + 0.9 * load)
    gpu = 0.40 * peak * TPCs on / TPCs       * (clock / greatest)^2 * (0.1 + 0.9 * load)
    mem = 0.15 * peak * (clock / greatest)                          * (0.2 + 0.8 * load)
    soc = 0.09 * peak

It rises with every clock, core, TPC and load, and stays below the module's peak power; more is not claimed.
"""

from __future__ import annotations

from typing import Dict, NamedTuple


class Load(NamedTuple):
    """How busy each domain is, 0 to 1."""

    cpu: float = 0.0
    gpu: float = 0.0
    mem: float = 0.0


class Ratios(NamedTuple):
    """What part of each domain runs: cores online, TPCs on, and each clock, as a share of the greatest."""

    cores: float
    tpcs: float
    cpu_clock: float
    gpu_clock: float
    mem_clock: float


def domain_power_mw(peak_mw: float, ratios: Ratios, load: Load) -> Dict[str, float]:
    """Power of each domain in mW."""
    return {
        "cpu": 0.30 * peak_mw * ratios.cores * ratios.cpu_clock**2 * (0.1 + 0.9 * load.cpu),
        "gpu": 0.40 * peak_mw * ratios.tpcs * ratios.gpu_clock**2 * (0.1 + 0.9 * load.gpu),
        "mem": 0.15 * peak_mw * ratios.mem_clock * (0.2 + 0.8 * load.mem),
        "soc": 0.09 * peak_mw,
    }


_ALL = {"cpu": 1.0, "gpu": 1.0, "mem": 1.0, "soc": 1.0}
_CARRIER = 1.15  # Thor's VIN feeds the carrier board too

RAILS: Dict[str, Dict[str, float]] = {
    # AGX Orin; the last lies inside VIN_SYS_5V0, so that a sum of all counts it twice
    "VDD_GPU_SOC": {"gpu": 1.0, "soc": 0.5},
    "VDD_CPU_CV": {"cpu": 1.0},
    "VIN_SYS_5V0": {"mem": 1.0, "soc": 0.5},
    "VDDQ_VDD2_1V8AO": {"mem": 1.0},
    # AGX Xavier
    "GPU": {"gpu": 1.0},
    "CPU": {"cpu": 1.0},
    "SOC": {"soc": 0.5},
    "CV": {},
    "VDDRQ": {"mem": 1.0},
    "SYS5V": {"soc": 0.5},
    # Orin NX and Nano, Xavier NX, TX2
    "VDD_IN": _ALL,
    "VDD_CPU_GPU_CV": {"cpu": 1.0, "gpu": 1.0},
    "VDD_SOC": {"soc": 1.0},
    "VDD_SYS_GPU": {"gpu": 1.0},
    "VDD_SYS_CPU": {"cpu": 1.0},
    "VDD_SYS_SOC": {"soc": 1.0},
    "VDD_SYS_DDR": {"mem": 1.0},
    "VDD_4V0_WIFI": {},
    # Nano
    "POM_5V_IN": _ALL,
    "POM_5V_GPU": {"gpu": 1.0},
    "POM_5V_CPU": {"cpu": 1.0},
    # Thor
    "VDD_GPU": {"gpu": 1.0},
    "VDD_CPU_SOC_MSS": {"cpu": 1.0, "soc": 0.5},
    "VIN": dict.fromkeys(_ALL, _CARRIER),
}
"""Rail to the share of each domain that it feeds."""

RAIL_MV = {"VIN": 20_000, "CPU": 900, "GPU": 900, "VDDQ_VDD2_1V8AO": 1_800, "VDDRQ": 1_100}
"""Voltage of a rail where it is not 5 V."""


def rail_power_mw(label: str, domains: Dict[str, float]) -> float:
    """Power of a rail in mW; 0 of a channel that is not connected."""
    return sum(share * domains[domain] for domain, share in RAILS.get(label, {}).items())

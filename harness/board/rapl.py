"""Power of the CPU packages and of DRAM, from the energy counters of RAPL (`/sys/class/powercap`).

    intel-rapl:0        package-0     counts in the total
      intel-rapl:0:0    core          lies inside its package
      intel-rapl:0:1    dram          counts in the total: listed below its package, metered apart from it
    intel-rapl:1        psys          the whole platform as its maker defines it: kept apart
    intel-rapl-mmio:0   package-0     the same counter through another interface: left out where `intel-rapl` has it

A package's counter is that of the processor die, memory has a counter of its own (Intel SDM vol. 3, RAPL domains).
AMD's packages appear under the same names.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
from typing import Dict, List, NamedTuple, Optional, Tuple

from harness.board.kernel_file import KeptFile, may_read, numbered, read_int, read_text
from harness.board.power_rails import TOTAL
from harness.board.source import Counters, Reading, Source, add_sum, free_channel, plain_name, possible_mw, read_each
from harness.core.errors import SourceUnavailableError
from harness.core.units import mw_to_w, uj_per_s_to_mw, uw_to_mw

MOST_DOMAIN_MW = 1_000_000.0
"""Twice what the largest sockets of 2025 draw (500 W): the bound of a domain whose limits the kernel does not list."""

PEAK = 2.0  # how far a short mean may lie above the limits, which hold for windows of milliseconds to seconds


class Domain(NamedTuple):
    name: str  # as the kernel calls it, below its parents: `package-0 core`
    counter: str  # its file, in microjoule
    range_uj: Optional[int]  # the counter's greatest value, after which it restarts at 0; None if the kernel has none
    most_mw: float = MOST_DOMAIN_MW  # more is not believed

    @property
    def kind(self) -> str:
        return self.name.split()[-1].partition("-")[0]

    @property
    def in_total(self) -> bool:
        """Whether the total adds it: packages and DRAM, which no other counter includes."""
        return self.kind in ("package", "dram")


def energy_growth_uj(growth_uj: float, range_uj: Optional[int]) -> float:
    """The energy between two readings of a counter that wraps; ValueError if its range does not explain a fall."""
    if growth_uj >= 0:
        return growth_uj
    if range_uj is None or growth_uj + range_uj < 0:
        raise ValueError(f"the energy counter fell by {-growth_uj:.0f} uJ and its range is {range_uj} uJ")
    return growth_uj + range_uj


def mean_mw(domain: Domain, grown_uj: float, window_s: float) -> float:
    """The mean power between two readings of a domain's counter.

    ValueError if the counter stands still, was reset, or may have wrapped more often than shows in so long a time.
    """
    if grown_uj == 0 and domain.kind in ("package", "dram", "psys"):  # an idle uncore may stand still
        raise ValueError(f"the energy counter of {domain.name} stands still")
    energy_uj = energy_growth_uj(grown_uj, domain.range_uj)
    power_mw = uj_per_s_to_mw(energy_uj, window_s)
    if power_mw > domain.most_mw and grown_uj < 0:
        what = f"the energy counter of {domain.name} was reset: it fell by {-grown_uj:.0f} uJ in {window_s:.3g} s"
        raise ValueError(f"{what}, and a wrap would be {mw_to_w(power_mw):.4g} W")
    possible_mw(power_mw, domain.most_mw)
    if domain.range_uj and uj_per_s_to_mw(energy_uj + domain.range_uj, window_s) <= domain.most_mw:
        what = f"{window_s:.0f} s between two readings are too long for the energy counter of {domain.name}"
        raise ValueError(f"{what}, which may have wrapped more than once")
    return power_mw


def _most_mw(directory: str, name: str) -> float:
    """The bound of a domain: of a package twice the greatest of its limits; firmware that sets none shows 4 kW."""
    if " " in name or not name.startswith("package"):
        return MOST_DOMAIN_MW
    limits_mw = []
    for path in glob.glob(os.path.join(glob.escape(directory), "constraint_*_uw")):
        if path.endswith(("_max_power_uw", "_power_limit_uw")):
            with contextlib.suppress(OSError, ValueError):
                limits_mw.append(uw_to_mw(read_int(path)))
    return min(PEAK * max(limits_mw, default=0.0) or MOST_DOMAIN_MW, MOST_DOMAIN_MW)


def find_domains(root: str) -> List[Domain]:
    """Every RAPL zone below `root` that has a name, each counter once, parents first."""
    return _find_domains(root)[0]


def _find_domains(root: str) -> Tuple[List[Domain], Dict[str, str]]:
    """As `find_domains`; and of each zone without a name the channel, named for its place, and why."""
    powercap = os.path.join(root, "sys/class/powercap")
    zones = numbered(os.path.join(powercap, "intel-rapl:*")) or numbered(os.path.join(powercap, "intel-rapl-mmio:*"))
    names: Dict[str, str] = {}
    domains: List[Domain] = []
    nameless: Dict[str, str] = {}
    for directory in zones:
        zone = os.path.basename(directory)
        above = names.get(zone.rpartition(":")[0])
        name_file = os.path.join(directory, "name")
        try:
            own_name = read_text(name_file)
            if not own_name:
                raise ValueError(f"{name_file} is empty")
        except (OSError, ValueError) as error:
            nameless[f"power_{plain_name(zone)}_mw"] = f"its name cannot be read: {error}"
            continue
        names[zone] = " ".join(filter(None, [above, own_name]))
        counter = os.path.join(directory, "energy_uj")
        domains.append(Domain(names[zone], counter, _range_uj(directory), _most_mw(directory, names[zone])))
    return domains, nameless


def _range_uj(directory: str) -> Optional[int]:
    """The counter's greatest value; None if the kernel does not show it, so that a counter that fell has no power."""
    try:
        return read_int(os.path.join(directory, "max_energy_range_uj"))
    except (OSError, ValueError):
        return None


def open_source(root: str) -> Source:
    """Mean power of each RAPL domain below `root` since the previous reading, and their total."""
    domains, nameless = _find_domains(root)
    if not nameless and not any(domain.in_total for domain in domains):
        raise SourceUnavailableError(
            f"there is no RAPL package in {os.path.join(root, 'sys/class/powercap')}",
            "with a CPU of Intel or AMD try `sudo modprobe intel_rapl_msr`; most virtual machines have none",
        )
    forbidden = [domain.counter for domain in domains if not may_read(domain.counter)]
    if any(domain.counter in forbidden for domain in domains if domain.in_total):  # any other costs its channel alone
        raise SourceUnavailableError(
            f"the energy counter {forbidden[0]} may not be read by this user",
            f"until the next boot: `sudo chmod a+r {' '.join(map(shlex.quote, forbidden))}`",
        )
    by_channel: Dict[str, Domain] = {}
    for domain in domains:
        by_channel[free_channel("power_{}_mw", domain.name, by_channel)] = domain
    counters = Counters()
    names = [domain.name for domain in domains if domain.in_total]
    twice = next((name for name in names if names.count(name) > 1), "")
    readers = {channel: KeptFile(domain.counter).read_int for channel, domain in by_channel.items()}

    def read(now_s: float) -> Reading:
        energies, failed = read_each(readers)
        failed.update(nameless)
        if nameless:  # it may be a package or DRAM: a total without it could be one of fewer
            failed[TOTAL] = "; ".join(f"{channel}: {why}" for channel, why in nameless.items())
        growth = counters.growth(now_s, energies)
        if growth is None:
            return Reading({}, failed)
        window_s, growth_uj = growth
        reading = Reading({}, failed)
        for channel, grown_uj in growth_uj.items():
            try:
                reading.values[channel] = mean_mw(by_channel[channel], grown_uj, window_s)
            except ValueError as error:
                failed[channel] = str(error)
        if twice:
            failed[TOTAL] = f"two domains are named {twice}: whether one counts the other too is unknown"
        elif not nameless:
            add_sum(reading, TOTAL, [channel for channel, domain in by_channel.items() if domain.in_total])
        return reading

    counted, apart = ([domain.name for domain in domains if domain.in_total is added] for added in (True, False))
    notes = {
        "rapl": "mean power since the sample before, from energy counters",
        TOTAL: f"sum of the RAPL domains {', '.join(counted)}; not added: {', '.join(apart) or 'none'}. "
        "A discrete GPU, disks, fans and power-supply losses are not in it",
    }
    return Source(notes, read)

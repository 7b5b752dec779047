"""What a telemetry source is: one module that opens a set of sensors and reads them when asked.

A source is a module of this package with a function `open_source(root, **options) -> Source`; to add a source is to add
such a module. Sources live in the sampler's process, so they import nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict, NamedTuple, Protocol

MIN_WINDOW_S = 0.02
"""The shortest time over which a counter is turned into a rate: two ticks of the kernel's 100-Hz CPU accounting, some
20 updates of a RAPL counter. A rate over less would be noise."""


SOURCE_MODULES = {"cpu": "cpu_load", "cpufreq": "cpufreq_sensor", "devfreq": "devfreq_sensor"}
"""Where the module of a source has another name than the source."""


class SourceSpec(NamedTuple):
    """Names a source and its options as plain values, so that it can be handed to another process.

    Attributes:
        module: the module's name in this package (`rapl`); also the source's name in the record.
        options: keyword arguments of its `open_source`, of types that JSON knows.
        root: below which it looks for `/sys` and `/proc`; empty for where the other sources look.
    """

    module: str
    options: Dict[str, Any] = {}  # noqa: RUF012 - never changed; NamedTuple has no factory
    root: str = ""


class Reading(NamedTuple):
    """What a source saw at one moment.

    Attributes:
        values: channel to value. The unit is the last part of the channel's name: `_mw`, `_khz`, `_bytes`, `_c`,
            `_cores`, `_per_s`, `_share`.
        failed: channel to why it gave no value now, for channels that should have given one.
    """

    values: Dict[str, float]
    failed: Dict[str, str]


class Source(Protocol):
    """Sensors that are read together.

    Attributes:
        notes: channel (or the source's own name) to what its values mean.
    """

    notes: Dict[str, str]

    def read(self, now_s: float) -> Reading:
        """Read every channel once.

        Rates and power out of counters are means since the reading before: a first reading gives none.

        Args:
            now_s: `time.monotonic()` of this reading.

        Raises:
            OSError, ValueError, SourceUnavailableError: nothing could be read now; a later reading may succeed.
        """


def open_source(spec: SourceSpec, root: str) -> Source:
    """Open the source that `spec` names.

    Args:
        spec: the source and its options.
        root: the directory below which `/sys` and `/proc` are looked for, where the source has none of its own.

    Raises:
        SourceUnavailableError: it is not on this machine, or may not be read; says which, and the way out.
        ImportError: there is no such module, or it needs one that is not installed.
    """
    module = importlib.import_module(f"harness.board.{SOURCE_MODULES.get(spec.module, spec.module)}")
    return module.open_source(spec.root or root, **spec.options)

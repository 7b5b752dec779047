"""Whether a telemetry source can be read here, in the words of `harness doctor`."""

from __future__ import annotations

from harness.board.source import SourceSpec, open_source
from harness.core.device import Capability
from harness.core.errors import HarnessError
from harness.core.metrics import POWER_CHANNEL

_TOPICS = {
    "cpu": "measure CPU use, own and others'",
    "memory": "measure memory",
    "thermal": "measure temperatures",
    "cpufreq": "measure CPU clocks",
    "rapl": "measure power",
    "ina": "measure power",
    "devfreq": "measure GPU and memory clocks",
    "throttle": "notice throttling",
    "diskstats": "measure block I/O",
    "jtop": "read jtop beside it",
}


def source_capability(spec: SourceSpec, root: str) -> Capability:
    """Open a source and say what it gives, or why it gives nothing and what it would take."""
    topic = _TOPICS[spec.name]
    try:
        source = open_source(spec, root)
    except HarnessError as error:
        return Capability(topic, False, error.what, error.hint)
    except (OSError, ImportError) as error:
        return Capability(topic, False, str(error))
    return Capability(topic, True, source.notes.get(POWER_CHANNEL, f"{spec.name}: {', '.join(source.notes)}"))

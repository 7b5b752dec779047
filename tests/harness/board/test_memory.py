"""Memory of the machine: in bytes, and what the kernel does not show is missing."""

from __future__ import annotations

from harness.board import memory

KIB = 1024
MEMINFO = """\
MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    600 kB
Buffers:          50 kB
Cached:          500 kB
SwapTotal:       200 kB
SwapFree:        150 kB
Shmem:            30 kB
HugePages_Total:   0"""


def test_memory_is_in_bytes(tree):
    tree.write({"proc/meminfo": MEMINFO})
    assert memory.open_source(tree.root).read(0.0).values == {
        "memory_used_bytes": 400 * KIB,
        "memory_available_bytes": 600 * KIB,
        "page_cache_bytes": 520 * KIB,
        "swap_used_bytes": 50 * KIB,
    }


def test_a_field_that_the_kernel_lacks_costs_its_channels_only(tree):
    tree.write({"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB"})
    values, failed = memory.open_source(tree.root).read(0.0)
    assert set(values) == {"memory_used_bytes", "memory_available_bytes"}
    assert failed["swap_used_bytes"].endswith("has no SwapTotal, SwapFree")

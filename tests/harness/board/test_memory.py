"""Memory of the machine: in bytes, and what the kernel does not show is missing."""

from __future__ import annotations

import os
import subprocess
import sys

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


def process(pid, parent, pss_kib, file="smaps_rollup"):
    stat = f"{pid} (python) S {parent} " + " ".join(["0"] * 20)
    return {f"proc/{pid}/stat": stat, f"proc/{pid}/{file}": f"Rss: 9999 kB\nPss:  {pss_kib} kB\nPss_Anon: 1 kB"}


def test_memory_of_a_run_is_that_of_its_process_and_workers_without_the_sampler(tree):
    tree.write({"proc/meminfo": MEMINFO, **process(100, 1, 500), **process(101, 100, 40), **process(102, 101, 4)})
    tree.write({**process(os.getpid(), 100, 7000), **process(200, 1, 9000)})
    source = memory.open_source(tree.root, pid=100)
    assert source.read(1.0).values["memory_processes_bytes"] == 544 * KIB
    assert "without the sampler" in source.notes["memory_processes_bytes"]


def test_the_memory_of_a_real_child_is_added_once():
    hold = "held = bytearray(64 << 20); print(len(held), flush=True); input()"
    own = memory.ProcessMemory("/proc", os.getpid())
    before = own.read(0.0)
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        with_child = own.read(1e9)
        child.communicate(b"\n")
    assert 60 << 20 < with_child - before < 90 << 20  # what it holds, and its interpreter


def test_kernels_without_sums_give_each_mapping(tree):
    tree.write({"proc/meminfo": MEMINFO, **process(100, 1, 500, "smaps")})
    tree.write({"proc/100/smaps": "00-01 r-xp\nPss: 500 kB\n01-02 rw-p\nPss: 30 kB\n"})
    assert memory.open_source(tree.root, pid=100).read(1.0).values["memory_processes_bytes"] == 530 * KIB


def test_adding_up_takes_a_hundredth_of_the_time_at_most(tree, monkeypatch):
    tree.write({"proc/meminfo": MEMINFO, **process(100, 1, 500)})
    clock = iter([10.0, 10.0625] * 5)  # 63 ms each, as on a board at its lowest clocks
    monkeypatch.setattr(memory.time, "monotonic", lambda: next(clock))
    source = memory.open_source(tree.root, pid=100)
    ticks = [tick for tick in range(30) if "memory_processes_bytes" in source.read(float(tick)).values]
    assert ticks == [0, 7, 14, 21, 28]


def test_what_may_not_be_read_of_the_processes_costs_that_channel_only(tree):
    tree.write({"proc/meminfo": MEMINFO, "proc/100/stat": "garbage"})
    values, failed = memory.open_source(tree.root, pid=100).read(0.0)
    assert "memory_processes_bytes" in failed
    assert values["memory_used_bytes"] == 400 * KIB


def test_zram_counts_with_what_it_takes_and_not_with_what_was_swapped_into_it(tree):
    tree.write({"proc/meminfo": MEMINFO})
    tree.write({f"sys/block/zram{number}/mm_stat": "81920 20000 24576 0 24576 0 0 0" for number in range(2)})
    assert memory.open_source(tree.root).read(0.0).values["zram_used_bytes"] == 2 * 24576

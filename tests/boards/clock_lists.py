"""The clocks that a board lists under a release, and its stock modes: the spec file's, and what it does not know."""

from __future__ import annotations

import msgspec

from boards.layouts import VARIANTS, Layout
from harness.core.boards import BoardSpec, ClockLists, Preset, load_board

# Thor's lists are not known. 54 and 2,601 MHz of the CPU, 1,575 MHz of the GPU and 4,266 MHz of the memory were seen,
# as were 972 and 1,350 MHz in between; the steps are made up.
THOR_CLOCKS = ClockLists(
    cpu_khz=(*range(54_000, 2_592_001, 54_000), 2_601_000),
    gpu_khz=tuple(range(315_000, 1_575_001, 105_000)),
    mem_khz=(665_600, 2_133_000, 4_266_000),
)

# 1,692 MHz were seen beside the GPU's 1,575 (a public `jetson_clocks --show`); the steps are made up.
THOR_NVD_KHZ = tuple(range(282_000, 1_692_001, 282_000))

# The names, the core counts and the masks were seen; the caps are made up.
THOR_PRESETS = (
    Preset(0, "MAXN", 14, tpc_pg_mask=64),
    Preset(1, "120W", 14, 2_592_000, 1_365_000, tpc_pg_mask=64),
    Preset(2, "90W", 12, 2_052_000, 1_260_000, tpc_pg_mask=15873),
    Preset(3, "70W", 12, 1_620_000, 945_000, 2_133_000, tpc_pg_mask=15873),
)


def spec_of(layout: Layout) -> BoardSpec:
    """The spec of the board, with the GPU clocks that its release lists, and Thor's gaps filled."""
    spec = load_board(*VARIANTS.get(layout.board, (layout.board,)))
    if layout.board == "thor":
        return msgspec.structs.replace(spec, clocks=THOR_CLOCKS, presets=THOR_PRESETS, default_preset="120W")
    if layout.release.major >= 36 and spec.clocks.newer_gpu_khz:
        clocks = msgspec.structs.replace(spec.clocks, gpu_khz=spec.clocks.newer_gpu_khz)
        return msgspec.structs.replace(spec, clocks=clocks)
    return spec

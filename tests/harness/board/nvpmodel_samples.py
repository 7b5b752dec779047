"""Conf files as the emulated boards carry them, with the quirks of their releases."""

from __future__ import annotations

from boards.clock_lists import spec_of
from boards.layouts import layout_of
from boards.tree import plan_board


def sample(board, l4t):
    """The file, its modes as the board's manual gives them, in kHz, and the name of the default among them."""
    layout = layout_of(board, l4t)
    spec, text = spec_of(layout), plan_board(board, l4t).raw[f"etc/nvpmodel/{layout.conf}.conf"].decode()
    modes = [
        (one.id, one.name, one.cpu_cores, one.cpu_khz, one.gpu_khz, one.mem_khz, one.tpc_pg_mask)
        for one in spec.presets
    ]
    return text, modes, spec.default_preset


SAMPLES = {
    "orin-agx": sample("orin-agx", "r35.4"),  # three clusters, DLA and PVA caps
    "xavier-agx": sample("xavier-agx", "r32.7"),  # minima above 0 for the GPU too
    "xavier-nx": sample("xavier-nx", "r35.4"),  # over-current limits of type HWMON, whose lines have a third word
    "orin-nano": sample("orin-nano-super", "r36.4"),  # paths for newer kernels
    "nano": sample("nano", "r32.7"),  # one cluster without a number, no masks
}
ORIN_AGX, ORIN_NANO = SAMPLES["orin-agx"][0], SAMPLES["orin-nano"][0]
TX2 = sample("tx2", "r32.7")[0]
"""Core 0 cannot be switched and has no line; the second cluster's cores lie between those of the first."""

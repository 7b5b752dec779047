"""A RAPL package that draws `POWER_W` all the time: `sitecustomize` of the processes that sample it."""

from __future__ import annotations

POWER_W = 42.0


COUNTING_RAPL = """
import time

from harness.board import rapl

open_source = rapl.open_source


def open_counting_source(root):
    source = open_source(root)

    def count_then_read(now_s):
        with open(root + "/{counter}", "w") as counter:
            counter.write(str(round(now_s * {power_w} * 1e6)))
        return source.read(now_s)

    return source._replace(read=count_then_read)


rapl.open_source = open_counting_source
"""

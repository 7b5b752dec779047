"""The commands of the harness: one module each, with `add_arguments` and `run`, imported when its command is called."""

from __future__ import annotations

from harness.cli.command_line import BOARD, MEASURE, RESULTS, commands_in

COMMANDS = commands_in(
    __name__,
    ("doctor", BOARD, "show what this machine can measure and control, and how to enable the rest"),
    (
        "modes",
        BOARD,
        "list the power modes of a board: all, a grid, a sample, named ones; in an order that suits its clocks",
    ),
    ("nvpmodel-conf", BOARD, "print the modes of an nvpmodel conf, or write one with a mode for a power mode"),
    ("restore", BOARD, "restore what a killed run left changed"),
    ("run", MEASURE, "measure any command from outside, in one power mode or in several, and compare it"),
    ("export", RESULTS, "write results as a corpus table"),
    ("import", RESULTS, "import external profiles into a corpus; invalid rows are reported and refused"),
    ("fleet", MEASURE, "measure a campaign on the boards of a lab, in parallel and over nights"),
    ("corpus", MEASURE, "write a corpus of simulated boards"),
    ("simulation", MEASURE, "fit simulated boards to the papers and measured tables, or validate them against these"),
    ("report", RESULTS, "write a page and figures of results"),
    ("baseline", RESULTS, "record medians, or check against them"),
    ("check", RESULTS, "judge results by requirements: limits of latency, misses, energy, power, memory, temperature"),
    ("results", RESULTS, "describe results files, merge them into one, remove old raw series"),
    ("history", RESULTS, "analyse many runs over weeks: what became slower or takes more power, and since when"),
    ("bisect-versions", RESULTS, "find the version of torch, or another package, that made training slower"),
    ("compare", RESULTS, "compare two results files: what became slower or takes more power"),
)

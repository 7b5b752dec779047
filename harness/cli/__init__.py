"""The commands of the harness: a module each, with `add_arguments` and `run`, that loads when its command is called."""

from __future__ import annotations

from harness.cli.command_line import BOARD, MEASURE, RESULTS, commands_in

COMMANDS = commands_in(
    __name__,
    ("doctor", BOARD, "say what this machine can measure and control, and what it would need for the rest"),
    (
        "modes",
        BOARD,
        "list the power modes of a board: all, a grid, a sample, named ones; in an order that its clocks can follow",
    ),
    ("nvpmodel-conf", BOARD, "print the modes of an nvpmodel conf, or make one with a mode for a power mode"),
    ("restore", BOARD, "put back what a killed run left changed"),
    ("export", RESULTS, "write results as a corpus table"),
    ("import", RESULTS, "bring profiles from elsewhere into a corpus; rows that cannot be are reported and refused"),
    ("fleet", MEASURE, "measure a campaign on the boards of a lab, many at once and over nights"),
    ("corpus", MEASURE, "make a corpus: of simulated boards"),
    ("simulation", MEASURE, "fit simulated boards to the papers and measured tables, or check them against these"),
    ("report", RESULTS, "make a page and figures of results"),
    ("baseline", RESULTS, "record medians, or check against them"),
    ("results", RESULTS, "say what results files hold, merge them into one, remove old raw series"),
    ("history", RESULTS, "look at many runs over weeks: what became slower or takes more power, and since when"),
    ("bisect-versions", RESULTS, "find the version of torch, or another package, from which on training is slower"),
    ("compare", RESULTS, "compare two results files: what became slower or takes more power"),
)

"""The commands of the harness: a module each, with `add_arguments` and `run`, that loads when its command is called."""

from __future__ import annotations

from harness.cli.command_line import BOARD, MEASURE, RESULTS, Command

COMMANDS = (
    Command(
        "doctor",
        BOARD,
        "say what this machine can measure and control, and what it would need for the rest",
        "harness.cli.doctor",
    ),
    Command(
        "modes",
        BOARD,
        "list the power modes of a board: all, a grid, a sample, named ones; in an order that its clocks can follow",
        "harness.cli.modes",
    ),
    Command(
        "nvpmodel-conf",
        BOARD,
        "print the modes of an nvpmodel conf, or make one with a mode for a power mode",
        "harness.cli.nvpmodel_conf",
    ),
    Command("restore", BOARD, "put back what a killed run left changed", "harness.cli.restore"),
    Command("export", RESULTS, "write results as a corpus table", "harness.cli.export"),
    Command(
        "import",
        RESULTS,
        "bring profiles from elsewhere into a corpus; rows that cannot be are reported and refused",
        "harness.cli.import_",
    ),
    Command("corpus", MEASURE, "make a corpus: of simulated boards", "harness.cli.corpus"),
    Command(
        "simulation",
        MEASURE,
        "fit simulated boards to the papers and measured tables, or check them against these",
        "harness.cli.simulation",
    ),
    Command("report", RESULTS, "make a page and figures of results", "harness.cli.report"),
    Command("baseline", RESULTS, "record medians, or check against them", "harness.cli.baseline"),
    Command(
        "compare",
        RESULTS,
        "compare two results files: what became slower or takes more power",
        "harness.cli.compare",
    ),
)

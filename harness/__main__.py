"""The command line: `python -m harness COMMAND`."""

from __future__ import annotations

from typing import List, Optional

from harness.cli import compare as comparison
from harness.cli import corpus as corpus_command
from harness.cli import doctor, modes, restore
from harness.cli import import_ as importing
from harness.cli import nvpmodel_conf as nvpmodel_conf_command
from harness.cli import report as report_command
from harness.cli import results as commands
from harness.cli import simulation as simulation_command
from harness.cli.command_line import Command, run_as_program, run_command

COMMANDS = (
    Command("doctor", doctor.HELP, doctor.add_arguments, doctor.run),
    Command("modes", modes.HELP, modes.add_arguments, modes.run),
    Command(
        "nvpmodel-conf", nvpmodel_conf_command.HELP, nvpmodel_conf_command.add_arguments, nvpmodel_conf_command.run
    ),
    Command("restore", restore.HELP, restore.add_arguments, restore.run),
    Command("export", "write results as a corpus table", commands.add_export_arguments, commands.export),
    Command("import", importing.HELP, importing.add_arguments, importing.run),
    Command("corpus", corpus_command.HELP, corpus_command.add_arguments, corpus_command.run),
    Command("simulation", simulation_command.HELP, simulation_command.add_arguments, simulation_command.run),
    Command("report", report_command.HELP, report_command.add_arguments, report_command.run),
    Command("baseline", "record medians, or check against them", commands.add_baseline_arguments, commands.baseline),
    Command("compare", comparison.HELP, comparison.add_arguments, comparison.run),
)


def main(argv: Optional[List[str]] = None) -> int:
    """Run a command and return its exit code."""
    description = "Measure DNN training on this machine and keep the records. Cases are run by `pytest benchmarks`."
    return run_command("python -m harness", description, COMMANDS, argv)


if __name__ == "__main__":
    run_as_program(main)

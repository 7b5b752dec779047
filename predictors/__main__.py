"""The command line: `python -m predictors COMMAND`."""

from __future__ import annotations

from typing import List, Optional

from harness.cli.command_line import Command, run_as_program, run_command
from predictors.cli import advise, concurrent, evaluate, fit, predict, published, recommend, scenario, strategies

COMMANDS = (
    Command("evaluate", evaluate.HELP, evaluate.add_arguments, evaluate.run),
    Command("scenario", scenario.HELP, scenario.add_arguments, scenario.run),
    Command("published", published.HELP, published.add_arguments, published.run),
    Command("fit", fit.HELP, fit.add_arguments, fit.run),
    Command("predict", predict.HELP, predict.add_arguments, predict.run),
    Command("strategies", strategies.HELP, strategies.add_arguments, strategies.run),
    Command("recommend", recommend.HELP, recommend.add_arguments, recommend.run),
    Command("concurrent", concurrent.HELP, concurrent.add_arguments, concurrent.run),
    Command("advise", advise.HELP, advise.add_arguments, advise.run),
)


def main(argv: Optional[List[str]] = None) -> int:
    """Run a command and return its exit code."""
    description = "From some profiled power modes to time and power of all, and to the mode to use."
    return run_command("python -m predictors", description, COMMANDS, argv)


if __name__ == "__main__":
    run_as_program(main)

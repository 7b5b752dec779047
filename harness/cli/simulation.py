"""`simulation fit` and `simulation validate`, implemented in the folder `tools` of a clone."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from harness.cli.options import output_file, output_folder
from harness.core.corpus import SUFFIXES
from harness.core.environment import import_path
from harness.core.errors import DependencyError
from harness.simulation.parameters import SIMULATED_BOARDS

MODULES = {"fit": "tools.fit", "validate": "tools.validation"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="simulation_command", metavar="COMMAND", required=True)
    text = "fit the parameters of simulated boards to the papers' figures and to measured tables"
    fit = subparsers.add_parser("fit", help=text, description=text)
    fit.epilog = (
        "Every fit begins at the priors stored with the values, so the same data give the same values. "
        "In a clone, `--out harness/simulation` puts them into use."
    )
    text = "compare simulated boards with the papers' figures and claims, and with measured tables"
    validate = subparsers.add_parser("validate", help=text, description=text)
    validate.epilog = (
        "exit code: 0 all claims of benchmarks/ hold, or fail as their shortfalls state, 1 one does not, 2 refused. "
        "Deviations of figures do not affect it."
    )
    for subparser in (fit, validate):
        subparser.add_argument(
            "--corpus",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help=f"a measured table in the corpus schema, {' or '.join(SUFFIXES)}; may be given more than once",
        )
    fit.add_argument(
        "--out",
        type=output_folder,
        metavar="DIR",
        help="folder for the parameter files; without it the fit is only printed",
    )
    fit.add_argument(
        "--most-steps", type=int, default=40, metavar="N", help="stop after N steps (default: %(default)s)"
    )
    fit.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="fit only parameters that match OWNER.KEY, such as `orin-nano.*`; may be given more than once",
    )
    validate.add_argument("--json", type=output_file, metavar="OUT", help="write all results as JSON")
    validate.add_argument(
        "--device", choices=SIMULATED_BOARDS, help="only figures and tables of this board, without the claims"
    )


def run(arguments: argparse.Namespace) -> int:
    tools = importlib.util.find_spec("tools")
    # A clone's tools/ has no __init__.py, so that it hides no package of that name.
    folders = [] if tools is None else list(tools.submodule_search_locations or ())
    if str(import_path() / "tools") not in folders:
        raise DependencyError(
            f"`simulation {arguments.simulation_command}` needs a clone of the project: `tools` is not installed",
            "run it in the root of a clone, as `python -m harness simulation ...`",
        )
    return int(importlib.import_module(MODULES[arguments.simulation_command]).run(arguments))

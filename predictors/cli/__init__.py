"""The commands of the predictors, a module each, as in `harness.cli`."""

from __future__ import annotations

from harness.cli.command_line import CHOOSE, PREDICT, commands_in

COMMANDS = commands_in(
    __name__,
    ("evaluate", PREDICT, "test predictors on a corpus: errors of time and power against the number of profiled modes"),
    (
        "scenario",
        PREDICT,
        "test predictors on one of the papers' questions (G1 to G7, E16 to E19); without a name, list them",
    ),
    ("published", PREDICT, "compare the papers' errors with the errors here"),
    ("fit", PREDICT, "fit a predictor to profiles of a workload and save it"),
    ("prior", PREDICT, "learn the prior of physical-gp from corpora, and test it on networks or boards left out"),
    ("predict", PREDICT, "predict all power modes of a board with a saved predictor"),
    ("strategies", CHOOSE, "choose power modes under power budgets, and compare the choices with the best modes"),
    ("recommend", CHOOSE, "profile a few power modes on a device, and recommend the best one within a budget"),
    (
        "concurrent",
        CHOOSE,
        "find the power mode and inference batch size that train fastest while requests are served in time",
    ),
    ("advise", CHOOSE, "show which way of finding a power mode pays off for a training of a given length"),
)

"""The commands of the predictors: a module each, as those of `harness.cli`."""

from __future__ import annotations

from harness.cli.command_line import CHOOSE, PREDICT, commands_in

COMMANDS = commands_in(
    __name__,
    ("evaluate", PREDICT, "test predictors on a corpus: error of time and power against the number of profiled modes"),
    ("scenario", PREDICT, "ask one of the papers' questions (G1 to G7, E16 to E19); without a name, list them"),
    ("published", PREDICT, "hold the papers' own errors against what is reached here"),
    ("fit", PREDICT, "fit a predictor to profiles of a workload and save it"),
    ("prior", PREDICT, "learn the prior of physical-gp from corpora, and test it on networks or boards left out"),
    ("predict", PREDICT, "predict every power mode of a board with a saved predictor"),
    ("strategies", CHOOSE, "choose power modes under power budgets, and hold the choices against the truth"),
    ("recommend", CHOOSE, "profile a few power modes on a device, and name the one that meets a budget best"),
    (
        "concurrent",
        CHOOSE,
        "find the power mode and inference batch that train fastest while requests are answered in time",
    ),
    ("advise", CHOOSE, "say which way of finding a power mode pays for a training of a given length"),
)

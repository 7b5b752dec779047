"""The commands of `python -m predictors`: where predictors, boards and simulated boards are put together."""

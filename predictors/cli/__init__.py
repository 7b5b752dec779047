"""The commands of the predictors, a module each."""

"""The predictors."""

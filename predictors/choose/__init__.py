"""Fit, forecast, choose: what meets files and devices on the way from a corpus, or a board, to a power mode."""

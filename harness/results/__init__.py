"""The record of every profile: the results file, what is comparable, export, and the gate against a baseline."""

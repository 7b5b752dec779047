"""Simulated boards: a physical model of minibatch time and module power, and the parameters that make it a board."""

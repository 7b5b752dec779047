"""Prediction of minibatch time and power of all power modes of a device from a few profiled ones."""

"""From a few profiled power modes to minibatch time and power for every power mode of a device."""

"""Training and inference on one device at once: which power mode and batch sizes serve both."""

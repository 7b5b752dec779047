"""The measured loops: training, inference, both, idle."""

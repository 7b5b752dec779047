"""What meets files, boards and devices: profiling, searches, recommendations, evaluations, tuning."""

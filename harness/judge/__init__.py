"""Four questions about results: baseline, comparison, claims, history."""

"""Models of our own: those that no package brings."""

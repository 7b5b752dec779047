"""Data sets: readers of the real formats, and writers of stand-ins in the same formats."""

"""The results file: writing, reading, import and export."""

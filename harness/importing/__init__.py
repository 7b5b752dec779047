"""Importing profiles: from corpora, results files and tegrastats logs into one corpus, without rows that cannot be."""

"""Two results files side by side: what became slower or takes more power, what did not, and what cannot be compared."""

"""What everything speaks of: power modes, cases, profiles, metrics, the corpus, boards, units and errors."""

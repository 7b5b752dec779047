"""The terms of all other packages: power modes, cases, profiles, metrics, the corpus, boards, units and errors."""

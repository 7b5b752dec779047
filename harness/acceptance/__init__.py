"""`doctor --accept`: ten checks of a board by its first owner, each PASS, FAIL or SKIP with its evidence."""

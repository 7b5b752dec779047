"""What profiles say: pure functions from figures to decompositions, ratios, fronts and spreads."""

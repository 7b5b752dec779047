"""What the suite is measured against, and for the papers: evaluations, scenarios, contests; only commands import it."""

"""From a table of profiles to the power mode for a budget: `python examples/own_table_to_mode.py mine.csv 5`.

Without a file it takes a table that others measured on a Jetson Nano, which ships with jetwatt.
"""

import sys

import jetwatt

table = jetwatt.read_corpus(sys.argv[1]) if len(sys.argv) > 1 else jetwatt.load_table("loudva-nano")
budget_w = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0

first = table.iloc[0]
model = jetwatt.fit(table, workload=first["workload"], task=first["task"], device=first["device"], modes=20)
print(model)

errors = model.score(table)  # on the profiles that it did not learn from
print(f"error of time {errors['time_mape_pct']:.1f} %, of power {errors['power_mape_pct']:.1f} %")

best = model.best(power_w=budget_w)
time_ms, power_w = best["time_ms"], best["power_mw"] / 1000
print(f"within {budget_w:g} W: {best['power_mode']}, predicted {time_ms:.1f} ms and {power_w:.2f} W")

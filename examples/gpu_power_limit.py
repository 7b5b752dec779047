"""The power limit of a discrete GPU for a budget, from profiles of 10 of 56 limits and batch sizes.

The table ships with jetwatt: ResNet-50 on a V100, measured by the authors of Zeus (NSDI 2023).
"""

import jetwatt

table = jetwatt.load_table("zeus-v100")
model = jetwatt.fit(table, workload="resnet50-imagenet", modes=10)
print(model)

for budget_w in (125, 180, 250):
    best = model.best(power_w=budget_w)
    limit_w, power_w = best["power_limit_mw"] / 1000, best["power_mw"] / 1000
    print(f"within {budget_w} W: limit {limit_w:g} W, {best['time_ms']:.0f} ms at {power_w:.0f} W, predicted")
    print(f"  sudo nvidia-smi --power-limit={limit_w:g}")

errors = model.score(table)  # against the measured rows that it did not learn from
print(f"error of time {errors['time_mape_pct']:.1f} %, of power {errors['power_mape_pct']:.1f} %")

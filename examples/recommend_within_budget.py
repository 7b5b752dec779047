"""The fastest power mode of a board within a power budget, after eight profiles.

The board is simulated, so no Jetson is needed: `sim:orin-agx` stands for an AGX Orin and every figure says "simulated".
On a real board, run it there with `python examples/recommend_within_budget.py orin-agx`.
"""

import sys

import jetwatt

device = sys.argv[1] if len(sys.argv) > 1 else "sim:orin-agx"
search = jetwatt.Search(profiles=8, results="search.sqlite")
answer = jetwatt.recommend(device, workload="resnet18-imagenet", power_w=25, search=search)

print(answer)
print(f"set it with: jetwatt nvpmodel-conf --board orin-agx --power-mode {answer.power_mode.name}")
answer.front().to_csv("front.csv", index=False)  # the modes that none beats in both time and power
if not answer.keeps_limits:
    sys.exit("no mode keeps the budget; the nearest is above")

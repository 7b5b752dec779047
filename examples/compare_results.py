"""What changed between two results files: `python examples/compare_results.py before.sqlite after.sqlite`.

Without files it makes two on a simulated Orin Nano: the same three power modes with 4 DataLoader workers and with none.
"""

import sys

import jetwatt

if len(sys.argv) > 2:
    before, after, by = sys.argv[1], sys.argv[2], []
else:
    before, after, by = "four-workers.sqlite", "no-workers.sqlite", ["workers"]
    for path, workers in ((before, 4), (after, 0)):
        job = jetwatt.Job("resnet18-imagenet", workers=workers)
        search = jetwatt.Search("random", profiles=3, results=path)
        jetwatt.recommend("sim:orin-nano", workload=job, power_w=15, search=search)

comparison = jetwatt.compare(before, after, by=by)
for change in comparison["overall"]:
    interval = f"{change['low']:.2f} to {change['high']:.2f}"
    print(f"{change['figure']}: {change['status']}, times {change['ratio']:.2f} ({interval})")
print(jetwatt.open_results(after))
sys.exit(comparison["exit_code"])  # 1: something is slower or takes more power

"""Your own network: its time and power on this machine, measured with 0 and 2 DataLoader workers. Needs torch."""

import sys

import pytest
import torch

import jetwatt

NETWORK = jetwatt.Workload(
    name="two-layers",
    model=lambda: torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)),
    data=lambda: torch.utils.data.TensorDataset(torch.rand(1024, 64), torch.randint(10, (1024,))),
    loss=lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
)


@pytest.mark.parametrize("workers", [0, 2])
def test_own_network(profile, workers):
    assert profile().minibatch_time_ms > 0


if __name__ == "__main__":
    options = ["--device", "host", "--workload", "own_network:NETWORK", "--batch-size", "32", "--minibatches", "10"]
    if pytest.main([__file__, "-q", "-p", "jetwatt", *options, "--results", "own.sqlite"]) != 0:
        sys.exit("the measurement failed, see above")
    table = jetwatt.open_results("own.sqlite").profiles(newest=True)
    print(table[["workload", "workers", "minibatch_time_ms", "fetch_stall_ms", "provenance"]].to_string(index=False))

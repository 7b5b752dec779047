"""`corpus simulate`: rows of the schema, the same for the same seed."""

import pytest

from harness.__main__ import main
from harness.core.boards import load_board
from harness.core.corpus import read_corpus, rows_of
from harness.core.power_modes import PowerMode
from harness.simulation.corpus import simulate_corpus
from harness.simulation.parameters import SIMULATED_WORKLOADS


def simulate(tmp_path, arguments, name="corpus.csv"):
    out = tmp_path / name
    code = main(["corpus", "simulate", "--out", str(out), *arguments.split()])
    return code, out


def test_the_papers_grid_of_orin_agx_is_written_whole(tmp_path, capsys):
    code, out = simulate(tmp_path, "--device orin-agx --workload resnet18-imagenet --grid paper --seed 0")
    rows = rows_of(read_corpus(out))
    assert code == 0
    assert "4368 rows, simulated" in capsys.readouterr().out
    assert len({tuple(row[name] for name in PowerMode._fields) for row in rows}) == len(rows) == 4368
    assert {row["provenance"] for row in rows} == {"simulated"}


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path):
    def written(seed, name):
        arguments = f"--device nano --workload lenet-mnist --power-mode maxn --seed {seed}"
        return simulate(tmp_path, arguments, name)[1].read_bytes()

    assert written(3, "a.csv") == written(3, "b.csv") != written(4, "c.csv")


def test_lists_of_workloads_and_batch_sizes_multiply(tmp_path):
    _, out = simulate(tmp_path, "--device sim:xavier-nx --workload all --batch-size 8,16 --sample 3")
    rows = rows_of(read_corpus(out))
    assert len(rows) == len(SIMULATED_WORKLOADS) * 2 * 3
    assert {row["device"] for row in rows} == {"xavier-nx"}


def test_yolo_is_loaded_without_workers_unless_told(tmp_path):
    _, out = simulate(tmp_path, "--device orin-nano --workload yolov8n-coco,lenet-mnist --power-mode maxn")
    assert read_corpus(out)["workers"].tolist() == [0, 4]


def test_without_noise_only_the_board_is_left(tmp_path):
    modes = [load_board("nano").power_mode_space().greatest]
    quiet = [simulate_corpus("nano", "lenet-mnist", modes, seed=seed, noise=False) for seed in (0, 1)]
    loud = simulate_corpus("nano", "lenet-mnist", modes)
    assert quiet[0] == quiet[1]
    assert loud[0]["minibatch_time_ms"] == pytest.approx(quiet[0][0]["minibatch_time_ms"], rel=0.05)
    assert loud != quiet[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--device orin-agx --workload nonsense", "is not simulated"),
        ("--device tx2 --workload lenet-mnist --power-mode 1c", "tx2"),
        ("--device nano --workload lenet-mnist --batch-size eight", "--batch-size is 'eight'"),
        ("--device nano --workload lenet-mnist --all --sample 3", "give one of them"),
        ("--device nano --workload lenet-mnist --storage tape", "'tape'"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path, capsys, arguments, said):
    code, out = simulate(tmp_path, arguments)
    assert code == 2
    assert said in capsys.readouterr().err
    assert not out.exists()

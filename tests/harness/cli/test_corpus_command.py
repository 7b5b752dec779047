"""`corpus simulate`: rows of the schema, the same for the same seed."""

import pytest

from harness.__main__ import main
from harness.core.corpus import read_corpus


def simulate(tmp_path, arguments, name="corpus.csv"):
    out = tmp_path / name
    code = main(["corpus", "simulate", "--out", str(out), *arguments.split()])
    return code, out


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path):
    def written(seed, name):
        arguments = f"--device nano --workload lenet-mnist --power-mode maxn --seed {seed}"
        return simulate(tmp_path, arguments, name)[1].read_bytes()

    assert written(3, "a.csv") == written(3, "b.csv") != written(4, "c.csv")


def test_yolo_is_loaded_without_workers_unless_told(tmp_path):
    _, out = simulate(tmp_path, "--device orin-nano --workload yolov8n-coco,lenet-mnist --power-mode maxn")
    assert read_corpus(out)["workers"].tolist() == [0, 4]


def test_a_copy_of_a_board_is_simulated_by_its_name(tmp_path):
    def time_ms(device, name):
        _, out = simulate(tmp_path, f"--device {device} --workload lenet-mnist --power-mode maxn --no-noise", name)
        return read_corpus(out)["minibatch_time_ms"].item()

    assert time_ms("sim:orin-agx@2", "copy.csv") != time_ms("orin-agx", "board.csv")


def test_a_gpu_has_rows_for_each_power_limit(tmp_path):
    arguments = "--device a40 --workload bert-squad --power-mode maxn --no-noise"
    _, limited = simulate(tmp_path, f"{arguments} --power-limit all")
    table = read_corpus(limited).sort_values("power_limit_mw")
    assert table["power_limit_mw"].tolist() == list(range(100_000, 300_001, 25_000))
    assert table["minibatch_time_ms"].iloc[0] > 1.5 * table["minibatch_time_ms"].iloc[-1]
    assert table["power_mw"].iloc[0] < 0.6 * table["power_mw"].iloc[-1]
    assert set(table["provenance"]) == {"simulated"}
    _, greatest = simulate(tmp_path, arguments)
    assert read_corpus(greatest)["power_limit_mw"].tolist() == [300_000]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--device orin-agx --workload nonsense", "is not simulated"),
        ("--device tx2 --workload lenet-mnist --power-mode 1c", "tx2"),
        ("--device nano --workload lenet-mnist --batch-size eight", "--batch-size is 'eight'"),
        ("--device nano --workload lenet-mnist --all --sample 3", "give one of them"),
        ("--device nano --workload lenet-mnist --storage tape", "'tape'"),
        ("--device nano --workload lenet-mnist --power-limit 5", "nano has no power limit to set"),
        ("--device v100 --workload lenet-mnist --power-limit 100,300", "limit of 300 W; allowed: 100 to 250 W"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path, capsys, arguments, said):
    code, out = simulate(tmp_path, arguments)
    assert code == 2
    assert said in capsys.readouterr().err
    assert not out.exists()

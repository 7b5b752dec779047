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

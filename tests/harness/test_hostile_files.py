"""Files from elsewhere that would take far more memory or time than they have bytes are refused before that."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import sqlite3
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from harness.core.corpus import CORPUS_COLUMNS, read_corpus
from harness.core.errors import HarnessError
from harness.core.files import read_toml
from harness.judge.sides import read_baseline
from harness.report.assembly import read_evaluation
from harness.store.database import open_to_write
from harness.store.recorded_log import _read_times
from harness.store.results import ResultsStore
from harness.workloads.data.cifar10 import Cifar10Samples
from harness.workloads.data.mnist import IMAGES, LABELS, MnistSamples
from harness.workloads.data.photographs import read_picture
from harness.workloads.data.squad import SquadSamples
from predictors.models.persistence import MAGIC, VERSION, load_model

MIB = 1 << 20


def refused(read, path, match, most_bytes=4 * MIB):
    """The file is refused, and reading it took little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(HarnessError, match=match):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()


def idx(*shape):
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        (f"{IMAGES}.gz", gzip.compress(idx(2, 2, 2) + bytes(64 * MIB), 1), "unpacks to more instead of 24"),
        (f"{IMAGES}.gz", gzip.compress(idx(2**32 - 1, 28, 28)), "would unpack to 3,367,254,359,296 bytes"),
        (f"{IMAGES}.gz", gzip.compress(bytes(64 * MIB), 1), "no idx file"),
        (IMAGES, idx(2**32 - 1, 0, 28), "holds 4294967295 x 0 x 28"),
        (IMAGES, idx(2**31, 2**31, 2**31, 4), "has 20 bytes, but"),
        (IMAGES, idx(1), "has 8 bytes, but"),
    ],
    ids=["larger", "huge-header", "zeros", "huge", "overflow", "cut-off"],
)
def test_idx(tmp_path, name, content, match):
    (tmp_path / LABELS).write_bytes(idx(1) + b"\0")
    (tmp_path / name).write_bytes(content)
    refused(MnistSamples, tmp_path, match)


def doubled(times):
    """A list of twice a list of twice ..., in three operations each."""
    steps = (b"]q%c(h%ch%ce" % (number, number - 1, number - 1) for number in range(1, times))
    return b"]q\0" + b"".join(steps)


ARRAY = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}, 2)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\x80\x02}(U\x06labels" + doubled(20) + b"U\x04dataNu.", "for each of a list of labels"),
        (b"\x80\x02}U\x06labelsr" + struct.pack("<I", 2**28) + b"Ns.", "for each of a list of labels"),
        (b"\x80\x02" + b"]" * 100_000 + b".", "more operations than pictures can need"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".", "expected 1099511627776 bytes"),
        (b"\x80\x02I" + b"9" * 1_000_000 + b"\n.", "no CIFAR-10 batch"),
        (ARRAY.replace(b"K\x01K\x02", b"]K\x02"), "for each of a list of labels"),
    ],
)
def test_a_pickled_batch(tmp_path, content, match):
    (tmp_path / "data_batch_1").write_bytes(content)
    refused(Cifar10Samples, tmp_path, match)


@pytest.mark.parametrize("read", [read_corpus, lambda path: _read_times(path, None)])
def test_a_csv_file_with_a_million_columns(tmp_path, read):
    path = tmp_path / "corpus.csv"
    path.write_text("a," * 1_000_000 + "start_s,minibatch_time_ms\n" + "1\n" * 1_000)
    refused(read, path, "has 1000002 columns", most_bytes=256 * MIB)


def test_a_parquet_file_of_one_value_a_billion_times(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "corpus.parquet"
    rows = 200_000
    same = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int8)), arrow.array(["x" * 100]))
    columns = {**dict.fromkeys(CORPUS_COLUMNS, same), **{f"more_{number}": same for number in range(250)}}
    parquet.write_table(arrow.table(columns), path)
    assert path.stat().st_size < MIB
    refused(read_corpus, path, "has 200000 rows of 261 columns")


NESTED = "[" * 200_000


@pytest.mark.parametrize(
    ("read", "name", "match"),
    [
        (lambda path: read_evaluation(path, "predictor"), "evaluation.json", "nested too deeply"),
        (read_baseline, "baseline.json", "nested too deeply"),
        (lambda path: SquadSamples(path.parent), "train.json", "nested too deeply"),
        (lambda path: read_toml(path), "jetwatt.toml", "not a readable TOML"),
    ],
)
@pytest.mark.parametrize("content", [NESTED, "a = " + NESTED, '{"a": ' + "9" * 1_000_000 + "}", "#" * (2 * MIB)])
def test_json_and_toml(tmp_path, read, name, match, content):
    path = tmp_path / name
    path.write_text(content)
    refused(read, path, match if content is NESTED else None, most_bytes=64 * MIB)


@pytest.mark.exhaustive
def test_a_model_that_unpacks_to_gigabytes(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("model.json", "w") as member:
        for _ in range(300):
            member.write(bytes(MIB))
    payload, path = packed.getvalue(), tmp_path / "model"
    path.write_bytes(b"%s %d %s\n" % (MAGIC, VERSION, hashlib.sha256(payload).hexdigest().encode()) + payload)
    refused(load_model, path, "it unpacks to 314,572,800 bytes")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW more AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
        "CREATE TRIGGER more AFTER INSERT ON profiles BEGIN DELETE FROM profiles; END",
        "CREATE TABLE more (x INTEGER, y BLOB GENERATED ALWAYS AS (zeroblob(1000000000)))",
        "CREATE TABLE more (x INTEGER CHECK (length(zeroblob(1000000000)) > x))",
    ],
)
def test_a_results_file_with_a_program_in_it(tmp_path, statement):
    path = tmp_path / "results.sqlite"
    open_to_write(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    refused(lambda path: ResultsStore(path).profiles(), path, "views, triggers or computed columns")


def test_a_picture_of_a_billion_pixels(tmp_path):
    pytest.importorskip("PIL")
    path = tmp_path / "picture.png"
    header = b"IHDR" + struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    chunks = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + b"\0\0\0\0IDAT" + bytes(4)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    refused(read_picture, path, "exceeds limit")


def test_what_is_meant_is_still_read(tmp_path):
    """The same forms, with what belongs into them."""
    (tmp_path / "data_batch_1").write_bytes(ARRAY)
    assert len(Cifar10Samples(tmp_path)) == 2
    (tmp_path / LABELS).write_bytes(idx(2) + b"\0\1")
    (tmp_path / f"{IMAGES}.gz").write_bytes(gzip.compress(idx(2, 1, 2) + bytes(4)))
    assert len(MnistSamples(tmp_path)) == 2
    (tmp_path / "a.toml").write_text("a = 1\r\nb = [2]\r\n")
    assert read_toml(tmp_path / "a.toml") == {"a": 1, "b": [2]}

"""A saved predictor predicts the same to the bit; a damaged or foreign file is refused."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import predictors.models.registry
from harness.core.errors import InvalidValueError, NotFittedError, StoreError, UnknownNameError
from predictors.choose.fitting import describe_origin
from predictors.models.persistence import load_model, save_model
from tests.messages import says
from tests.predictors.plain_predictors import SPACE, LogLinear, made_table

TABLE = made_table(noise=0.05)


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setitem(predictors.models.registry.MODULES, LogLinear.name, LogLinear.__module__)


def fitted(**params):
    return LogLinear(**params).fit(TABLE.modes, TABLE.time_ms, TABLE.power_mw)


@pytest.fixture(name="path")
def _path(tmp_path):
    return tmp_path / "folder" / "model.jw"


def test_parameters_come_back_with_their_tables_and_space(path):
    save_model(path, fitted(ridge=0.1, space=SPACE, references=(TABLE, TABLE.take(slice(3)))), {})
    params = load_model(path).predictor.get_params()
    assert (params["ridge"], params["space"]) == (0.1, SPACE)
    expected = [TABLE.fingerprint, TABLE.take(slice(3)).fingerprint]
    assert [table.fingerprint for table in params["references"]] == expected


def test_a_model_says_what_it_learned_from_and_where(path, tmp_path):
    corpus = tmp_path / "corpus.csv"
    corpus.write_text("anything")
    save_model(path, fitted(), describe_origin(corpus, TABLE, TABLE.take(slice(5)), seed=3))
    model = load_model(path)
    told = {"workload": "lenet-mnist", "provenance": "simulated", "fitted_rows": 5, "seed": 3}
    assert {name: model.origin[name] for name in told} == told
    assert len(model.origin["corpus_sha256"]) == 64
    assert "jetwatt" in model.environment


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save_model(tmp_path / name, fitted(), {"seed": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_any_zip_reader_finds_json_and_plain_arrays(path):
    save_model(path, fitted(), {})
    with zipfile.ZipFile(path) as archive:
        content = json.loads(archive.read("model.json"))
        time_ms = np.load(io.BytesIO(archive.read("arrays/time_ms.npy")), allow_pickle=False)
    assert content["predictor"] == "log-linear"
    assert time_ms.tolist() == TABLE.time_ms.tolist()


@pytest.mark.exhaustive
@settings(max_examples=40)
@given(st.data())
@pytest.mark.long
def test_a_changed_byte_and_a_file_cut_off_are_noticed(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "whole.jw"
    save_model(path, fitted(), {})
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    for damaged in (whole, whole[:place]):
        path.with_suffix(".bad").write_bytes(bytes(damaged))
        with pytest.raises(InvalidValueError, match=r"damaged|not a model file|has format"):
            load_model(path.with_suffix(".bad"))


@pytest.mark.parametrize("content", [b"", b"\x80\x04\x95", b"PK\x03\x04", b"device,workload\n", b"jetwatt-model 1\n"])
def test_a_foreign_file_is_named_as_such(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(InvalidValueError, match="not a model file of this suite"):
        load_model(path)


@pytest.mark.parametrize("version", [1, 7])
def test_a_model_of_another_format_is_refused_in_one_sentence(path, version):
    save_model(path, fitted(), {})
    path.write_bytes(path.read_bytes().replace(b"jetwatt-model 2", b"jetwatt-model %d" % version, 1))
    with pytest.raises(InvalidValueError) as refused:
        load_model(path)
    assert says(str(refused.value), path, f"format {version}", "format 2")


def test_a_model_that_is_fitted_otherwise_than_when_it_was_saved_says_how_far_off_it_is(path, monkeypatch):
    save_model(path, fitted(ridge=0.01), {})
    assert load_model(path).deviation == 0
    infer = LogLinear._infer
    monkeypatch.setattr(
        LogLinear, "_infer", lambda self, rows: dataclasses.replace(infer(self, rows), log_power=np.zeros(54))
    )
    assert load_model(path).deviation == pytest.approx(1, abs=1e-3)


def test_a_model_of_a_predictor_that_is_gone_says_so(path, monkeypatch):
    save_model(path, fitted(), {})
    monkeypatch.delitem(predictors.models.registry.MODULES, LogLinear.name)
    with pytest.raises(UnknownNameError, match="log-linear"):
        load_model(path)


def test_a_file_that_is_not_there_says_so(path):
    with pytest.raises(StoreError, match="cannot read"):
        load_model(path)


def test_objects_and_what_learned_nothing_are_not_saved(path):
    with pytest.raises(InvalidValueError, match="cannot be saved"):
        save_model(path, fitted(seed=object()), {})
    with pytest.raises(NotFittedError):
        save_model(path, LogLinear(), {})
    assert not path.exists()

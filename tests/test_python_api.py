"""The public functions on tables: what is learned, chosen and refused; docs/api.md is run by test_tutorials.py."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import pydoc
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jetwatt
from harness.core.boards import load_board
from harness.core.errors import HarnessError
from harness.simulation.corpus import simulate_corpus
from harness.workloads import get_workload
from predictors.choose.request import RISK
from predictors.models import networks
from predictors.models.networks import train
from predictors.models.physical_gp.prior import SHIPPED, read_hierarchy
from tests.messages import says

MODES = load_board("orin-nano").power_mode_space().sample(60)


def corpus_of(device="orin-nano", workload="resnet18-imagenet", modes=MODES):
    return pd.DataFrame(simulate_corpus(device, workload, modes))


CORPUS = pd.concat([corpus_of(), corpus_of(workload="lstm-wikitext")])
BOTH = {"training": "lenet-mnist", "inference": "lenet-mnist", "arrival_rate": 1, "latency_ms": 100}


def test_a_misspelt_name_is_told_what_was_meant():
    with pytest.raises(AttributeError, match=r"did you mean recommend\?"):
        jetwatt.recomend  # noqa: B018


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        (jetwatt.recommend, {"power": 30}, "power_w"),
        (jetwatt.fit, {"mode": 30, "workload": "lenet-mnist"}, "modes"),
        (jetwatt.evaluate, {"seeed": 1, "target": "lenet-mnist"}, ""),
        (jetwatt.concurrent, {**BOTH, "latency": 1}, "latency_ms"),
        (jetwatt.tuning, {"power": 30}, "power_w"),
        (jetwatt.evaluate_strategies, {"strategy": "mdbs"}, ""),
        (jetwatt.Budget, {"power": 30}, "power_w"),
        (jetwatt.Search, {"profile": 5}, "profiles"),
        (jetwatt.Job, {"batchsize": 5}, "batch_size"),
        (jetwatt.Learning, {"references": "lenet-mnist"}, "reference"),
        (jetwatt.Runs, {"repeat": 5}, "repeats"),
        (jetwatt.BudgetSweep, {"budget": "20"}, "budgets"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_misspelt_argument_is_told_what_was_meant(call, given, meant):
    words = f"{call.__name__} has no argument '.*'; {f'did you mean {meant}.*' if meant else ''}available: "
    with pytest.raises(HarnessError, match=words):
        call(*([] if isinstance(call, type) else ["host"]), **given)
    assert "values" not in inspect.signature(call).parameters  # editors show its own


@pytest.mark.parametrize(
    "call",
    [
        lambda: jetwatt.recommend("orin-agx", workload="lenet-mnist", power_w=30),
        lambda: jetwatt.recommend("replay:zeus-v100", workload=jetwatt.Command(["true"]), power_w=30),
        lambda: jetwatt.recommend("sim:nano", workload=jetwatt.Command(["true"]), power_w=30),
        lambda: jetwatt.nvpmodel_conf(None, "8c", variant="32gb"),
    ],
    ids=["another board", "a command on a corpus", "a command on a simulated board", "nvpmodel_conf"],
)
def test_an_error_that_the_call_of_a_device_meets_names_arguments_and_no_option(call):
    with pytest.raises(HarnessError, match=r"\b(device|rehearse_as|board)=") as refused:
        call()
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(("name", "meant"), [("power", "power_w"), ("times_ms", "time_ms"), ("risks", "risk")])
def test_a_misspelt_argument_of_a_fitted_model_is_told_what_was_meant(model, name, meant):
    with pytest.raises(HarnessError, match=rf"best .*'{name}'.*{meant}\?"):
        model.best(**{name: 30})
    with pytest.raises(HarnessError, match=r"predict .*'mode'.*modes\?"):
        model.predict(mode="all")


def test_type_checkers_read_the_same_names_as_python_has():
    stub = ast.parse(Path(jetwatt.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    named = {alias.name: node.module for node in imports for alias in node.names if alias.name == alias.asname}
    assert named == jetwatt._MODULES, "JETWATT_REMAKE_GOLDEN=1 pytest tests/test_public_names.py"
    assert all(getattr(jetwatt, name) is not None for name in jetwatt.__all__)


def test_help_names_the_calls_before_any_class():
    first = pydoc.render_doc(jetwatt, renderer=pydoc.plaintext).partition("CLASSES")[0]
    named = set(re.findall(r"\w+", first))
    assert {"fit", "load", "evaluate", "recommend", "open_results", "import_table", "doctor"} <= named
    lines = jetwatt.__doc__.splitlines()
    listed = {word for line in lines if line.startswith("    ") for word in line[22:].replace(",", "").split()}
    assert listed <= set(jetwatt.__all__)
    assert {"check_requirements", "Job", "Search", "Budget", "Learning", "Runs", "BudgetSweep"} <= listed


@pytest.fixture(scope="module")
def model():
    return jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=30)


@pytest.mark.exhaustive
def test_the_same_seed_learns_the_same_and_another_one_does_not(model):
    again, other = (jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=30, seed=seed) for seed in (0, 1))
    assert again.origin == model.origin
    pd.testing.assert_frame_equal(again.predict(), model.predict())
    assert other.origin["fitted_sha256"] != model.origin["fitted_sha256"]


def test_more_modes_than_there_are_are_all(model):
    with pytest.warns(UserWarning, match="100 profiles were asked for"):
        model = jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=100)
    assert "learned from 60 simulated" in repr(model)
    with pytest.raises(jetwatt.HarnessError, match="was fitted on every profile"):
        jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=None).score(CORPUS)


def test_a_fit_takes_all_profiles_unless_told_and_notes_that_there_were_fewer():
    everything = jetwatt.fit(CORPUS, workload="resnet18-imagenet")
    assert len(everything.fitting.rows) == 60
    assert everything.notes() == []
    note = "100 profiles were asked for, and there are 60: fitted to all"
    with pytest.warns(UserWarning, match=note):
        more = jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=100)
    assert note in more.notes()


@pytest.mark.exhaustive
def test_a_table_without_its_column_of_power_limits_is_noted():
    table = jetwatt.load_table("zeus-v100")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jetwatt.fit(table, workload="resnet50-imagenet")
    with pytest.warns(UserWarning, match="8 settings .*25 % apart") as notes:
        jetwatt.fit(table.drop(columns="power_limit_mw"), workload="resnet50-imagenet")
    assert str(notes[0].message).endswith("such as power_limit_mw?")
    with pytest.warns(UserWarning, match="are of the same case as another one"):
        jetwatt.check_corpus(table.drop(columns="power_limit_mw"))


def test_the_model_of_a_gpu_under_power_limits_is_no_model_of_a_board():
    gpu = jetwatt.fit(jetwatt.load_table("zeus-v100"), workload="resnet50-imagenet", modes=6)
    with pytest.raises(jetwatt.HarnessError, match=r"orin-agx .*power limits.*v100"):
        gpu.predict(device="orin-agx")


def test_a_reference_is_another_workload_of_the_same_device():
    both = pd.concat(
        [CORPUS, corpus_of("xavier-agx", "lstm-wikitext", load_board("xavier-agx").power_mode_space().sample(9))]
    )
    fitted = jetwatt.fit(both, workload="resnet18-imagenet", modes=10, reference="lstm-wikitext")
    [reference] = fitted.predictor.references
    assert (reference.device, len(reference)) == ("orin-nano", 60)


@pytest.mark.exhaustive
def test_fit_and_predict_are_calls_with_the_options_of_the_commands(tmp_path, capsys):
    from jetwatt.cli import main

    corpus, others, prior = tmp_path / "c.csv", tmp_path / "others.csv", tmp_path / "prior.toml"
    corpus_of().to_csv(corpus, index=False)
    corpus_of(workload="lstm-wikitext").to_csv(others, index=False)
    means = re.compile(r"^(\w+) = \[(-?[\d.]+)", re.MULTILINE)
    prior.write_text(means.sub(lambda row: f"{row[1]} = [{float(row[2]) + 0.5}", SHIPPED.read_text()))
    options = {"modes": 8, "reference": "lstm-wikitext", "reference_corpus": str(others)}
    options.update(sampling="greatest-first", prior=str(prior))
    fitted = jetwatt.fit(corpus, workload="resnet18-imagenet", **options)
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    out = str(tmp_path / "m.jw")
    assert main(["fit", "--corpus", str(corpus), "--target", "resnet18-imagenet", *words, "--out", out]) == 0
    printed = capsys.readouterr().out
    assert fitted.summary().partition(" in ")[0] in printed
    assert fitted.summary().partition("\n")[2] in printed
    loaded = jetwatt.load(out)
    assert loaded.origin == fitted.origin
    pd.testing.assert_frame_equal(loaded.predict(modes="sample:9"), fitted.predict(modes="sample:9"))
    assert [table.workload for table in fitted.predictor.references] == ["lstm-wikitext"]
    assert fitted.predictor.hierarchy.mean == pytest.approx(read_hierarchy().mean + 0.5)
    at_random = jetwatt.fit(corpus, workload="resnet18-imagenet", modes=8, predictor="ridge")
    assert at_random.origin["fitted_sha256"] != fitted.origin["fitted_sha256"]
    with pytest.raises(jetwatt.HarnessError, match="the model was loaded"):
        loaded.summary()
    with pytest.warns(UserWarning, match="outside the profiled range") as notes:
        predicted = loaded.predict("orin-nano", "sample:9", batch_size=32)
    words = "--power-mode", "sample:9", "--batch-size", "32", "--out", str(tmp_path / "p.csv")
    assert main(["predict", "--model", out, "--board", "orin-nano", *words]) == 0
    said = capsys.readouterr()
    assert says(said.out, "9 power modes of orin-nano", "simulated profiles")
    printed = [line.replace("--unprofiled", "unprofiled=True") for line in said.err.splitlines()]
    assert printed == [f"note: {note.message}" for note in notes]
    assert "batch size (9 of 9 modes)" in said.err
    with pytest.raises(jetwatt.HarnessError, match="no mode of batch size 32"):
        loaded.best(power_w=20, batch_size=32)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), predicted, rtol=1e-5, check_dtype=False)


def test_a_reference_of_another_board_is_taken_from_its_own_file_and_the_loss_is_that_of_the_network(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        networks, "train", lambda *given: train(*given[:3], dataclasses.replace(given[3], epochs=1), *given[4:])
    )
    elsewhere = corpus_of("xavier-agx", modes=load_board("xavier-agx").power_mode_space().sample(9))
    fitted = jetwatt.fit(
        CORPUS, workload="resnet18-imagenet", reference="resnet18-imagenet", reference_corpus=elsewhere
    )
    assert [table.device for table in fitted.predictor.references] == ["xavier-agx"]
    assert fitted.origin["references"] == ["xavier-agx/resnet18-imagenet"]
    by_mape = jetwatt.make_predictor(jetwatt.predictor_class("nn"), loss="mape")
    network = jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=10, predictor=by_mape)
    assert network.predictor.loss == "mape"
    assert says(network.notes()[0], "nn: ", "median")


def test_an_evaluation_says_why_nothing_was_tested_and_keeps_results_without_unseen_modes(tmp_path, capsys):
    from jetwatt.cli import main

    corpus_of().to_csv(tmp_path / "c.csv", index=False)
    none = jetwatt.evaluate(
        tmp_path / "c.csv", target="resnet18-imagenet", predictors="ridge", modes=500, runs=jetwatt.Runs(1)
    )
    assert "cannot fit on 500 modes" in repr(none)
    with pytest.raises(jetwatt.HarnessError, match=r"no predictor .*500 modes"):
        none.table()
    grid = ["epochs=1", "learning_rate=1e-3", "dropout=0.1", "hidden=8x8", "scaling=standard"]
    how = {"target": "resnet18-imagenet", "predictors": "nn"}
    once = {"grid": grid, "runs": jetwatt.Runs(1)}
    seen = jetwatt.evaluate(tmp_path / "c.csv", modes=60, **once, **how)
    assert (len(seen.table()), seen.best) == (1, "")
    assert "best of 1: epochs=1" in jetwatt.evaluate(tmp_path / "c.csv", modes=20, **once, **how).best
    words = in_words({**how, "repeats": 1, "jobs": 1})
    out = tmp_path / "o.json"
    command = ["evaluate", "--corpus", str(tmp_path / "c.csv"), *words, "--modes", "60", "--json", str(out)]
    assert main([*command, "--grid", *grid]) == 2
    said = capsys.readouterr()
    assert "all_modes" in json.loads(out.read_text())["results"][0]
    assert says(said.err, "no combination", "--modes")


def test_a_table_of_two_boards_asks_which(model):
    xavier = load_board("xavier-agx").power_mode_space().sample(20)
    both = pd.concat([CORPUS, corpus_of("xavier-agx", modes=xavier)])
    with pytest.raises(jetwatt.HarnessError, match=r"2 devices: orin-nano, xavier-agx.*device='orin-nano'"):
        jetwatt.fit(both, workload="resnet18-imagenet")
    assert "on xavier-agx" in repr(jetwatt.fit(both, workload="resnet18-imagenet", device="xavier-agx"))
    assert model.score(both)["profiles"] == 30


@pytest.mark.parametrize(
    ("column", "factor", "words"),
    [("gpu_khz", 1e-3, "looks like MHz"), ("power_mw", 1e-3, "looks like W"), ("minibatch_time_ms", 1e-3, "like s,")],
)
def test_fit_and_score_refuse_a_table_that_cannot_be_true(model, tmp_path, column, factor, words):
    wrong = CORPUS.assign(**{column: CORPUS[column] * factor})
    wrong.to_csv(tmp_path / "c.csv", index=False)
    for use in (lambda: jetwatt.fit(wrong, workload="resnet18-imagenet"), lambda: model.score(tmp_path / "c.csv")):
        with pytest.raises(jetwatt.HarnessError, match=words):
            use()


def test_predictions_are_a_row_for_each_mode_with_intervals_and_the_front(model):
    table = model.predict(modes="grid:paper")
    assert len(table) == 405
    assert (table["time_low_ms"] < table["time_ms"]).all()
    assert (table["power_mw"] < table["power_high_mw"]).all()
    front = table[table["on_front"]].sort_values("power_mw")
    assert front["time_ms"].is_monotonic_decreasing
    wider = model.predict(modes="grid:paper", level=0.95)
    assert (wider["time_high_ms"] > table["time_high_ms"]).all()
    assert len(model.predict("sim:nano@2")) == len(load_board("nano").power_mode_space())


def test_the_best_mode_is_the_best_of_the_table_and_tells_its_risk(model):
    table = model.predict()
    best = model.best(power_w=10, risk=None)
    assert best["time_ms"] == table[table["power_mw"] <= 10_000]["time_ms"].min()
    assert RISK < best["risk"] < 0.5
    assert model.best(time_ms=600, risk=None)["power_mw"] == table[table["time_ms"] <= 600]["power_mw"].min()
    row = table.set_index("power_mode").loc[best["power_mode"]]
    assert best.drop(["power_mode", "risk"]).to_dict() == row.to_dict()
    careful = model.best(power_w=10, risk=best["risk"] / 10)
    assert careful["risk"] <= best["risk"] / 10
    assert careful["time_ms"] > best["time_ms"]
    within = table[(table["power_mw"] <= 10_000) & (table["time_ms"] <= 600)]
    found = model.best(power_w=10, time_ms=600, risk=None)
    assert found["power_mw"] * found["time_ms"] == pytest.approx((within["power_mw"] * within["time_ms"]).min())


def test_a_choice_from_a_model_has_the_risk_that_a_recommendation_has(model):
    usual = model.best(power_w=10)
    assert usual.equals(model.best(power_w=10, risk=RISK))
    assert usual["risk"] <= RISK
    assert not usual.equals(model.best(power_w=10, risk=None))


def test_a_choice_from_a_model_is_predicted_within_its_limits_whatever_the_risk(model):
    """As a profiled mode of `recommend` is measured within them, though a risk is that of breaking one by over 2 %."""
    assert model.best(power_w=10, risk=0.9)["power_mw"] <= 10_000
    assert model.best(time_ms=600, risk=0.9)["time_ms"] <= 600


def test_a_power_that_excludes_no_mode_is_warned_of_as_another_unit(model):
    with pytest.warns(UserWarning, match="5000 W .*in W, .*5000 mW are 5 W"):
        unlimited = model.best(power_w=5000)
    assert unlimited["time_ms"] == model.predict()["time_ms"].min()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.best(power_w=10)


def test_without_power_the_slowest_mode_within_a_time_is_the_best(model):
    timed = jetwatt.fit(CORPUS.assign(power_mw=None), workload="resnet18-imagenet", modes=30)
    table = timed.predict()
    with pytest.warns(UserWarning, match="no power .*slowest mode"):
        best = timed.best(time_ms=600, risk=None)
    assert best["time_ms"] == table[table["time_ms"] <= 600]["time_ms"].max()
    with pytest.warns(UserWarning, match="no power was measured"):
        careful = timed.best(time_ms=600, risk=0.01)
    assert careful["risk"] <= 0.01
    assert careful["time_ms"] < best["time_ms"]
    with pytest.raises(jetwatt.HarnessError, match="there is no power to choose by"):
        timed.best(power_w=10)
    with pytest.raises(jetwatt.HarnessError, match=r"predicted [\d.]+ ms, risk 1"):
        timed.best(time_ms=1)


def test_a_budget_that_no_mode_meets_and_none_at_all_are_refused(model):
    nearest = r"the nearest is 1c-115.2-306-204 at batch size 16: predicted .* ms at .* W, risk 1"
    with pytest.raises(jetwatt.HarnessError, match=f"no mode .*at most 3 W; {nearest}"):
        model.best(power_w=3, risk=None)
    for no_probability in (5, -1):
        with pytest.raises(jetwatt.HarnessError, match="expected a probability between 0 and 1"):
            model.best(power_w=3, risk=no_probability)
    with pytest.raises(jetwatt.HarnessError, match=r"at most 3 W .*at most 0\.1; the nearest"):
        model.best(power_w=3, risk=0.1)
    with pytest.raises(jetwatt.HarnessError, match="give power_w= or time_ms="):
        model.best()


def test_a_model_is_saved_loaded_and_read_by_the_command(model, tmp_path, capsys):
    from jetwatt.cli import main

    model.save(tmp_path / "m.jw")
    loaded = jetwatt.load(tmp_path / "m.jw")
    assert repr(loaded) == repr(model)
    pd.testing.assert_frame_equal(loaded.predict(modes="sample:9"), model.predict(modes="sample:9"))
    words = "--board", "orin-nano", "--power-mode", "sample:9", "--out", str(tmp_path / "p.csv")
    assert main(["predict", "--model", str(tmp_path / "m.jw"), *words]) == 0
    assert "predicted from simulated" in capsys.readouterr().out


def test_a_device_of_ones_own_with_unknown_clocks_has_the_modes_that_were_learned(tmp_path, capsys):
    from jetwatt.cli import main

    rows = [
        {"cpu_cores": cores, "cpu_khz": khz, "minibatch_time_ms": 4e9 / (cores * khz) ** 0.9}
        for cores in (1, 2, 4, 8)
        for khz in (1_200_000, 2_000_000, 3_000_000)
    ]
    table = pd.DataFrame(rows).assign(
        device="my-server", workload="my-net", task="training", gpu_khz=0, mem_khz=0, batch_size=32,
        power_mw=lambda own: 20_000 + 5 * own["cpu_cores"] * own["cpu_khz"] / 1e3, provenance="measured",
    )  # fmt: skip
    model = jetwatt.fit(table, workload="my-net")
    found = model.predict()
    assert len(found) == 12
    assert (found["gpu_khz"] == 0).all()
    assert np.allclose(found["power_mw"], table["power_mw"], rtol=0.1)
    with pytest.raises(jetwatt.HarnessError, match=r"did you mean my-server\?.*modes= as tuples"):
        model.predict("your-server")
    model.save(tmp_path / "m.jw")
    assert main(["predict", "--model", str(tmp_path / "m.jw"), "--out", str(tmp_path / "p.csv")]) == 0
    assert says(capsys.readouterr().out, "12 power modes of my-server", "measured profiles")
    assert pd.read_csv(tmp_path / "p.csv")["cpu_cores"].tolist() == found["cpu_cores"].tolist()
    assert len(model.predict(modes=[(2, 1_500_000, 0, 0)])) == 1


def test_results_that_do_not_exist_are_refused(tmp_path):
    with pytest.raises(jetwatt.HarnessError, match=r"none\.sqlite"):
        jetwatt.open_results(tmp_path / "none.sqlite")


@pytest.fixture(scope="module")
def answer():
    search = jetwatt.Search("random", profiles=3)
    return jetwatt.recommend("sim:orin-nano", workload="resnet18-imagenet", power_w=10, search=search)


def test_a_plot_returns_axes_and_draws_on_given_ones_and_into_a_file(model, answer, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    for number, plotted in enumerate((model, answer)):
        axes = plotted.plot(tmp_path / f"{number}.png")
        assert axes.get_xlabel() == "power (W)"
        assert "simulated" in axes.get_title()
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
        assert pyplot.get_fignums() == []
        own = Figure().subplots()
        assert plotted.plot(ax=own) is own
        assert own.get_xlabel() == "power (W)"
    assert pyplot.fignum_exists(model.plot().figure.number)  # so that a notebook shows it
    pyplot.close("all")


def cells_of(page):
    """The rows of the only table of a page, parsed strictly."""
    from xml.etree import ElementTree

    [table] = ElementTree.fromstring(f"<div>{page}</div>").iter("table")
    return [[cell.text or "" for cell in row] for row in table.iter("tr")]


def test_a_notebook_shows_tables_in_which_names_of_files_are_escaped(model, answer, tmp_path):
    head, row = cells_of(model._repr_html_())
    assert dict(zip(head, row)) == {
        "predictor": "physical-gp", "workload": "resnet18-imagenet", "task": "training", "device": "orin-nano",
        "batch size": "16", "learned from": "30 profiles", "provenance": "simulated",
    }  # fmt: skip
    head, row = cells_of(answer._repr_html_())
    assert row[head.index("power mode")] == answer.recommendations[0][0].mode.name
    assert float(row[head.index("power (W)")]) == pytest.approx(
        answer.recommendations[0][0].mode.power_mw.value / 1000, rel=1e-3
    )
    hostile = "<script>alert(1)</script>&"
    CORPUS.assign(workload=hostile).to_csv(tmp_path / "c.csv", index=False)
    evaluation = jetwatt.evaluate(
        tmp_path / "c.csv", target=hostile, predictors="ridge", modes=[20, 500], runs=jetwatt.Runs(1)
    )
    page = evaluation._repr_html_()
    assert "<script" not in page
    assert hostile in cells_of(page)[1]
    assert "cannot fit on 500 modes" in page
    fitted = jetwatt.fit(tmp_path / "c.csv", workload=hostile, modes=10, predictor="ridge")
    assert hostile in cells_of(fitted._repr_html_())[1]


def in_words(options):
    """Options of a call as the words of its command."""
    return [
        word
        for name, value in options.items()
        for word in (
            f"--{name}",
            *([value] if isinstance(value, str) else map(str, value if isinstance(value, list) else [value])),
        )
    ]


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_call_of_a_papers_contest_returns_what_the_command_prints(tmp_path, capsys):
    from jetwatt.cli import main

    scenario, published = {"predictors": "ridge", "limit": 60}, {"fact": ["F464"], "limit": 60}
    once, runs = in_words({"repeats": 1, "jobs": 1}), jetwatt.Runs(1)
    main(["published", *in_words(published), *once])
    assert capsys.readouterr().out == f"{jetwatt.published(**published, runs=runs)}\n"
    main(["scenario", "G1", *in_words(scenario), *once, "--json", str(tmp_path / "o.json")])
    printed = json.loads((tmp_path / "o.json").read_text())
    returned = jetwatt.scenario("G1", **scenario, runs=runs).plain()
    assert [printed[name] for name in ("title", "corpora")] == [returned[name] for name in ("title", "corpora")]
    errors = [[row["time_mape_median"] for row in plain["results"]] for plain in (printed, returned)]
    assert errors[0] == errors[1]
    assert errors[0]


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_call_returns_what_the_command_prints(tmp_path, capsys):
    from jetwatt.cli import main

    before, after = tmp_path / "before.sqlite", tmp_path / "after.sqlite"
    for path in (before, after):
        search = jetwatt.Search("random", profiles=3, results=path)
        jetwatt.recommend("sim:orin-nano", workload="resnet18-imagenet", power_w=20, search=search)
    assert [case.case_id for case in jetwatt.record_baseline(before, tmp_path / "b.json").cases]
    verdicts = jetwatt.check_baseline(after, tmp_path / "b.json")
    capsys.readouterr()
    recording = "--results", str(before), "--baseline", str(tmp_path / "b.json")
    assert main(["baseline", "record", *recording]) == 0
    assert capsys.readouterr().out == f"{jetwatt.record_baseline(before, tmp_path / 'b.json')}\n"
    main(["baseline", "check", "--results", str(after), "--baseline", str(tmp_path / "b.json")])
    table = capsys.readouterr().out
    assert len(verdicts) >= 3
    for row in verdicts[verdicts["scope"] == "cases"].itertuples():
        assert any(line.startswith(row.case) and line.endswith(row.status) for line in table.splitlines())
    simulated, prior = tmp_path / "corpus.csv", tmp_path / "prior.toml"
    words = "--workload", "resnet18-imagenet,yolov8n-coco", "--sample", "40", "--out", str(simulated)
    assert main(["corpus", "simulate", "--device", "orin-agx", *words]) == 0
    capsys.readouterr()
    how = {"strategies": "random,brute-force", "target": "yolov8n-coco", "budgets": "20:40:20"}
    contest, once = jetwatt.evaluate_strategies(simulated, **how, runs=jetwatt.Runs(1)), {"repeats": 1, "jobs": 1}
    compared = jetwatt.compare(before, after)
    head, first, *_ = cells_of(compared._repr_html_())
    assert dict(zip(head, first))["verdict"] == compared["overall"][0]["status"]
    printed_calls = {
        ("compare", str(before), str(after)): compared,
        ("strategies", "evaluate", "--corpus", str(simulated), *in_words({**how, **once})): contest,
        ("advise", "--epochs", "120", "--epoch-minutes", "5", "--workers", "0"): jetwatt.advise(120, 5, workers=0),
        ("nvpmodel-conf", "--board", "orin-agx", "--power-mode", "8c-1728-612-3199"): (
            jetwatt.nvpmodel_conf("orin-agx", "8c-1728-612-3199").text.rstrip("\n")
        ),
    }
    for words, returned in printed_calls.items():
        main([*words])
        assert capsys.readouterr().out == f"{returned}\n", words
    assert "brute-force" in contest.table()["strategy"].tolist()
    assert main(["prior", "learn", str(simulated), "--out", str(prior)]) == 0
    learned = jetwatt.learn_prior([simulated])
    assert (learned.toml, learned.workloads, learned.boards) == (prior.read_text(), 2, ("orin-agx",))
    capsys.readouterr()
    calls = {
        ("compare", str(before), str(after)): compared,
        ("compare", str(before), str(after), "--by", "torch"): jetwatt.compare(before, after, by="torch"),
        ("history", str(before), str(after)): jetwatt.history([before, after]),
        ("doctor", "--device", "sim:orin-nano"): jetwatt.doctor("sim:orin-nano"),
    }
    capsys.readouterr()
    for words, returned in calls.items():
        main([*words, "--json"])
        printed = json.loads(capsys.readouterr().out)
        for found in (printed, returned):
            found.pop("storage", None)  # its free space changes meanwhile
        assert printed == json.loads(json.dumps(returned)), words


def test_results_files_are_merged_and_pruned_by_calls_as_by_the_commands(tmp_path, capsys):
    from jetwatt.cli import main

    files = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    for file in files:
        search = jetwatt.Search("random", profiles=2, results=file)
        jetwatt.recommend("sim:orin-nano", workload="resnet18-imagenet", power_w=20, search=search)
    (tmp_path / "other.sqlite").write_text("something else")
    given, out = [*files, tmp_path / "other.sqlite"], tmp_path / "all.sqlite"
    capsys.readouterr()
    seen = []
    merged = jetwatt.merge_results(given, out=out, show=seen.append)
    added = [len(jetwatt.open_results(file).profiles()) for file in files]
    assert [file.added for file in merged.files] == [*added, 0]
    assert [file.file.name for file in merged.left_out] == ["other.sqlite"]
    assert (tuple(seen), merged.profiles) == (merged.files, sum(added))
    assert main(["results", "merge", *map(str, given), "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        *(f"{file}: 0 added, {count} already there" for file, count in zip(files, added)), repr(merged)
    ]  # fmt: skip
    assert said.err.splitlines() == [repr(merged.left_out[0])]
    assert jetwatt.prune_results(out, keep_raw=30).profiles == 0
    pruned = jetwatt.prune_results(out, keep_raw=0)
    assert pruned.profiles == sum(added)
    assert pruned.freed_bytes > 0
    assert not jetwatt.open_results(out).profiles()["flags"].isna().any()
    assert main(["results", "prune", str(out), "--keep-raw", "0d"]) == 0
    assert "raw series of 0 profiles removed" in capsys.readouterr().out


def test_a_simulated_corpus_is_on_the_medium_of_its_board_and_written_as_by_the_command(tmp_path):
    from jetwatt.cli import main

    words = [
        "corpus",
        "simulate",
        "--workload",
        "lenet-mnist,mobilenetv3-gld23k",
        "--batch-size",
        "16,32",
        "--sample",
        "3",
    ]
    modes = load_board("nano").power_mode_space().sample(3)
    media = {}
    for board in ("nano", "orin-nano"):
        assert main([*words, "--device", board, "--out", str(tmp_path / f"{board}.csv")]) == 0
        media[board] = set(jetwatt.read_corpus(tmp_path / f"{board}.csv")["storage"])
    assert media == {"nano": {"sd"}, "orin-nano": {"ssd"}}
    rows = jetwatt.simulate_corpus(
        "nano", ["lenet-mnist", "mobilenetv3-gld23k"], modes, batch_size=[16, 32], out=tmp_path / "o.csv"
    )
    assert len(rows) == 12
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "nano.csv").read_bytes()
    assert {row["storage"] for row in jetwatt.simulate_corpus("nano", "lenet-mnist", modes, storage="hdd")} == {"hdd"}


def test_a_simulated_corpus_is_of_a_copy_of_the_board_and_without_noise_if_no_seed_is_given():
    def times(board="orin-nano", **options):
        return [row["minibatch_time_ms"] for row in jetwatt.simulate_corpus(board, "lenet-mnist", MODES[:9], **options)]

    assert times() == times(seed=0) != times(seed=1)
    itself = jetwatt.simulate_corpus("orin-nano", [get_workload("lenet-mnist")], MODES[:9])
    assert [row["minibatch_time_ms"] for row in itself] == times()
    exact = times(seed=None)
    assert exact == times("orin-nano@0", seed=None) != times("orin-nano@1", seed=None)
    assert all(0 < abs(noisy / steady - 1) < 0.2 for noisy, steady in zip(times(), exact))
    with pytest.raises(HarnessError, match="instance 'b' is not a number"):
        times("orin-nano@b")


@pytest.mark.exhaustive
@pytest.mark.long
def test_concurrent_and_report_are_calls(tmp_path):
    plans = jetwatt.concurrent(
        "sim:orin-agx", training="resnet18-imagenet", inference=jetwatt.Job("mobilenetv3-gld23k", [1, 4]),
        arrival_rate=20, latency_ms=800, ways=["interleaved"],
        search=jetwatt.Search(profiles=8, check_s=10, results=tmp_path / "r.sqlite"),
    )  # fmt: skip
    assert plans.keeps_limits
    assert plans.plain()["way"] == "interleaved"
    assert "trained samples/s" in repr(plans)
    assert re.search(r"; (1 plan|[2-9] plans)\)", repr(plans))
    pytest.importorskip("vl_convert")
    written = jetwatt.report(tmp_path / "r.sqlite", out=tmp_path / "report")
    assert written.page.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"search": jetwatt.Search(percentile=90)}, "percentile is 90; latencies have percentiles 95 and 99"),
        ({"search": jetwatt.Search(risk=0.1)}, "risk= has no effect in concurrent"),
        ({"search": jetwatt.Search("nn")}, "strategy is 'nn'; available: .*mdbs"),
        ({"training": jetwatt.Job("lenet-mnist", task="inference")}, "training= has the task inference"),
        ({"inference": ["lenet-mnist", "resnet18-cifar10"]}, "inference= has several workloads"),
        ({"training": []}, "no workload= was given"),
        ({"training": jetwatt.Job("lenet-mnist", epochs=3)}, "epochs= has no effect in the training of concurrent"),
        ({"inference": jetwatt.Job("lenet-mnist", workers=2)}, "workers= has no effect in the inference of concurrent"),
        ({"inference": jetwatt.Job("lenet-mnist", storage="sd")}, "storage= has no effect in the inference"),
        ({"latency_ms": 0}, "latency_ms is 0, expected a number above 0"),
        ({"ways": ["both"]}, "ways= names 'both'"),
        ({"power_w": 30_000}, "30000 mW are 30 W"),
    ],
)
def test_what_a_plan_cannot_have_is_refused_before_a_device_is_opened(monkeypatch, options, words):
    from predictors.plans import concurrent

    monkeypatch.setattr(concurrent, "open_device", lambda *given: pytest.fail("a device was opened"))
    with pytest.raises(HarnessError, match=words):
        jetwatt.concurrent("sim:orin-agx", **{**BOTH, **options})


@pytest.mark.exhaustive
def test_a_gpu_that_kept_its_power_limits_is_believed_to_keep_them():
    """As `recommend` sees: an A40 draws up to 125 W under that limit, and more than 100 W under the least one."""
    model = jetwatt.fit("zeus-a40", workload="resnet50-imagenet", modes=20, seed=1)
    assert model.best(power_w=125)["power_limit_mw"] == 125_000
    predicted = model.predict().set_index("power_limit_mw")
    kept = predicted.loc[125_000:]
    assert (kept["power_high_mw"] <= kept.index).all()
    assert predicted.loc[100_000, "power_mw"] > 100_000
    assert model.best(power_w=125, time_ms=1e6)["risk"] <= RISK


def test_a_model_of_a_gpu_predicts_each_mode_under_each_profiled_limit(tmp_path):
    table = jetwatt.load_table("zeus-v100")
    model = jetwatt.fit(table, workload="resnet50-imagenet", modes=12, seed=1)
    predicted = model.predict(batch_size=64)
    assert predicted["power_limit_mw"].tolist() == list(range(100_000, 250_001, 25_000))
    assert predicted["time_ms"].is_monotonic_decreasing
    best = model.best(power_w=180)
    assert best["power_limit_mw"] <= 200_000
    assert best["power_mode"] == f"power limit {best['power_limit_mw'] / 1000:g} W"
    between = model.best(power_w=170, batch_size=64, power_limit=[150, 160, 170])
    assert (between["power_limit_mw"], between["batch_size"]) == (170_000, 64)
    with pytest.raises(jetwatt.HarnessError, match=f"power limit 100 W at batch size {model.batch_size}: "):
        model.best(power_w=18)
    errors = model.score(table)
    assert errors["profiles"] == 56 - 12
    assert errors["time_mape_pct"] < 10
    model.save(tmp_path / "m.jw")
    assert jetwatt.load(tmp_path / "m.jw").predict(batch_size=64).equals(predicted)


def test_sizes_and_limits_may_be_numbers_of_numpy():
    mode = load_board("a40").power_mode_space().sample(1)
    size, limit_w = np.int64(8), np.int64(200)
    rows = jetwatt.simulate_corpus("a40", "lenet-mnist", mode, batch_size=size, power_limit=limit_w)
    assert rows == jetwatt.simulate_corpus("a40", "lenet-mnist", mode, batch_size=8, power_limit=200)
    several = jetwatt.simulate_corpus("orin-nano", "lenet-mnist", MODES[:1], batch_size=np.array([8, 16]))
    assert [row["batch_size"] for row in several] == [8, 16]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda folder: jetwatt.report(None, out=folder), "a report needs profiles"),
        (
            lambda folder: jetwatt.concurrent(
                "sim:orin-agx",
                training="lenet-mnist",
                inference="lenet-mnist",
                arrival_rate=1,
                latency_ms=100,
                switching_ms="much",
            ),
            "the cost of a mode change is 'much'",
        ),
        (
            lambda folder: jetwatt.simulate_corpus("a40", "lenet-mnist", MODES[:1], power_limit="much"),
            "power limit 'much' is not a number",
        ),
        (lambda folder: jetwatt.evaluate_strategies("zeus-v100", leave_out="mode"), "leave_out is 'mode'"),
        (
            lambda folder: jetwatt.evaluate_strategies("zeus-v100", learning=jetwatt.Learning(loss="mape")),
            "loss= has no effect in evaluate_strategies",
        ),
        (lambda folder: jetwatt.BudgetSweep(goal="tme"), "goal is 'tme'; did you mean time"),
        (lambda folder: jetwatt.BudgetSweep(20), "budgets is 20, expected a text"),
        (lambda folder: jetwatt.BudgetSweep(latencies_ms=-50), "latencies_ms is -50, expected a number above 0"),
        (lambda folder: jetwatt.Learning(sampling="xx"), "sampling 'xx' is unknown"),
        (lambda folder: jetwatt.Learning(loss="xx"), "loss is 'xx'; available: mse, mape"),
        (lambda folder: jetwatt.Job([]), "no workload= was given"),
        (lambda folder: jetwatt.Job(None), "workload is None, expected a name or a Workload"),
        (
            lambda folder: jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=0, divice="x"),
            "no argument 'divice'; did you mean device",
        ),
        (
            lambda folder: jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=0, workers=4),
            "workers= has no effect with modes=0",
        ),
        (
            lambda folder: jetwatt.evaluate("no-such-file.csv", target="resnet18-imagenet", divice="x"),
            "no argument 'divice'",
        ),
        (lambda folder: jetwatt.Runs(repeats=0), "repeats is 0, expected a whole number above 0"),
        (lambda folder: jetwatt.evaluate(3, target="resnet18-imagenet"), "corpus is a int, expected a DataFrame"),
        (
            lambda folder: jetwatt.fit(CORPUS, workload="resnet18-imagenet", worker=4),
            "no argument 'worker'; did you mean workers",
        ),
        (
            lambda folder: jetwatt.fit(CORPUS, workload="resnet18-imagenet", workers=2),
            "no training of 'resnet18-imagenet' with workers 2; available: 4",
        ),
        (lambda folder: jetwatt.evaluate("zeus-v100", target="resnet50-imagenet", modes=2.5), "modes is 2.5, expected"),
        (lambda folder: jetwatt.fit(None, workload="resnet18-imagenet"), "corpus is a NoneType, expected a DataFrame"),
        (lambda folder: jetwatt.check_corpus({"device": []}), "the table is a dict, expected a DataFrame; pandas"),
        (lambda folder: jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=2.5), "modes is 2.5, expected a whole"),
        (lambda folder: jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=-1), "modes is -1, .* 0 or more"),
    ],
    ids=[
        "report",
        "concurrent",
        "simulate_corpus",
        "evaluate_strategies",
        "evaluate_strategies with a loss",
        "an unknown goal",
        "budgets as a number",
        "a latency below 0",
        "an unknown sampling",
        "an unknown loss",
        "no workload",
        "None as a workload",
        "fit none by a condition that does not exist",
        "fit none with workers",
        "evaluate by a condition that does not exist",
        "no repeats",
        "evaluate a number",
        "fit by a condition that does not exist",
        "fit by a condition that no profile has",
        "evaluate half a mode",
        "fit nothing",
        "check a dict",
        "fit half a mode",
        "fit less than none",
    ],
)
def test_a_value_of_another_kind_is_refused_with_what_is_possible(call, words, tmp_path):
    with pytest.raises(HarnessError, match=words):
        call(tmp_path)


@pytest.mark.parametrize(
    ("call", "given", "arguments"),
    [
        (jetwatt.recommend, ("sim:orin-agx",), {"workload": "lenet-mnist", "budget": 10}),
        (jetwatt.recommend, ("sim:orin-agx",), {"workload": "lenet-mnist", "power_w": 20, "search": 4}),
        (jetwatt.concurrent, ("sim:orin-agx",), {**BOTH, "search": 4}),
        (jetwatt.evaluate, (CORPUS,), {"target": "resnet18-imagenet", "runs": 2}),
        (jetwatt.evaluate, (CORPUS,), {"target": "resnet18-imagenet", "learning": "x"}),
        (jetwatt.evaluate_strategies, ("zeus-v100",), {"runs": 2}),
        (jetwatt.evaluate_strategies, ("zeus-v100",), {"learning": "x"}),
        (jetwatt.evaluate_prior, (["zeus-v100"],), {"runs": 2}),
        (jetwatt.scenario, ("G1",), {"runs": 2}),
        (jetwatt.published, (), {"runs": 2}),
    ],
    ids=lambda given: getattr(given, "__name__", None) or (list(given)[-1] if isinstance(given, dict) else "of"),
)
def test_a_plain_value_in_place_of_settings_is_refused_with_their_class(call, given, arguments):
    name, value = list(arguments.items())[-1]
    with pytest.raises(HarnessError, match=rf"{name} is {value!r}, expected {name.title()}\(\.\.\.\)"):
        call(*given, **arguments)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"modes": pd.DataFrame([MODES[0]])}, r"modes is a DataFrame, expected tuples of cpu_cores, .*to_numpy"),
        ({"modes": MODES[0]}, "modes is a PowerMode, expected tuples of cpu_cores"),
        ({"modes": [MODES[0]._replace(cpu_cores=-1)]}, "cpu_cores is -1, expected a whole number above 0"),
        ({"modes": [MODES[0]._replace(cpu_cores=60)]}, "cpu_cores is 60, orin-nano has 6"),
        ({"modes": [MODES[0]._replace(gpu_khz=624)]}, "gpu_khz is 624: that looks like MHz, expected kHz"),
        ({"modes": [MODES[0]._replace(gpu_khz=9_000_000)]}, "gpu_khz is 9000000, orin-nano has .* to "),
        ({"device": MODES}, "device is a list, expected a name; for modes, give modes="),
        ({"level": 95}, "level is 95, expected a probability between 0 and 1"),
        ({"batch_size": 0}, "batch_size is 0, expected a whole number above 0"),
    ],
)  # fmt: skip
def test_modes_that_the_board_cannot_have_are_not_predicted(options, words):
    model = jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=10)
    with pytest.raises(HarnessError, match=words):
        model.predict(**options)


def test_a_mode_between_the_clocks_of_the_board_is_predicted():
    model = jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=10)
    assert len(model.predict(modes=[MODES[0]._replace(gpu_khz=400_000)])) == 1


@pytest.mark.parametrize(
    "limits", [{"power_w": [20, 30]}, {"power_w": -1}, {"time_ms": "50"}, {"risk": "0.1"}, {"risk": 2}]
)
def test_a_limit_that_is_no_number_above_0_is_refused(limits):
    model = jetwatt.fit(CORPUS, workload="resnet18-imagenet", modes=10)
    [(name, value)] = limits.items()
    with pytest.raises(HarnessError, match=re.escape(f"{name} is {value!r}, expected a ")):
        model.best(**{"time_ms": 100, **limits})


def test_fit_takes_a_workload_for_its_name():
    unused = [lambda *given: None] * 3
    own = jetwatt.Workload("resnet18-imagenet", *unused)
    by_name, by_workload = (jetwatt.fit(CORPUS, workload=each, modes=5) for each in (own.name, own))
    pd.testing.assert_frame_equal(by_workload.predict(), by_name.predict())

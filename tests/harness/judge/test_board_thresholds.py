"""A board's own threshold: profiles carry it, and comparisons use it where no threshold is given."""

from __future__ import annotations

import json

import msgspec
import pytest

from harness.__main__ import main
from harness.core.board_threshold import CONDITION, BoardThreshold, path_of, read, write
from harness.core.errors import HarnessError, InvalidValueError
from harness.judge.baseline import Gate, record, tolerance_in_words
from harness.judge.sides import case_of, read_baseline
from harness.store.results import ResultsStore
from harness.summary import extra_info
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.messages import says

SOFTWARE = {"l4t": "36.4.3", "jetpack": "6.2", "torch": "2.15.0"}
WORDS = (
    "minibatch time 4.0%, power 1.2% on orin-agx@orin3 (doctor --accept of 2026-11-20, 6 runs of "
    "orin-agx-lenet-mnist-maxn-w0-ssd-bs16, l4t 36.4.3, jetpack 6.2, torch 2.15.0)"
)


def threshold(time_share=0.04, power_share=0.012, **changes):
    shares = {"minibatch_time_ms": time_share, "power_mw": power_share}
    identity = ("orin-agx", "orin3", "measured", "orin-agx-lenet-mnist-maxn-w0-ssd-bs16")
    made = BoardThreshold(shares, *identity, 6, "2026-11-20T10:00:00+00:00", SOFTWARE)
    return msgspec.structs.replace(made, **changes)


def profile(time_ms=100.0, power_mw=9000.0, own=None, **conditions):
    carried = {} if own is None else {CONDITION: msgspec.to_builtins(own)}
    return make_profile(
        [time_ms] * 40, power_mw=power_mw, case={"device": "orin-agx"}, conditions={**carried, **conditions}
    )


def measured(path, *arguments, **changes):
    with ResultsStore(path) as store:
        for run in range(3):
            store.add(profile(*arguments, **changes), ENVIRONMENT, f"{path.stem}{run}")
    return path


def statuses(document):
    return {finding["figure"]: finding["status"] for finding in document["cases"]}


@pytest.fixture
def compare(capsys):
    def compare(*arguments):
        code = main(["compare", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return compare


@pytest.mark.parametrize("carrying", ["both", "before", "after"])
def test_compare_uses_the_threshold_that_the_profiles_carry(tmp_path, compare, carrying):
    own = {side: threshold() if carrying in (side, "both") else None for side in ("before", "after")}
    before = measured(tmp_path / "a", 100.0, 9000.0, own["before"])
    after = measured(tmp_path / "b", 103.0, 9150.0, own["after"])
    code, document = compare(before, after)
    assert statuses(document) == {"minibatch time": "slower, within the tolerance of 4 %", "power": "more power"}
    assert code == 1
    assert document["board_thresholds"] == [msgspec.to_builtins(threshold())]


@pytest.mark.exhaustive
def test_without_one_and_with_a_given_one_compare_is_as_before(tmp_path, compare):
    before, after = measured(tmp_path / "a", 100.0), measured(tmp_path / "b", 103.0, 9150.0)
    _, document = compare(before, after)
    assert statuses(document) == {"minibatch time": "slower", "power": "more power, within the tolerance of 2 %"}
    assert (document["threshold"], document["board_thresholds"]) == (0.02, [])
    own = measured(tmp_path / "c", 103.0, 9150.0, threshold())
    _, document = compare(before, own, "--threshold", "2")
    assert statuses(document) == {"minibatch time": "slower", "power": "more power, within the tolerance of 2 %"}
    assert document["board_thresholds"] == []


def test_compare_prints_where_the_threshold_comes_from(tmp_path, capsys):
    before, after = measured(tmp_path / "a", 100.0), measured(tmp_path / "b", 103.0, own=threshold())
    assert main(["compare", str(before), str(after)]) == 0
    assert f"- tolerance: {WORDS}; otherwise 2.0%" in unwrapped(capsys.readouterr().out)


def unwrapped(text):
    return " ".join(text.split())


def nights(folder, time_ms, power_mw, **own):
    """Twenty nights, the later ten with these figures; `last` is the threshold of the last one, `all` of the others."""
    for night in range(20):
        figures = (100.0, 9000.0) if night < 10 else (time_ms, power_mw)
        carried = own.get("last") if night == 19 else own.get("all")
        with ResultsStore(folder / f"night-{night}.sqlite") as store:
            store.add(profile(*figures, own=carried), ENVIRONMENT, f"run {night}")
    return folder


def history_of(capsys, *arguments):
    code = main(["history", *map(str, arguments), "--json"])
    document = json.loads(capsys.readouterr().out)
    return code, {series["figure"]: series["status"] for series in document["series"]}, document


@pytest.mark.exhaustive
def test_history_uses_the_newest_threshold_that_the_profiles_carry(tmp_path, capsys):
    folder = nights(tmp_path, 103.0, 9150.0, all=threshold(time_share=0.02), last=threshold())
    for _ in range(2):  # read from the files, then from the index
        code, by_figure, document = history_of(capsys, folder)
        assert (code, by_figure) == (
            1,
            {"minibatch time": "slower, within the tolerance of 4 %", "power": "more power"},
        )
        assert document["board_thresholds"] == [msgspec.to_builtins(threshold())]
        assert {series["figure"]: series["threshold"] for series in document["series"]} == {
            "minibatch time": 0.04,
            "power": 0.012,
        }
    main(["history", str(folder)])
    assert f"tolerance: {WORDS}; otherwise 2.0% " in " ".join(capsys.readouterr().out.split())
    _, by_figure, document = history_of(capsys, folder, "--threshold", "2")
    assert by_figure == {"minibatch time": "slower", "power": "more power, within the tolerance of 2 %"}
    assert document["board_thresholds"] == []


@pytest.mark.exhaustive
def test_a_history_without_one_is_as_before(tmp_path, capsys):
    _, by_figure, document = history_of(capsys, nights(tmp_path, 103.0, 9150.0))
    assert by_figure == {"minibatch time": "slower", "power": "more power, within the tolerance of 2 %"}
    assert (document["threshold"], document["board_thresholds"]) == (0.02, [])


@pytest.mark.exhaustive
def test_a_history_leaves_out_a_night_whose_threshold_is_none(tmp_path, capsys):
    folder = nights(tmp_path, 103.0, 9150.0, last=threshold(time_share=0.2))
    _, _, document = history_of(capsys, folder)
    [reason] = document["left_out"]
    assert says(reason, "night-19.sqlite", "board_threshold", "minibatch_time_ms", "0.2")


def test_a_baseline_carries_it_and_the_check_prints_it(tmp_path, capsys):
    with ResultsStore(measured(tmp_path / "a", own=threshold(time_share=0.012))) as store:
        record(store, tmp_path / "b.json")
    slower = measured(tmp_path / "c", 103.0)
    command = ["baseline", "check", "--results", str(slower), "--baseline", str(tmp_path / "b.json")]
    assert main(command) == 1
    printed = unwrapped(capsys.readouterr().out)
    assert says(printed, "minibatch time 1.2%, power 1.2%", "orin-agx@orin3")
    assert says(printed, "otherwise", "minibatch time 5.0%, power 5.0%, peak memory 10.0%")
    assert main([*command, "--threshold", "5"]) == 0
    assert "orin3" not in capsys.readouterr().out


def test_a_file_of_pytest_benchmark_carries_it(tmp_path, compare):
    def written(name, given):
        names = {"name": "case", "fullname": "case", "params": None, "extra_info": extra_info(given)}
        times = {"stats": {"data": [minibatch.e2e_ms / 1000 for minibatch in given.counted]}}
        document = {"machine_info": {}, "benchmarks": [{**names, **times}], "datetime": "2026-11-21"}
        (tmp_path / name).write_text(json.dumps(document))
        return tmp_path / name

    before, after = written("a.json", profile()), written("b.json", profile(103.0, own=threshold()))
    _, document = compare(before, after)
    assert statuses(document)["minibatch time"] == "slower, within the tolerance of 4 %"
    assert document["board_thresholds"] == [msgspec.to_builtins(threshold())]


def test_the_gate_of_a_run_has_the_limit_of_the_board(tmp_path):
    with ResultsStore(measured(tmp_path / "a")) as store:
        record(store, tmp_path / "b.json")
    gate = Gate(read_baseline(tmp_path / "b.json"))
    limits = [gate.check(profile(own=own))[0].limit for own in (None, threshold(time_share=0.025))]
    assert limits == pytest.approx([105.0, 102.5])
    assert tolerance_in_words(gate.check(profile(own=threshold()))).startswith(WORDS)


def test_a_threshold_of_other_software_is_used_and_says_so(tmp_path, capsys):
    own = threshold()
    before, after = (measured(tmp_path / name, own=own, torch="2.16.0") for name in ("a", "b"))
    main(["compare", str(before), str(after)])
    words = "measured with torch 2.15.0, not 2.16.0: repeat it with jetwatt doctor --accept=again"
    assert f"{WORDS}, {words}" in unwrapped(capsys.readouterr().out)


@pytest.mark.parametrize("share", [0.0, -0.01, 0.2])
def test_a_share_that_no_acceptance_test_gives_is_refused(tmp_path, share):
    with pytest.raises(InvalidValueError, match="threshold of minibatch_time_ms is"):
        case_of(profile(own=threshold(time_share=share)))
    with ResultsStore(measured(tmp_path / "a", own=threshold())) as store:
        record(store, tmp_path / "b.json")
    document = json.loads((tmp_path / "b.json").read_text())
    document["cases"][0][CONDITION]["shares"]["minibatch_time_ms"] = share
    (tmp_path / "b.json").write_text(json.dumps(document))
    with pytest.raises(HarnessError, match=r"damaged.*threshold of minibatch_time_ms is"):
        read_baseline(tmp_path / "b.json")


def test_it_is_stored_for_each_board_and_a_damaged_file_is_an_error(tmp_path):
    own = threshold()
    path = path_of(tmp_path, own.device, own.board_instance)
    assert read(path) is None
    write(path, own)
    assert read(path) == own
    assert path_of(tmp_path, own.device, "orin4") != path != path_of(tmp_path, own.device, None)
    path.write_text("{")
    with pytest.raises(InvalidValueError, match=r"cannot be read.*accept=again"):
        read(path)

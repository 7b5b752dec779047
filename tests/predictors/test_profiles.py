"""A corpus falls into tables of one workload each, which know what they hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.corpus import write_corpus
from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.measured_tables import load_table
from predictors.choose.corpora import load_tables
from predictors.profiles import find_table, tables_of
from predictors.strategies.closed_loop import learn
from predictors.strategies.protocol import History, TableProfiler
from tests.predictors.plain_predictors import SPACE, LogLinear, made_table


def test_profiles_whose_gpu_clock_was_not_applied_are_found():
    table = made_table()
    assert len(table.unapplied()) == 0
    place = int(np.flatnonzero(table.modes[:, 2] == 420_750)[3])
    time_ms, power_mw = table.time_ms.copy(), table.power_mw.copy()
    time_ms[place] /= 5
    power_mw[place] *= 3
    assert dataclasses.replace(table, time_ms=time_ms, power_mw=power_mw).unapplied().tolist() == [place]


def test_a_reference_that_holds_the_target_s_own_profiles_is_left_out():
    table, other = made_table(), made_table("bert-squad")
    assert table.admissible((table.take(slice(3)), other)) == (other,)


def rows_of(table, **changes):
    about = {"device": table.device, "workload": table.workload, "task": table.task, "provenance": table.provenance}
    columns = zip(table.modes.tolist(), table.time_ms.tolist(), table.power_mw.tolist())
    return [
        {
            **about,
            **dict(zip(("cpu_cores", "cpu_khz", "gpu_khz", "mem_khz"), mode)),
            "batch_size": 16,
            "minibatch_time_ms": time_ms,
            "power_mw": power_mw,
            **changes,
        }
        for mode, time_ms, power_mw in columns
    ]


def test_a_corpus_file_becomes_a_table_for_each_workload_device_task_and_provenance(tmp_path):
    table = made_table()
    others = [{"workload": "bert-squad"}, {"task": "inference"}, {"provenance": "replayed"}, {"device": "my-board"}]
    rows = [row for change in ({}, *others) for row in rows_of(table, **change)]
    write_corpus(tmp_path / "c.csv", rows)
    loaded = load_tables(tmp_path / "c.csv")
    assert [len(one) for one in loaded] == [54] * 5
    assert loaded[0].fingerprint == table.fingerprint
    assert len({one.fingerprint for one in loaded}) == 5


def test_a_workload_is_found_or_what_there_is_is_listed():
    tables = tables_of([*rows_of(made_table("a")), *rows_of(made_table("b"))])
    assert find_table(tables, "b").workload == "b"
    with pytest.raises(UnknownNameError, match="available: a, b"):
        find_table(tables, "c")
    with pytest.raises(UnknownNameError, match="no inference at all"):
        find_table(tables, "a", "inference")


def test_a_workload_of_two_devices_is_not_chosen_by_chance():
    tables = tables_of([*rows_of(made_table()), *rows_of(made_table(), device="nano")])
    with pytest.raises(InvalidValueError, match="more than once"):
        find_table(tables, "lenet-mnist")
    assert find_table(tables, "lenet-mnist", device="nano").device == "nano"
    devices = f"no training of 'lenet-mnist' on 'a40'; available: nano, {made_table().device}"
    with pytest.raises(UnknownNameError, match=devices):
        find_table(tables, "lenet-mnist", device="a40")


def test_rows_without_power_and_repeats_are_not_in_the_complete_table():
    rows = rows_of(made_table())[:4]
    rows[0]["power_mw"] = None
    rows.append({**rows[2], "minibatch_time_ms": rows[2]["minibatch_time_ms"] + 2})
    (table,) = tables_of(rows)
    complete = table.complete()
    assert np.isnan(table.power_mw[0])
    assert complete.modes.tolist() == table.modes[1:4].tolist()
    assert complete.time_ms[1] == pytest.approx(rows[2]["minibatch_time_ms"] + 1)


def entered_table():
    """Two modes, one of which was profiled twice; four minibatches of each profile, of which a power tells of few."""
    table, nan = made_table().take([0, 1, 0]), np.nan
    times = [[1.0, 2, 3, 4], [10, 20, 30, 40], [5, 6, 7, 8]]
    powers = [[nan, 10, nan, 20], [nan] * 4, [nan] * 4]
    return dataclasses.replace(table, entries=np.stack([times, powers], axis=2))


def test_each_minibatch_becomes_a_row_and_powers_are_repeated():
    merged = entered_table().merged()
    rows = merged.by_minibatch()
    assert rows.modes.tolist() == np.repeat(merged.modes, 8, axis=0).tolist()
    assert rows.time_ms.tolist() == [*range(1, 9), 10, 20, 30, 40, 10, 20, 30, 40]
    assert rows.power_mw.tolist() == [10, 20] * 4 + [merged.power_mw[1]] * 8
    assert merged.fingerprint != dataclasses.replace(merged, entries=None).fingerprint
    assert made_table().by_minibatch() == made_table()


@pytest.mark.parametrize(
    ("count", "time_ms", "power_mw"), [(1, [1, 10, 5], 10), (3, [2, 20, 6], 10), (4, [2.5, 25, 6.5], 15)]
)
def test_a_profile_cut_short_says_what_its_first_minibatches_say(count, time_ms, power_mw):
    whole = entered_table()
    cut = whole.first_minibatches(count)
    assert cut.time_ms.tolist() == time_ms
    assert cut.power_mw.tolist() == [power_mw, *whole.power_mw[1:]]


def test_the_fingerprint_says_what_is_in_the_rows_taken():
    table = made_table()
    assert table.take([0, 1]).fingerprint == table.take(slice(2)).fingerprint
    assert table.take([1, 0]).fingerprint != table.take([0, 1]).fingerprint
    assert table.take([0, 1]) == table.take(slice(2)) != table.take([1, 0])
    assert len({table, made_table()}) == 1


def test_tables_overlap_where_they_share_a_profile():
    table = made_table()
    assert table.take(slice(10)).overlaps(table.take(slice(9, 20)))
    assert not table.take(slice(10)).overlaps(table.take(slice(10, 20)))
    assert not table.overlaps(made_table("bert-squad"))


def test_the_space_of_a_table_holds_the_values_it_has():
    assert made_table().space() == SPACE


def test_what_a_table_says_of_itself_is_short():
    assert len(repr(made_table())) < 200


def test_rows_under_another_power_limit_are_not_repetitions_and_are_not_suspected():
    table = tables_of(load_table("zeus-v100"))[0]
    assert len(set(table.power_limit_mw.tolist())) == 7
    assert len(table.merged()) == 70  # ten batch sizes, seven limits, two optimizers
    one_size = table.merged().take(table.merged().batch_size == 8)
    steps = 1 + one_size.power_limit_mw.argsort()
    odd = dataclasses.replace(one_size, time_ms=10.0**steps, power_mw=1e6 / steps)  # slower and less power each time
    assert len(odd.unapplied()) == 0
    assert table.take([1, 0]).power_limit_mw.tolist() == table.power_limit_mw[[1, 0]].tolist()
    assert table.fingerprint != dataclasses.replace(table, power_limit_mw=table.power_limit_mw + 1).fingerprint


def test_power_limits_of_some_rows_alone_are_refused():
    frame = load_table("zeus-a40")
    some = frame.assign(power_limit_mw=frame["power_limit_mw"].where(frame["batch_size"] > 8))
    with pytest.raises(InvalidValueError, match=r"on a40 .*power_limit_mw"):
        tables_of(some)
    assert all(one.power_limit_mw is None for one in tables_of(frame.drop(columns="power_limit_mw")))


def test_a_search_learns_nothing_from_a_profile_whose_clock_was_not_applied_as_a_fit_does():
    table = made_table()
    low, high = np.flatnonzero((table.modes[:, [0, 1, 3]] == table.modes[0, [0, 1, 3]]).all(axis=1))[:2]
    time_ms, power_mw = table.time_ms.copy(), table.power_mw.copy()
    time_ms[low], power_mw[low] = time_ms[high] / 5, 3 * power_mw[high]
    faulty = dataclasses.replace(table, time_ms=time_ms, power_mw=power_mw)
    history = History(TableProfiler(faulty), 10)
    history.profile_all([int(low), int(high), 20, 40])
    predictor = LogLinear()
    learn(predictor, history)
    fitted = LogLinear().fit(faulty.take(np.array([high, 20, 40])))
    assert np.array_equal(predictor.weights_, fitted.weights_)
    (note,) = history.profiles.notes_on_unapplied()
    assert note.endswith(f"not run at their own: {table.mode(int(low)).name}")

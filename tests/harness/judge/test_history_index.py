"""The index of a history: equal to reading every night, whatever happens to nights and index in between."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.__main__ import main
from harness.core import terminal
from harness.core.errors import StoreError
from harness.core.notes import NoteWarning
from harness.judge import history_index, nights
from harness.judge.history import read_history, to_plain
from harness.judge.history_index import NAME
from harness.store.archive import open_stored
from harness.store.results import ResultsStore
from tests.harness.store.profile_examples import ENVIRONMENT, make_profile
from tests.harness.store.test_store_processes import start_child

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # numpy's threads are idle here


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as unchanged without the wait after their last change."""
    monkeypatch.setattr(history_index, "SETTLED_NS", -(10**18))


def make_night(path: Path, number: int = 1, time_ms: float = 100.0, cases: int = 2, **changes: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with ResultsStore(path) as store:
        for batch_size in range(1, cases + 1):
            profile = make_profile(
                [time_ms + number] * 12, case={"batch_size": batch_size, "device": "orin-agx"}, **changes
            )
            store.add(
                profile,
                {**ENVIRONMENT, "suite_commit": f"c{number}"},
                f"run {number}",
                f"2026-01-{number:02}T02:00:0{batch_size}.000000+00:00",
            )
    return path


@functools.lru_cache(maxsize=None)
def content_of_night(number: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return make_night(Path(folder) / "night", number).read_bytes()


def make_nights(folder: Path, count: int = 3) -> Path:
    for number in range(1, count + 1):
        own = folder / f"n{number}"
        own.mkdir(parents=True)
        (own / f"n{number}.sqlite").write_bytes(content_of_night(number))
    return folder


def direct(*paths: Path, **options: Any) -> str:
    return to_plain(read_history(paths, index=False, **options))


def indexed(*paths: Path, **options: Any) -> str:
    return to_plain(read_history(paths, **options))


class Reads:
    """The files that are read as results files, and not taken from the index."""

    def __init__(self) -> None:
        self.names: List[str] = []

    def __call__(self, path: str) -> Any:
        self.names.append(Path(path).name)
        return open_stored(path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    made = Reads()
    monkeypatch.setattr(nights, "open_stored", made)
    return made


@st.composite
def a_profile(draw: st.DrawFn) -> Dict[str, Any]:
    return {
        "time_ms": draw(st.floats(1, 1000)),
        "power_mw": draw(st.none() | st.floats(1, 1e5)),
        "batch_size": draw(st.integers(1, 3)),
        "instance": draw(st.none() | st.sampled_from(["a", "\ud800", "b\x1b"])),
        "torch": draw(st.sampled_from(["2.8", "2.9"])),
        "flags": draw(st.sampled_from([(), ("disturbed: others",), ("power-unsettled: no",)])),
        "run": draw(st.sampled_from(["r1", "r2", "r3"])),
        "second": draw(st.integers(0, 5)),
    }


def add(store: ResultsStore, spec: Dict[str, Any]) -> None:
    conditions = {"torch": spec["torch"], **({"board_instance": spec["instance"]} if spec["instance"] else {})}
    case = {"batch_size": spec["batch_size"], "device": "orin-agx"}
    profile = make_profile([spec["time_ms"]] * 3, spec["power_mw"], case, conditions=conditions, flags=spec["flags"])
    store.add(profile, ENVIRONMENT, spec["run"], f"2026-01-01T00:00:0{spec['second']}.000000+00:00")


@pytest.mark.exhaustive
@settings(max_examples=12)
@given(
    content=st.lists(st.lists(a_profile(), min_size=1, max_size=3), min_size=1, max_size=2),
    include_flagged=st.booleans(),
)
def test_the_index_gives_what_reading_every_night_gives(tmp_path_factory, content, include_flagged):
    folder = tmp_path_factory.mktemp("nights")
    for number, specs in enumerate(content):
        with ResultsStore(folder / f"night-{number}.sqlite") as store:
            store.add(make_profile(), ENVIRONMENT, "without flags", "2026-01-02T00:00:00.000000+00:00")
            for spec in specs:
                add(store, spec)
    expected = direct(folder, include_flagged=include_flagged)
    assert [indexed(folder, include_flagged=include_flagged) for _ in range(2)] == [expected] * 2
    shutil.rmtree(folder)


def test_a_night_is_read_once(tmp_path, reads):
    make_nights(tmp_path)
    first = indexed(tmp_path)
    assert len(reads.names) == 3
    assert indexed(tmp_path) == first
    assert len(reads.names) == 3
    make_night(tmp_path / "n4.sqlite", 4)
    assert indexed(tmp_path) == direct(tmp_path) != first
    assert reads.names[3] == "n4.sqlite"


def replaced(path: Path) -> None:
    """A file of the same size and times with other content."""
    before = path.stat()
    draft = make_night(path.with_name("draft"), 1, time_ms=300.0)
    os.replace(draft, path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def grown(path: Path) -> None:
    make_night(path, 9)


CHANGES = {
    "grown": grown,
    "replaced": replaced,
    "removed": Path.unlink,
    "foreign": lambda path: path.write_text("hello"),
    "restored": lambda path: shutil.copy(make_night(path.with_name("d"), 1, time_ms=50.0), path),
    "renamed": lambda path: path.rename(path.with_name("other.db")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_night_that_changes_is_noticed(tmp_path, change, reads):
    make_nights(tmp_path)
    before = indexed(tmp_path)
    CHANGES[change](tmp_path / "n1" / "n1.sqlite")
    (tmp_path / "n1" / "d").unlink() if change == "restored" else None
    after = indexed(tmp_path)
    assert after == direct(tmp_path)
    assert (after == before) == (change == "renamed")
    assert indexed(tmp_path) == after


def test_a_file_that_was_read_just_after_its_last_change_is_read_again(tmp_path, reads, monkeypatch):
    make_nights(tmp_path, 2)
    indexed(tmp_path)
    monkeypatch.setattr(history_index, "SETTLED_NS", 10**18)
    indexed(tmp_path)
    assert len(reads.names) == 4


def flipped(place: int) -> Any:
    """One bit of the file differs; a negative place counts from its end."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(bytes(content))

    return damage


LOST = {
    "removed": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello" * 1000),
    "earlier-version": lambda path: path.write_bytes(b"SQLite format 3\0" * 300),
    "first-byte": flipped(0),
    "checksum": flipped(len(history_index.MAGIC)),
    "text-of-row": flipped(len(history_index.MAGIC) + 300),
    "value": flipped(-1),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-8]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + bytes(8)),
}


@pytest.mark.parametrize("how", LOST)
def test_an_index_that_is_lost_or_damaged_is_made_anew(tmp_path, how, reads):
    make_nights(tmp_path, 3)
    expected = indexed(tmp_path)
    LOST[how](tmp_path / NAME)
    assert indexed(tmp_path) == expected
    assert len(reads.names) == 6, "the nights were not read again"
    assert indexed(tmp_path) == expected
    assert len(reads.names) == 6


def test_an_index_of_other_code_is_made_anew(tmp_path, reads, monkeypatch):
    make_nights(tmp_path, 2)
    indexed(tmp_path)
    other = tmp_path / "other_code.py"
    other.write_text("")
    monkeypatch.setattr(history_index.profile_columns, "__file__", str(other))
    history_index._version.cache_clear()
    try:
        indexed(tmp_path)
    finally:
        history_index._version.cache_clear()
    assert len(reads.names) == 4


@pytest.mark.exhaustive
def test_processes_share_an_index(tmp_path):
    make_nights(tmp_path, 4)
    expected = direct(tmp_path)

    def check() -> None:
        for _ in range(5):
            assert indexed(tmp_path) == expected
            with contextlib.suppress(FileNotFoundError):
                (tmp_path / NAME).unlink()

    children = [start_child(check) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert indexed(tmp_path) == expected
    assert [path.name for path in tmp_path.glob(".*")] == [NAME]


def test_an_interrupted_run_keeps_the_nights_that_it_has_read(tmp_path, reads):
    make_nights(tmp_path, 3)

    def interrupt(done: int, total: int, file: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_history([tmp_path], report=interrupt)
    del reads.names[:]
    assert indexed(tmp_path) == direct(tmp_path)
    assert reads.names == ["n2.sqlite", "n3.sqlite", "n1.sqlite", "n2.sqlite", "n3.sqlite"]


def test_the_index_is_written_while_many_nights_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(nights, "_FEWEST_KEPT", 2)
    make_nights(tmp_path, 3)
    sizes = []

    def report(done: int, total: int, file: str) -> None:
        sizes.append((tmp_path / NAME).exists())

    assert to_plain(read_history([tmp_path], report=report)) == direct(tmp_path)
    assert sizes == [False, False, True]


def test_a_full_disk_leaves_the_index_as_it_was(tmp_path, monkeypatch, capsys):
    make_nights(tmp_path, 4)
    (tmp_path / "n4").rename(tmp_path / "n4.later")
    (tmp_path / "n4.later/n4.sqlite").rename(tmp_path / "n4.later/n4")
    indexed(tmp_path)
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / "n4.later/n4").rename(tmp_path / "n4.sqlite")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    expected = direct(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.warns(NoteWarning, match="No space left") as warned:
            histories = read_history([tmp_path])
        assert [str(each.message) for each in warned] == histories.notes
        assert to_plain(histories._replace(notes=[])) == expected
        assert main(["history", str(tmp_path)]) == 0
        assert capsys.readouterr().err.endswith(f"note: {histories.notes[0]}\n")
    assert (tmp_path / NAME).read_bytes() == content
    assert [path.name for path in tmp_path.glob(".*")] == [NAME]
    assert read_history([tmp_path]).notes == []


def test_a_night_that_is_being_written_counts_so_far_and_is_named(tmp_path, reads):
    make_nights(tmp_path, 3)
    indexed(tmp_path)
    with ResultsStore(tmp_path / "n4.sqlite") as writer:
        profile = make_profile(case={"device": "orin-agx", "batch_size": 1})
        writer.add(profile, ENVIRONMENT, "run 4", "2026-01-04T00:00:00.000000+00:00")
        for _ in range(2):
            [reason] = read_history([tmp_path]).left_out
            assert "n4.sqlite is being written" in reason
            assert "1 profiles" in reason
        assert reads.names[3:] == ["n4.sqlite"] * 2
        writer.add(profile, ENVIRONMENT, "run 5", "2026-01-05T00:00:00.000000+00:00")
        assert indexed(tmp_path) == direct(tmp_path)
    assert read_history([tmp_path]).left_out == []


def test_an_index_file_serves_single_files_and_is_no_other_file(tmp_path, reads, capsys):
    files = [make_night(tmp_path / f"n{number}.sqlite", number) for number in (1, 2)]
    index = tmp_path / "index"
    assert indexed(*files, index=index) == direct(*files)
    count = len(reads.names)
    assert indexed(files[0], index=index) == to_plain(read_history([files[0]], index=index))
    assert len(reads.names) == count
    assert main(["history", *map(str, files), "--index", str(files[0])]) == 2
    assert "the index" in capsys.readouterr().err
    assert len(ResultsStore(files[0])) == 2
    assert read_history(files, index=files[0]).notes


def test_a_history_that_reads_many_nights_shows_its_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("harness.cli.history._SILENT_S", 0.0)
    monkeypatch.setattr(terminal, "PLAIN_INTERVAL_S", 0.0)
    make_nights(tmp_path)
    (tmp_path / "n2/n2.sqlite").write_bytes(b"no results file")
    main(["history", str(tmp_path)])
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub("[0-9]+ s left", "N s left", line) for line in lines] == [
        f"[{number}/3, N s left] {tmp_path}/n{number}/n{number}.sqlite" for number in (1, 2, 3)
    ]
    main(["history", str(tmp_path)])
    assert capsys.readouterr().err.count("\n") == 1  # the damaged one is read each time, the others once
    monkeypatch.setattr("harness.cli.history._SILENT_S", 60.0)
    main(["history", str(tmp_path), "--no-index"])
    assert capsys.readouterr().err == ""


@pytest.fixture
def everything_loaded(tmp_path):
    """Python may be installed where a plain user cannot read it."""
    indexed(make_nights(tmp_path / "loads", 3))


def test_an_index_that_cannot_be_written_is_read_or_left_alone(everything_loaded, plain_user):
    folder = plain_user / "nights"
    make_nights(folder, 3)
    expected = direct(folder)
    folder.chmod(0o555)
    assert indexed(folder) == expected
    assert not (folder / NAME).exists()
    folder.chmod(0o755)
    indexed(folder)
    (folder / "n1" / "n1.sqlite").unlink()
    make_night(folder / "n2" / "n9.sqlite", 9)
    folder.chmod(0o555)
    for file in folder.glob(f"{NAME}*"):
        file.chmod(0o444)
    content = (folder / NAME).read_bytes()
    assert indexed(folder) == direct(folder) != expected
    assert (folder / NAME).read_bytes() == content
    folder.chmod(0o755)


def link_to(target: str) -> Any:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    "make", [link_to("victim"), link_to("nowhere"), os.mkfifo, Path.mkdir], ids=["link", "loose", "fifo", "folder"]
)
def test_whatever_has_the_name_of_the_index_is_not_followed(tmp_path, make):
    make_nights(tmp_path, 2)
    (tmp_path / "victim").write_text("as it was")
    make(tmp_path / NAME)
    histories = read_history([tmp_path])
    assert len(histories.series[0].points) == 2
    assert len(histories.notes) == 1
    assert (tmp_path / "victim").read_text() == "as it was"
    assert not (tmp_path / "nowhere").exists()


def test_an_index_of_another_user_in_a_shared_folder_is_not_read(tmp_path, monkeypatch):
    make_nights(tmp_path, 2)
    indexed(tmp_path)
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    if os.getuid() == 0:
        os.chown(tmp_path / NAME, 65534, -1)
    [note] = read_history([tmp_path]).notes
    assert "another user" in note


def test_links_of_other_users_and_names_that_are_no_text(tmp_path, monkeypatch):
    make_nights(tmp_path, 2)
    odd = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\x1b\n.sqlite")
    make_night(Path(odd), 3)
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "n1" / "n1.sqlite")
    os.mkfifo(str(tmp_path / "fifo.sqlite"))
    histories = read_history([tmp_path])
    assert [len(series.points) for series in histories.series] == [3] * 4
    assert [reason for reason in histories.left_out if "fifo" not in reason] == []
    assert indexed(tmp_path) == direct(tmp_path)
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(
        os, "lstat", lambda path, **options: os.stat_result((stat.S_IFLNK, 0, 0, 0, 4712, 0, 0, 0, 0, 0))
    )
    with pytest.raises(StoreError, match="link of another user"):
        read_history([tmp_path], index=False)


def test_a_profile_in_several_files_counts_once(tmp_path):
    with ResultsStore(tmp_path / "night.sqlite") as store, ResultsStore(tmp_path / "part.sqlite") as part:
        for time_ms in (100.0, 200.0):
            store.add(make_profile([time_ms] * 12), ENVIRONMENT, "run")
        part.merge(store, numbers=[1])
    for index in (True, True, False):
        [time, _] = read_history([tmp_path], index=index).series
        assert [point.value for point in time.points] == [150.0]


def test_profiles_of_runs_that_alternate_belong_to_their_runs(tmp_path):
    with ResultsStore(tmp_path / "night.sqlite") as store:
        for second, (run, time_ms) in enumerate([("a", 100.0), ("b", 300.0), ("a", 200.0), ("b", 500.0)]):
            profile = make_profile([time_ms] * 12)
            store.add(profile, {"kernel": f"{second}"}, run, f"2026-01-01T00:00:0{second}.000000+00:00")
    [time, _] = read_history([tmp_path]).series
    points = [(point.run_id, point.value, point.created_at[17:19], point.software["kernel"]) for point in time.points]
    assert points == [("a", 150.0, "02", "2"), ("b", 400.0, "03", "3")]


def test_a_time_that_is_none_leaves_out_its_file(tmp_path):
    make_nights(tmp_path, 2)
    with ResultsStore(tmp_path / "odd.sqlite") as store:
        store.add(make_profile(), ENVIRONMENT, "run", "yesterday")
    [reason] = read_history([tmp_path]).left_out
    assert "odd.sqlite" in reason
    assert "'yesterday'" in reason

"""`results`: describe results files, merge several, archive old ones, and remove old raw series."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, Tuple

from harness.cli.options import output_file, output_folder
from harness.core.errors import InvalidValueError
from harness.core.profiles import RAW_PRUNED
from harness.core.terminal import counted, format_table, shown
from harness.core.units import bytes_to_mb
from harness.store.archive import archive_results
from harness.store.frames import profiles
from harness.store.maintenance import MergedFile, merge_results, prune_results
from harness.store.results import ResultsStore

OK_CODE, LEFT_OUT_CODE = 0, 2
_DAYS = {"d": 1, "w": 7}
_OF = ("device", "board_instance", "provenance", "jetpack", "torch", "jetwatt", "host_name")
_COUNTS = ("profiles", "runs", "flagged", "raw_pruned")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Describe results files, merge several into one, archive old ones, or remove old raw series."
    actions = parser.add_subparsers(dest="action", required=True)
    merging = actions.add_parser(
        "merge",
        description="Copy every profile of some results files into one, raw series included. Each keeps its board, its"
        " run, its software and its provenance. A profile is never added twice: after an interruption, or with more"
        " files, run it again.",
        epilog="exit code: 0 all files are in OUT; 2 one could not be read and is listed, the others are in OUT",
    )
    merging.add_argument("files", type=Path, nargs="+", metavar="FILE", help="results files, or folders of archives")
    merging.add_argument(
        "--out", type=output_file, required=True, help="the file to add to, created if it does not exist"
    )
    informing = actions.add_parser(
        "info", description="Show the boards and software of the profiles in results files, their number, and dates."
    )
    informing.add_argument("files", type=Path, nargs="+", metavar="FILE", help="results files")
    informing.add_argument("--json", action="store_true", help="print JSON")
    archiving = actions.add_parser(
        "archive",
        description="Move results files whose profiles are all older than an age into an archive: Parquet files that"
        " DuckDB and pandas read, partitioned by board and month, with all raw series. `history` reads archives, and"
        " `merge` makes a results file of them for other commands. Each file is read back and compared before its"
        " nights are removed. After an interruption, run it again. Needs pyarrow (the extra `report`).",
        epilog="exit code: 0 all old nights are in the archive; 2 a file was left out and is listed. Example, once a"
        " month: jetwatt results archive nights/ --older-than 60d",
    )
    archiving.add_argument("folder", type=Path, metavar="FOLDER", help="the nights: results files anywhere in it")
    archiving.add_argument(
        "--older-than", type=_days, required=True, metavar="AGE", help="the age from which nights are archived: 60d, 8w"
    )
    archiving.add_argument(
        "--out", type=output_folder, help="the folder of the archive (default: the folder `archive` in FOLDER)"
    )
    pruning = actions.add_parser(
        "prune",
        description="Permanently remove the raw minibatches and telemetry of old profiles. Aggregates, conditions and"
        " flags are kept, so exports and `history` have them all; `compare` and `baseline` need raw series and exclude"
        f" pruned profiles, which are flagged {RAW_PRUNED}. Keep a copy if you may need them again.",
    )
    pruning.add_argument("file", type=Path, metavar="FILE", help="a results file")
    pruning.add_argument(
        "--keep-raw", type=_days, required=True, metavar="AGE", help="the age up to which raw series are kept: 30d, 8w"
    )


def run(arguments: argparse.Namespace) -> int:
    actions = {"merge": _merge, "info": _info, "prune": _prune, "archive": _archive}
    return actions[arguments.action](arguments)


def _merge(arguments: argparse.Namespace) -> int:
    def show(merged: MergedFile) -> None:
        print(merged, file=sys.stderr if merged.problem else sys.stdout)

    merged = merge_results(arguments.files, out=arguments.out, show=show)
    print(merged)
    return LEFT_OUT_CODE if merged.left_out else OK_CODE


def _prune(arguments: argparse.Namespace) -> int:
    print(prune_results(arguments.file, keep_raw=arguments.keep_raw))
    return OK_CODE


def _archive(arguments: argparse.Namespace) -> int:
    archived = archive_results(arguments.folder, older_than=arguments.older_than, out=arguments.out)
    print(archived)
    for reason in archived.left_out:
        print(f"left out: {shown(reason)}", file=sys.stderr)
    return LEFT_OUT_CODE if archived.left_out else OK_CODE


def _days(text: str) -> int:
    match = re.fullmatch(r"(\d{1,5})([dw])", text)
    if match is None:
        raise InvalidValueError(f"the age is {text!r}", "write a number of days or weeks: 30d, 8w")
    return int(match[1]) * _DAYS[match[2]]


def _info(arguments: argparse.Namespace) -> int:
    summaries = []
    for path in dict.fromkeys(arguments.files):
        with ResultsStore(path, read_only=True) as store:
            summaries.append({"file": str(path), "bytes": path.stat().st_size, **_described(store)})
    print(json.dumps(summaries, indent=1) if arguments.json else "\n\n".join(map(_in_words, summaries)))
    return OK_CODE


def _described(store: ResultsStore) -> Dict[str, Any]:
    """The number of profiles of a file, their dates, boards and software, in the order of their first profiles."""
    frame = profiles(store, include_flagged=True).sort_index()
    groups: Dict[Tuple[Any, ...], Dict[str, Any]] = {}
    for row in frame.itertuples():
        suite = " ".join(version for version in (row.jetwatt, row.suite_commit) if version) or None
        place = (
            *(row.device_name, row.board_instance, row.provenance),
            *(row.jetpack, row.torch, suite, row.host_name),
        )
        group = groups.setdefault(place, {"profiles": 0, "runs": set(), "flagged": 0, "raw_pruned": 0})
        group["profiles"] += 1
        group["runs"].add(row.run_id)
        group["flagged"] += bool(set(row.flag_kinds) - {RAW_PRUNED})
        group["raw_pruned"] += RAW_PRUNED in row.flag_kinds
    boards = [{**dict(zip(_OF, place)), **group, "runs": len(group["runs"])} for place, group in groups.items()]
    stored = [frame["created_at"].min(), frame["created_at"].max()] if len(frame) else []
    return {"profiles": len(frame), "runs": int(frame["run_id"].nunique()), "stored": stored, "boards": boards}


def _in_words(summary: Dict[str, Any]) -> str:
    size = f"{bytes_to_mb(summary['bytes']):.1f} MB"
    profiles, runs = counted(summary["profiles"], "profile"), counted(summary["runs"], "run")
    text = f"{shown(summary['file'])}: {profiles} of {runs}, {size}"
    if not summary["boards"]:
        return text
    text += f", stored {' to '.join(moment[:16].replace('T', ' ') for moment in summary['stored'])} UTC"
    names = [name for name in (*_OF, *_COUNTS) if any(board[name] for board in summary["boards"])]
    header = [">" * (name in _COUNTS) + name.replace("_", " ") for name in names]
    rows = [["" if board[name] is None else str(board[name]) for name in names] for board in summary["boards"]]
    return f"{text}\n{format_table(header, rows)}"

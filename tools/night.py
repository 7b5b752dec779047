"""The verdict on a night that `tools/nightly.sh` measured: five lines, the summary of the job, green or red.

It reads the folder of the night: `steps.tsv` with the exit codes of the steps, `compare.json`, `history.json`, and the
output of each step.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from harness.core.errors import StoreError
from harness.core.files import read_json, write_output
from harness.core.terminal import counted, shown
from harness.core.units import share_to_percent
from harness.judge.quantities import QUANTITIES

GREEN_CODE, RED_CODE = 0, 1
CRASHED = 70  # of a command of jetwatt that ended with a traceback, or on a full disk
WORSE = tuple(each.worse for each in QUANTITIES)
FORGIVEN = ("baseline", "compare", "history")  # comparisons with earlier nights, which an accepted night need not pass
TABLES = ("requirements", "history", "compare")  # steps whose output is Markdown
MOST = 3
_TAIL = 40  # lines of a step that failed, in the summary
_LISTED_FIRST = ("torch", "l4t", "jetpack", "cuda", "python", "suite_commit")
UNDECIDED = 2  # exit code of a judgement without a verdict
_WORDS_OF_CODES = {
    "baseline": {1: "worse"},
    "compare": {1: "worse"},
    "history": {1: "worse", 2: "too few runs"},
    "requirements": {1: "not kept", UNDECIDED: "not decided"},
}
_UNSURE = "inconclusive, or not to be compared"


class Night:
    def __init__(self, folder: Path, accept: bool, strict: bool) -> None:
        self.folder, self.accept, self.strict = folder, accept, strict
        steps = [line.split("\t") for line in self.text_of("steps.tsv").splitlines()]
        self.codes: Dict[str, int] = {name: int(code) for name, code in steps}
        self.compared = self._json("compare.json")
        self.history = self._json("history.json")

    def text_of(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _json(self, name: str) -> Dict[str, Any]:
        return read_json(self.folder / name) if (self.folder / name).exists() else {}

    def ended(self, step: str) -> str:
        """The result of a step, in a word or two: pytest's counts, or the meaning of its exit code."""
        code, text = self.codes[step], self.text_of(f"{step}.txt")
        counted = re.findall(r"^=* ?((?:\d+ (?:failed|passed|error|skipped|deselected)\w*,? ?)+)", text, re.MULTILINE)
        if step.startswith(("campaign", "gates")) and counted:
            return re.sub(r",? \d+ deselected", "", counted[-1]).strip(", ")
        if code and re.search(r"^(?:\S+: )?error: ", text, re.MULTILINE):
            return "error"
        if step == "requirements" and re.search(r"^\S+ check: ", text, re.MULTILINE):  # an error instead of verdicts
            return "error"
        if code == CRASHED:
            return "error"
        unsure = _UNSURE if step in FORGIVEN else f"exit code {code}"
        return "ok" if code == 0 else _WORDS_OF_CODES.get(step, {}).get(code, unsure)

    def is_red(self, step: str) -> bool:
        code, ended = self.codes[step], self.ended(step)
        if code == 0 or step == "pages":
            return False
        if step == "requirements" and ended == _WORDS_OF_CODES[step][UNDECIDED]:
            return self.strict
        if step not in FORGIVEN or ended == "error":
            return True
        return not self.accept and (code == 1 or (ended == _UNSURE and self.strict))

    @property
    def red(self) -> List[str]:
        """The failed steps; a night without profiles fails too."""
        failed = [step for step in self.codes if self.is_red(step)]
        return failed or ([] if self.history else ["campaign"])

    @property
    def worse(self) -> List[Dict[str, Any]]:
        """The series of the history that became worse and are not accepted."""
        return [each for each in self.history.get("series", []) if each["status"] in WORSE and each["changes"]]


def five_lines(night: Night, name: str, last_green: Optional[str]) -> List[str]:
    overall = [
        f"{each['figure']}: {each['status']} ({_percent(each)})"
        for each in night.compared.get("overall", [])
        if each["ratio"]
    ]
    what = "; ".join(overall) or "nothing to compare with yet"
    failed = ", ".join(f"{step} ({night.ended(step)})" if step in night.codes else step for step in night.red)
    verdict = f"RED by {failed}" if failed else "GREEN, and accepted as the new normal" if night.accept else "GREEN"
    checks = ", ".join(f"{step} {night.ended(step)}" for step in night.codes)
    return [f"{verdict}: {name}: {what}", _since(night, last_green), _changed(night), _most(night), f"checks: {checks}"]


def _since(night: Night, last_green: Optional[str]) -> str:
    before = f"the last green night was {last_green}" if last_green else "no night before it was green"
    series = night.history.get("series", [])
    if not night.worse:
        moments = [run["created_at"][:16].replace("T", " ") for each in series for run in each["runs"]]
        most = max((len(each["runs"]) for each in series), default=0)
        text = (
            f"no change for the worse in {counted(most, 'run')} since {min(moments)}"
            if moments
            else "nothing was measured"
        )
        return f"since: {text}; {before}"
    begun = Counter(each["changes"][-1]["run_id"] for each in night.worse)
    run_id, count = begun.most_common(1)[0]
    change = next(each["changes"][-1] for each in night.worse if each["changes"][-1]["run_id"] == run_id)
    when = change["created_at"][:16].replace("T", " ")
    return f"since: {when} UTC (run {change['run']}), in {count} of {len(night.worse)} series that are worse; {before}"


def _changed(night: Night) -> str:
    """The software that differs, torch and the commit first, and the versions that do not."""
    lines = [*night.compared.get("changed", []), *night.compared.get("environment", [])]
    lines += [line for each in night.worse for line in each["changes"][-1]["differ"]]
    lines = sorted(dict.fromkeys(lines), key=lambda line: not line.startswith(_LISTED_FIRST))
    names = {line.partition(":")[0] for line in lines}
    runs = [run for each in night.history.get("series", []) for run in each["runs"][-1:]]
    software = max(runs, key=lambda run: run["created_at"])["software"] if runs else {}
    same = [f"{name} {software[name]}" for name in _LISTED_FIRST if name in software and name not in names]
    more = f" and {len(lines) - 2 * MOST} more" if len(lines) > 2 * MOST else ""
    text = "; ".join(lines[: 2 * MOST]) + more
    if not text:
        text = "nothing of the software" if night.compared else "not compared with an earlier night"
    text += f"; {'the same' if night.compared else 'now'}: {', '.join(same)}" if same else ""
    return f"changed: {text}".replace("suite_commit", "commit")


def _most(night: Night) -> str:
    """The cases that became worse by most; if none did, the range of all cases."""
    cases = [each for each in night.compared.get("cases", []) if each["ratio"]]
    worse = sorted((each for each in cases if each["status"] in WORSE), key=lambda each: -each["ratio"])
    if worse:
        text = [f"{each['name']} {each['status']} ({_percent(each)})" for each in worse[:MOST]]
        return f"cases: {len(worse)} of {len(cases)} figures are worse, most of all {'; '.join(text)}"
    ratios = [each["ratio"] for each in cases]
    return (
        f"cases: {len(cases)} figures, {_signed(min(ratios))} to {_signed(max(ratios))} %" if cases else "cases: none"
    )


def _signed(ratio: float) -> str:
    return f"{share_to_percent(ratio - 1):+.1f}"


def _percent(each: Dict[str, Any]) -> str:
    return f"{_signed(each['ratio'])} %, {_signed(each['low'])} to {_signed(each['high'])}"


def summary(night: Night, lines: Sequence[str]) -> str:
    parts = [f"# {shown(lines[0])}", "\n".join(f"- {shown(line)}" for line in lines[1:])]
    for step in TABLES:
        if step in night.codes:
            parts.append(f"<details><summary>{step}</summary>\n\n{night.text_of(f'{step}.txt')}\n</details>")
    for step in night.red:
        if step in night.codes and step not in TABLES:
            tail = "\n".join(night.text_of(f"{step}.txt").splitlines()[-_TAIL:]).replace("```", "")
            parts.append(f"<details open><summary>{step}</summary>\n\n```\n{tail}\n```\n</details>")
    return "\n\n".join(parts) + "\n"


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser("python -m tools.night", description="The verdict on a night: exit code 1 is red.")
    parser.add_argument("night", type=Path, help="its folder")
    parser.add_argument("--name", default="", help="of the device or pool")
    for option in ("--accept", "--strict"):
        parser.add_argument(option, choices=("yes", "no"), default="no", help="as given to nightly.sh")
    parser.add_argument("--last-green", type=Path, help="the folder of the last green night")
    parser.add_argument("--ended", metavar="STEP", help="print how this step ended, and nothing else")
    arguments = parser.parse_args(argv)
    if not arguments.name and not arguments.ended:
        parser.error("the verdict needs --name")
    night = Night(arguments.night, arguments.accept == "yes", arguments.strict == "yes")
    if arguments.ended:
        print(night.ended(arguments.ended))
        return GREEN_CODE
    lines = five_lines(night, arguments.name, arguments.last_green and arguments.last_green.name)
    print("\n".join(map(shown, lines)))
    try:
        write_output(arguments.night / "summary.md", summary(night, lines).encode())
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return RED_CODE
    return RED_CODE if night.red else GREEN_CODE


if __name__ == "__main__":
    sys.exit(main())

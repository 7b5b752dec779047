"""The page that an acceptance test prints: a verdict, evidence, reasons and hints for each line."""

from __future__ import annotations

import textwrap
from typing import Any, Dict, List

from harness.acceptance.lines import FAIL
from harness.core.terminal import WIDTH, shown

MOST_EVIDENCE_LINES = 3  # of a line of the test, so that all fit on a page; JSON has the rest


def format_page(findings: Dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in findings["counts"].items() if count)
    text = [f"{findings['device']}: {counts} (jetwatt {findings['jetwatt']}, begun {findings['started_at']})"]
    if findings["rehearsal"]:
        text.append(f"REHEARSAL: times are scaled by {findings['scale']:g}; no figure here is a measurement.")
    if findings["emulated"]:
        text.append("EMULATED: a tree of files; it shows how the test runs, nothing about a real board.")
    for number, line in enumerate(findings["lines"], start=1):
        text.append("")
        text.append(f"{line['verdict']}  {number}. {line['name']}")
        text += _wrapped("; ".join(line["reasons"]), "      ", MOST_EVIDENCE_LINES)
        evidence = (f"{name}: {_words(value)}" for name, value in line["evidence"].items())
        text += _wrapped("; ".join(evidence), "      ", MOST_EVIDENCE_LINES)
        for hint in line["hints"][:2]:
            text += _wrapped(f"-> {hint}", "      ", 2)
    if any(part.endswith(" ...") for part in text):
        text += ["", "... marks evidence that was cut; --json prints all of it"]
    return "\n".join(text)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _wrapped(text: str, indent: str, most: int) -> List[str]:
    if not text:
        return []
    return textwrap.wrap(
        shown(text), WIDTH, initial_indent=indent, subsequent_indent=indent, max_lines=most, placeholder=" ..."
    )


def exit_code(findings: Dict[str, Any]) -> int:
    return 1 if findings["counts"][FAIL] else 0

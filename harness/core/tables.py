"""The one table writer: aligned plain text for terminals and logs, or Markdown for job summaries."""

from __future__ import annotations

from typing import List, Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool = False) -> str:
    """Lay out a table.

    Args:
        header: a name for each column; one that begins with `>` is aligned right and loses the sign.
        rows: cells as text, as many as there are columns.
        markdown: write a Markdown table instead of plain columns.
    """
    right = [name.startswith(">") for name in header]
    names = [name[1:] if is_right else name for name, is_right in zip(header, right)]
    widths = [max(map(len, column)) for column in zip(names, *rows)]

    def line(cells: Sequence[str], separator: str) -> str:
        padded = [cell.rjust(w) if is_right else cell.ljust(w) for cell, w, is_right in zip(cells, widths, right)]
        return separator.join(padded)

    if markdown:
        rule = ["-" * (width - 1) + (":" if is_right else "-") for width, is_right in zip(widths, right)]
        return "\n".join(f"| {line(cells, ' | ')} |" for cells in [names, rule, *rows])
    lines: List[str] = [line(names, "  "), line(["-" * width for width in widths], "  ")]
    lines += [line(row, "  ") for row in rows]
    return "\n".join(text.rstrip() for text in lines)

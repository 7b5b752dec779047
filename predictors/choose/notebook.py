"""HTML tables of results for notebooks (`_repr_html_`); every text is escaped, because names come from files."""

from __future__ import annotations

import html
from typing import Any, Mapping, Sequence


def html_table(title: str, rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> str:
    """A table with a title, a row for each mapping, and notes below.

    Args:
        title: above the table.
        rows: values by column; all have the columns of the first. Numbers are rounded to four digits.
        notes: paragraphs below; empty ones are left out.
    """
    parts = [f"<p><strong>{html.escape(title)}</strong></p>"]
    if rows:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in rows[0])
        body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row.values())}</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    parts += [f"<p>{html.escape(note)}</p>" for note in notes if note]
    return "".join(parts)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))

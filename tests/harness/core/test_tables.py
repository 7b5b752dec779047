"""The table writer: columns line up, numbers to the right, Markdown that Markdown readers take."""

from __future__ import annotations

from harness.core.terminal import format_table


def test_columns_line_up_and_numbers_stand_right():
    assert format_table(["case", ">ms"], [["a", "1.5"], ["longer", "12.25"]]) == (
        "case       ms\n------  -----\na         1.5\nlonger  12.25"
    )


def test_a_table_without_rows_is_its_header():
    assert format_table(["case", ">ms"], []) == "case  ms\n----  --"


def test_markdown_says_which_columns_stand_right():
    assert format_table(["case", ">ms"], [["a", "1.5"]], markdown=True) == (
        "| case |  ms |\n| ---- | --: |\n| a    | 1.5 |"
    )

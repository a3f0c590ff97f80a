"""Tables in a pipe."""

from datetime import datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from celery_dlq.cli.screens.parts import (
    Block,
    Column,
    Facts,
    Short,
    Table,
    plain_part,
    table_of,
)


def lines_of(columns, rows):
    return plain_part(Table(columns, rows))


def test_cells_are_whole_and_aligned():
    columns = (Column("ID", rigid=True), Column("TASK"), Column("N", right=True))
    rows = [("a", Short("charge", "shop.charge"), 1_200), ("bb", "漢字", 3)]
    assert lines_of(columns, rows) == [
        "ID  TASK            N",
        "a   shop.charge  1200",
        "bb  漢字            3",
    ]


def test_a_very_long_cell_moves_only_its_own_line():
    columns = (Column("MESSAGE"), Column("STATE"))
    lines = lines_of(columns, [("m" * 5_000, "dead"), ("short", "claimed")])
    assert lines[1] == f"{'m' * 5_000}  dead"
    assert lines[2] == f"{'short':80}  claimed"


def test_columns_that_narrow_terminals_omit_and_those_that_fold_are_there():
    columns = (Column("CHECK"), Column("", fold=True), Column("QUEUE", from_width=200))
    [_, line] = lines_of(columns, [("tasks", "write: celery dlq redrive --dry-run " * 9, "mail")])
    assert line.count("--dry-run") == 9
    assert line.endswith("mail")


def test_times_are_short_and_in_utc():
    at = datetime(2026, 11, 21, 12, 0, 3, 123_456, tzinfo=timezone(timedelta(hours=2)))
    assert lines_of((Column("AT"),), [(at,)])[1] == "2026-11-21T10:00:03Z"


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.text("aé漢 -/", max_size=60)] * 3), max_size=5))
def test_every_row_has_a_line_with_all_its_cells(rows):
    lines = lines_of((Column("ID"), Column("WHY", fold=True), Column("N")), rows)
    assert len(lines) == 1 + len(rows)
    for line, row in zip(lines[1:], rows, strict=True):
        assert all(cell.rstrip() in line for cell in row)
        assert cell_len(line) <= 3 * 120 + 4


def test_parts_without_content_are_left_out():
    shown = [Table([Column("A")], [(1,)]), Facts("Facts", [("a", 0)]), Block("Text", "x"), "said"]
    empty = [Table([Column("A")], []), Facts("Facts", [("a", None)]), Block("Text", ""), ""]
    assert [*filter(None, [*empty, *shown, *empty])] == shown


def test_the_title_of_a_table_says_how_many_rows_it_leaves_out():
    fields = [(Column("N"), lambda number: number)]
    assert table_of(fields, range(3), "All.", 3).title == "All."
    cut = table_of(fields, range(1_200), "Some.", 2)
    assert (len(cut.rows), cut.title) == (2, "Some. The first 2 of 1,200.")

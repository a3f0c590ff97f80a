"""Tables in a pipe."""

import pytest
from celery.bin.base import CLIContext
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from celery_dlq.cli.screens.parts import Column, plain_table
from celery_dlq.cli.screens.render import Screen


def lines_of(columns, rows, width, short=None):
    return plain_table(columns, rows, short or rows, width)


def test_whole_cells_if_they_have_room():
    columns = (Column("ID"), Column("TASK"))
    rows, short = [("a", "shop.charge")], [("a", "charge")]
    assert lines_of(columns, rows, 15, short) == ["ID  TASK", "a   shop.charge"]
    assert lines_of(columns, rows, 14, short) == ["ID  TASK", "a   charge"]


def test_the_widest_cells_are_cut_and_rigid_ones_are_not():
    columns = (
        Column("ID", rigid=True),
        Column("TASK"),
        Column("MESSAGE"),
        Column("STATE", rigid=True),
    )
    rows = [("0d3f1111-aaaa", "charge", "m" * 5_000, "dead"), ("b", "x", "short", "claimed")]
    assert lines_of(columns, rows, 50) == [
        "ID             TASK    MESSAGE             STATE",
        f"0d3f1111-aaaa  charge  {'m' * 17}…  dead",
        "b              x       short               claimed",
    ]


def test_columns_of_wide_terminals_are_left_out_before_cells_become_tiny():
    columns = (Column("ID", rigid=True), Column("MESSAGE"), Column("QUEUE", rigid=True, from_width=40),
               Column("WORKER", rigid=True, from_width=45))  # fmt: skip
    rows = [("i" * 20, "m" * 40, "q" * 9, "w" * 9)]
    assert [len(lines_of(columns, rows, width)[0].split()) for width in (39, 44, 50, 60)] == [
        2,
        3,
        3,
        4,
    ]
    assert lines_of(columns, rows, 39)[1] == f"{'i' * 20}  {'m' * 16}…"


def test_rigid_columns_alone_may_be_wider():
    columns = (Column("ID", rigid=True), Column("MESSAGE"))
    assert lines_of(columns, [("i" * 30, "mmm")], 20)[1] == f"{'i' * 30}  …"


def test_a_folded_column_is_wrapped_at_blanks():
    columns = (Column("CHECK", rigid=True), Column("", fold=True))
    rows = [("tasks", "write: celery dlq redrive --dry-run, then look at it"), ("store", "ok")]
    assert lines_of(columns, rows, 34) == [
        "CHECK",
        "tasks  write: celery dlq redrive",
        "       --dry-run, then look at it",
        "store  ok",
    ]


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.text("aé漢 -/", max_size=60)] * 3), max_size=5),
    st.integers(min_value=20, max_value=90),
)
def test_no_line_is_wider_than_asked_for(rows, width):
    columns = (Column("ID"), Column("WHY", fold=True), Column("N", right=True))
    assert max(map(cell_len, lines_of(columns, rows, width))) <= width


@pytest.mark.parametrize(
    ("given_width", "width"),
    [(None, 120), ("80", 80), ("0", 120), ("-1", 120), ("wide", 120), ("9" * 5_000, 999_999)],
)
def test_a_pipe_is_as_wide_as_columns_says(monkeypatch, given_width, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if given_width is not None:
        monkeypatch.setenv("COLUMNS", given_width)
    monkeypatch.setattr("celery_dlq.cli.screens.render.is_terminal", lambda _stream: False)
    cli = CLIContext(app=object(), no_color=True, workdir=None)
    assert (Screen.of(cli).width, Screen.of(cli).drawn) == (width, False)

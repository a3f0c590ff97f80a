import csv
import io
import json
import re
from datetime import datetime, timedelta, timezone

import pytest
from celery.bin.base import CLIContext
from click.testing import CliRunner
from rich.cells import cell_len
from support.factories import letter

from celery_dlq.cli.screens.letter import group_table, letter_table
from celery_dlq.cli.screens.parts import Block, Column, Facts, Short, Table
from celery_dlq.cli.screens.render import Screen
from celery_dlq.model.group import Group

NOW = datetime(2026, 11, 21, 13, 0, tzinfo=timezone.utc)
EARLIER = NOW - timedelta(hours=3)

TABLE = Table(
    (
        Column("ID", rigid=True),
        Column("N", right=True),
        Column("MESSAGE"),
        Column("WIDE", from_width=120),
    ),
    [
        (Short("0d3f", "0d3f1111-aaaa"), 1200, "漢字 and\nmore", EARLIER),
        (Short("77e1", "77e10000-bbbb"), 3, "[bold]x[/bold]", None),
    ],
)


def put_out(act, *, drawn=False, width=80, no_color=False, color=True, charset="utf-8"):
    """The output of ``act(screen)``."""
    cli = CLIContext(app=object(), no_color=no_color, workdir=None)
    with CliRunner(charset=charset).isolation(color=color) as streams:
        act(Screen(cli, drawn=drawn, width=width, clock=lambda: NOW))
        return streams[0].getvalue().decode(charset)


def shown(*parts, **how):
    return put_out(lambda screen: screen.show(*parts), **how)


def emitted(form, records):
    return put_out(lambda screen: screen.emit(form, records, "unused"))


def test_a_pipe_gets_aligned_text_with_whole_values_and_nothing_else():
    assert shown(TABLE, width=120).splitlines() == [
        "ID                N  MESSAGE         WIDE",
        "0d3f1111-aaaa  1200  漢字 and\\nmore  2026-11-21T10:00:00Z",
        "77e10000-bbbb     3  [bold]x[/bold]",
    ]


def test_ids_times_and_names_of_tasks_are_aligned_in_full():
    name = "shop.orders.tasks.recalculate_monthly_statements"
    rows = [("77e10000-bbbb-4e54-aa9a-d9c7a81b177e", name, EARLIER), ("x", "y", NOW)]
    columns = (Column("ID", rigid=True), Column("TASK"), Column("AT", rigid=True))
    lines = shown(Table(columns, rows), width=120).splitlines()
    assert len({line.index("2026-") for line in lines[1:]}) == 1


def test_a_terminal_gets_short_values_and_no_markup_from_the_data():
    out = shown(TABLE, drawn=True, color=False)
    assert "0d3f " in out
    assert "0d3f1111" not in out
    assert "[bold]x[/bold]" in out
    assert "WIDE" not in out


def test_a_wide_terminal_gets_more_columns():
    out = shown(TABLE, drawn=True, width=130, color=False)
    assert "WIDE" in out
    assert "3h ago" in out


MESSAGE = "the card was declined by the bank: " + "no money; " * 20
FAILED = {"task": "shop.orders.charge_customer", "exception_type": "shop.PaymentDeclined"}


def tables():
    """The table of letters and the one of groups, with long messages."""
    found = [
        letter(id, message=MESSAGE, route="payments", **FAILED) for id in ("4d3fabcd", "77e10000")
    ]
    group = Group(
        fingerprint="78dc1234", message=MESSAGE, open_count=3, total_count=12_000,
        first_seen_at=EARLIER, last_seen_at=EARLIER, **FAILED,
    )  # fmt: skip
    trends = {"78dc1234": range(24)}
    return [letter_table(found), group_table([group], trends, {}, lambda _route: "", NOW)]


@pytest.mark.parametrize(("width", "least"), [(60, 15), (80, 20), (120, 40), (200, 80)])
@pytest.mark.parametrize("table", tables(), ids=["letters", "groups"])
def test_a_message_gets_the_room_that_other_columns_leave(table, width, least):
    head, line, *rows = shown(table, drawn=True, width=width, color=False).splitlines()
    assert {cell_len(one) for one in (head, line)} <= {width, cell_len(head)}
    assert cell_len(line) == width
    for row in rows:
        assert cell_len(row) <= width
        shown_part = re.search(r"the card[^…]*…", row)
        assert len(shown_part[0]) >= least
        # The exception and the task may be cut, but not to nothing.
        assert "Payment" in row
        assert "charge" in row


@pytest.mark.parametrize("table", tables(), ids=["letters", "groups"])
def test_a_wide_terminal_cuts_only_the_message(table):
    out = shown(table, drawn=True, width=200, color=False)
    assert "charge_customer  PaymentDeclined  " in out


def test_a_column_without_values_is_left_out_and_a_zero_is_a_value():
    table = Table((Column("ID"), Column("OWNER"), Column("OPEN", right=True)), [("0d3f", "", 0)])
    head, *_ = shown(table, drawn=True, color=False).splitlines()
    assert head.split() == ["ID", "OPEN"]
    assert "OWNER" in shown(table)


def test_columns_that_fit_are_whole():
    row = ("a" * 10, "b" * 30, "c" * 31)
    table = Table((Column("A"), Column("B"), Column("C")), [row])
    assert "  ".join(row) in shown(table, drawn=True, width=75, color=False)


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_terminal_keeps_rigid_columns_whole_and_lines_within_its_width(width):
    table = Table(
        (Column("ID", rigid=True), Column("MESSAGE"), Column("OTHER")),
        [(Short("0d3f1111", "0d3f1111-aaaa"), "m" * 200, "漢" * 100)],
    )
    out = shown(table, drawn=True, width=width, color=False)
    assert "0d3f1111" in out
    assert max(cell_len(line) for line in out.splitlines()) <= width
    assert len(out.splitlines()) == 3


def test_a_folded_column_is_wrapped_and_not_cut():
    table = Table((Column("CHECK"), Column("WHY", fold=True)), [("store", "word " * 40 + "end")])
    assert "end" in shown(table, drawn=True, width=40, color=False)


def test_colours_are_drawn_on_a_terminal_and_left_out_on_request(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    facts = Facts("Title", [("State", "dead")])
    assert "\x1b[31m" in shown(facts, drawn=True)
    assert "\x1b" not in shown(facts, drawn=True, no_color=True)


@pytest.mark.parametrize("drawn", [True, False])
def test_hostile_content_reaches_no_terminal(drawn):
    evil = "\x1b]0;owned\x07[red]\u202e\r\nnew line"
    parts = [
        Facts(evil, [("k", evil), ("short", Short(evil, evil))]),
        Table((Column("C"),), [(evil,)], title=evil),
        Block(evil, evil),
        evil,
    ]
    out = shown(*parts, drawn=drawn, width=200, color=False)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)
    assert out.count("\\x1b]0;owned\\x07[red]\\u202e") >= 5


def test_facts_omit_empty_values_and_keep_zeros():
    assert (
        shown(Facts("T", [("a", None), ("b", ""), ("c", 0), ("dd", "x")]))
        == "T\n  c   0\n  dd  x\n"
    )


def test_a_block_keeps_its_lines():
    assert shown(Block("Traceback", "one\n\ttwo")) == "Traceback\n  one\n      two\n"


def test_parts_are_separated_by_an_empty_line():
    assert shown("one", "two") == "one\n\ntwo\n"


def test_an_output_without_unicode_gets_escapes():
    assert shown("漢 ok", charset="ascii") == "\\u6f22 ok\n"


RECORDS = [
    {"id": "a", "n": 1, "message": "two\nlines", "args": [1, "x"], "at": None},
    {"id": "b", "n": -2, "message": "=HYPERLINK(1)", "args": {"k": float("nan")}, "at": "now"},
]


def test_json_is_one_array():
    found = json.loads(emitted("json", RECORDS))
    assert found[0] == RECORDS[0]
    assert found[1]["args"] == {"k": "nan"}


def test_json_of_one_record_is_one_object():
    assert json.loads(emitted("json", RECORDS[0])) == RECORDS[0]


def test_jsonl_is_a_record_a_line_in_ascii():
    lines = emitted("jsonl", [*RECORDS, {"id": "漢\u2028"}]).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a", "b", "漢\u2028"]
    assert all(line.isascii() for line in lines)


def test_csv_is_a_line_a_record_and_begins_no_formula():
    out = emitted("csv", RECORDS)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(out.splitlines()) == 3
    assert rows[0] == {"id": "a", "n": "1", "message": "two\\nlines", "args": '[1,"x"]', "at": ""}
    assert rows[1]["message"] == "'=HYPERLINK(1)"
    assert rows[1]["n"] == "-2"


@pytest.mark.parametrize(("form", "expected"), [("json", "[]\n"), ("jsonl", ""), ("csv", "")])
def test_no_records(form, expected):
    assert emitted(form, []) == expected

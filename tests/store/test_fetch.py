from __future__ import annotations

import pytest
from factories import T0, letter
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, MetaData, Table, insert, select
from statements import statements_of

from celery_dlq.store.base import Filter
from celery_dlq.store.columns import BYTES, LONG_TEXT, Moment, name
from celery_dlq.store.engine import Database
from celery_dlq.store.fetch import fetch_all
from celery_dlq.store.query import WHOLE

FIELDS = ("task_id", "last_failed_at", "closed_at", "pid", "headers", "body", "traceback")

# Databases refuse NUL in texts, and what is half a character.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
rows = st.tuples(
    texts, st.none() | texts, st.binary(max_size=20), st.none() | st.binary(max_size=20)
)


def of(found):
    return [[getattr(row, field) for field in FIELDS] for row in found]


def test_rows_are_those_that_come_one_by_one(store):
    bodies = {"a": b"", "b": bytes(range(256)) * 9, "c": b"\0\xff\0", "d": '["é☃"]'.encode()}
    odd = [letter(key, traceback=f"é☃ {key}\n\t\"'\\") for key in bodies]
    store.save([item.with_(envelope=item.envelope.with_body(bodies[item.task_id])) for item in odd])
    store.discard(Filter(ids=("c",)), who="ann", why="", now=T0)

    def compare(connection):
        one_by_one = connection.execute(WHOLE).all()
        assert of(fetch_all(connection, WHOLE)) == of(one_by_one)
        assert fetch_all(connection, WHOLE.where(WHOLE.selected_columns.pid == -1)) == []
        return len(one_by_one)

    assert store.database.read(compare) == 4


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('fetch') / 'dlq.sqlite3'}")
    table = Table(
        "anything", MetaData(), Column("id", Integer, primary_key=True), Column("short", name()),
        Column("long", LONG_TEXT), Column("data", BYTES), Column("more", BYTES), Column("at", Moment),
    )  # fmt: skip
    database.write(table.create)
    yield database, table
    database.close()


@given(st.lists(rows, max_size=5))
def test_any_text_and_any_bytes_come_out_as_they_went_in(table, given_rows):
    database, anything = table
    names = ("short", "long", "data", "more")
    values = [
        {"id": number, "at": T0, **dict(zip(names, row, strict=True))}
        for number, row in enumerate(given_rows)
    ]

    def write(connection):
        connection.execute(anything.delete())
        if values:
            connection.execute(insert(anything), values)
        found = fetch_all(connection, select(anything).order_by(anything.c.id.desc()))
        return [row._asdict() for row in found]

    assert database.write(write) == values[::-1]


def test_sqlite_is_asked_for_one_row(sqlite_store):
    sqlite_store.save([letter(str(number)) for number in range(9)])
    ask = sqlite_store.database.read
    asked = statements_of(sqlite_store, lambda: ask(lambda given: fetch_all(given, WHOLE)))
    [found] = [statement for statement, _ in asked if "celery_dead_letter" in statement]
    assert "json_group_array" in found

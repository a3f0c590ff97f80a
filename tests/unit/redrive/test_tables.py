"""Tables and properties are those that py-amqp writes."""

from __future__ import annotations

from amqp import Message
from amqp.serialization import dumps
from claimed import extra, properties, values
from hypothesis import example, given
from hypothesis import strategies as st

from celery_dlq.redrive.tables import entries_of, properties_of, short, text_entry


@given(extra)
def test_what_is_in_a_table_is_what_py_amqp_writes(table):
    assert entries_of(table) == dumps("F", (table,))[4:]
    # From what is kept of the first time.
    assert entries_of(table) == dumps("F", (table,))[4:]


@given(st.dictionaries(st.binary(max_size=9), values, max_size=3))
@example({b"raw\xff": "text", b"\xfe": 2.5, b"": [None, 3], b"n": {b"\xff": "text"}})
def test_names_of_bytes_are_what_py_amqp_writes(table):
    assert entries_of(table) == dumps("F", (table,))[4:]
    assert entries_of(table) == dumps("F", (table,))[4:]


@given(properties, extra)
def test_properties_are_what_py_amqp_writes(given_properties, table):
    message = Message("", application_headers=table or None, **given_properties)
    assert properties_of(message.properties) == message._serialize_properties()


def test_texts_are_what_py_amqp_writes():
    assert short("é\ud800") == dumps("s", ("é\ud800",))
    assert text_entry("é", "\ud800") == dumps("F", ({"é": "\ud800"},))[4:]
    assert text_entry(b"\xff", "é") == dumps("F", ({b"\xff": "é"},))[4:]

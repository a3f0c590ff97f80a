"""Earlier versions wrote a blank after the first brace of headers that a redrive could send as they were, and
the headers that it had to know first. Letters of those versions are read and sent like any others."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from celery import Celery
from sqlalchemy import select, update
from support.factories import T0, envelope, letter
from support.stores import redriving

from celery_dlq.redrive.publish.publisher import open_publisher
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables

#: Headers of a message that died on its fourth attempt, and how version 0.1 with schema 0010 wrote them.
HEADERS = {
    "lang": "py", "task": "shop.charge", "id": "0d3f", "shadow": None,
    "eta": "2026-11-21T12:00:00+00:00", "expires": None, "group": None, "group_index": None, "retries": 3,
    "timelimit": [None, 250.5], "root_id": "0d3f", "parent_id": None,
    "argsrepr": "[{'id': \"17\"}, 'é $5']", "kwargsrepr": "{}", "origin": "gen1@box",
    "ignore_result": False, "stamps": {"a": 1}, "tenant": "acme",
}  # fmt: skip
MARKED = (
    r'{ "task":"shop.charge","id":"0d3f","retries":3,"eta":"2026-11-21T12:00:00+00:00","expires":null,'
    r'"lang":"py","shadow":null,"group":null,"group_index":null,"timelimit":[null,250.5],"root_id":"0d3f",'
    r'"parent_id":null,"argsrepr":"[{' + r"'id': \"17\"}, '\u00e9 $5']" + r'","kwargsrepr":"{}",'
    r'"origin":"gen1@box","ignore_result":false,"stamps":{"a":1},"tenant":"acme"}'
)


@pytest.fixture
def marked(store):
    """A store with a letter of an earlier version."""
    store.letters.save(
        [letter("0d3f", task="shop.charge", envelope=envelope("0d3f", queue="slow"))]
    )
    assert json.loads(MARKED) == HEADERS
    store.database.write(
        lambda connection: connection.execute(update(tables.content).values(headers=MARKED))
    )
    return store


def test_marked_headers_are_read(marked):
    found = marked.letters.get("0d3f")
    assert found is not None
    assert found.envelope.headers == HEADERS
    assert found.envelope.headers["timelimit"] == [None, 250.5]


def test_a_letter_with_marked_headers_is_redriven(marked):
    taken = redriving.claim(
        marked, Filter(), token="t0k", lease_until=T0 + timedelta(hours=1), limit=10, now=T0
    )
    app = Celery("unit", broker="memory://", set_as_current=False)
    with open_publisher(app) as publisher:
        assert publisher.send(taken.letters).confirmed == ["0d3f"]
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("slow").get(timeout=5)
        message.ack()
    assert message.headers == {
        **HEADERS, "retries": 0, "eta": None, "x-dlq-copy": "t0k", "x-dlq-redrive": 1,
    }  # fmt: skip


def test_no_white_space_changes_what_stored_text_says(store):
    headers = {"id": "0d3f", "raw": b"\xff"}
    store.letters.save([letter("0d3f", envelope=envelope("0d3f", headers=headers))])
    spaced = '{ "id" : "0d3f", "raw" : { "$bytes" : "/w==" } }'
    store.database.write(
        lambda connection: connection.execute(update(tables.content).values(headers=spaced))
    )
    assert store.letters.get("0d3f").envelope.headers == headers


def test_headers_are_written_without_a_mark_in_the_order_of_the_message(store):
    store.letters.save([letter("0d3f", envelope=envelope("0d3f", headers=HEADERS))])
    with store.database.engine.connect() as connection:
        text = connection.execute(select(tables.content.c.headers)).scalar_one()
    assert text.startswith('{"lang":"py","task":"shop.charge"')
    assert list(json.loads(text)) == list(HEADERS)

"""What a store keeps for searches has no secrets, whichever way it came."""

import json

import pytest
from sqlalchemy import select, update
from support.factories import T0, letter, parking
from support.stores.planted_secrets import ARGS, KWARGS, SECRET, TEXT, planted_letter

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.model.states import State
from celery_dlq.model.terms import hash_of_value
from celery_dlq.store.base import Argument, Edit, Filter
from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

CARD = "4111111111111111"


@pytest.fixture
def store(own_store):
    return own_store


def rows(store, *columns):
    return store.transactions.read(lambda connection: connection.execute(select(*columns)).all())


def searched(store):
    letter, content, parked, group = tables.letter, tables.content, tables.parked, tables.group
    return repr(
        [
            rows(store, letter.c.message),
            rows(store, content.c.args, content.c.kwargs),
            rows(store, parked.c.message, parked.c.args, parked.c.kwargs),
            rows(store, group.c.message),
        ]
    )


def test_letters_and_retries_are_stored_without_secrets(store):
    store.letters.save([planted_letter()])
    waits = parking("waits", 60, message=TEXT, args=ARGS, kwargs=KWARGS)
    store.parked.park([waits], now=T0)
    assert "cannot reach" in searched(store)
    assert SECRET not in searched(store)


def test_values_of_messages_are_those_that_are_shown(store):
    store.letters.save([letter("a", message=f"no charge 17 with card_number={CARD}")])
    values = {row.value for row in rows(store, tables.term.c.value)}
    assert hash_of_value("17") in values
    assert hash_of_value(CARD) not in values


def test_an_edit_is_stored_without_secrets(store):
    store.letters.save([letter("a")])
    whole = store.letters.get("a")
    edit = Edit(
        task_id="a", before=whole.envelope, after=whole.envelope, args=ARGS, kwargs=KWARGS, diff="",
        who="ann", at=T0,
    )  # fmt: skip
    assert store.edits.save(edit)
    assert SECRET not in searched(store)


def test_a_copy_that_is_redacted_already_stays_as_it_is(store):
    shown = {"many": [*range(64), "… 36 more"], "password": "[redacted]", "long": "x" * 1024}
    store.letters.save([letter("a", args=[None, {"n": 1}], kwargs=shown)])
    assert store.letters.get("a").kwargs == shown


def test_redacted_arguments_are_found_by_their_hash(shop_app):
    shop_app.conf.dlq_search_redacted_key = "k" * 32
    queue = DeadLetterQueue.of(shop_app)
    queue.store.letters.save([letter("a", args=[], kwargs={"password": SECRET})])
    stand_in = queue.redactor.stand_in(SECRET)
    wanted = Filter(args=(Argument(path="password", value=stand_in),))
    assert [one.task_id for one in queue.store.letters.find(wanted).letters] == ["a"]
    assert json.loads(rows(queue.store, tables.content.c.kwargs)[0].kwargs) == {
        "password": stand_in
    }


def test_the_names_that_the_app_adds_are_hidden_in_the_store(shop_app):
    shop_app.conf.dlq_redact = ["pin"]
    store = DeadLetterQueue.of(shop_app).store
    store.letters.save([letter("a", message=f"wrong pin={SECRET}", kwargs={"pin": SECRET})])
    assert SECRET not in searched(store)


def test_the_audit_keeps_no_secrets_of_filters(store):
    store.letters.save([letter("a", args=["x", CARD])])
    position = Argument(path="1", value=CARD)
    wanted = Filter(search=f"password={SECRET}", args=(position,), states=frozenset({State.DEAD}))
    store.closing.discard(Filter(args=(position,)), who="ann", why=f"token={SECRET}", now=T0)
    store.audit.note(who="ann", act="x", count=0, at=T0, detail={"filter": wanted.noted.to_dict()})
    kept = repr(rows(store, tables.audit.c.why, tables.audit.c.detail))
    assert len(store.audit.find().rows) == 2
    assert SECRET not in kept
    assert CARD not in kept


def test_values_that_are_added_later_are_those_that_are_shown(store):
    url = str(store.database.url)
    before = SQLStore(url, value_limit=0)
    before.letters.save([letter("a")])
    before.close()
    store.transactions.write(
        lambda connection: connection.execute(
            update(tables.letter).values(message=f"no charge 17 with card_number={CARD}")
        )
    )
    while store.values.add(letters=10):
        pass
    values = {row.value for row in rows(store, tables.term.c.value)}
    assert hash_of_value("17") in values
    assert hash_of_value(CARD) not in values

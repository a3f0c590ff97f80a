"""The chain of the audit shows each change that was not an act of the store."""

from __future__ import annotations

import contextlib
import re
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from support.factories import T0, letter

from celery_dlq.base.sealing import Keyring
from celery_dlq.store.base import Filter, HistoryBounds
from celery_dlq.store.database import chain
from celery_dlq.store.database.tables import audit, audit_link
from celery_dlq.store.sql import SQLStore

KEY = b"k" * 32


def note(store, who="ann", **given):
    at = given.pop("at", T0)
    values = {"act": "ingest", "count": 1, "detail": {"queue": "dead"}, "why": "why not", **given}
    return store.audit.note(who=who, at=at, **values)


def changed(store, *statements):
    """Write to the database as someone who does not use this package."""

    def work(connection):
        for one in statements:
            connection.execute(one)

    store.database.write(work)


def found(store, kept=None):
    """What a check finds, each with the act that it names."""
    words = "|".join(
        (
            "changed or reordered",
            "changed",
            "deleted",
            "inserted",
            "reordered",
            "no head",
            "no link has the key",
        )
    )
    texts = store.audit.verify(kept).breaks
    return [
        (re.search(words, text)[0], int(act[1]) if (act := re.match(r"Act (\d+) ", text)) else None)
        for text in texts
    ]


#: What a check says of a link and of the head.
BROKEN, CUT, MADE_AGAIN, NO_KEY = (
    ("changed or reordered", None), ("changed", None), ("no head", None), ("no link has the key", None),
)  # fmt: skip


def links_of(store):
    query = sa.select(audit_link).order_by(audit_link.c.n)
    return store.database.read(lambda connection: connection.execute(query).mappings().all())


def row_of(store, act):
    query = sa.select(audit).where(audit.c.id == act)
    return dict(store.database.read(lambda connection: connection.execute(query).mappings().one()))


@pytest.fixture
def acts(store):
    """The ids of four acts."""
    return [note(store, who, at=T0 + timedelta(days=n)) for n, who in enumerate("abcd")]


@pytest.mark.on_servers
@pytest.mark.clear("its links are made without a key")
def test_a_chain_of_acts_is_whole(store, acts):
    result = store.audit.verify()
    assert (result.acts, result.links, result.keyed, result.breaks) == (4, 4, 0, [])
    assert re.fullmatch("4:[0-9a-f]{64}", result.head)
    assert found(store, result.head) == []
    assert found(store, f"2:{links_of(store)[2]['hash']}") == []


def test_an_empty_audit_is_whole(store):
    result = store.audit.verify()
    assert (result.acts, result.links, result.breaks) == (0, 0, [])
    assert result.head == "0:"


def test_the_hashes_stay_those_of_earlier_releases():
    assert chain._hash(None, "", 1, 7, "ab") == (
        "d543d9246dd5e18ca3b6bb965ddc5c2ab46b1590bc891e45e00848de8ebc3a71"
    )
    assert chain._hash(KEY, "", 1, 7, "ab") == (
        "c07ef9b601bc09b73e794683a4958ab3f600e111cdf75f724b3ca5d8a7f0052f"
    )


@pytest.mark.on_servers
@pytest.mark.parametrize(
    "values",
    [{"who": "bob"}, {"why": "no"}, {"count": 2}, {"at": T0}, {"act": "edit"}, {"host": "h"},
     {"detail": "{}"}, {"subject": "x"}, {"salt": ""}],
    ids=lambda values: next(iter(values)),
)  # fmt: skip
def test_an_edited_act_is_found(store, acts, values):
    changed(store, sa.update(audit).where(audit.c.id == acts[1]).values(values))
    assert found(store) == [("changed", acts[1])]
    assert f"Act {acts[1]} " in store.audit.verify().breaks[0]


@pytest.mark.on_servers
def test_a_deleted_act_is_found(store, acts):
    changed(store, sa.delete(audit).where(audit.c.id == acts[1]))
    assert found(store) == [("deleted", acts[1])]


@pytest.mark.on_servers
def test_an_inserted_act_is_found(store, acts):
    new = {**row_of(store, acts[0]), "id": acts[-1] + 10}
    changed(store, sa.insert(audit).values(new))
    assert found(store) == [("inserted", new["id"])]


@pytest.mark.on_servers
def test_the_deleted_end_is_found_also_after_the_next_act(store, acts):
    changed(
        store,
        sa.delete(audit).where(audit.c.id == acts[-1]),
        sa.delete(audit_link).where(audit_link.c.n == 4),
    )
    assert found(store) == [CUT]
    note(store)
    assert found(store) == [BROKEN]


@pytest.mark.on_servers
def test_two_acts_that_were_swapped_are_found(store, acts):
    first, second = (row_of(store, act) for act in acts[:2])
    one, other = (
        {**row, "id": with_.pop("id")}
        for row, with_ in ((first, dict(second)), (second, dict(first)))
    )
    changed(
        store,
        *(sa.update(audit).where(audit.c.id == row["id"]).values({**row}) for row in (one, other)),
    )
    assert found(store) == [("reordered", acts[0]), ("reordered", acts[1])]


@pytest.mark.on_servers
def test_a_changed_link_is_found(store, acts):
    changed(store, sa.update(audit_link).where(audit_link.c.n == 2).values(digest="0" * 64))
    assert found(store) == [BROKEN, ("changed", acts[1])]


def test_an_act_and_its_link_that_were_deleted_together_are_found(store, acts):
    changed(
        store,
        sa.delete(audit).where(audit.c.id == acts[1]),
        sa.delete(audit_link).where(audit_link.c.n == 2),
    )
    (text,) = store.audit.verify().breaks
    assert text.startswith("Link 3 does not follow link 1: ")


def made_again(store, key=None):
    """Remove the second act, and make a chain of the others."""
    ids = [row["act"] for row in links_of(store) if row["n"] in (1, 3, 4)]

    def work(connection):
        connection.execute(sa.delete(audit).where(audit.c.id.not_in(ids)))
        connection.execute(sa.delete(audit_link))
        chain.begin(connection)
        chain.note(connection, ids)
        monkeypatch.setattr(chain, "sealing_of", lambda _connection: SimpleNamespace(hash_key=key))
        chain.append(connection)

    with pytest.MonkeyPatch.context() as monkeypatch:
        store.database.write(work)


@pytest.mark.on_servers
@pytest.mark.clear("its links are made without a key")
def test_a_chain_that_was_made_again_is_found_by_a_kept_head(store, acts):
    kept = store.audit.verify().head
    made_again(store)
    assert found(store) == []
    assert found(store, kept) == [MADE_AGAIN]


@pytest.mark.on_servers
def test_a_chain_that_was_made_again_without_the_key_is_found(store, keyed):
    for who in "abcd":
        note(store, who)
    assert found(store) == []
    made_again(store)
    assert found(store) == [NO_KEY]
    made_again(store, key=b"another")
    assert BROKEN in found(store)


@pytest.fixture
def keyed(store):
    """Let the store have a key."""
    before, store.transactions.ring = store.transactions.ring, Keyring({"key": KEY})
    yield
    store.transactions.ring = before


@pytest.mark.clear("it makes a store without keys")
def test_a_store_may_get_a_key_later(store, acts, request):
    request.getfixturevalue("keyed")
    note(store)
    result = store.audit.verify()
    assert (result.links, result.keyed, result.breaks) == (5, 1, [])
    # Once there is a link with the key, one without it is found.
    ring, store.transactions.ring = store.transactions.ring, None
    note(store)
    store.transactions.ring = ring
    (text,) = store.audit.verify().breaks
    assert text.startswith("Link 6 was made without the key")


@pytest.mark.on_servers
def test_an_ongoing_act_keeps_the_chain_whole(store):
    row = note(store, count=3)
    note(store, "bob")
    note(store, count=2, row=row)
    assert row_of(store, row)["count"] == 5
    result = store.audit.verify()
    assert (result.acts, result.links, result.breaks) == (2, 3, [])


@pytest.mark.on_servers
@pytest.mark.clear("it reads or writes the tables itself")
def test_an_erasure_keeps_the_chain_whole_and_leaves_no_hash_to_guess(store):
    store.letters.save([letter("a")])
    store.closing.discard(Filter(ids=("a",)), who="ann", why="Jo asked", now=T0)
    act = store.audit.find().rows[0].id
    other = note(store, why="Jo again")
    before, was = row_of(store, act), links_of(store)
    store.erasing.erase_notes(["a"], [])
    assert row_of(store, act)["why"] == "[erased]"
    assert store.erasing.replace_texts(store.erasing.mentions(["Jo"])) > 0
    assert row_of(store, other)["why"] == "[erased] again"
    assert found(store) == []
    # The old digest is that of the old text with a salt that no longer exists.
    assert chain._digest(before) in [link["digest"] for link in was]
    assert row_of(store, act)["salt"] != before["salt"]


@pytest.mark.on_servers
def test_retention_keeps_the_chain_whole(store, acts):
    note(store, "e", at=T0)
    kept = store.audit.verify().head
    bounds = HistoryBounds(history=None, arrivals=None, audit=T0 + timedelta(days=2))
    assert store.history.prune(bounds, limit=100) == 3
    result = store.audit.verify(kept)
    assert (result.acts, result.breaks) == (2, [])
    assert result.links == 8
    changed(store, sa.insert(audit).values({**row_of(store, acts[3]), "id": acts[0]}))
    assert found(store) == [("inserted", acts[0])]


@pytest.mark.on_servers
def test_writers_at_once_make_one_chain(store):
    failed = []

    def write(who):
        row = None
        for number in range(10):
            try:
                row = note(store, who, row=row if number % 2 else None)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=write, args=(f"writer {n}",)) for n in range(8)]
    for one in threads:
        one.start()
    checked = [store.audit.verify().breaks for _ in range(3)]
    for one in threads:
        one.join()
    result = store.audit.verify()
    assert (failed, checked) == ([], [[]] * 3)
    assert (result.acts, result.links, result.breaks) == (40, 80, [])


@pytest.mark.on_servers
def test_an_act_whose_link_fails_is_not_written(store, acts, monkeypatch):
    monkeypatch.setattr(chain, "_hash", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        note(store)
    store.letters.save([letter("a")])
    with pytest.raises(ZeroDivisionError):
        store.closing.discard(Filter(ids=("a",)), who="ann", why="", now=T0)
    monkeypatch.undo()
    result = store.audit.verify()
    assert (result.acts, result.links, result.breaks) == (4, 4, [])
    assert store.letters.get("a").state.value == "dead"


def test_the_listener_gets_each_new_head(store, database_url):
    heads = []

    class Ears:
        def audited(self, head):
            heads.append(head)

    with contextlib.closing(SQLStore(database_url, listener=Ears())) as heard:
        note(heard, "ann")
        heard.history.prune(HistoryBounds(history=None, arrivals=None, audit=T0), limit=9)
        bounds = HistoryBounds(history=None, arrivals=None, audit=T0 + timedelta(days=1))
        heard.history.prune(bounds, limit=9)
    assert [(one.n, one.act, one.who, one.at) for one in heads] == [
        (1, "ingest", "ann", T0), (2, "", "", None),
    ]  # fmt: skip
    assert str(heads[-1]) == store.audit.verify().head


@pytest.mark.on_servers
def test_an_act_that_was_deleted_by_hand_stays_missed_when_it_would_be_written_again(store, acts):
    changed(store, sa.delete(audit).where(audit.c.id == acts[1]))
    note(store, row=acts[1])
    assert found(store) == [("deleted", acts[1])]


@pytest.mark.on_servers
@pytest.mark.parametrize("values", [{"digest": "0" * 64}, {"hash": "0" * 64}], ids=str)
def test_a_changed_head_is_found(store, acts, values):
    changed(store, sa.update(audit_link).where(audit_link.c.n == 0).values(values))
    assert found(store) == [CUT]


@pytest.mark.on_servers
def test_a_deleted_head_is_found_and_acts_are_still_written(store, acts):
    changed(store, sa.delete(audit_link).where(audit_link.c.n == 0))
    assert found(store) == [CUT]
    note(store)
    assert found(store) == [BROKEN]


def test_an_audit_of_many_pages_is_checked_whole(store, monkeypatch):
    monkeypatch.setattr(chain, "_TOGETHER", 3)
    rows = [note(store, who) for who in "abcdefg"]
    result = store.audit.verify()
    assert (result.acts, result.links, result.breaks) == (7, 7, [])
    changed(store, sa.update(audit).where(audit.c.id.in_([rows[0], rows[-1]])).values(who="x"))
    assert found(store) == [("changed", rows[0]), ("changed", rows[-1])]

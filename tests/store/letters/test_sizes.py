"""Messages of any size: stored, or refused with the next step."""

import os
from datetime import timedelta

import pytest
from sqlalchemy import event, text
from support.factories import T0, envelope, letter
from support.stores import redriving

from celery_dlq.errors import RecordRefused, StoreError
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import schema

pytestmark = pytest.mark.on_servers

MANY = 100


@pytest.mark.parametrize("size", [0, 1, 300_000, 6_000_000])
def test_a_body_of_any_usual_size_is_kept(store, size):
    body = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
    store.letters.save([letter("a", envelope=envelope(body=body))])
    assert store.letters.get("a").envelope.body == body


def test_a_body_that_the_server_does_not_accept_is_refused_and_keeps_no_other_out(store):
    if store.database.dialect.name != "mysql":
        store.letters.save([letter("a", envelope=envelope(body=b"x" * 50_000_000))])
        assert len(store.letters.get("a").envelope.body) == 50_000_000
        return
    with store.database.engine.connect() as connection:
        allowed = connection.scalar(text("SELECT @@max_allowed_packet"))
    large = letter("a", envelope=envelope(body=b"x" * allowed))
    with pytest.raises(
        RecordRefused, match=f"max_allowed_packet is {allowed:,}; set it to .* or more"
    ):
        store.letters.save([large, letter("b")])
    assert store.counts.letters(Filter()) == 0
    store.letters.save([letter("b")])
    assert store.counts.letters(Filter()) == 1


@pytest.fixture
def full_store(sqlite_store):
    """A store with many letters of 10 kB."""
    schema.upgrade(sqlite_store.database)
    body = b"x" * 10_000
    sqlite_store.letters.save(
        [letter(f"{n:03}", envelope=envelope(body=body)) for n in range(MANY)]
    )
    return sqlite_store


def claimed(store):
    held = redriving.claim(
        store, Filter(), token="t", lease_until=T0 + timedelta(days=1), limit=MANY, now=T0
    )
    return [item.task_id for item in held.letters]


def open_files():
    """The paths of the files that this process has open, even of those without a name."""
    paths = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            paths.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the one that lists them
    return paths


def test_an_act_on_many_letters_writes_no_temporary_file(full_store):
    seen = set()

    @event.listens_for(full_store.database.engine, "checkout")
    def watch(connection, *_):
        connection.set_progress_handler(lambda: seen.update(open_files()), 500)

    ids = claimed(full_store)
    assert len(ids) == MANY
    redriving.release(full_store, "t", ids)
    full_store.closing.discard(Filter(), who="ann", why="", now=T0)
    name = full_store.database.url.database
    assert name in seen
    assert {path for path in seen if "etilqs" in path} == set()


@pytest.mark.parametrize("how", ["FAIL", "ABORT", "ROLLBACK"])
def test_a_claim_that_fails_half_way_leaves_nothing(full_store, how):
    refuse = f"""CREATE TRIGGER refuse BEFORE UPDATE ON celery_dead_letter WHEN NEW.task_id = '050'
    BEGIN SELECT RAISE({how}, 'refused'); END"""
    full_store.database.write(lambda connection: connection.execute(text(refuse)))
    with pytest.raises(StoreError, match="refused"):
        claimed(full_store)
    full_store.database.write(lambda connection: connection.execute(text("DROP TRIGGER refuse")))
    assert full_store.counts.letters(Filter(states=frozenset({State.DEAD}))) == MANY
    assert full_store.sendings.of_operation("t").rows == ()
    assert len(claimed(full_store)) == MANY

from __future__ import annotations

import pytest
from sqlalchemy import select, text
from support.factories import envelope, letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.store.database.tables import content
from celery_dlq.store.redrive.claim_rows import BODY, BODY_SIZE, read_contents
from celery_dlq.store.rows.bodies import INLINE, read_bodies
from celery_dlq.store.rows.query import WHOLE
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.on_servers

LARGE = 20 * 1_048_576


@pytest.mark.parametrize("size", [INLINE, INLINE + 1])
@pytest.mark.clear("it counts the bytes of bodies in clear")
def test_a_body_up_to_a_size_is_read_with_its_letter(store, size):
    store.letters.save([letter("a", envelope=envelope(body=b"x" * size))])
    row = store.database.read(lambda connection: connection.execute(WHOLE).one())
    assert row.size == size
    assert (row.body is None) == (size > INLINE)
    assert len(store.letters.get("a").envelope.body) == size


@pytest.mark.clear("it counts the bytes of bodies in clear")
def test_the_bodies_that_are_read_with_letters_are_bounded_together(store, monkeypatch):
    monkeypatch.setattr("celery_dlq.store.rows.bodies.TOGETHER", 100_000)
    sizes = [5_000, 5_001, 10_000, INLINE] * 5
    store.letters.save(
        [letter(str(at), envelope=envelope(body=b"x" * size)) for at, size in enumerate(sizes)]
    )

    def read(connection):
        numbers = connection.execute(select(content.c.id)).scalars().all()
        rows = read_contents(connection, numbers).values()
        return [(row[BODY_SIZE], row[BODY]) for row in rows]

    found = store.database.read(read)
    assert sorted(size for size, _ in found) == sorted(sizes)
    assert sum(len(body or b"") for _, body in found) <= 100_000
    assert {size for size, body in found if body is not None} == {5_000}


@pytest.mark.parametrize(
    "read",
    [
        lambda connection, number: read_bodies(connection, [(number, LARGE)]),
        lambda connection, number: read_contents(connection, range(number, number + 2_000)),
    ],
    ids=["large", "many"],
)
def test_reading_bodies_may_take_longer_than_another_statement(store, read):
    if store.database.dialect.name != "postgresql":
        pytest.skip("only PostgreSQL counts the time in which its answer is taken from it")
    store.letters.save([letter("a", envelope=envelope(body=b"x" * LARGE))])
    number = store.database.read(lambda connection: connection.execute(WHOLE).one()).id
    impatient = SQLStore(store.database.url.render_as_string(hide_password=False), timeout=0.3)
    too_long = text("SELECT pg_sleep(0.6)")

    def read_then_wait(connection):
        found = read(connection, number)
        connection.execute(too_long)
        return found

    try:
        assert number in impatient.database.read(read_then_wait)
        with pytest.raises(StoreUnavailable, match="took too long"):
            impatient.database.read(lambda connection: connection.execute(too_long))
    finally:
        impatient.close()

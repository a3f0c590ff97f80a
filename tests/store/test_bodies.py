from __future__ import annotations

import pytest
from factories import envelope, letter
from sqlalchemy import text

from celery_dlq.errors import StoreUnavailable
from celery_dlq.store.bodies import INLINE, read_bodies
from celery_dlq.store.query import WHOLE
from celery_dlq.store.sql import SQLStore

LARGE = 20 * 1_048_576


@pytest.mark.parametrize("size", [INLINE, INLINE + 1])
def test_a_body_is_read_along_up_to_a_size(store, size):
    store.save([letter("a", envelope=envelope(body=b"x" * size))])
    row = store.database.read(lambda connection: connection.execute(WHOLE).one())
    assert row.size == size
    assert (row.body is None) == (size > INLINE)
    assert len(store.get("a").envelope.body) == size


def test_reading_a_large_body_may_take_longer_than_another_statement(store):
    if store.database.dialect != "postgresql":
        pytest.skip("only PostgreSQL counts the time in which its answer is taken from it")
    store.save([letter("a", envelope=envelope(body=b"x" * LARGE))])
    number = store.database.read(lambda connection: connection.execute(WHOLE).one()).id
    impatient = SQLStore(store.database.url.render_as_string(hide_password=False), timeout=0.3)
    too_long = text("SELECT pg_sleep(0.6)")

    def read_then_wait(connection):
        bodies = read_bodies(connection, [(number, LARGE)])
        connection.execute(too_long)
        return len(bodies[number])

    try:
        assert impatient.database.read(read_then_wait) == LARGE
        with pytest.raises(StoreUnavailable, match="took too long"):
            impatient.database.read(lambda connection: connection.execute(too_long))
    finally:
        impatient.close()

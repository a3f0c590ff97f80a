"""Messages of any size: stored, or refused with what is to be done."""

import pytest
from factories import envelope, letter
from sqlalchemy import text

from celery_dlq.errors import RecordRefused
from celery_dlq.store.base import Filter


@pytest.mark.parametrize("size", [0, 1, 300_000, 6_000_000])
def test_a_body_of_any_usual_size_is_kept(store, size):
    body = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
    store.save([letter("a", envelope=envelope(body=body))])
    assert store.get("a").envelope.body == body


def test_a_body_that_the_server_does_not_take_is_refused_and_keeps_no_other_out(store):
    if store.database.dialect != "mysql":
        store.save([letter("a", envelope=envelope(body=b"x" * 50_000_000))])
        assert len(store.get("a").envelope.body) == 50_000_000
        return
    with store.database.engine.connect() as connection:
        allowed = connection.scalar(text("SELECT @@max_allowed_packet"))
    large = letter("a", envelope=envelope(body=b"x" * allowed))
    with pytest.raises(
        RecordRefused, match=f"max_allowed_packet is {allowed:,}; set it to .* or more"
    ):
        store.save([large, letter("b")])
    assert store.count(Filter()) == 0
    store.save([letter("b")])
    assert store.count(Filter()) == 1

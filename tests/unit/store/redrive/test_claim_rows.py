from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest
from support.factories import T0, envelope, letter
from support.stores.redriving import claim

from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter


@pytest.mark.parametrize("size", [20, 200_000], ids=["small", "large"])
def test_a_claimed_letter_is_whole_but_for_what_a_redrive_does_not_read(own_store, size):
    whole = letter("0d3f", tags=("x",), envelope=envelope(body=b"x" * size))
    own_store.letters.save([whole])
    until = T0 + timedelta(minutes=1)
    taken = claim(own_store, Filter(), token="t", lease_until=until, limit=10, now=T0)
    [found] = taken.letters
    assert found == whole.with_(
        state=State.CLAIMED, claim_token="t", lease_expires_at=until, attempts=(), args=None,
        kwargs=None, tags=(), exception_type="", message="", traceback="", worker="",
        pid=None, root_id=None, parent_id=None, group_id=None, correlation_id=None,
    )  # fmt: skip
    assert set(vars(found)) == {item.name for item in fields(DeadLetter)}
    assert set(vars(found.envelope)) == {item.name for item in fields(Envelope)}

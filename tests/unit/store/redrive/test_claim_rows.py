from __future__ import annotations

from dataclasses import fields

from support.factories import T0, letter

from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.states import State
from celery_dlq.store.redrive.claim_rows import COLUMNS, claimed_letter
from celery_dlq.store.rows.rows import letter_row


def test_a_claimed_letter_is_whole_but_for_what_a_redrive_does_not_read():
    whole = letter("0d3f", tags=("x",), redrive_count=2)
    row = {**letter_row(whole), "id": 1, "redrive_count": 2}
    read = [row[column.name] for column in COLUMNS]
    contents = 1, 9, row["headers"], row["properties"], row["body"]
    found = claimed_letter(read, contents, None, "t", T0)
    assert found == whole.with_(
        state=State.CLAIMED, claim_token="t", lease_expires_at=T0, attempts=(), args=None,
        kwargs=None, tags=(), exception_type="", message="", traceback="", worker="",
        pid=None, root_id=None, parent_id=None, group_id=None, correlation_id=None,
    )  # fmt: skip
    assert set(vars(found)) == {item.name for item in fields(DeadLetter)}
    assert set(vars(found.envelope)) == {item.name for item in fields(Envelope)}
    assert claimed_letter(read, contents, b"large", "t", T0).envelope.body == b"large"

"""Messages that people have changed, and their history."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import clip
from celery_dlq.model.letter import Envelope
from celery_dlq.model.states import State
from celery_dlq.store.base import Change, Edit
from celery_dlq.store.database.tables import change, content, letter
from celery_dlq.store.database.transactions import Searched, StoreRole, reads, writes
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.bodies import check_sizes, with_body
from celery_dlq.store.rows.query import WHOLE
from celery_dlq.store.rows.rows import (
    Row,
    envelope_from,
    envelope_values,
    fit,
    letter_from,
    part_of,
    read_row,
    stored_id,
)
from celery_dlq.store.rows.tally import Member, Tally
from celery_dlq.store.rows.terms import replace_terms

#: Characters of a diff that the audit keeps; the letter's history has all of it.
DIFF_LIMIT = 4_000

#: The name of the act in the audit and in a letter's history.
_ACT = "edit"


class Edits(StoreRole):
    """People's changes of messages."""

    @writes
    def save(self, connection: Connection, edit: Edit) -> bool:
        """Replace the message of a ``DEAD`` letter and keep the old one in its history; audited. False when
        the letter is not ``DEAD``, or its message is not the one that was edited."""
        return save_edit(connection, edit, self._transactions.searched)

    @reads
    def of_letter(self, connection: Connection, task_id: str) -> list[Change]:
        """The history of a letter's message, oldest first."""
        of_it = select(change).where(change.c.task_id == stored_id(task_id)).order_by(change.c.id)
        rows = connection.execute(of_it).mappings()
        return [read_row(Change, row, before=envelope_from(row)) for row in rows]


def save_edit(connection: Connection, edit: Edit, searched: Searched) -> bool:
    """:meth:`Edits.save`, in a transaction of the caller."""
    row = lock_dead(connection, edit.task_id)
    if row is None:
        return False
    after = envelope_values(edit.after)
    if not has_message(row, edit.before):
        return has_message(row, edit.after)  # saved already
    check_sizes(connection, [letter_from(row).with_(envelope=edit.after)])
    stored = searched.redactor.stored
    shown = {"args": dump_json(stored(edit.args)), "kwargs": dump_json(stored(edit.kwargs))}
    made_in = fit(letter, {"message_release": edit.release})
    for table in (letter, content):
        changed = part_of(table, {**after, **shown, **made_in})
        connection.execute(update(table).where(table.c.id == row["id"]).values(changed))
    replace_terms(connection, [(row["id"], shown)], searched.value_limit)
    _count(connection, row, after)
    _note(connection, edit)
    return True


def lock_dead(connection: Connection, task_id: str) -> Row | None:
    """The row of a ``DEAD`` letter with its message, locked until the transaction ends; None if there is no
    such letter, or it is not ``DEAD``."""
    stored = WHOLE.where(letter.c.task_id == stored_id(task_id)).with_for_update()
    found = connection.execute(stored).mappings().one_or_none()
    if found is None or found["state"] != State.DEAD.value:
        return None
    return with_body(connection, found)


def has_message(row: Row, message: Envelope) -> bool:
    """Whether ``message`` is the one of a row of :func:`lock_dead`."""
    return all(row[name] == value for name, value in envelope_values(message).items())


def _note(connection: Connection, edit: Edit) -> None:
    key = stored_id(edit.task_id)
    texts = fit(change, {"who": edit.who, "how": _ACT, "diff": edit.diff})
    before = envelope_values(edit.before)
    connection.execute(insert(change).values(task_id=key, at=edit.at, **texts, **before))
    detail = {"letter": key, "changed": clip(edit.diff, DIFF_LIMIT)}
    audit.write_audit(
        connection, who=edit.who, act=_ACT, count=1, why=edit.why, detail=detail, at=edit.at
    )


def _count(connection: Connection, row: Row, after: dict[str, Any]) -> None:
    if row["queue"] != after["queue"]:
        tally = Tally()
        tally.change(Member.of(row), Member.of({**row, **after}))
        tally.write(connection)

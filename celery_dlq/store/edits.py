"""Messages that people have changed, and the history of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.states import State
from celery_dlq.store import audit, tables
from celery_dlq.store.base import Change, Edit
from celery_dlq.store.bodies import with_body
from celery_dlq.store.packets import check_sizes
from celery_dlq.store.query import WHOLE
from celery_dlq.store.rows import (
    Row,
    envelope_from,
    envelope_values,
    fit,
    letter_from,
    part_of,
    stored_id,
)
from celery_dlq.store.tally import Member, Tally

letter, content, change = tables.letter, tables.content, tables.change


def save(connection: Connection, edit: Edit) -> bool:
    """Change the message of a dead letter, unless somebody else has."""
    key = stored_id(edit.task_id)
    stored = WHOLE.where(letter.c.task_id == key).with_for_update()
    found = connection.execute(stored).mappings().one_or_none()
    if found is None or found["state"] != State.DEAD.value:
        return False
    row = with_body(connection, found)
    before, after = envelope_values(edit.before), envelope_values(edit.after)
    if not _is(row, before):
        return _is(row, after)  # saved already
    check_sizes(connection, [letter_from(row).with_(envelope=edit.after)])
    shown = {"args": dump_json(edit.args), "kwargs": dump_json(edit.kwargs)}
    for table in (letter, content):
        changed = part_of(table, {**after, **shown})
        connection.execute(update(table).where(table.c.id == row["id"]).values(changed))
    _count(connection, row, after)
    texts = fit(change, {"who": edit.who, "how": edit.how, "diff": edit.diff})
    connection.execute(insert(change).values(task_id=key, at=edit.at, **texts, **before))
    audit.write_audit(
        connection, who=edit.who, act="edit", count=1, detail={"letter": key}, at=edit.at
    )
    return True


def _count(connection: Connection, row: Row, after: dict[str, Any]) -> None:
    if row["queue"] != after["queue"]:
        tally = Tally()
        tally.change(Member.of(row), Member.of({**row, **after}))
        tally.write(connection)


def changes_of(connection: Connection, task_id: str) -> list[Change]:
    """The history of a letter's message, oldest first."""
    of_it = select(change).where(change.c.task_id == stored_id(task_id)).order_by(change.c.id)
    return [_change_from(row) for row in connection.execute(of_it).mappings()]


def _is(row: Row, message: dict[str, Any]) -> bool:
    return all(row[name] == value for name, value in message.items())


def _change_from(row: Row) -> Change:
    return Change(
        **{name: row[name] for name in ("task_id", "at", "who", "how", "diff")},
        before=envelope_from(row),
    )

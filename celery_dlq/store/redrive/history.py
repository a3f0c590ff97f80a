"""The history that the store keeps: the acts of people, the changes that they made in messages, and the
deletion of old acts, operations and counts.

An act is shown with its result so far, because a redrive continues after its row is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, insert, select, tuple_, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import clip
from celery_dlq.errors import FilterError
from celery_dlq.model.letter import Envelope
from celery_dlq.model.operation import SendingState
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.store.base import AuditRow, Change, Edit, HistoryBounds, Rows
from celery_dlq.store.database import chain, tables
from celery_dlq.store.database.namespaces import is_ours, narrow
from celery_dlq.store.database.sealing import CONTENTS, read_shown, sealing_of
from celery_dlq.store.database.tables import audit, letter, operation, sending
from celery_dlq.store.database.transactions import Searched, StoreRole, reads, writes
from celery_dlq.store.redrive.operations import counts_of, operations_of_group
from celery_dlq.store.redrive.sendings import sendings_of
from celery_dlq.store.rows.audit import REDRIVE, write_audit
from celery_dlq.store.rows.bodies import check_sizes, with_body
from celery_dlq.store.rows.query import WHOLE, Conditions, in_states
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

_READ = tuple(column for column in audit.columns if column.name not in ("subject", "salt"))

#: Operations that are looked through for those that chose a group. The filter of each may name many letters.
_OPERATIONS = 50

#: States of sendings whose outcome may still come, or of which a copy may have been sent.
_AWAITED = (SendingState.SENDING.value, SendingState.SENT.value)

#: Digits of the largest id.
_ID_DIGITS = 18


class Audit(StoreRole):
    """The acts of people."""

    @reads
    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        act: str | None = None,
        who: str | None = None,
        since: datetime | None = None,
        letter: str | None = None,
        group: str | None = None,
    ) -> Rows[AuditRow]:
        """Acts of people, newest first: their ids are in the order in which they were written. A redrive
        counts the letters that it has sent so far.

        :param after: the cursor of the previous rows.
        :param letter: only acts that were about this letter alone, and acts on the operations that it was
            in.
        :param group: only acts that were about the group with this fingerprint, and acts on the newest
            operations that chose it.
        """
        found: Conditions = [self.ours(audit)]
        found += [] if after is None else [audit.c.id < _id(after)]
        if act is not None:
            found.append(audit.c.act == act)
        if who is not None:
            found.append(audit.c.who == who)
        if since is not None:
            found.append(audit.c.at >= since)
        if letter is not None:
            key = stored_id(letter)
            of_it = select(sending.c.operation).where(sending.c.task_id == key).distinct()
            found.append(audit.c.subject.in_([key, *self.connection.scalars(of_it)]))
        if group is not None:
            chose = operations_of_group(self.connection, group, _OPERATIONS)
            found.append(audit.c.subject.in_([stored_id(group), *chose]))
        newest = select(*_READ).where(*found).order_by(audit.c.id.desc()).limit(limit + 1)
        acts = [_act(row) for row in read_shown(self.connection, audit, newest)]
        page = Rows.first(acts, limit, attrgetter("id"))
        return replace(page, rows=_with_results(self.connection, page.rows, letter))

    @writes
    def note(
        self, *, who: str, act: str, count: int, at: datetime,
        detail: Mapping[str, object], why: str = "", row: int | None = None,
    ) -> int:  # fmt: skip
        """:func:`~celery_dlq.store.rows.audit.write_audit`, in a transaction of its own."""
        return write_audit(
            self.connection, who=who, act=act, count=count, at=at, detail=detail, why=why, row=row
        )

    def verify(self, kept: str | None = None) -> chain.Verification:
        """Check that each act is as it was written, and that none was added, deleted or moved.

        :param kept: an earlier head, ``N:HASH``, which must still be in the chain.
        """
        key = self._transactions.read(lambda connection: sealing_of(connection).hash_key)
        verification = chain.Verification(key or None, kept)
        for step in (verification.follow, verification.compare):
            while self._transactions.read(step):
                pass
        verification.end()
        return verification


def _act(shown: dict[str, Any]) -> AuditRow:
    why_not = {"unreadable": shown.pop("unreadable")} if "unreadable" in shown else {}
    return AuditRow(**{**shown, "detail": why_not or json.loads(shown["detail"])})


def _with_results(
    connection: Connection, rows: Sequence[AuditRow], letter: str | None
) -> tuple[AuditRow, ...]:
    redrives = {row.detail.get("operation", "") for row in rows if row.act == REDRIVE}
    if not redrives:
        return tuple(rows)
    counts = counts_of(connection, redrives)
    redriven = [] if letter is None else sendings_of(connection, letter)
    changes = {one.operation: {"changed": one.change} for one in redriven if one.change}
    return tuple(
        replace(row, count=counts[its].out, detail={**row.detail, **changes.get(its, {})})
        if row.act == REDRIVE and (its := str(row.detail.get("operation"))) in counts
        else row
        for row in rows
    )


def _id(mark: str) -> int:
    # A number with more digits than any id does not fit into a parameter of a statement.
    if not mark.isascii() or not mark.isdecimal() or len(mark) > _ID_DIGITS:
        raise FilterError(f"{mark[:80]!r} is not a cursor; start again without --after.")
    return int(mark)


class History(StoreRole):
    """The history that the store keeps."""

    @writes
    def prune(self, bounds: HistoryBounds, *, limit: int) -> int:
        """Delete history that is older than ``bounds``, up to ``limit`` rows of each kind; returns how many
        rows. The sendings, changes and handlings of an open letter stay, and so does the count of the hour in
        which it died. An operation is deleted after its sendings, so that a crash leaves no sending without
        an operation."""
        old: list[tuple[Table, ColumnElement[bool]]] = []
        if bounds.history is not None:
            old += _old_history(bounds.history)
        if bounds.arrivals is not None:
            old.append((tables.arrival, tables.arrival.c.minute < bounds.arrivals))
            # The ages of open letters are read from these.
            old.append(
                (
                    tables.trend,
                    and_(tables.trend.c.hour < bounds.arrivals, tables.trend.c.open_count == 0),
                )
            )
        if bounds.audit is not None:
            old.append((audit, audit.c.at < bounds.audit))
        return sum(_delete(self.connection, table, condition, limit) for table, condition in old)


def _old_history(before: datetime) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The tables, each with the condition on its rows that are deleted."""
    ended = select(operation.c.id).where(operation.c.ended_at < before)
    # Neither its letter nor its message needs a sending any more.
    is_over = sending.c.state.not_in(_AWAITED), sending.c.ended_at < before, ~_is_open(sending)
    yield sending, and_(sending.c.operation.in_(ended), *is_over)
    sendings = select(1).where(sending.c.operation == operation.c.id).correlate(operation)
    yield operation, and_(operation.c.ended_at < before, ~sendings.exists())
    yield tables.change, and_(tables.change.c.at < before, ~_is_open(tables.change))
    # The limit of an open letter is counted by them.
    yield tables.handling, and_(tables.handling.c.ended_at < before, ~_is_open(tables.handling))
    yield tables.auto_hold, and_(tables.auto_hold.c.at < before, ~_is_open(tables.auto_hold))


def _is_open(table: Table) -> ColumnElement[bool]:
    """Whether the letter of a row may still be redriven, or end."""
    same = letter.c.task_id == table.c.task_id
    return select(1).where(same, in_states(OPEN_STATES)).correlate(table).exists()


def _delete(connection: Connection, table: Table, old: ColumnElement[bool], limit: int) -> int:
    key: tuple[Any, ...] = tuple(table.primary_key.columns)
    oldest = select(*key).where(is_ours(connection, table), old).order_by(*key).limit(limit)
    rows = [tuple(row) for row in connection.execute(oldest)]
    if not rows:
        return 0
    if table is audit:
        chain.note(connection, [row[0] for row in rows], deleted=True)
    these = key[0].in_([row[0] for row in rows]) if len(key) == 1 else tuple_(*key).in_(rows)
    # The condition is checked again, because another transaction may have changed a row since then.
    return connection.execute(delete(table).where(these, old)).rowcount


#: Characters of a diff that the audit keeps; the letter's history has all of it.
DIFF_LIMIT = 4_000

#: The name of the act in the audit and in a letter's history.
_ACT = "edit"


class Edits(StoreRole):
    """People's changes of messages."""

    @writes
    def save(self, edit: Edit) -> bool:
        """Replace the message of a ``DEAD`` letter and keep the old one in its history; audited. False when
        the letter is not ``DEAD``, or its message is not the one that was edited."""
        return save_edit(self.connection, edit, self._transactions.searched)

    @reads
    def of_letter(self, task_id: str) -> list[Change]:
        """The history of a letter's message, oldest first."""
        of_it = (
            select(tables.change)
            .where(tables.change.c.task_id == stored_id(task_id), self.ours(tables.change))
            .order_by(tables.change.c.id)
        )
        rows = read_shown(self.connection, tables.change, of_it)
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
    sealing, sealed_by = sealing_of(connection), row["sealed_by"]
    changes = {**after, **shown, **made_in}
    if not sealed_by and (sealed_by := sealing.label_for("")):
        # The letter was stored in clear, and becomes sealed as a whole.
        others = {name: row[name] for name in (*CONTENTS[letter], *CONTENTS[tables.content])}
        changes = {**others, **changes, "sealed_by": sealed_by}
    sealed = sealing.seal(letter, {"task_id": row["task_id"], **changes}, sealed_by)
    for table in (letter, tables.content):
        changed = part_of(table, {name: sealed[name] for name in changes})
        connection.execute(update(table).where(table.c.id == row["id"]).values(changed))
    replace_terms(connection, [(row["id"], shown)], searched.value_limit)
    _count_edited(connection, row, after)
    _note_edit(connection, edit, sealed_by)
    return True


def lock_dead(connection: Connection, task_id: str) -> Row | None:
    """The row of a ``DEAD`` letter with its message, locked until the transaction ends; None if there is no
    such letter, or it is not ``DEAD``.

    :raises ContentsSealed: its message cannot be decrypted.
    """
    its = letter.c.task_id == stored_id(task_id), is_ours(connection, letter)
    found = connection.execute(WHOLE.where(*its).with_for_update()).mappings().one_or_none()
    if found is None or found["state"] != State.DEAD.value:
        return None
    narrow(connection, found["namespace"])
    return sealing_of(connection).open(letter, with_body(connection, found))


def has_message(row: Row, message: Envelope) -> bool:
    """Whether ``message`` is the one of a row of :func:`lock_dead`."""
    return all(row[name] == value for name, value in envelope_values(message).items())


def _note_edit(connection: Connection, edit: Edit, sealed_by: str) -> None:
    key = stored_id(edit.task_id)
    texts = fit(tables.change, {"who": edit.who, "how": _ACT, "diff": edit.diff})
    row = {"task_id": key, "at": edit.at, **texts, **envelope_values(edit.before)}
    sealed = sealing_of(connection).seal(tables.change, row, sealed_by)
    connection.execute(insert(tables.change).values(sealed))
    detail = {"letter": key, "changed": clip(edit.diff, DIFF_LIMIT)}
    write_audit(
        connection, who=edit.who, act=_ACT, count=1, why=edit.why, detail=detail, at=edit.at,
        sealed_by=sealed_by,
    )  # fmt: skip


def _count_edited(connection: Connection, row: Row, after: dict[str, Any]) -> None:
    if row["queue"] != after["queue"]:
        tally = Tally()
        tally.change(Member.of(row), Member.of({**row, **after}))
        tally.write(connection)

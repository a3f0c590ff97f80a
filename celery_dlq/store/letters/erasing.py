"""Erases letters, and what the store has noted about them elsewhere: the examples of groups, the audit, and
other texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Column, ColumnElement, and_, false, or_, select, update
from sqlalchemy.engine import Connection

from celery_dlq.codec import dump_json
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import DELETABLE_STATES
from celery_dlq.redact import clip
from celery_dlq.store.base import ErasedSegment, Lease, OngoingAct
from celery_dlq.store.coordination.leases import check_lease
from celery_dlq.store.database import tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.letters.acts import MEMBER
from celery_dlq.store.letters.deleting import delete_rows
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import in_states, is_parked, one_of
from celery_dlq.store.rows.rows import parked_letter
from celery_dlq.store.rows.tally import SAMPLE_LIMIT

letter, group, parked, operation = tables.letter, tables.group, tables.parked, tables.operation

#: Stands for a text that was erased.
ERASED = "[erased]"

#: Texts outside of letters that people, handlers and filters have written.
_TEXTS: Sequence[Column[str]] = (
    tables.audit.c.why, tables.audit.c.detail,
    group.c.message, group.c.note, group.c.owner,
    tables.ticket.c.url, tables.ticket.c.why,
    operation.c.cause, operation.c.wanted, operation.c.orders,
)  # fmt: skip


class Erasing(StoreRole):
    """Erases letters for ever."""

    @writes
    def begin(self, connection: Connection, act: OngoingAct, lease: Lease) -> OngoingAct:
        """Write the audit row of an act before it removes anything; returns the act with its row.

        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(connection, lease)
        return audit.add_to_act(connection, act, 0)

    @writes
    def delete(
        self, connection: Connection, task_ids: Sequence[str], lease: Lease, act: OngoingAct
    ) -> list[str]:
        """Delete the letters of ``task_ids`` in whatever state, except those that a redrive is sending;
        audited. Returns the ids of the deleted ones.

        :param act: as :meth:`begin` has returned it.
        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(connection, lease)
        stored = (
            select(*MEMBER)
            .where(
                one_of(connection, letter.c.task_id, sorted(task_ids)), in_states(DELETABLE_STATES)
            )
            .order_by(letter.c.id)
            .with_for_update()
        )
        rows = connection.execute(stored).mappings().all()
        if not rows:
            return []
        delete_rows(connection, rows)
        _renew_examples(connection, {row["fingerprint"] for row in rows})
        gone = [row["task_id"] for row in rows]
        _erase_acts(connection, gone, act)
        audit.add_to_act(connection, act, len(gone))
        return gone

    @writes
    def note_archived(
        self, connection: Connection, removed: ErasedSegment, act: OngoingAct
    ) -> OngoingAct:
        """Record that letters were removed from the archive, and erase what the store has noted about them.
        Returns the act, whose detail names the segments.

        :param act: as :meth:`begin` or this method has returned it.
        """
        _renew_examples(connection, removed.fingerprints)
        _erase_acts(connection, removed.task_ids, act)
        audit.add_to_act(connection, act, len(removed.task_ids))
        segments = {**act.detail.get("segments", {}), removed.before: removed.after}
        act = replace(act, detail={**act.detail, "segments": segments})
        row = update(tables.audit).where(tables.audit.c.id == act.row)
        connection.execute(row.values(detail=dump_json(act.detail)))
        return act

    @reads
    def mentions(self, connection: Connection, texts: Sequence[str]) -> int:
        """How many values :meth:`replace_texts` would change."""
        return sum(len([*_mentions(connection, column, texts)]) for column in _TEXTS)

    @writes
    def replace_texts(self, connection: Connection, texts: Sequence[str]) -> int:
        """Replace ``texts``, as whole words, in what people, handlers and filters have written; returns how
        many values were changed. The orders of operations that have not ended stay as they are."""
        changed = 0
        for column in _TEXTS:
            for row, text in [*_mentions(connection, column, texts)]:
                connection.execute(update(column.table).where(row).values({column: text}))
                changed += 1
        return changed

    @reads
    def parked(
        self, connection: Connection, after: int, *, limit: int
    ) -> list[tuple[int, DeadLetter]]:
        """The next parked retries with their messages, each with its number.

        :param after: the number of the previous one; 0 for the first ones.
        """
        waiting = select(parked).where(is_parked(), parked.c.id > after).order_by(parked.c.id)
        rows = connection.execute(waiting.limit(limit)).mappings()
        return [(found["id"], parked_letter(found)) for found in rows]


def _renew_examples(connection: Connection, fingerprints: Collection[str]) -> None:
    """Take the example messages of groups from letters that they still have."""
    for fingerprint in sorted(fingerprints):
        newest = max(_newest_of_states(connection, fingerprint), default=None)
        example = "" if newest is None else clip(newest[1], SAMPLE_LIMIT)
        of_group = update(group).where(group.c.fingerprint == fingerprint)
        connection.execute(of_group.values(message=example))


def _newest_of_states(connection: Connection, fingerprint: str) -> Iterable[tuple[datetime, str]]:
    """The last failure and the message of the newest letter in each state."""
    for state in sorted(DELETABLE_STATES):
        newest = (
            select(letter.c.last_failed_at, letter.c.message)
            .where(letter.c.fingerprint == fingerprint, letter.c.state == state.value)
            .order_by(letter.c.last_failed_at.desc(), letter.c.id.desc())
            .limit(1)
        )
        found = connection.execute(newest).one_or_none()
        if found is not None:
            yield found.last_failed_at, found.message


def _erase_acts(connection: Connection, task_ids: Sequence[str], erasing: OngoingAct) -> None:
    """Erase the reasons and the changes in the audit of acts on one of these letters. The other columns, such
    as the person and the time, stay."""
    acts = tables.audit
    for task_id in task_ids:
        of_it = update(acts).where(acts.c.subject == task_id, acts.c.id != erasing.row)
        connection.execute(of_it.where(acts.c.why != "").values(why=ERASED))
        connection.execute(of_it.values(detail=dump_json({"letter": task_id})))


def _mentions(
    connection: Connection, column: Column[str], texts: Sequence[str]
) -> Iterator[tuple[ColumnElement[bool], str]]:
    """The rows whose ``column`` mentions one of ``texts``, each with the text that replaces it."""
    # A JSON text has escapes for some characters.
    forms = sorted({form for text in texts for form in (text, dump_json(text)[1:-1])})
    found = or_(false(), *(column.contains(form, autoescape=True) for form in forms))
    if column.table is operation:
        found = and_(found, operation.c.ended_at.is_not(None))
    keys = [*column.table.primary_key.columns]
    for row in connection.execute(select(*keys, column).where(found)).mappings():
        text = _without(row[column], forms)
        if text != row[column]:
            yield and_(*(key == row[key] for key in keys)), text


def _without(text: str, forms: Sequence[str]) -> str:
    for form in forms:
        text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", ERASED, text)
    return text

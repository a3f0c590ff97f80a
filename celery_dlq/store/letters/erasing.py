"""Erases letters, and what the store has noted about them elsewhere: the examples of groups, the audit,
redrives, and notes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import clip
from celery_dlq.base.sealing import TEXT_PREFIX, needed, person_in
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import DELETABLE_STATES
from celery_dlq.store.base import Lease, OngoingAct
from celery_dlq.store.coordination import check_lease
from celery_dlq.store.database import chain, tables
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import CONTENTS, read_shown, sealing_of
from celery_dlq.store.database.tables import audit as acts
from celery_dlq.store.database.tables import group, handling, letter, operation, parked, sending
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.letters.acts import MEMBER, delete_rows
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import (
    IS_PARKED,
    check_keys,
    in_states,
    is_after,
    is_of_group,
    newest_message,
    one_of,
    without_claimed,
)
from celery_dlq.store.rows.rows import shown_parked
from celery_dlq.store.rows.tally import SAMPLE_LIMIT, GroupKey, Member

#: Stands for a text that was erased.
ERASED = "[erased]"

#: Texts that people and handlers have written, and that redrives have noted.
PLAIN: Sequence[sa.Column[str]] = (
    acts.c.why, group.c.message, group.c.note, group.c.owner, tables.ticket.c.why,
    tables.ticket.c.recipient, operation.c.cause, tables.automation.c.why,
    handling.c.error, letter.c.closed_reason, sending.c.why, sending.c.change, tables.auto_hold.c.why,
    tables.request.c.why,
)  # fmt: skip

#: JSON that has such texts. All texts in the details of a handler's verdict are such.
JSON: Sequence[sa.Column[str]] = (
    acts.c.detail, operation.c.wanted, operation.c.orders,
    tables.report.c.detail, handling.c.detail, tables.request.c.record,
)  # fmt: skip

#: The keys of such texts in the JSON. All other values are names, numbers, ids and times.
_TEXT_KEYS = frozenset(
    {
        "why", "search", "arg", "value", "values", "changed", "note", "owner", "assignments", "set",
        "cause", "recipient", "to",
    }
)  # fmt: skip

#: Rows that are read together to search in their texts.
_PAGE = 1_000

#: As people write values.
_dump_unescaped = partial(json.dumps, ensure_ascii=False)

#: Acts that this module has written, or whose detail names segments.
_KEPT_ACTS = ("forget", "restore")


@dataclass(frozen=True, kw_only=True)
class Mention:
    """A text, stored outside letters, that contains an erased value."""

    #: The table and the column, for people.
    place: str
    #: The row, as it is now.
    row: sa.ColumnElement[bool]
    column: sa.Column[str]
    #: The text without the value.
    text: str


class Erasing(StoreRole):
    """Erases letters for ever."""

    @reads
    def letters_after(
        self, after: int, *, limit: int, person_id: str = ""
    ) -> tuple[list[str], int]:
        """The task ids of the next letters in the order in which they came into the store, and the number of
        the last one. A letter keeps its number when it fails again.

        :param after: the number of the previous one; 0 for the first ones.
        :param person_id: only letters that are sealed with the key of this person.
        """
        its = letter.c.id > after, self.ours(letter)
        stored = sa.select(letter.c.id, letter.c.task_id).where(*its)
        if person_id:
            stored = stored.where(letter.c.sealed_by == f"@{person_id}")
        rows = self.connection.execute(stored.order_by(letter.c.id).limit(limit)).all()
        return [row.task_id for row in rows], rows[-1].id if rows else after

    @reads
    def parked_after(self, after: int, *, limit: int) -> tuple[list[DeadLetter], int]:
        """The next parked retries with their messages, and the number of the last one.

        :param after: the number of the previous one; 0 for the first ones.
        """
        waiting = sa.select(parked).where(self.ours(parked), IS_PARKED, parked.c.id > after)
        rows = self.connection.execute(waiting.order_by(parked.c.id).limit(limit)).mappings().all()
        letters = [shown_parked(self.connection, row) for row in rows]
        return letters, rows[-1]["id"] if rows else after

    @reads
    def check_keys(self) -> None:
        """Check that the keys are here with which letters are encrypted.

        :raises ContentsSealed: a key is not.
        """
        check_keys(self.connection)

    @writes
    def begin(self, act: OngoingAct, lease: Lease) -> OngoingAct:
        """Write the audit row of an act before it removes anything; returns the act with its row.

        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(self.connection, lease)
        return audit.add_to_act(self.connection, act, 0)

    @writes
    def delete(self, task_ids: Sequence[str], lease: Lease, act: OngoingAct) -> int:
        """Delete the letters of ``task_ids`` in any state, except those that a redrive is sending;
        audited. Returns how many.

        :param act: as :meth:`begin` has returned it.
        :raises LeaseLost: another process has taken the lease.
        """
        check_lease(self.connection, lease)
        stored = (
            sa.select(*MEMBER)
            .where(one_of(self.connection, letter.c.task_id, sorted(task_ids)))
            .where(self.ours(letter), in_states(DELETABLE_STATES))
            .order_by(letter.c.id)
            .with_for_update()
        )
        rows = without_claimed(self.connection, self.connection.execute(stored).mappings().all())
        if rows:
            _erase_acts(self.connection, [row["task_id"] for row in rows])
            delete_rows(self.connection, rows)
            _renew_examples(self.connection, {Member.of(row).key for row in rows})
            audit.add_to_act(self.connection, act, len(rows))
        return len(rows)

    @writes
    def erase_notes(self, task_ids: Sequence[str], groups: Collection[GroupKey]) -> None:
        """Erase what the store has noted about letters that are in the archive."""
        _erase_acts(self.connection, task_ids)
        _renew_examples(self.connection, groups)

    @writes
    def note_segment(self, act: OngoingAct, before: str, after: str, *, letters: int) -> OngoingAct:
        """Record that letters were removed from a segment of the archive. Returns the act, whose detail names
        the segments.

        :param after: the segment that replaces it; empty if no letter of it was left.
        :param act: as :meth:`begin` or this method has returned it.
        """
        audit.add_to_act(self.connection, act, letters)
        segments = {**act.detail.get("segments", {}), before: after}
        act = replace(act, detail={**act.detail, "segments": segments})
        row = sa.update(acts).where(acts.c.id == act.row)
        detail = {"act": act.act, "at": act.at, "detail": dump_json(act.detail)}
        self.connection.execute(row.values(sealing_of(self.connection).seal(acts, detail)))
        return act

    @writes
    def erase_operations(self, task_ids: Collection[str]) -> None:
        """Erase the texts of ended operations all of whose letters are among ``task_ids``."""
        for operation_id in _operations_of(self.connection, task_ids):
            is_it = sa.and_(self.ours(operation), operation.c.id == operation_id)
            ended = sa.select(operation).where(is_it, operation.c.ended_at.is_not(None))
            for row in read_shown(self.connection, operation, ended):
                texts = {name: _in_json(row[name], _nothing) for name in ("wanted", "orders")}
                values = {"id": operation_id, **texts, "cause": row["cause"] and ERASED}
                values = sealing_of(self.connection).seal(operation, values)
                self.connection.execute(sa.update(operation).where(is_it).values(values))
                _erase_acts(self.connection, [operation_id], name="operation")

    def mentions(self, texts: Sequence[str]) -> list[Mention]:
        """The texts of people, handlers and filters that have one of ``texts`` in them, as a whole word.
        Texts of operations and requests that have not ended are left out."""
        if not texts:
            return []
        forms = _forms(texts)
        return [
            found
            for column in (*PLAIN, *JSON)
            for found in self._transactions.read(partial(_mentions, column=column, texts=forms))
        ]

    @writes
    def replace_texts(self, mentions: Sequence[Mention]) -> int:
        """Write the texts without the values; returns how many. A text that has changed since stays."""
        for one in mentions:
            if one.column.table is acts:
                rows = sa.select(acts.c.id).where(one.row)
                chain.note(self.connection, self.connection.scalars(rows))
        changes = (
            sa.update(one.column.table).where(one.row).values({one.column: one.text})
            for one in mentions
        )
        return sum(self.connection.execute(one).rowcount for one in changes)


def _renew_examples(connection: Connection, groups: Collection[GroupKey]) -> None:
    """Take the example messages of groups from letters that they still have."""
    sealing = sealing_of(connection)
    for key in sorted(groups):
        message, sealed_by = newest_message(connection, key, DELETABLE_STATES)
        if sealed_by:
            needed(sealing.ring)  # an example that cannot be made is not emptied
        row = {"fingerprint": key[0], "message": clip(message, SAMPLE_LIMIT)}
        example = sealing.seal(group, row, sealed_by)["message"]
        connection.execute(sa.update(group).where(is_of_group(group, key)).values(message=example))


def _erase_acts(connection: Connection, subjects: Sequence[str], name: str = "letter") -> None:
    """Erase the reasons and the changes in the audit of acts on one of these letters or operations. The other
    columns, such as the person and the time, stay.

    :param name: of the subject, in the detail.
    """
    about = sa.and_(
        is_ours(connection, acts),
        one_of(connection, acts.c.subject, sorted(subjects)),
        acts.c.act.not_in(_KEPT_ACTS),
    )
    connection.execute(sa.update(acts).where(about, acts.c.why != "").values(why=ERASED))
    rows = connection.execute(sa.select(acts.c.id, acts.c.subject).where(about)).all()
    chain.note(connection, [row.id for row in rows])
    for row in rows:
        detail = dump_json({name: row.subject})
        connection.execute(sa.update(acts).where(acts.c.id == row.id).values(detail=detail))


def _operations_of(connection: Connection, task_ids: Collection[str]) -> list[str]:
    """The operations that had these letters, and no others."""
    known = sorted(task_ids)
    of_these = sa.select(sending.c.operation).where(one_of(connection, sending.c.task_id, known))
    named = connection.scalars(of_these.distinct()).all()
    letters = sa.select(sending.c.task_id).limit(len(known) + 1)
    return [
        one
        for one in sorted(named)
        if set(connection.scalars(letters.where(sending.c.operation == one))) <= set(known)
    ]


def _forms(texts: Sequence[str]) -> list[str]:
    """Each text as it is, and as a text with JSON has it, such as an assignment or a diff. The longest forms
    come first, because a shorter one may be a part of a longer one."""
    forms = {dump(text)[1:-1] for text in texts for dump in (dump_json, _dump_unescaped)}
    return sorted({*texts, *forms}, key=lambda form: (-len(form), form))


def _mentions(
    connection: Connection, column: sa.Column[str], texts: Sequence[str]
) -> list[Mention]:
    is_json = any(column is one for one in JSON)
    forms = {dump_json(text)[1:-1] for text in texts} if is_json else set(texts)
    found = sa.or_(sa.false(), *(column.contains(form, autoescape=True) for form in sorted(forms)))
    table: Any = column.table
    name, sealing = column.name, sealing_of(connection)
    contents = CONTENTS.get(table, ())
    if may_be_sealed := name in contents:
        found = sa.or_(found, column.startswith(TEXT_PREFIX))
    found = sa.and_(is_ours(connection, table), found)
    if column.table is operation:
        found = sa.and_(found, operation.c.ended_at.is_not(None))
    elif column.table is tables.request:  # a change would break its digest
        found = sa.and_(found, tables.request.c.state != "open")
    keys = [*column.table.primary_key.columns]
    without, is_text = partial(_without, texts=texts), column is handling.c.detail
    changed = []
    for row in _pages(connection, table, keys, found):
        stored = row[name]
        only = {key: row[key] for key in row if key == name or key not in contents}
        # What cannot be read was sealed for a person whose key was destroyed.
        before = sealing.shown(table, [only])[0][name] if may_be_sealed else stored
        text = _in_json(before, without, is_text=is_text) if is_json else without(before)
        if text != before:
            this = sa.and_(*(key == row[key.name] for key in keys), column == stored)
            place = f"{column.table.name}.{column.name}"
            if may_be_sealed:
                person = person_in(stored)
                sealed_by = f"@{person.hex()}" if person else ""
                text = sealing.seal(table, {**only, name: text}, sealed_by)[name]
            changed.append(Mention(place=place, row=this, column=column, text=text))
    return changed


def _pages(
    connection: Connection,
    table: Any,
    keys: Sequence[sa.Column[Any]],
    found: sa.ColumnElement[bool],
) -> Iterator[sa.RowMapping]:
    """The rows for which the condition holds, some at a time, because sealed texts are compared here."""
    after: sa.ColumnElement[bool] = sa.true()
    while True:
        page = sa.select(table).where(found, after).order_by(*keys).limit(_PAGE)
        rows = connection.execute(page).mappings().all()
        yield from rows
        if len(rows) < _PAGE:
            return
        after = is_after(keys, [rows[-1][key.name] for key in keys])


def _without(text: str, texts: Sequence[str]) -> str:
    for one in texts:
        text = re.sub(rf"(?<!\w){re.escape(one)}(?!\w)", ERASED, text)
    return text


def _nothing(text: str) -> str:
    """Replacement for an erased text; an assignment keeps its place."""
    place, sign, _value = text.partition("=")
    return f"{place}{sign}{ERASED}" if sign else text and ERASED


def _in_json(stored: str, change: Callable[[str], str], *, is_text: bool = False) -> str:
    """``stored`` with its texts changed; the same JSON text if no text changes.

    :param is_text: whether all values are texts, and not only those under :data:`_TEXT_KEYS`.
    """
    before = json.loads(stored)
    after = _changed(before, change, is_text=is_text)
    return stored if after == before else dump_json(after)


def _changed(value: Any, change: Callable[[str], str], *, is_text: bool) -> Any:
    if isinstance(value, dict):
        return {
            key: _changed(item, change, is_text=is_text or key in _TEXT_KEYS)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_changed(item, change, is_text=is_text) for item in value]
    return change(value) if is_text and isinstance(value, str) else value

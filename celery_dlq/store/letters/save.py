"""Saves a batch of failures: reads the stored letters, decides letter by letter, and writes the result."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import ContentsSealed, RecordRefused
from celery_dlq.model.letter import DeadLetter, digest_of
from celery_dlq.model.states import OPEN_STATES
from celery_dlq.store.base import Saved
from celery_dlq.store.coordination import end_deliveries
from celery_dlq.store.database.sealing import CONTENTS, Sealing, sealing_of
from celery_dlq.store.database.tables import attempt, change, content, letter, sending
from celery_dlq.store.database.transactions import Searched
from celery_dlq.store.groups import aliases, triage
from celery_dlq.store.redrive import sendings
from celery_dlq.store.rows.bodies import SIZE, check_sizes, read_bodies
from celery_dlq.store.rows.merge import (
    AttemptKey,
    Effect,
    Facts,
    identity,
    merge,
    named_apart,
    redrive_of,
)
from celery_dlq.store.rows.query import one_of
from celery_dlq.store.rows.rows import (
    FAILURE_COLUMNS,
    attempt_row,
    letter_row,
    part_of,
    read_row,
    storable,
)
from celery_dlq.store.rows.tally import Member, Tally
from celery_dlq.store.rows.terms import add_terms, replace_terms

#: The columns that every newer failure writes, in addition to the failure's own.
_STATE_COLUMNS = (
    "state", "redrive_count", "last_redrive", "claim_token", "lease_expires_at",
    "closed_at", "closed_by", "closed_reason",
)  # fmt: skip

_FACT_COLUMNS = (
    letter.c.id, letter.c.task_id, letter.c.state, letter.c.redrive_count, letter.c.last_redrive,
    letter.c.last_failed_at, letter.c.closed_at, letter.c.fingerprint, letter.c.task,
    letter.c.exception_type, letter.c.queue, letter.c.reason, letter.c.route, letter.c.sealed_by,
    letter.c.namespace,
)  # fmt: skip


#: The letter to change, by its task id. Its ``id`` is also a part of other indexes, and before its first
#: ANALYZE, PostgreSQL would read one of those from end to end.
IS_LETTER = letter.c.task_id == bindparam("of_task_id")
_IS_ITS_CONTENT = content.c.id == bindparam("of_id")


@dataclass(frozen=True)
class Stored:
    """A letter as it is in the table."""

    id: int
    task_id: str
    facts: Facts
    member: Member
    sealed_by: str


@dataclass
class _Draft:
    """A letter while its failures in the batch are merged, one after another."""

    stored: Stored | None
    facts: Facts | None
    member: Member | None
    #: Columns to write; a whole row if the letter is not stored yet.
    row: dict[str, Any] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    #: The key with which the columns are sealed, as in the letter's ``sealed_by``.
    sealed_by: str = ""


def save_batch(connection: Connection, letters: Sequence[DeadLetter], searched: Searched) -> Saved:
    """Save ``letters`` in the transaction of ``connection``.

    Every step follows the order of the task ids, so that writers whose batches overlap wait for each
    other instead of deadlocking.
    """
    check_sizes(connection, letters)
    fitting = [storable(item, searched.redactor) for item in letters]
    given = sorted(aliases.counted_in_groups(connection, fitting), key=_in_order)
    batch, stored = _lock_batch(connection, given)
    tally, sealing = Tally(), sealing_of(connection)
    sealing.find_persons(one.sealed_by for one in stored.values())
    sealing.make_persons(one.subject for one in given)
    drafts, arrived = [], list[DeadLetter]()
    for task_id, failures in groupby(batch, key=attrgetter("task_id")):
        known = stored.get(task_id)
        draft = _Draft(known, known.facts, known.member) if known else _Draft(None, None, None)
        draft.sealed_by = (known and known.sealed_by) or sealing.label_for("")
        arrived += [one for one in failures if _merge_into(draft, one, tally, sealing)]
        drafts.append(draft)
    _write(connection, drafts, searched.value_limit)
    tally.write(connection)
    sendings.record_failures(connection, given)
    end_deliveries(connection, (item.task_id for item in given))
    new, regressed = triage.review(connection, tally.arrivals)
    aliases.fold_floods(connection, new, given)
    return Saved(
        arrived=len(arrived),
        known=len(letters) - len(arrived),
        letters=tuple(arrived),
        new_groups=new,
        regressed_groups=regressed,
    )


def _in_order(item: DeadLetter) -> tuple[str, int, datetime]:
    return item.task_id, redrive_of(item), item.last_failed_at


def _lock_batch(
    connection: Connection, batch: Sequence[DeadLetter]
) -> tuple[Sequence[DeadLetter], dict[str, Stored]]:
    """``batch``, each letter with the id under which it is kept; and the letters stored under these ids.

    :raises RecordRefused: one of these is encrypted, and this process has no keys.
    """
    stored = lock_stored(connection, [item.task_id for item in batch], with_attempts=True)
    sealed = [one.task_id for one in stored.values() if one.sealed_by]
    if sealed and sealing_of(connection).ring is None:
        raise RecordRefused(
            f"The letter {sealed[0]} is encrypted; set dlq_encryption_keys here, too."
        )
    asked = {item.task_id for item in batch if not redrive_of(item)} & stored.keys()
    still_open = [stored[key] for key in asked if stored[key].facts.state in OPEN_STATES]
    owners = identities_of(connection, still_open)
    used = {(key, one.member.namespace) for key, one in stored.items()}
    owners |= {key: set() for key, name in used - {(one.task_id, one.namespace) for one in batch}}
    apart = named_apart(batch, owners)
    others = {item.task_id for item in apart} - {item.task_id for item in batch}
    if not others:
        return batch, stored
    stored |= lock_stored(connection, others, with_attempts=True)
    return sorted(apart, key=_in_order), stored


def identities_of(connection: Connection, stored: Collection[Stored]) -> dict[str, set[str]]:
    """The identities that the messages of ``stored`` have, or had before they were edited, by id."""
    tasks = {one.task_id: one.member.task for one in stored}
    ids = {one.id: one.task_id for one in stored}
    names = {one.task_id: one.member.namespace for one in stored}
    found = {key: {identity(task, namespace=names[key])} for key, task in tasks.items()}
    if not found:
        return found
    sizes = connection.execute(select(content.c.id, SIZE).where(content.c.id.in_(ids)))
    bodies = read_bodies(connection, map(tuple, sizes))
    edited = select(change.c.task_id, change.c.body)
    edits = connection.execute(edited.where(one_of(connection, change.c.task_id, [*tasks])))
    all_bodies = [
        *((content, ids[at], body) for at, body in bodies.items()),
        *((change, key, body) for key, body in map(tuple, edits)),
    ]
    sealing, sealed_by = sealing_of(connection), {one.task_id: one.sealed_by for one in stored}
    for table, key, body in all_bodies:
        # A body that cannot be read is not compared, so the new message gets a letter of its own.
        with contextlib.suppress(ContentsSealed):
            row = sealing.open(table, {"task_id": key, "body": body}, sealed_by[key])
            found[key].add(identity(tasks[key], digest_of(row["body"]), names[key]))
    return found


def lock_stored(
    connection: Connection, task_ids: Iterable[str], *, with_attempts: bool = False
) -> dict[str, Stored]:
    """The letters that are stored under ``task_ids``, locked until the transaction ends."""
    wanted = (
        select(*_FACT_COLUMNS)
        .where(one_of(connection, letter.c.task_id, sorted(set(task_ids))))
        .order_by(letter.c.task_id)
        .with_for_update()
    )
    rows = connection.execute(wanted).mappings().all()
    known = _attempts_of(connection, [row["task_id"] for row in rows]) if with_attempts else {}
    found = {}
    for row in rows:
        attempts = frozenset(known.get(row["task_id"], ()))
        facts = read_row(Facts, row, attempts=attempts)
        found[row["task_id"]] = Stored(
            row["id"], row["task_id"], facts, Member.of(row), row["sealed_by"]
        )
    return found


def _attempts_of(connection: Connection, task_ids: list[str]) -> dict[str, set[AttemptKey]]:
    if not task_ids:
        return {}
    keys = select(attempt.c.task_id, attempt.c.redrive, attempt.c.number, attempt.c.failed_at)
    these = keys.where(one_of(connection, attempt.c.task_id, task_ids))
    known: dict[str, set[AttemptKey]] = {}
    for task_id, *key in connection.execute(these):
        known.setdefault(task_id, set()).add((key[0], key[1], key[2]))
    return known


def _merge_into(draft: _Draft, failure: DeadLetter, tally: Tally, sealing: Sealing) -> bool:
    """Merge one failure; returns whether it counts as an arrival."""
    change = merge(draft.facts, failure)
    draft.facts = change.facts
    if change.attempts:
        draft.attempts += [attempt_row(failure.task_id, item) for item in change.attempts]
        draft.row["attempt_count"] = len(change.facts.attempts)
    if change.rewrites:
        is_whole = change.effect in (Effect.ARRIVED, Effect.REUSED)
        if is_whole or (draft.stored is not None and not draft.stored.sealed_by):
            draft.sealed_by = sealing.label_for(failure.subject)
        row = {
            **letter_row(failure),
            "redrive_count": change.facts.redrive_count,
            "last_redrive": change.facts.last_redrive,
            "attempt_count": len(change.facts.attempts),
            "place": failure.place,
            "sealed_by": draft.sealed_by,
        }
        columns = row.keys() if is_whole else (*FAILURE_COLUMNS, *_STATE_COLUMNS)
        draft.row.update({key: row[key] for key in columns})
        after = Member.of(row)
        if not is_whole and draft.member is not None:
            after = replace(after, queue=draft.member.queue)  # the stored message stays
        if change.arrives:
            tally.arrive(draft.member, after, redriven=redrive_of(failure) > 0)
        elif draft.member is not None:
            tally.change(draft.member, after)
        draft.member = after
    return change.arrives


def _add_clear(connection: Connection, drafts: Sequence[_Draft]) -> None:
    """Add to the columns of letters that were stored in clear, and become sealed, their other contents."""
    clear = {
        draft.stored.id: draft
        for draft in drafts
        if draft.stored is not None and draft.row and draft.stored.sealed_by != draft.sealed_by
        if not draft.stored.sealed_by
    }
    if clear:
        contents = [table.c[name] for table in (letter, content) for name in CONTENTS[table]]
        stored = select(letter.c.id, *contents).join(content, content.c.id == letter.c.id)
        for row in connection.execute(stored.where(letter.c.id.in_(clear))).mappings():
            draft = clear[row["id"]]
            others = {name: value for name, value in row.items() if name != "id"}
            draft.row = {**others, **draft.row, "sealed_by": draft.sealed_by}


def _write(connection: Connection, drafts: Sequence[_Draft], value_limit: int) -> None:
    _add_clear(connection, drafts)
    new = [draft.row for draft in drafts if draft.stored is None]
    if new:
        count_on(connection, new)
        insert_letters(connection, new, value_limit)
    for columns, rows in _by_shape(connection, drafts).items():
        for table, is_it in ((letter, IS_LETTER), (content, _IS_ITS_CONTENT)):
            values = part_of(table, {name: bindparam(f"new_{name}") for name in columns})
            if values:
                connection.execute(update(table).where(is_it).values(values), rows)
    changed = ((draft.stored.id, draft.row) for draft in drafts if draft.stored is not None)
    replace_terms(connection, changed, value_limit)
    sealing = sealing_of(connection)
    attempts = [
        sealing.seal(attempt, row, draft.sealed_by) for draft in drafts for row in draft.attempts
    ]
    if attempts:
        connection.execute(insert(attempt), attempts)


def count_on(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Let new letters count their redrives on from those of a deleted letter with the same task id. Workers
    do not run the message of a redrive with a number that was used before."""
    these = one_of(connection, sending.c.task_id, [row["task_id"] for row in rows])
    highest = select(sending.c.task_id, func.max(sending.c.redrive)).where(these)
    known = dict(map(tuple, connection.execute(highest.group_by(sending.c.task_id))))
    for row in rows:
        row["redrive_count"] = max(row["redrive_count"], known.get(row["task_id"], 0))


def insert_letters(
    connection: Connection, rows: Sequence[dict[str, Any]], value_limit: int
) -> None:
    """Insert letters with their contents and values, each given as one row."""
    sealing = sealing_of(connection)
    sealed = [sealing.seal(letter, row) for row in rows]
    connection.execute(insert(letter), [part_of(letter, row) for row in sealed])
    these = one_of(connection, letter.c.task_id, [row["task_id"] for row in rows])
    numbered = select(letter.c.task_id, letter.c.id).where(these)
    numbers = {row.task_id: row.id for row in connection.execute(numbered)}
    contents = [{"id": numbers[row["task_id"]], **part_of(content, row)} for row in sealed]
    connection.execute(insert(content), sorted(contents, key=itemgetter("id")))
    add_terms(connection, ((numbers[row["task_id"]], row) for row in rows), value_limit)


def _by_shape(
    connection: Connection, drafts: Sequence[_Draft]
) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The changes to stored letters, by the columns that they set."""
    sealing = sealing_of(connection)
    shapes: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for draft in drafts:
        if draft.stored is not None and draft.row:
            stored = draft.stored
            its = {"task_id": stored.task_id, "sealed_by": draft.sealed_by, **draft.row}
            row = sealing.seal(letter, its)
            values = {f"new_{name}": row[name] for name in draft.row}
            rows = shapes.setdefault(tuple(sorted(draft.row)), [])
            rows.append({"of_task_id": stored.task_id, "of_id": stored.id, **values})
    return shapes

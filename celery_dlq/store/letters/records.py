"""The letters themselves: saved, resolved, read, found and reclassified. And their values: those of letters
that were stored before values were kept are added a few letters at a time, the newest first."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter, NewVerdict, OngoingAct, Page, Saved, ValuesKept
from celery_dlq.store.coordination import end_deliveries
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.sealing import read_shown, sealing_of
from celery_dlq.store.database.tables import attempt, content, letter, parked, report, term
from celery_dlq.store.database.transactions import (
    ListenedRole,
    StoreRole,
    Transactions,
    after_commit,
    reads,
    writes,
)
from celery_dlq.store.letters.pages import Mark, by_state, newest, page_of, search
from celery_dlq.store.letters.parked import waiting_retry
from celery_dlq.store.letters.save import IS_LETTER, Stored, identities_of, lock_stored, save_batch
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.redrive import sendings
from celery_dlq.store.rows import audit, query
from celery_dlq.store.rows.audit import write_reports
from celery_dlq.store.rows.bodies import (
    SIZE,
    body_of,
    first_with_bodies,
    give_time_for_bodies,
    with_body,
)
from celery_dlq.store.rows.merge import ids_of_success, letter_of_success, resolves
from celery_dlq.store.rows.query import IS_CLAIMED, IS_PARKED, OF_LETTER, WHOLE, begins_with, one_of
from celery_dlq.store.rows.rows import fit, fit_text, letter_from, stored_id, without_secrets
from celery_dlq.store.rows.tally import Tally
from celery_dlq.store.rows.terms import add_terms, walked_by

#: Letters that are reclassified in one transaction.
CHUNK = 500

# A letter with its message, without its attempts and traceback.
_READ = select(
    letter,
    *(content.c[name] for name in ("headers", "properties", "args", "kwargs")),
    SIZE,
    IS_CLAIMED,
).join(content, OF_LETTER)


class Letters(ListenedRole[StoreListener]):
    """The letters, and the parked retries that are shown with them. The listener is notified of the letters
    that were saved or resolved."""

    def __init__(
        self,
        transactions: Transactions,
        listener: StoreListener,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(transactions, listener)
        self._monotonic = monotonic

    @writes
    def save(self, letters: Sequence[DeadLetter]) -> Saved:
        """Record failures, and forget the deliveries of their messages. Many writers may record the same
        failures again, in any order, without further effect."""
        if not letters:
            return Saved(arrived=0, known=0)
        saved = save_batch(self.connection, letters, self._transactions.searched)
        after_commit(self.connection, partial(self._listener.saved, saved))
        return saved

    @writes
    def record_outcomes(self, outcomes: Sequence[Outcome]) -> int:
        """Resolve the letters whose messages succeeded, and forget the messages' deliveries; returns how many
        were open."""
        if not outcomes:
            return 0
        resolved = _resolve(self.connection, outcomes)
        sendings.record_successes(self.connection, outcomes)
        end_deliveries(self.connection, (stored_id(item.task_id) for item in outcomes))
        after_commit(self.connection, partial(self._listener.resolved, resolved))
        return len(resolved)

    @reads
    def get(self, task_id: str) -> DeadLetter | None:
        """The letter with its attempts, or None. If a retry of the letter is parked, ``due_at`` is set. If
        the letter has not died yet, the parked retry is returned."""
        key = stored_id(task_id)
        its = letter.c.task_id == key, self.ours(letter)
        row = self.connection.execute(WHOLE.where(*its)).mappings().one_or_none()
        waiting = waiting_retry(self.connection, key)
        if row is None:
            return waiting
        runs = (
            select(attempt)
            .where(attempt.c.task_id == key)
            .order_by(attempt.c.redrive, attempt.c.failed_at, attempt.c.number)
        )
        attempts = read_shown(self.connection, attempt, runs, row["sealed_by"])
        whole = with_body(self.connection, row)
        [shown] = sealing_of(self.connection).shown(letter, [whole])
        found = letter_from(shown, attempts)
        return found.with_(due_at=waiting.due_at) if waiting else found

    @reads
    def read(self, task_ids: Sequence[str]) -> tuple[list[DeadLetter], int]:
        """The letters of the first of ``task_ids``, and how many ids those are: at least one, and no more
        than have :data:`~celery_dlq.store.rows.bodies.TOGETHER` bytes of bodies. The letters are in the order
        of the ids, with their messages, without attempts and tracebacks. Letters that are gone are left
        out."""
        keys = [stored_id(task_id) for task_id in task_ids]
        give_time_for_bodies(self.connection, len(keys))
        these = one_of(self.connection, letter.c.task_id, keys)
        found = _READ.add_columns(body_of(len(keys))).where(these, self.ours(letter))
        stored = self.connection.execute(found)
        rows, count = first_with_bodies(self.connection, keys, stored.mappings())
        shown = sealing_of(self.connection).shown(letter, rows)
        return [letter_from(row) for row in shown], count

    @reads
    def read_tracebacks(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """The tracebacks of the letters of ``task_ids``. Letters that are gone, or only parked, are left
        out."""
        keys = {stored_id(task_id): task_id for task_id in task_ids}
        these = select(letter.c.task_id, content.c.traceback, letter.c.sealed_by).where(
            one_of(self.connection, letter.c.task_id, [*keys]), self.ours(letter)
        )
        shown = read_shown(self.connection, letter, these.join(content, OF_LETTER))
        return {keys[row["task_id"]]: row["traceback"] for row in shown}

    @reads
    def match(self, prefix: str, limit: int = 10) -> list[str]:
        """Up to ``limit`` task ids that begin with ``prefix``, in order."""
        ids = set[str]()
        for table, found in ((letter, []), (parked, [IS_PARKED])):
            found = [*found, self.ours(table)]
            matching = select(table.c.task_id).where(begins_with(table.c.task_id, prefix), *found)
            in_order = matching.order_by(table.c.task_id).limit(limit)
            ids |= set(self.connection.scalars(in_order))
        return sorted(ids)[:limit]

    @reads
    def find(
        self,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        patience_s: float | None = None,
    ) -> Page:
        """A page of letters, newest failure first, without their attempts, tracebacks, bodies, headers and
        properties. A filter on fields that no index covers reads letter by letter: see
        :attr:`~celery_dlq.Filter.indexed`.

        :param after: the cursor from the previous page.
        :param patience_s: after about this many seconds such a search stops, or earlier if an index knows
            letters from further back; the page says how far it came. None for no limit.
        :raises FilterError: ``after`` is not a cursor.
        """
        start = None if after is None else Mark.read(after)
        walked = walked_by(self.connection, wanted)
        if wanted == walked:
            places = by_state(self.connection, wanted)
            return page_of(
                self.connection, newest(self.connection, places, start, limit=limit + 1), limit
            )
        return search(
            self.connection, wanted, by_state(self.connection, walked), start, limit=limit,
            patience_s=patience_s, monotonic=self._monotonic,
        )  # fmt: skip

    @reads
    def oldest(self, wanted: Filter) -> datetime | None:
        """The last failure of the letter that has waited longest; None if ``wanted`` matches no letter."""
        moments = []
        for table, found in by_state(self.connection, wanted):
            first = select(func.min(table.c.last_failed_at)).where(*found)
            moments.append(self.connection.scalar(first))
        return min((at for at in moments if at is not None), default=None)

    def reclassify(
        self, changes: Sequence[NewVerdict], *, wanted: Filter, who: str, now: datetime
    ) -> int:
        """Store new verdicts of letters, and audit the act with ``wanted``, which selected the letters. No
        letter changes its state or group, so no count changes. Returns how many letters were changed, without
        letters that have failed again in the meantime."""
        act = OngoingAct(who=who, act="reclassify", detail=audit.by_filter(wanted), at=now)
        changed = 0
        for first in range(0, len(changes), CHUNK):
            more, act = self._reclassify(changes[first : first + CHUNK], act)
            changed += more
        return changed

    @writes
    def _reclassify(self, chunk: Sequence[NewVerdict], act: OngoingAct) -> tuple[int, OngoingAct]:
        """Change one chunk; returns how many letters were changed, and the act for the next chunk."""
        query.narrow_to(self.connection, Filter(ids=tuple(change.task_id for change in chunk)))
        # In the order of the ids, so that two of these wait for each other and do not deadlock.
        in_order = sorted(chunk, key=lambda change: stored_id(change.task_id))
        done = sum(_set_verdict(self.connection, change) for change in in_order)
        return done, audit.add_to_act(self.connection, act, done)


def _resolve(connection: Connection, outcomes: Sequence[Outcome]) -> list[str]:
    """Resolve the letters of ``outcomes`` that are open, and return their ids."""
    keys = {(key, item.namespace) for item in outcomes for key in ids_of_success(item)}
    locked = lock_stored(connection, (key for key, _ in keys))
    stored = {key: one for key, one in locked.items() if (key, one.member.namespace) in keys}
    asked = {key for item in outcomes if not item.redrive for key in ids_of_success(item)}
    owners = identities_of(connection, [stored[key] for key in asked & stored.keys()])
    tally = Tally()
    resolved: dict[str, dict[str, Any]] = {}
    # A batch may hold two successes of one letter: the later redrive is recorded.
    for outcome in sorted(outcomes, key=lambda item: (-item.redrive, item.succeeded_at)):
        key = letter_of_success(outcome, owners)
        found = stored.get(key)
        if found is None or key in resolved or not resolves(found.facts, outcome):
            continue
        resolved[key] = _resolution(found, outcome)
        tally.succeed(found.member, redriven=outcome.redrive > 0)
    if resolved:
        connection.execute(_RESOLVE, [row for _, row in sorted(resolved.items())])
        tally.write(connection)
    return sorted(resolved)


_RESOLVE = (
    update(letter)
    .where(IS_LETTER)
    .values(
        state=State.RESOLVED.value,
        redrive_count=bindparam("new_count"),
        claim_token=None,
        lease_expires_at=None,
        closed_at=bindparam("at"),
        closed_by=bindparam("by"),
        closed_reason=bindparam("why"),
    )
)


def _resolution(found: Stored, outcome: Outcome) -> dict[str, Any]:
    redrive = outcome.redrive
    why = f"redrive {redrive} succeeded" if redrive else "another copy of the message succeeded"
    return {
        "of_task_id": found.task_id,
        "new_count": max(found.facts.redrive_count, redrive),
        "at": outcome.succeeded_at,
        "by": fit_text(letter.c.closed_by, f"worker {outcome.worker}"),
        "why": why,
    }


def _set_verdict(connection: Connection, change: NewVerdict) -> int:
    explanation = change.explanation
    values = fit(letter, {**vars(explanation), "verdict": explanation.verdict.value})
    changed = update(letter).where(
        letter.c.task_id == stored_id(change.task_id), letter.c.last_failed_at == change.failed_at
    )
    return connection.execute(changed.where(is_ours(connection, letter)).values(values)).rowcount


#: The name of the row that says how far this has come.
_VALUES = "values"


class Values(StoreRole):
    """The values of letters, as a whole."""

    @reads
    def kept(self) -> ValuesKept:
        """Which letters can be found by their values."""
        if not self._transactions.searched.value_limit:
            return ValuesKept(are_kept=False, since=None)
        below = _read_below(self.connection)
        if below is None:
            below = _above_all(self.connection)
        ours = letter.c.id < below, self.ours(letter)
        oldest = select(letter.c.first_failed_at).where(*ours)
        newest = oldest.order_by(letter.c.id.desc()).limit(1)
        return ValuesKept(are_kept=True, since=self.connection.scalar(newest))

    @writes
    def add(self, *, letters: int) -> bool:
        """Index the next letters without stored values. Returns True if more may be left. Only one process at
        a time does this. If values are not kept, record only that letters lack values from now on.

        :param letters: the most letters to look at.
        """
        limit, redactor = self._transactions.searched
        below = _read_below(self.connection, is_locked=True)
        if not limit:
            if below is not None:
                _write_below(self.connection, None)
            return False
        if below is None:
            # Letters that come from now on have values.
            below = _above_all(self.connection)
        if not below:
            return False
        rows = _next_letters(self.connection, below, letters)
        these = select(term.c.letter).where(one_of(self.connection, term.c.letter, sorted(rows)))
        known = set(self.connection.scalars(these.distinct())) if rows else set()
        shown = (
            (number, without_secrets(row, redactor.stored))
            for number, row in rows.items()
            if number not in known
        )
        add_terms(self.connection, shown, limit)
        _write_below(self.connection, min(rows, default=0))
        return bool(rows)


def _next_letters(connection: Connection, below: int, letters: int) -> dict[int, Mapping[str, Any]]:
    """The next letters by their ids, locked: they neither fail again nor go in the meantime."""
    ours = letter.c.id < below, is_ours(connection, letter)
    ids = select(letter.c.id).where(*ours).order_by(letter.c.id.desc()).limit(letters)
    locked = connection.scalars(ids.with_for_update()).all()
    columns = (
        letter.c.id, letter.c.task_id, letter.c.sealed_by, letter.c.message, content.c.args, content.c.kwargs,
    )  # fmt: skip
    these = select(*columns).join(content, OF_LETTER).where(one_of(connection, letter.c.id, locked))
    return {row["id"]: row for row in read_shown(connection, letter, these)}


def _above_all(connection: Connection) -> int:
    return int(connection.scalar(select(func.max(letter.c.id))) or 0) + 1


def _read_below(connection: Connection, *, is_locked: bool = False) -> int | None:
    """The number from which on all letters have their values; None if it is unknown."""
    row = select(report.c.detail).where(report.c.name == _VALUES, is_ours(connection, report))
    detail = connection.scalar(row.with_for_update() if is_locked else row)
    return None if detail is None else json.loads(detail)["below"]


def _write_below(connection: Connection, below: int | None) -> None:
    write_reports(connection, {_VALUES: {"below": below}}, clock.now(connection))

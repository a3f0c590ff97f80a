"""The store in a SQL database: SQLite, PostgreSQL, MySQL or MariaDB."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.engine import Connection

from celery_dlq.circuit import Circuit, CircuitChange, Circuits
from celery_dlq.delivery import Delivery
from celery_dlq.group import ANY_GROUP, Group, GroupAct, GroupFilter
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.settings import Settings
from celery_dlq.states import State
from celery_dlq.store import (
    audit,
    circuits,
    closing,
    counting,
    deliveries,
    leases,
    measuring,
    messages,
    parked,
    query,
    reclassify,
    rollups,
    schema,
    search,
    tables,
    triage,
)
from celery_dlq.store.base import (
    Filter,
    Lease,
    Measures,
    NewVerdict,
    Page,
    Release,
    Saved,
    Stats,
)
from celery_dlq.store.bodies import with_body
from celery_dlq.store.engine import Database
from celery_dlq.store.listener import Nobody, StoreListener
from celery_dlq.store.outcomes import record_batch
from celery_dlq.store.rows import letter_from, stored_id
from celery_dlq.store.save import save_batch
from celery_dlq.store.sql_redrives import SQLRedrives

T = TypeVar("T")


class SQLStore(SQLRedrives):
    """A :class:`~celery_dlq.store.base.Store` in a SQL database; see there for what each method does.

    Nothing is connected before the first use. Each process connects for itself, also after a fork,
    and checks the schema once.

    :param url: an SQLAlchemy URL; ``postgresql://`` means psycopg and ``mysql://`` PyMySQL.
    :param timeout: seconds that connecting, waiting for a lock, or one statement may take.
    :param listener: told what was written, by whoever uses this object.
    :raises SettingsError: the URL is none, or its database is not supported.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 5.0,
        listener: StoreListener | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = Database(url, timeout=timeout)
        self._monotonic = monotonic
        self._listener = listener or Nobody()
        self._checked_in: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings, listener: StoreListener | None = None) -> SQLStore:
        """The store that the settings name."""
        return cls(settings.store_url, timeout=settings.store_timeout, listener=listener)

    def __repr__(self) -> str:
        return f"<SQLStore {self.database.url.render_as_string(hide_password=True)}>"

    def check_schema(self) -> None:
        schema.check(self.database)
        self._checked_in = os.getpid()

    def save(self, letters: Sequence[DeadLetter]) -> Saved:
        if not letters:
            return Saved(arrived=0, known=0)
        saved = self._write(lambda connection: save_batch(connection, letters))
        self._listener.saved(saved)
        return saved

    def record_outcomes(self, outcomes: Sequence[Outcome]) -> int:
        if not outcomes:
            return 0
        resolved = self._write(lambda connection: record_batch(connection, outcomes))
        self._listener.resolved(resolved)
        return len(resolved)

    def deliveries(self, task_id: str, task: str) -> tuple[Delivery, ...]:
        return self._read(lambda connection: deliveries.read(connection, task_id, task))

    def put_delivery(self, delivery: Delivery) -> None:
        self._write(lambda connection: deliveries.put(connection, delivery))

    def forget_deliveries(self, known: Sequence[Delivery]) -> None:
        self._write(lambda connection: deliveries.forget(connection, known))

    def prune_deliveries(self, before: datetime) -> int:
        return self._write(lambda connection: deliveries.prune(connection, before))

    def get(self, task_id: str) -> DeadLetter | None:
        return self._read(lambda connection: _get(connection, stored_id(task_id)))

    def read_letters(self, task_ids: Sequence[str]) -> tuple[list[DeadLetter], int]:
        return self._read(lambda connection: messages.read(connection, task_ids))

    def match_ids(self, prefix: str, limit: int = 10) -> list[str]:
        return self._read(lambda connection: query.match_ids(connection, prefix, limit))

    def find(
        self,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        patience_s: float | None = None,
    ) -> Page:
        until = math.inf if patience_s is None else self._monotonic() + patience_s
        return self._read(
            lambda connection: search.find_page(
                connection, wanted, limit=limit, after=after,
                is_enough=lambda: self._monotonic() >= until,
            )
        )  # fmt: skip

    def count(self, wanted: Filter) -> int:
        return self._read(lambda connection: counting.count(connection, wanted))

    def count_by_task(self, wanted: Filter) -> Mapping[str, int]:
        return self._read(lambda connection: counting.count_by_task(connection, wanted))

    def groups(
        self,
        wanted: Filter,
        *,
        now: datetime,
        limit: int = 50,
        after: str | None = None,
        which: GroupFilter = ANY_GROUP,
    ) -> list[Group]:
        return self._read(
            lambda connection: rollups.find_groups(
                connection, wanted, which, now, limit=limit, after=after
            )
        )

    def group(self, fingerprint: str, *, now: datetime) -> Group | None:
        return self._read(lambda connection: rollups.read_group(connection, fingerprint, now))

    def match_groups(self, prefix: str, limit: int = 10) -> list[str]:
        return self._read(lambda connection: rollups.match_groups(connection, prefix, limit))

    def group_trends(
        self, fingerprints: Sequence[str], *, now: datetime, hours: int = 24
    ) -> Mapping[str, tuple[int, ...]]:
        return self._read(
            lambda connection: rollups.read_trends(connection, fingerprints, now, hours)
        )

    def triage(self, fingerprint: str, act: GroupAct, *, who: str, now: datetime) -> Group:
        return self._write(
            lambda connection: triage.apply(connection, fingerprint, act, who=who, now=now)
        )

    def stats(self, now: datetime) -> Stats:
        return self._read(lambda connection: rollups.read_stats(connection, now))

    def measures(self) -> Measures:
        return self._read(measuring.measure)

    def oldest(self, wanted: Filter) -> datetime | None:
        return self._read(lambda connection: measuring.oldest(connection, wanted))

    def count_arrivals(self, wanted: Filter, *, since: datetime, until: datetime) -> int:
        return self._read(
            lambda connection: measuring.count_arrivals(connection, wanted, since, until)
        )

    def park(self, letters: Sequence[DeadLetter], *, now: datetime) -> int:
        if not letters:
            return 0
        return self._write(lambda connection: parked.park(connection, letters, now))

    def take_lease(self, name: str, *, holder: str, seconds: float) -> Lease | None:
        return self._write(lambda connection: leases.take(connection, name, holder, seconds))

    def give_up_lease(self, lease: Lease) -> None:
        self._write(lambda connection: leases.give_up(connection, lease))

    def take_due(
        self, lease: Lease, place: str, *, limit: int, hold_s: float
    ) -> tuple[Release, ...]:
        return self._write(
            lambda connection: parked.take_due(connection, lease, place, limit=limit, hold_s=hold_s)
        )

    def confirm_releases(self, releases: Sequence[Release]) -> None:
        self._write(lambda connection: parked.confirm(connection, releases))

    def put_off(self, releases: Sequence[Release], *, delay_s: float) -> None:
        self._write(lambda connection: parked.put_off(connection, releases, delay_s))

    def accept_releases(self, copies: Sequence[tuple[str, int]]) -> list[bool]:
        if not copies:
            return []
        return self._write(lambda connection: parked.accept(connection, copies))

    def take_back(self, beginning: str, *, exact: bool) -> bool:
        return self._write(lambda connection: parked.take_back(connection, beginning, exact=exact))

    def next_due(self, place: str) -> float | None:
        return self._read(lambda connection: parked.next_due(connection, place))

    def overdue(self, by_s: float) -> int:
        return self._read(lambda connection: parked.overdue(connection, by_s))

    def prune_releases(self, *, older_than_s: float) -> int:
        return self._write(lambda connection: parked.prune(connection, older_than_s))

    def make_due(self, wanted: Filter, *, place: str, who: str, now: datetime) -> int:
        return self._write(
            lambda connection: parked.make_due(connection, wanted, place, who=who, at=now)
        )

    def open_circuits(self) -> Circuits:
        return self._read(circuits.read_open)

    def change_circuits(
        self, changes: Mapping[tuple[str, str], CircuitChange]
    ) -> tuple[Circuit, ...]:
        return self._write(lambda connection: circuits.change(connection, changes))

    def prune_circuits(self, *, older_than_s: float) -> int:
        return self._write(lambda connection: circuits.prune(connection, older_than_s))

    def discard(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        discarded = 0
        if State.PARKED in wanted.states:
            discarded = self._discard_parked(wanted, who=who, why=why, now=now)
            wanted = replace(wanted, states=wanted.states - {State.PARKED})
            if not wanted.states:
                return discarded
        return discarded + self._carry_out(closing.discarding(wanted, who=who, why=why, now=now))

    def undiscard(self, wanted: Filter, *, who: str, now: datetime) -> int:
        return self._carry_out(closing.undiscarding(wanted, who=who, now=now))

    def reclassify(
        self, changes: Sequence[NewVerdict], *, wanted: Filter, who: str, now: datetime
    ) -> int:
        changed, audit_id = 0, None
        for first in range(0, len(changes), reclassify.CHUNK):
            step = partial(
                reclassify.reclassify,
                changes=changes[first : first + reclassify.CHUNK],
                wanted=wanted, who=who, now=now, audit_id=audit_id,
            )  # fmt: skip
            more, audit_id = self._write(step)
            changed += more
        return changed

    def record_act(
        self, *, who: str, act: str, detail: Mapping[str, object], count: int, now: datetime
    ) -> int:
        return self._write(
            lambda connection: audit.write_audit(
                connection, who=who, act=act, count=count, detail=detail, at=now
            )
        )

    def add_to_act(self, audit_id: int, more: int) -> None:
        self._write(lambda connection: audit.add_to_count(connection, audit_id, more))

    def close(self) -> None:
        self.database.close()

    def _discard_parked(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        step = partial(parked.discard_chunk, wanted=wanted, who=who, why=why, at=now)
        discarded = 0
        while moved := self._write(step):
            discarded += moved
        return discarded

    def _carry_out(self, act: closing.Act) -> int:
        until = self._read(lambda connection: closing.newest_failure(connection, act))
        progress = closing.Progress(moved=0, audit_id=None)
        while until is not None:
            step = partial(closing.move_chunk, act=act, until=until, progress=progress)
            after = self._write(step)
            if after == progress:
                break
            progress = after
        return progress.moved

    def _ready(self) -> None:
        if self._checked_in != os.getpid():
            self.check_schema()


def _get(connection: Connection, key: str) -> DeadLetter | None:
    letter, attempt = tables.letter, tables.attempt
    stored = query.WHOLE.where(letter.c.task_id == key)
    row = connection.execute(stored).mappings().one_or_none()
    waiting = parked.find(connection, key)
    if row is None:
        return waiting
    runs = (
        select(attempt)
        .where(attempt.c.task_id == key)
        .order_by(attempt.c.redrive, attempt.c.failed_at, attempt.c.number)
    )
    found = letter_from(with_body(connection, row), connection.execute(runs).mappings())
    return found.with_(due_at=waiting.due_at) if waiting else found

"""The store in a SQL database: SQLite, PostgreSQL, MySQL or MariaDB."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.engine import Connection

from celery_dlq.delivery import Delivery
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.settings import Settings
from celery_dlq.store import claims, closing, deliveries, query, rollups, schema, tables
from celery_dlq.store.base import Claim, Filter, Group, Page, Saved, Stats
from celery_dlq.store.engine import Database
from celery_dlq.store.outcomes import record_batch
from celery_dlq.store.rows import letter_from, stored_id
from celery_dlq.store.save import save_batch

T = TypeVar("T")


class SQLStore:
    """A :class:`~celery_dlq.store.base.Store` in a SQL database; see there for what each method does.

    Nothing is connected before the first use. Each process connects for itself, also after a fork,
    and checks the schema once.

    :param url: an SQLAlchemy URL; ``postgresql://`` means psycopg and ``mysql://`` PyMySQL.
    :param timeout: seconds that connecting, waiting for a lock, or one statement may take.
    :raises SettingsError: the URL is none, or its database is not supported.
    """

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        self.database = Database(url, timeout=timeout)
        self._checked_in: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> SQLStore:
        """The store that the settings name."""
        return cls(settings.store_url, timeout=settings.store_timeout)

    def __repr__(self) -> str:
        return f"<SQLStore {self.database.url.render_as_string(hide_password=True)}>"

    def check_schema(self) -> None:
        schema.check(self.database)
        self._checked_in = os.getpid()

    def save(self, letters: Sequence[DeadLetter]) -> Saved:
        if not letters:
            return Saved(arrived=0, known=0)
        return self._write(lambda connection: save_batch(connection, letters))

    def record_outcomes(self, outcomes: Sequence[Outcome]) -> int:
        if not outcomes:
            return 0
        return self._write(lambda connection: record_batch(connection, outcomes))

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

    def match_ids(self, prefix: str, limit: int = 10) -> list[str]:
        return self._read(lambda connection: query.match_ids(connection, prefix, limit))

    def find(self, wanted: Filter, *, limit: int = 50, after: str | None = None) -> Page:
        return self._read(
            lambda connection: query.find_page(connection, wanted, limit=limit, after=after)
        )

    def count(self, wanted: Filter) -> int:
        return self._read(lambda connection: query.count(connection, wanted))

    def count_by_task(self, wanted: Filter) -> Mapping[str, int]:
        return self._read(lambda connection: query.count_by_task(connection, wanted))

    def groups(self, wanted: Filter, *, limit: int = 50) -> list[Group]:
        return self._read(lambda connection: rollups.find_groups(connection, wanted, limit))

    def stats(self, now: datetime) -> Stats:
        return self._read(lambda connection: rollups.read_stats(connection, now))

    def claim(
        self, wanted: Filter, *, token: str, lease_until: datetime, limit: int, now: datetime
    ) -> Claim:
        return self._write(
            lambda connection: claims.claim(
                connection, wanted, token=token, lease_until=lease_until, limit=limit, now=now
            )
        )

    def confirm(self, token: str, ids: Sequence[str]) -> int:
        return self._write(lambda connection: claims.confirm(connection, token, ids))

    def release(self, token: str, ids: Sequence[str]) -> int:
        return self._write(lambda connection: claims.release(connection, token, ids))

    def rescue(self, now: datetime) -> int:
        return self._write(lambda connection: claims.rescue(connection, now))

    def discard(self, wanted: Filter, *, who: str, why: str, now: datetime) -> int:
        return self._carry_out(closing.discarding(wanted, who=who, why=why, now=now))

    def undiscard(self, wanted: Filter, *, who: str, now: datetime) -> int:
        return self._carry_out(closing.undiscarding(wanted, who=who, now=now))

    def record_act(
        self, *, who: str, act: str, detail: Mapping[str, object], now: datetime
    ) -> None:
        self._write(
            lambda connection: closing.write_audit(
                connection, who=who, act=act, why="", count=0, detail=detail, at=now
            )
        )

    def close(self) -> None:
        self.database.close()

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

    def _read(self, work: Callable[[Connection], T]) -> T:
        self._ready()
        return self.database.read(work)

    def _write(self, work: Callable[[Connection], T]) -> T:
        self._ready()
        return self.database.write(work)

    def _ready(self) -> None:
        if self._checked_in != os.getpid():
            self.check_schema()


def _get(connection: Connection, key: str) -> DeadLetter | None:
    letter, attempt = tables.letter, tables.attempt
    row = connection.execute(select(letter).where(letter.c.task_id == key)).mappings().one_or_none()
    if row is None:
        return None
    runs = (
        select(attempt)
        .where(attempt.c.task_id == key)
        .order_by(attempt.c.redrive, attempt.c.failed_at, attempt.c.number)
    )
    return letter_from(row, connection.execute(runs).mappings())

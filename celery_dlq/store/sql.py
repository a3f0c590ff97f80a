"""The store in a SQL database: SQLite, PostgreSQL, MySQL or MariaDB."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from celery_dlq.base.redact import KNOWN, Redactor
from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import FilterError
from celery_dlq.settings import Settings
from celery_dlq.store.archiving import Archiving
from celery_dlq.store.automations import Automations
from celery_dlq.store.base import Filter
from celery_dlq.store.coordination import Deliveries, Leases, StoredCircuits
from celery_dlq.store.database import clock
from celery_dlq.store.database.client import Client
from celery_dlq.store.database.engine import Database
from celery_dlq.store.database.transactions import Transactions
from celery_dlq.store.groups.by_cause import Groups, Tickets
from celery_dlq.store.keys import Keys
from celery_dlq.store.letters.acts import Closing, Deleting
from celery_dlq.store.letters.counting import Counts, OverTime
from celery_dlq.store.letters.erasing import Erasing
from celery_dlq.store.letters.expiring import Expiring
from celery_dlq.store.letters.monitoring import Monitoring
from celery_dlq.store.letters.parked import Parked
from celery_dlq.store.letters.records import Letters, Values
from celery_dlq.store.letters.vanished import Vanished
from celery_dlq.store.listener import StoreListener
from celery_dlq.store.redrive.claims import Claims
from celery_dlq.store.redrive.history import Audit, Edits, History
from celery_dlq.store.redrive.operations import Operations
from celery_dlq.store.redrive.sendings import Sendings
from celery_dlq.store.regrouping import Regroupings
from celery_dlq.store.reports import RecorderReports, Reports
from celery_dlq.store.requests import Requests
from celery_dlq.store.rows.query import places

#: The upper bound of a filter is the first moment that it leaves out.
_TICK = timedelta(microseconds=1)


class SQLStore:
    """A dead-letter store in a SQL database: its roles, each with the methods for one thing.

    It does not connect before the first use. Each process connects for itself, also after a fork, and checks
    the schema once.

    :param url: an SQLAlchemy URL; ``postgresql://`` means psycopg and ``mysql://`` PyMySQL.
    :param timeout: seconds that connecting, waiting for a lock, or one statement may take.
    :param listener: is notified of everything that is written through this object.
    :param client: the owner of the connections.
    :param value_limit: the most values of a letter's arguments that are kept for searches; 0 for none, also
        not of its message.
    :param redactor: hides the secrets in what is searched; by default, those of the built-in list.
    :param ring: the keys that seal the contents of letters; None if they are not sealed.
    :param namespaces: those whose rows are seen and changed; None for all.
    :raises SettingsError: the URL cannot be read, or its database is not supported.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 5.0,
        listener: StoreListener | None = None,
        client: Client | None = None,
        value_limit: int = 24,
        redactor: Redactor = KNOWN,
        ring: Keyring | None = None,
        namespaces: Sequence[str] | None = ("",),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database: Database = Database(
            url, timeout=timeout, client=client, namespaces=namespaces
        )
        listener = listener or StoreListener()
        transactions = Transactions(
            self.database, value_limit=value_limit, redactor=redactor, ring=ring,
            monotonic=monotonic, audited=listener.audited,
        )  # fmt: skip
        self.transactions: Transactions = transactions
        self._clock = clock.DatabaseClock(self._ask_time)

        self.letters: Letters = Letters(transactions, listener, monotonic=monotonic)
        self.counts: Counts = Counts(transactions)
        self.closing: Closing = Closing(transactions)
        self.deleting: Deleting = Deleting(transactions)
        self.erasing: Erasing = Erasing(transactions)
        self.values: Values = Values(transactions)
        self.expiring: Expiring = Expiring(transactions)
        self.archiving: Archiving = Archiving(transactions)
        self.reports: Reports = Reports(transactions)
        self.recorder_reports: RecorderReports = RecorderReports(transactions)
        self.edits: Edits = Edits(transactions)
        self.groups: Groups = Groups(transactions)
        self.regroupings: Regroupings = Regroupings(transactions)
        self.monitoring: Monitoring = Monitoring(transactions)
        self.over_time: OverTime = OverTime(transactions)

        self.operations: Operations = Operations(transactions, listener)
        self.claims: Claims = Claims(transactions, listener)
        self.sendings: Sendings = Sendings(transactions)
        self.vanished: Vanished = Vanished(transactions)
        self.audit: Audit = Audit(transactions)
        self.history: History = History(transactions)

        self.parked: Parked = Parked(transactions)
        self.deliveries: Deliveries = Deliveries(transactions)
        self.circuits: StoredCircuits = StoredCircuits(transactions)
        self.leases: Leases = Leases(transactions)
        self.automations: Automations = Automations(transactions, listener)

        self.tickets: Tickets = Tickets(transactions)
        self.keys: Keys = Keys(transactions)
        self.requests: Requests = Requests(transactions)

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        listener: StoreListener | None = None,
        client: Client | None = None,
        ring: Keyring | None = None,
    ) -> SQLStore:
        """The store that the settings name."""
        return cls(
            settings.store_url,
            timeout=settings.store_timeout,
            listener=listener,
            client=client,
            value_limit=settings.search_values,
            redactor=Redactor(settings.redact, settings.search_redacted_key),
            ring=ring,
            namespaces=settings.namespaces,
        )

    def __repr__(self) -> str:
        return f"<SQLStore {self.database.url.render_as_string(hide_password=True)}>"

    def prepare(self) -> None:
        """Import the driver, without connecting.

        :raises StoreError: it is not installed, or an SQLite file has no directory.
        """
        self.database.engine  # noqa: B018 - it is made on first use

    def check_schema(self) -> None:
        """Check (on SQLite: create) the schema.

        :raises SchemaError: it does not fit.
        """
        self.transactions.check_schema()

    def now(self) -> datetime:
        """The time by the database's clock, which all machines share. A time that the store compares with
        stored ones must come from here."""
        return self._clock.now()

    def clock_ahead(self) -> timedelta:
        """How far the database's clock is ahead of this machine's; below zero if it is behind."""
        return self._clock.ahead()

    def why_clock_wrong(self) -> str:
        """The error of this machine's clock, and the next step; empty if it agrees with the database's."""
        return clock.why_wrong(self.clock_ahead())

    def until_now(self, wanted: Filter, *, now: datetime) -> datetime:
        """The ``until`` of an act on the letters and parked retries of ``wanted`` that are there now.

        :param now: the result, unless the clock of a worker was ahead when it recorded one of them.
        """
        return self.transactions.read(partial(_until_now, wanted=wanted, now=now))

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        self.transactions.close()

    def _ask_time(self) -> datetime:
        # A file has this machine's clock, so it need not be opened to read the time.
        if self.database.dialect.is_file:
            return clock.machine_now()
        return self.transactions.read(clock.now)


def _until_now(connection: Connection, wanted: Filter, now: datetime) -> datetime:
    ahead = []
    with contextlib.suppress(FilterError):  # the values of parked retries are not kept
        for table, found in places(connection, wanted):
            # Nearly always none; for letters, the index in the order of time shows that.
            newest = select(func.max(table.c.last_failed_at))
            ahead.append(connection.scalar(newest.where(*found, table.c.last_failed_at >= now)))
    return max((moment + _TICK for moment in ahead if moment is not None), default=now)

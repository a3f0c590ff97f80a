"""Letters as they were stored before schema 0010, in one table with all that is large of them."""

from __future__ import annotations

import re
import threading
from itertools import count
from typing import Any

from sqlalchemy import Column, MetaData, Table, insert, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from support.factories import letter

from celery_dlq.store.database import tables
from celery_dlq.store.database.engine import Database
from celery_dlq.store.rows.rows import letter_row

#: Columns of later schemas.
_LATER = frozenset({"route", "raw_fingerprint", "grounds"})

_NAMES = {
    column.name: column.type
    for column in [*tables.letter.c, *tables.content.c]
    if column.name not in _LATER
}

_OWN_ID = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}
_WAITS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pid = :id AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.processlist"
    " WHERE id = :id AND state LIKE 'Waiting for table%lock'",
}


def insert_letters(connection: Connection, rows: list[dict[str, Any]]) -> None:
    columns = [Column(name, type_) for name, type_ in _NAMES.items() if name in rows[0]]
    connection.execute(insert(Table(tables.letter.name, MetaData(), *columns)), rows)


def row_of(task_id: str) -> dict[str, Any]:
    """A letter whose arguments name it."""
    return {**letter_row(letter(task_id, args=[task_id])), "last_redrive": 0}


def run_script(database: Database, script: str) -> None:
    """What ``db sql`` prints, run in one transaction."""

    def run(connection: Connection) -> None:
        for statement in re.sub(r"(?m)^--.*$", "", script).split(";"):
            if statement.strip() not in ("", "BEGIN", "COMMIT"):
                connection.exec_driver_sql(statement)

    database.write(run)


class OldWorker(threading.Thread):
    """Saves letters one after the other, over one connection to a server, until it is refused."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        self.saved: list[str] = []
        self.refusal = ""
        self.is_at_work = threading.Event()
        self._database = database
        self._connection = 0

    def run(self) -> None:
        own = Database(self._database.url.render_as_string(hide_password=False), timeout=None)
        with own.engine.connect() as connection:
            try:
                self._save(connection)
            except DBAPIError as error:
                self.refusal = str(error)
        own.close()

    def waits(self) -> bool:
        """Whether it waits for who has locked the table."""
        asked = text(_WAITS[self._database.dialect.name])
        return bool(
            self._database.read(
                lambda connection: connection.scalar(asked, {"id": self._connection})
            )
        )

    def _save(self, connection: Connection) -> None:
        for number in count():
            with connection.begin():
                # Behind PgBouncer, each transaction may have another one.
                self._connection = connection.scalar(text(_OWN_ID[connection.dialect.name]))
                insert_letters(connection, [row_of(f"new-{number}")])
            self.saved.append(f"new-{number}")
            self.is_at_work.set()

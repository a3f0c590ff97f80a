"""Seals the contents in rows before they are written, and opens them after they were read. Without
``dlq_encryption_keys``, rows are written as they are."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.base.sealing import (
    KEY_SIZE,
    Keyring,
    PersonKey,
    is_sealed,
    marked_clear,
    needed,
    without_mark,
)
from celery_dlq.errors import ContentsSealed
from celery_dlq.settings import own
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.namespaces import seen

#: The columns with contents, in the tables that have some. Keys, states, times, names and counts stay clear.
CONTENTS: Mapping[sa.Table, tuple[str, ...]] = {
    tables.letter: ("message",),
    tables.content: ("headers", "body", "args", "kwargs", "traceback", "log", "grounds"),
    tables.attempt: ("message",),
    tables.change: ("diff", "headers", "body"),
    tables.delivery: ("death",),
    tables.sending: ("why", "change"),
    tables.parked: ("message", "args", "kwargs", "record", "body"),
    tables.handling: ("detail", "error"),
    tables.group: ("message",),
    tables.ticket: ("why",),
    tables.automation: ("why",),
    tables.operation: ("cause", "wanted", "orders"),
    tables.audit: ("why", "detail"),
    tables.request: ("why", "record"),
    tables.key: ("sealed",),
}

#: The columns that say what a row of these tables is about. They never change.
OWNERS: Mapping[sa.Table, tuple[str, ...]] = {
    **dict.fromkeys(CONTENTS, ("task_id",)),
    **dict.fromkeys((tables.group, tables.ticket), ("fingerprint",)),
    **dict.fromkeys((tables.operation, tables.request, tables.key), ("id",)),
    tables.automation: ("name",),
    tables.audit: ("act", "at"),
}

#: Contents of a sealed letter that are sealed even if they are empty, so that none is replaced by nothing.
_NEVER_EMPTY = frozenset({"headers", "body", "args", "kwargs"})

#: Tables whose rows have all contents sealed, or none. Rows of others also have texts that tell nothing.
_WHOLLY = (tables.change, tables.parked)

#: Stand for contents that cannot be read.
_UNREAD: Mapping[str, Any] = {
    **dict.fromkeys(("args", "kwargs"), "null"),
    **dict.fromkeys(("headers", "detail", "orders"), "{}"),
    "body": b"",
    "grounds": None,
    # A filter that chooses no letter.
    "wanted": '{"ids": ["encrypted"]}',
}

_OF_LETTER = CONTENTS[tables.letter] + CONTENTS[tables.content]

#: The row of the key with which values and names are hashed.
_HASHING = "hashing"

#: The key in a connection's ``info`` of the sealing of its transaction.
_SEALING = "celery_dlq_sealing"

Row = Mapping[Any, Any]


class Sealing:
    """Seals and opens values in one transaction, whose keys of persons it reads once.

    :param ring: the keys; None if nothing is sealed, and nothing can be opened.
    :param writes: whether the transaction may write, so that keys can be made.
    """

    def __init__(self, connection: Connection, ring: Keyring | None, *, writes: bool) -> None:
        self._connection, self.ring, self._writes = connection, ring, writes
        self._persons: dict[str, bytes | None] = {}
        self._hash_key = b""

    def seal(self, table: sa.Table, row: Row, sealed_by: str = "") -> dict[str, Any]:
        """``row`` with its contents sealed, so that they can be read only as those of what it is about. The
        row of a letter may have the columns of its contents, too.

        :param sealed_by: of the letter, if the row does not have it: the key of its person seals the row.
        """
        sealed_by = row.get("sealed_by", sealed_by)
        if _is_clear(table, sealed_by):
            return {**row}
        given = {
            name: row[name]
            for name in _names(table)
            if row.get(name) or (name == "body" and name in row)
        }
        if self.ring is None:
            return {**row, **{name: marked_clear(value) for name, value in given.items()}}
        seal, owner, person = self.ring.seal, owner_of(table, row), self._sealer(sealed_by)
        sealed = {
            name: seal(value, _place(table, owner, name), person) for name, value in given.items()
        }
        return {**row, **sealed}

    def seal_for_letters(self, table: sa.Table, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """:meth:`seal` for rows that belong to stored letters, by task id."""
        labels = dict[str, str]()
        if self.ring is not None:
            its, ids = tables.letter.c, sorted({row["task_id"] for row in rows})
            named = sa.select(its.task_id, its.sealed_by).where(its.sealed_by.startswith("@"))
            these = dialect_of(self._connection).one_of(its.task_id, ids)
            labels = dict(map(tuple, self._connection.execute(named.where(these))))
            self.find_persons(labels.values())
        return [self.seal(table, row, labels.get(row["task_id"], "")) for row in rows]

    def open(self, table: sa.Table, row: Row, sealed_by: str = "") -> dict[str, Any]:
        """``row`` with its contents as they were before :meth:`seal`. Contents that are not sealed stay as
        they are, unless the others of the row are sealed.

        :param sealed_by: of the letter, if the row does not have it.
        :raises ContentsSealed: a key is not at hand or was destroyed, or a value was changed or moved.
        """
        row = {**row}
        sealed_by = row.get("sealed_by", sealed_by)
        if _is_clear(table, sealed_by):
            return row
        given = {name: row[name] for name in _names(table) if row.get(name)}
        sealed = {name for name, value in given.items() if is_sealed(value)}
        if sealed_by or (sealed and table in _WHOLLY):
            never_empty = row.keys() & _NEVER_EMPTY.intersection(_names(table))
            for name in sorted((given.keys() | never_empty) - sealed):
                raise ContentsSealed(
                    f"The {name} was changed: it is not encrypted, and the rest is; it is not used."
                )
        row |= {name: without_mark(given[name]) for name in given.keys() - sealed}
        if sealed:
            ring, owner = needed(self.ring), owner_of(table, row)
            for name in sealed:
                row[name] = ring.open(given[name], _place(table, owner, name), self._secret)
        return row

    def shown(
        self, table: sa.Table, rows: Iterable[Row], sealed_by: str = ""
    ) -> list[dict[str, Any]]:
        """:meth:`open` for screens. If the contents of a row cannot be read, they are empty, and
        ``unreadable`` says why."""
        given = [{**row} for row in rows]
        self.find_persons(row.get("sealed_by", "") for row in given)
        return [self._shown(table, row, sealed_by) for row in given]

    def find_persons(self, sealed_by: Iterable[str]) -> None:
        """Read the keys of the persons that these name, together; those that cannot be read are left out."""
        with contextlib.suppress(ContentsSealed):
            self._find(one[1:] for one in sealed_by if one.startswith("@"))

    def make_persons(self, subjects: Iterable[str]) -> None:
        """Make the keys of the persons who have none."""
        if self.ring is not None:
            ids = {self.person_id(one) for one in subjects if one}
            self._find(ids)
            self._persons |= self._made(sorted(one for one in ids if self._persons[one] is None))

    def label_for(self, subject: str) -> str:
        """``sealed_by`` of a letter about the person ``subject``; empty for none. Makes the person's key."""
        if self.ring is None:
            return ""
        self.make_persons([subject])
        return f"@{self.person_id(subject)}" if subject else self.ring.label

    def seal_again(self, table: sa.Table, row: Row) -> dict[str, Any]:
        """``row`` with its contents sealed with the first key of the ring. Those that are sealed with it stay
        as they are, and so do those of persons. The row of a letter has the columns of its contents, too.

        :raises ContentsSealed: as :meth:`open`.
        """
        is_clear, ring = row.get("sealed_by") == "", needed(self.ring)
        done = {
            one for one in _names(table) if row[one] and not is_clear and ring.is_current(row[one])
        }
        old = self.open(table, {name: row[name] for name in row.keys() - done})
        label = {"sealed_by": ring.label} if "sealed_by" in row else {}
        return {**row, **self.seal(table, {**old, **label})}

    def person_id(self, subject: str) -> str:
        """The id of a person, which does not tell the name to those who lack the ring: 32 hexadecimal digits.
        Apps with other namespaces have other persons."""
        namespace = own(seen(self._connection))
        said = f"{namespace}{chr(0)}{subject}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(
            said, digest_size=16, key=self.hash_key, person=b"person"
        ).hexdigest()

    @property
    def hash_key(self) -> bytes:
        """The key of hashes: the store's own, so that it stays when the ring rotates; empty without a ring,
        or if nothing was ever hashed with it.

        :raises ContentsSealed: the ring cannot open it.
        """
        if not self._hash_key and self.ring is not None:
            ids = [_HASHING]
            found = self._read(ids) or (self._made(ids) if self._writes else {})
            self._hash_key = found.get(_HASHING, b"")
        return self._hash_key

    def _shown(self, table: sa.Table, row: Row, sealed_by: str) -> dict[str, Any]:
        try:
            return self.open(table, row, sealed_by)
        except ContentsSealed as error:
            empty = {name: _UNREAD.get(name, "") for name in _names(table) if name in row}
            return {**row, **empty, "unreadable": str(error)}

    def _sealer(self, sealed_by: str) -> PersonKey | None:
        """The person whose key seals what is written of a letter; None if the ring does, also because the
        person's key was destroyed."""
        if not sealed_by.startswith("@"):
            return None
        self.find_persons([sealed_by])
        secret = self._persons.get(sealed_by[1:])
        return None if secret is None else PersonKey(bytes.fromhex(sealed_by[1:]), secret)

    def _secret(self, person_id: bytes) -> bytes | None:
        self._find([person_id.hex()])
        return self._persons[person_id.hex()]

    def _find(self, ids: Iterable[str]) -> None:
        """Read the keys of persons that are not known yet."""
        missing = sorted({*ids} - self._persons.keys())
        if missing and self.ring is not None:
            found = self._read(missing)  # if one cannot be read, none counts as destroyed
            self._persons |= {one: found.get(one) for one in missing}

    def _made(self, ids: Sequence[str]) -> dict[str, bytes]:
        """New keys with these ids. Of two that are made for one id at once, one is stored."""
        if not ids:
            return {}
        label = needed(self.ring).label
        rows = [
            self.seal(tables.key, {"id": one, "sealed": secret, "sealed_by": label})
            for one in ids
            for secret in [secrets.token_hex(KEY_SIZE)]
        ]
        # The id itself is written again, because each database then keeps the row that it has.
        keep = dialect_of(self._connection).upsert(tables.key, lambda _new: {"id": tables.key.c.id})
        self._connection.execute(keep, rows)
        # Locked, because MySQL's snapshot may be older than the row that another transaction has made.
        return self._read(ids, is_locked=True)

    def _read(self, ids: Sequence[str], *, is_locked: bool = False) -> dict[str, bytes]:
        """The keys with these ids that are stored."""
        these = sa.select(tables.key).where(
            dialect_of(self._connection).one_of(tables.key.c.id, ids)
        )
        rows = self._connection.execute(these.with_for_update() if is_locked else these).mappings()
        opened = [self.open(tables.key, row) for row in rows.all()]
        return {row["id"]: bytes.fromhex(row["sealed"]) for row in opened}


def begin_sealing(connection: Connection, ring: Keyring | None, *, writes: bool) -> None:
    """Let :func:`sealing_of` return the sealing of the transaction that begins on ``connection``."""
    connection.info[_SEALING] = Sealing(connection, ring, writes=writes)


def sealing_of(connection: Connection) -> Sealing:
    """The sealing of the transaction of ``connection``."""
    found: Sealing = connection.info[_SEALING]
    return found


def read_shown(
    connection: Connection, table: sa.Table, stored: sa.Select[Any], sealed_by: str = ""
) -> list[dict[str, Any]]:
    """The rows that ``stored`` selects, as :meth:`Sealing.shown` returns them."""
    return sealing_of(connection).shown(table, connection.execute(stored).mappings(), sealed_by)


def owner_of(table: sa.Table, row: Row) -> str:
    """What the contents of a row are sealed for."""
    values = (row[name] for name in OWNERS[table])
    return "/".join(
        str(one.astimezone(timezone.utc) if isinstance(one, datetime) else one) for one in values
    )


def _names(table: sa.Table) -> tuple[str, ...]:
    """The columns with contents in a row. That of a letter has those of two tables."""
    is_letter = table in (tables.letter, tables.content)
    return _OF_LETTER if is_letter else CONTENTS[table]


def _is_clear(table: sa.Table, sealed_by: str) -> bool:
    """Whether a row is that of a letter in clear, whose contents are never opened: they may look sealed."""
    return not sealed_by and table in (tables.letter, tables.content)


def _place(table: sa.Table, owner: str, name: str) -> str:
    table = tables.letter if table is tables.content else table
    return f"{table.name}/{owner}/{name}"

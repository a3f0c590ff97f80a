"""Seals the contents in rows before they are written, and opens them after they were read. Without
``dlq_encryption_keys``, rows are written as they are."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_dlq.base.sealing import KEY_SIZE, Keyring, PersonKey, is_sealed
from celery_dlq.errors import ContentsSealed, page
from celery_dlq.store.database import tables
from celery_dlq.store.database.dialects import dialect_of

#: The columns with contents, in the tables that have some. Keys, states, times, names and counts stay clear.
CONTENTS: Mapping[sa.Table, tuple[str, ...]] = {
    tables.letter: ("message",),
    tables.content: ("headers", "body", "args", "kwargs", "traceback", "log", "grounds"),
    tables.attempt: ("message",),
    tables.change: ("diff", "headers", "body"),
    tables.sending: ("why", "change"),
    tables.parked: ("message", "args", "kwargs", "record", "body"),
    tables.handling: ("detail", "error"),
    tables.group: ("message",),
    tables.operation: ("wanted", "orders"),
    tables.audit: ("detail",),
    tables.key: ("sealed",),
}

#: The columns that say what a row of these tables is about. They never change.
OWNERS: Mapping[sa.Table, tuple[str, ...]] = {
    **dict.fromkeys(CONTENTS, ("task_id",)),
    tables.group: ("fingerprint",),
    tables.operation: ("id",),
    tables.key: ("id",),
    tables.audit: ("act", "at"),
}

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
        self._persons: dict[bytes, bytes | None] = {}
        self._hash_key = b""

    def seal(
        self, table: sa.Table, row: Row, owner: str, person: PersonKey | None = None
    ) -> dict[str, Any]:
        """``row`` with its contents sealed, so that they can be read only as those of ``owner``.

        :param owner: what the row is about: the task id, the fingerprint or the id of the operation, as it is
            stored.
        :param person: the person whose key seals them.
        """
        if self.ring is None:
            return dict(row)
        sealed = {
            name: seal(row[name], _place(table, owner, name), person)
            for name in CONTENTS[table]
            if row.get(name)
            for seal in [self.ring.seal_text if isinstance(row[name], str) else self.ring.seal]
        }
        return {**row, **sealed}

    def open(self, table: sa.Table, row: Row, owner: str) -> dict[str, Any]:
        """``row`` with its contents as they were before :meth:`seal`. Contents that are not sealed stay as
        they are.

        :raises ContentsSealed: a key is not at hand or was destroyed, or a value was changed or moved.
        """
        if row.get("sealed_by") == "":  # a letter's text may look like a sealed one
            return dict(row)
        opened = {
            name: self._open(row[name], _place(table, owner, name))
            for name in CONTENTS[table]
            if row.get(name) and (row.get("sealed_by") or is_sealed(row[name]))
        }
        return {**row, **opened}

    def seal_again(self, table: sa.Table, row: Row) -> dict[str, Any]:
        """``row`` with its contents sealed with the first key of the ring. Those that are sealed with it stay
        as they are, and so do those of persons.

        :raises ContentsSealed: as :meth:`open`.
        """
        owner = "/".join(str(row[name]) for name in OWNERS[table])
        ring, old = self.ring, {}
        for name in CONTENTS[table]:
            if row[name] and not (ring and is_sealed(row[name]) and ring.is_current(row[name])):
                old[name] = row[name]
        named = {name: row[name] for name in ("sealed_by",) if name in row}
        return {**row, **self.seal(table, self.open(table, {**old, **named}, owner), owner)}

    def person(self, subject: str) -> PersonKey:
        """The key of the person ``subject``; a new one if there is none."""
        (known,) = self.people([subject]).values()
        return known

    def people(self, subjects: Iterable[str]) -> dict[str, PersonKey]:
        """The keys of persons by their names; new ones for those that have none."""
        ids = {subject: self.person_id(subject) for subject in sorted(set(subjects))}
        self._find(ids.values())
        for person_id in sorted(ids.values()):
            if self._persons[person_id] is None:
                self._persons[person_id] = self._stored(person_id.hex())
        return {
            subject: PersonKey(person_id, self._persons[person_id] or b"")
            for subject, person_id in ids.items()
        }

    def person_id(self, subject: str) -> bytes:
        """The id of a person, which does not tell the name to those who lack the ring: 16 bytes."""
        said = subject.encode("utf-8", "surrogatepass")
        hashed = hashlib.blake2b(said, digest_size=16, key=self.hash_key, person=b"person")
        return hashed.digest()

    @property
    def hash_key(self) -> bytes:
        """The key of hashes: the store's own, so that it stays when the ring rotates; empty without a ring,
        or if nothing was ever hashed with it.

        :raises ContentsSealed: the ring cannot open it.
        """
        if not self._hash_key and self.ring is not None:
            self._hash_key = self._stored(_HASHING)
        return self._hash_key

    def person_of(self, sealed_by: str) -> PersonKey | None:
        """The key of the person that a letter's ``sealed_by`` names; None if it names none.

        :raises ContentsSealed: the key was destroyed.
        """
        if not sealed_by.startswith("@"):
            return None
        person_id = bytes.fromhex(sealed_by[1:])
        secret = self._secret(person_id)
        if secret is None:
            raise ContentsSealed(
                "The key of this person was destroyed, so the contents are erased."
            )
        return PersonKey(person_id, secret)

    def _open(self, value: Any, place: str) -> Any:
        if self.ring is None:
            raise ContentsSealed(
                f"The contents are encrypted; set dlq_encryption_keys here, too. See {page('encryption')}."
            )
        open_ = self.ring.open_text if isinstance(value, str) else self.ring.open
        return open_(value, place, self._secret)

    def _secret(self, person_id: bytes) -> bytes | None:
        if person_id not in self._persons:
            self._find([person_id])
        return self._persons[person_id]

    def _find(self, ids: Iterable[bytes]) -> None:
        """Read the keys of persons that are not known yet."""
        missing = sorted({one.hex() for one in ids if one not in self._persons})
        if not missing or self.ring is None:
            return
        self._persons |= dict.fromkeys(map(bytes.fromhex, missing))
        these = dialect_of(self._connection).one_of(tables.key.c.id, missing)
        for row in self._connection.execute(sa.select(tables.key).where(these)):
            self._persons[bytes.fromhex(row.id)] = self._opened_key(row.id, row.sealed)

    def _stored(self, key_id: str) -> bytes:
        """The key with this id. If there is none, it is made; of two that are made at once, one is stored. A
        transaction that reads makes none, and gets an empty one."""
        find = sa.select(tables.key.c.sealed).where(tables.key.c.id == key_id)
        sealed = self._connection.scalar(find)
        if sealed is None and not self._writes:
            return b""
        if sealed is None:
            assert self.ring is not None, "keys are made with a ring"  # noqa: S101
            made = self.ring.seal_text(
                secrets.token_hex(KEY_SIZE), _place(tables.key, key_id, "sealed")
            )
            row = {"id": key_id, "sealed": made, "sealed_by": self.ring.label}
            # The key itself is written again, because each database then keeps the row that it has.
            keep = dialect_of(self._connection).upsert(
                tables.key, lambda _given: {"id": tables.key.c.id}
            )
            self._connection.execute(keep, [row])
            # MySQL's snapshot may be older than the row that another transaction has made.
            sealed = self._connection.scalar(find.with_for_update())
        return self._opened_key(key_id, str(sealed))

    def _opened_key(self, key_id: str, sealed: str) -> bytes:
        return bytes.fromhex(self._open(sealed, _place(tables.key, key_id, "sealed")))


def begin_sealing(connection: Connection, ring: Keyring | None, *, writes: bool) -> None:
    """Let :func:`sealing_of` return the sealing of the transaction that begins on ``connection``."""
    connection.info[_SEALING] = Sealing(connection, ring, writes=writes)


def sealing_of(connection: Connection) -> Sealing:
    """The sealing of the transaction of ``connection``."""
    found: Sealing = connection.info[_SEALING]
    return found


def _place(table: sa.Table, owner: str, name: str) -> str:
    return f"{table.name}/{owner}/{name}"

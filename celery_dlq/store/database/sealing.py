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

from celery_dlq.base.sealing import KEY_SIZE, Keyring, PersonKey, is_sealed, needed
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
        self._persons: dict[bytes, bytes | None] = {}
        self._hash_key = b""

    def seal(
        self, table: sa.Table, row: Row, owner: str, person: PersonKey | None = None
    ) -> dict[str, Any]:
        """``row`` with its contents sealed, so that they can be read only as those of ``owner``. The row of a
        letter may have the columns of its contents, too.

        :param owner: what the row is about: the task id, the fingerprint or the id of the operation, as it is
            stored.
        :param person: the person whose key seals them.
        """
        if self.ring is None:
            return dict(row)
        sealed = {
            name: seal(row[name], _place(table, owner, name), person)
            for name in _names(table)
            if row.get(name) or (name == "body" and name in row)
            for seal in [self.ring.seal_text if isinstance(row[name], str) else self.ring.seal]
        }
        return {**row, **sealed}

    def open(
        self, table: sa.Table, row: Row, owner: str, sealed_by: str | None = None
    ) -> dict[str, Any]:
        """``row`` with its contents as they were before :meth:`seal`. Contents that are not sealed stay as
        they are, unless the others of the row are sealed.

        :param sealed_by: of the letter, if the row does not have it; None if it is unknown.
        :raises ContentsSealed: a key is not at hand or was destroyed, or a value was changed or moved.
        """
        sealed_by = row.get("sealed_by", sealed_by)
        if sealed_by == "":  # a letter's text may look like a sealed one
            return dict(row)
        given = {name: row[name] for name in _names(table) if name in row}
        sealed = {name for name, value in given.items() if value and is_sealed(value)}
        if sealed_by or (sealed and table in _WHOLLY):
            for name in sorted(given.keys() - sealed):
                if given[name] or name in _NEVER_EMPTY:
                    raise ContentsSealed(
                        f"The {name} was changed: it is not encrypted, and the rest is; it is not used."
                    )
        return {**row, **{one: self._open(given[one], _place(table, owner, one)) for one in sealed}}

    def shown(
        self, table: sa.Table, row: Row, owner: str, sealed_by: str | None = None
    ) -> dict[str, Any]:
        """:meth:`open` for screens. If the contents cannot be read, they are empty, and ``unreadable`` says
        why."""
        try:
            return self.open(table, row, owner, sealed_by)
        except ContentsSealed as error:
            empty = {name: _UNREAD.get(name, "") for name in _names(table) if name in row}
            return {**row, **empty, "unreadable": str(error)}

    def shown_letters(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """:meth:`shown` for the rows of letters."""
        given = [*rows]
        self.find_persons(row["sealed_by"] for row in given)
        return [self.shown(tables.letter, row, row["task_id"]) for row in given]

    def find_persons(self, sealed_by: Iterable[str]) -> None:
        """Read the keys of the persons that these name, together; those that cannot be read are left out."""
        with contextlib.suppress(ContentsSealed):
            self._find(bytes.fromhex(one[1:]) for one in sealed_by if one.startswith("@"))

    def label_for(self, subject: str) -> str:
        """``sealed_by`` of a letter about the person ``subject``; empty for none. Makes the person's key."""
        if self.ring is None:
            return ""
        return f"@{self.person(subject).id.hex()}" if subject else self.ring.label

    def sealer(self, sealed_by: str) -> PersonKey | None:
        """The person whose key seals what is written of a letter; None if the ring does, also because the
        person's key was destroyed."""
        try:
            return self.person_of(sealed_by)
        except ContentsSealed:
            return None

    def persons_of(self, task_ids: Sequence[str]) -> dict[str, PersonKey | None]:
        """The key that seals what belongs to each letter (an id as it is stored), if it is a person's."""
        if self.ring is None:
            return {}
        letter = tables.letter
        these = dialect_of(self._connection).one_of(letter.c.task_id, sorted(set(task_ids)))
        its = sa.select(letter.c.task_id, letter.c.sealed_by)
        named = self._connection.execute(its.where(these, letter.c.sealed_by.startswith("@")))
        return {row.task_id: self.sealer(row.sealed_by) for row in named}

    def seal_again(self, table: sa.Table, row: Row) -> dict[str, Any]:
        """``row`` with its contents sealed with the first key of the ring. Those that are sealed with it stay
        as they are, and so do those of persons. The row of a letter has the columns of its contents, too.

        :raises ContentsSealed: as :meth:`open`.
        """
        owner, ring, old = owner_of(table, row), self.ring, {}
        for name in _names(table):
            if (row[name] or name == "body") and not (
                ring and is_sealed(row[name]) and ring.is_current(row[name])
            ):
                old[name] = row[name]
        named = {name: row[name] for name in ("sealed_by",) if name in row}
        return {**row, **self.seal(table, self.open(table, {**old, **named}, owner), owner)}

    def person(self, subject: str) -> PersonKey:
        """The key of the person ``subject``; a new one if there is none."""
        return self.people([subject])[subject]

    def people(self, subjects: Iterable[str]) -> dict[str, PersonKey]:
        """The keys of persons by their names; new ones for those that have none."""
        ids = {subject: self.person_id(subject) for subject in sorted(set(subjects))}
        self._find(ids.values())
        missing = [one.hex() for one in ids.values() if self._persons[one] is None]
        made = self._made(sorted(missing)) if missing else {}
        self._persons |= {bytes.fromhex(one): secret for one, secret in made.items()}
        return {
            subject: PersonKey(person_id, self._persons[person_id] or b"")
            for subject, person_id in ids.items()
        }

    def person_id(self, subject: str) -> bytes:
        """The id of a person, which does not tell the name to those who lack the ring: 16 bytes. Apps with
        other namespaces have other persons."""
        namespace = own(seen(self._connection))
        said = f"{namespace}{chr(0)}{subject}".encode("utf-8", "surrogatepass")
        hashed = hashlib.blake2b(said, digest_size=16, key=self.hash_key, person=b"person")
        return hashed.digest()

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
        ring = needed(self.ring)
        open_ = ring.open_text if isinstance(value, str) else ring.open
        return open_(value, place, self._secret)

    def _secret(self, person_id: bytes) -> bytes | None:
        if person_id not in self._persons:
            self._find([person_id])
        return self._persons.get(person_id)  # without a ring, none was read

    def _find(self, ids: Iterable[bytes]) -> None:
        """Read the keys of persons that are not known yet."""
        missing = sorted({one.hex() for one in ids if one not in self._persons})
        if missing and self.ring is not None:
            found = self._read(missing)  # if one cannot be read, none counts as destroyed
            self._persons |= {bytes.fromhex(one): found.get(one) for one in missing}

    def _made(self, ids: Sequence[str]) -> dict[str, bytes]:
        """New keys with these ids. Of two that are made for one id at once, one is stored."""
        assert self.ring is not None, "keys are made with a ring"  # noqa: S101
        rows = [
            {"id": one, "sealed": self.ring.seal_text(secret, place), "sealed_by": self.ring.label}
            for one in ids
            for secret, place in [(secrets.token_hex(KEY_SIZE), _place(tables.key, one, "sealed"))]
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
        rows = self._connection.execute(these.with_for_update() if is_locked else these).all()
        return {
            row.id: bytes.fromhex(self._open(row.sealed, _place(tables.key, row.id, "sealed")))
            for row in rows
        }


def begin_sealing(connection: Connection, ring: Keyring | None, *, writes: bool) -> None:
    """Let :func:`sealing_of` return the sealing of the transaction that begins on ``connection``."""
    connection.info[_SEALING] = Sealing(connection, ring, writes=writes)


def sealing_of(connection: Connection) -> Sealing:
    """The sealing of the transaction of ``connection``."""
    found: Sealing = connection.info[_SEALING]
    return found


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


def _place(table: sa.Table, owner: str, name: str) -> str:
    table = tables.letter if table is tables.content else table
    return f"{table.name}/{owner}/{name}"

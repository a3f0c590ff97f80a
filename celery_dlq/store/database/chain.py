"""The chain of the audit: a link for each write to a row of it, so that tampering shows.

A transaction notes which rows it writes and deletes. Just before its commit, it appends their links while it
holds the lock of the chain's head. So the chain has no fork, and a transaction with that lock waits for no
other one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable

from sqlalchemy import func, insert, or_, select, update
from sqlalchemy.engine import Connection, RowMapping

from celery_dlq.base.codec import dump_json
from celery_dlq.model.audit import AuditHead
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import audit, audit_link

#: The key in a connection's ``info`` of the ids of the acts that its transaction writes or deletes.
_CHANGED = "celery_dlq_audit_changed"

#: Links, or acts, that are read at once.
_TOGETHER = 2_000

_CONTENT = tuple(column.name for column in audit.columns if column.name != "id")


def begin(connection: Connection) -> None:
    """Begin to note the acts that a transaction changes."""
    connection.info[_CHANGED] = {}


def note(connection: Connection, acts: Iterable[int], *, deleted: bool = False) -> None:
    """Note the ids of acts that this transaction writes, or deletes because they are old."""
    connection.info[_CHANGED].update(dict.fromkeys(acts, deleted))


def append(connection: Connection) -> AuditHead | None:
    """Append the links of the acts that this transaction has changed; returns the new head. None if it has
    changed none. With ``dlq_encryption_keys``, no one without a key can make a link."""
    changed, row = connection.info[_CHANGED], None
    if not changed:
        return None
    key = sealing_of(connection).hash_key or None
    locked = select(audit_link.c.digest).where(audit_link.c.n == 0).with_for_update()
    count = select(func.max(audit_link.c.n))
    # Without a head to lock, two transactions make a link with the same number, and one is begun again.
    n, newest = connection.scalar(count) or 0, connection.scalar(locked) or ""
    n = connection.scalar(count) if newest else n
    for act, deleted in sorted(changed.items()):
        row = None if deleted else _salted(connection, act)
        if deleted or row:
            n, digest = n + 1, _digest(row) if row else ""
            newest = _hash(key, newest, n, act, digest)
            link = {"n": n, "act": act, "digest": digest, "hash": newest}
            connection.execute(insert(audit_link).values(link))
    head = {"digest": newest, "hash": _hash(key, newest)}
    put = dialect_of(connection).upsert(audit_link, lambda new: {name: new[name] for name in head})
    connection.execute(put, [{"n": 0, "act": 0, **head}])
    last = {name: row[name] for name in ("act", "who", "at")} if row else {}
    return AuditHead(n=n, hash=newest, **last)


def _salted(connection: Connection, act: int) -> RowMapping | None:
    """The row of an act with a new salt. Without the old salt, no one can find out by trying what the row had
    in it before it was erased."""
    this = audit.c.id == act
    connection.execute(update(audit).where(this).values(salt=secrets.token_hex(16)))
    return connection.execute(select(audit).where(this)).mappings().first()


def _hash(key: bytes | None, *parts: object) -> str:
    said = dump_json(parts).encode()
    made = hashlib.sha256(said) if key is None else hmac.new(key, said, hashlib.sha256)
    return made.hexdigest()


def _digest(row: RowMapping) -> str:
    return _hash(None, *(str(row[name]) for name in _CONTENT))


class Verification:
    """Checks that the audit is as its chain says. Others may write at the same time: an act and its newest
    link are read by one statement.

    :param key: that of the store. Links that were made before the store got it have none.
    :param kept: a head that was kept elsewhere, and must still be in the chain; None for none.
    """

    def __init__(self, key: bytes | None, kept: str | None) -> None:
        self._key, self._kept, self._hash = key, kept, ""
        #: Acts and links that were checked, and how many of the links were made with the key.
        self.acts, self.links, self.keyed = 0, 0, 0
        #: For each act or link that does not fit: what was changed, deleted, inserted or reordered.
        self.breaks: list[str] = []
        #: The newest link of each act that is gone.
        self._gone: dict[int, int] = {}
        self._end: tuple[str, str] = "", ""
        self._newest_key: bytes | None = None
        self._last_act = 0

    @property
    def head(self) -> str:
        """``N:HASH``"""
        return f"{self.links}:{self._hash}"

    def follow(self, connection: Connection) -> bool:
        """Check the next links; returns whether there were any."""
        n, rows = audit_link.c.n, audit_link.outerjoin(audit, audit.c.id == audit_link.c.act)
        found = select(audit_link, audit.c.id).select_from(rows).where(or_(n == 0, n > self.links))
        links = connection.execute(found.order_by(n).limit(_TOGETHER)).all()
        for n, act, digest, hash, row in links:
            if n == 0:
                self._end = digest, hash
                continue
            self._check(n, hash, act, digest)
            if not digest:
                self._gone.pop(act, None)
            elif row is None:
                self._gone[act] = n
        return any(link.n for link in links)

    def _check(self, n: int, hash: str, *content: object) -> None:
        keys = [self._key, None] if self.keyed else [None, self._key]
        fitting = [key for key in keys if _hash(key, self._hash, n, *content) == hash]
        if not fitting:
            wrong = "one of the two was changed or reordered, or links were inserted or deleted."
            self.breaks.append(f"Link {n} does not follow link {self.links}: {wrong}")
        elif self.keyed and fitting[0] is None:
            who = "a process that lacks dlq_encryption_keys, or by someone who has no key"
            self.breaks.append(f"Link {n} was made without the key, by {who}.")
        self.links, self._hash, self._newest_key = n, hash, (fitting or keys)[0]
        self.keyed += self._newest_key is not None
        self._kept = None if self._kept == self.head else self._kept

    def compare(self, connection: Connection) -> bool:
        """Compare the next acts with their newest links; returns whether there were any."""
        later = audit_link.alias()
        newest = select(func.max(later.c.n)).where(later.c.act == audit.c.id).correlate(audit)
        pairs = audit.outerjoin(audit_link, audit_link.c.n == newest.scalar_subquery())
        both = select(audit, audit_link.c.n, audit_link.c.digest).select_from(pairs)
        found = both.where(audit.c.id > self._last_act)
        rows = connection.execute(found.order_by(audit.c.id).limit(_TOGETHER)).mappings().all()
        for row in rows:
            self._last_act, digest = row["id"], _digest(row)
            if digest != row["digest"]:
                same = select(audit_link.c.act).where(audit_link.c.digest == digest).limit(1)
                shown = f"Act {row['id']} ({row['act']} by {row['who']}, {row['at']:%Y-%m-%d %H:%M} UTC)"
                if not row["digest"]:
                    wrong = "was inserted: no link has recorded it."
                elif other := connection.scalar(same):
                    wrong = f"was reordered: it is act {other}."
                else:
                    wrong = f"was changed: it is not as link {row['n']} has recorded it."
                self.breaks.append(f"{shown} {wrong}")
        self.acts += len(rows)
        return bool(rows)

    def end(self) -> None:
        """Check the head, after all links, and name the acts that are gone."""
        found = self.breaks.append
        for act, n in self._gone.items():
            found(f"Act {act} was deleted: link {n} has recorded it.")
        if self._end != (self._hash, _hash(self._newest_key, self._hash) if self.links else ""):
            found(f"The head was changed, or links after link {self.links} were deleted.")
        if self._kept:
            found(f"The chain was made again, or cut: it has no head {self._kept}.")
        if self.links and self._key and not self.keyed:
            found(
                "The chain was made again, or is older than dlq_encryption_keys: no link has the key. In the "
                "second case, run: celery -A <app> dlq keys rotate"
            )

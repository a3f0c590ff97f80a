"""The chain of the audit: a link for each write to a row of it, so that tampering shows.

A transaction notes which rows it writes and deletes. Just before its commit, it appends their links while it
holds the lock of the chain's head. So the chain has no fork, and a transaction with that lock waits for no
other one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import bindparam, func, insert, literal, or_, select, update
from sqlalchemy.engine import Connection, RowMapping

from celery_dlq.base.codec import dump_json
from celery_dlq.model.audit import AuditHead, Break, VerifiedAudit
from celery_dlq.store.database.dialects import dialect_of
from celery_dlq.store.database.tables import audit, audit_link

#: The key in a connection's ``info`` of the rows that its transaction has changed.
_CHANGED = "celery_dlq_audit_changed"

#: Links, or acts, that are read at once.
_TOGETHER = 2_000

_CONTENT = tuple(column.name for column in audit.columns if column.name != "id")


class _Changed(NamedTuple):
    written: set[int]
    deleted: set[int]


def begin(connection: Connection) -> None:
    """Begin to note the rows that a transaction changes."""
    connection.info[_CHANGED] = _Changed(set(), set())


def wrote(connection: Connection, rows: Iterable[int]) -> None:
    """Note the ids of acts that this transaction writes."""
    connection.info[_CHANGED].written.update(rows)


def deleted(connection: Connection, rows: Iterable[int]) -> None:
    """Note the ids of acts that this transaction deletes because they are old."""
    connection.info[_CHANGED].deleted.update(rows)


def append(connection: Connection, key: bytes | None) -> AuditHead | None:
    """Append the links of the rows that this transaction has changed; returns the new head. None if it has
    changed none.

    :param key: makes the hashes, so that no one without it can make a link.
    """
    changed = connection.info[_CHANGED]
    if not any(changed):
        return None
    n, newest = _end(connection)
    rows = _salted(connection, changed.written)
    contents = [(row["id"], row["id"], _digest(key, row)) for row in rows]
    links = []
    for first, last, digest in (*((*run, "") for run in _runs(changed.deleted)), *contents):
        n += 1
        newest = _hash(key, newest, n, first, last, digest)
        links.append({"n": n, "act": first, "last": last, "digest": digest, "hash": newest})
    if not links:
        return None
    connection.execute(insert(audit_link), links)
    head = {"n": 0, "act": n, "last": n, "digest": newest, "hash": _hash(key, n, newest)}
    put = dialect_of(connection).upsert(
        audit_link, lambda given: {name: given[name] for name in ("act", "last", "digest", "hash")}
    )
    connection.execute(put, [head])
    named = {name: rows[-1][name] for name in ("act", "who", "at")} if rows else {}
    return AuditHead(n=n, hash=newest, **named)


def _end(connection: Connection) -> tuple[int, str]:
    """The number and the hash of the newest link. The row of the head is locked until the commit. If there is
    no such row yet, two transactions make links with the same number, and one of them is begun again."""
    head = connection.execute(
        select(audit_link).where(audit_link.c.n == 0).with_for_update()
    ).first()
    if head is not None:
        return head.act, head.digest
    newest = connection.execute(select(audit_link).order_by(audit_link.c.n.desc()).limit(1)).first()
    return (0, "") if newest is None else (newest.n, newest.hash)


def _salted(connection: Connection, ids: Collection[int]) -> list[RowMapping]:
    """The acts with these ids, each with a new salt: without the old one, no one can find out by trying what
    the row had in it before it was erased."""
    rows = _acts(connection, ids)
    salts = [{"row": row["id"], "new": secrets.token_hex(16)} for row in rows]
    if salts:
        this = update(audit).where(audit.c.id == bindparam("row"))
        connection.execute(this.values(salt=bindparam("new")), salts)
    return _acts(connection, ids)


def _acts(connection: Connection, ids: Collection[int]) -> list[RowMapping]:
    if not ids:
        return []
    these = dialect_of(connection).one_of(audit.c.id, sorted(ids))
    return [*connection.execute(select(audit).where(these).order_by(audit.c.id)).mappings()]


def _runs(ids: Collection[int]) -> Iterator[tuple[int, int]]:
    """The first and the last number of each run of numbers without gaps."""
    for _, run in groupby(enumerate(sorted(ids)), lambda item: item[1] - item[0]):
        first, *others = (number for _, number in run)
        yield first, (first, *others)[-1]


def _hash(key: bytes | None, *parts: object) -> str:
    said = dump_json(parts).encode()
    made = hashlib.sha256(said) if key is None else hmac.new(key, said, hashlib.sha256)
    return made.hexdigest()


def _digest(key: bytes | None, row: RowMapping) -> str:
    """The hash of what a row has in it. Its id is in the link."""
    return _hash(key, *(str(row[name]) for name in _CONTENT))


class _Link(NamedTuple):
    n: int
    digest: str
    key: bytes | None


class Verification:
    """Checks that the audit is as its chain says. Others may write at the same time.

    :param key: that of the store. Links that were made before the store got it have none.
    :param kept: a head that was kept elsewhere, and must still be in the chain.
    """

    def __init__(self, key: bytes | None, kept: AuditHead | None) -> None:
        self._key, self._kept = key, kept
        self._n, self._hash, self._keyed, self._last_id = 0, "", 0, 0
        self._head: RowMapping | None = None
        #: The newest link of each act that was not deleted.
        self._links: dict[int, _Link] = {}
        self._breaks: list[Break] = []
        self._seen: set[int] = set()
        #: Acts that do not fit their links. They may have been written after their links were read.
        self._doubtful: set[int] = set()

    def follow(self, connection: Connection) -> bool:
        """Check the next links; returns whether there were any."""
        is_next = or_(audit_link.c.n == 0, audit_link.c.n > self._n)
        found = select(audit_link).where(is_next).order_by(audit_link.c.n).limit(_TOGETHER)
        links = [*connection.execute(found).mappings()]
        self._head = links.pop(0) if links and links[0]["n"] == 0 else None
        for link in links:
            self._take(**link)
        return bool(links)

    def look(self, connection: Connection) -> bool:
        """Compare the next acts with their links; returns whether there were any."""
        after = select(audit).where(audit.c.id > self._last_id).order_by(audit.c.id)
        rows = connection.execute(after.limit(_TOGETHER)).mappings().all()
        for row in rows:
            self._last_id = row["id"]
            self._seen.add(row["id"])
            link = self._links.get(row["id"])
            if link is None or _digest(link.key, row) != link.digest:
                self._doubtful.add(row["id"])
        return bool(rows)

    def finish(self, connection: Connection) -> VerifiedAudit | None:
        """The result; None if a link was made while acts were read, so that this has to be done again."""
        while self.follow(connection):
            pass
        ids = sorted(self._doubtful | (self._links.keys() - self._seen))
        # In one statement, so that the acts are those of the newest link.
        newest = select(func.max(audit_link.c.n)).scalar_subquery().label("newest")
        these = dialect_of(connection).one_of(audit.c.id, ids)
        always = select(literal(1).label("one")).subquery().outerjoin(audit, these)
        found = connection.execute(select(newest, audit).select_from(always)).mappings().all()
        if (found[0]["newest"] or 0) != self._n:
            return None
        rows = {row["id"]: row for row in found if row["id"] is not None}
        acts = {link.digest: act for act, link in self._links.items()}
        breaks = [_break(one, self._links.get(one), rows.get(one), acts) for one in ids]
        return VerifiedAudit(
            acts=len(self._seen | rows.keys()), links=self._n, keyed=self._keyed,
            head=AuditHead(n=self._n, hash=self._hash),
            breaks=(*self._breaks, *self._wrong_ends(), *filter(None, breaks)),
        )  # fmt: skip

    def _take(self, n: int, act: int, last: int, digest: str, hash: str) -> None:
        keys = [self._key] if self._keyed else [None, self._key]
        fitting = [key for key in keys if _hash(key, self._hash, n, act, last, digest) == hash]
        key = next(iter(fitting), keys[0])
        if n != self._n + 1:
            text = f"The links from {self._n + 1} to {n - 1} are missing."
            self._breaks.append(Break(what="deleted", link=n, text=text))
        elif not fitting:
            text = f"Link {n} does not follow the one before: one of the two was changed or moved."
            self._breaks.append(Break(what="changed", link=n, text=text))
        self._n, self._hash, self._keyed = n, hash, self._keyed + (key is not None)
        if self._kept is not None and (n, hash) == (self._kept.n, self._kept.hash):
            self._kept = None
        if digest:
            self._links[act] = _Link(n, digest, key)
            return
        is_short = last - act < len(self._links)
        for one in range(act, last + 1) if is_short else [*self._links]:
            if act <= one <= last:
                self._links.pop(one, None)

    def _wrong_ends(self) -> Iterator[Break]:
        """The breaks at the head."""
        head = self._head
        keys = {self._key} if self._keyed else {None, self._key}
        ends = [(self._n, self._hash, _hash(key, self._n, self._hash)) for key in keys]
        if (self._n or head) and (
            not head or (head["act"], head["digest"], head["hash"]) not in ends
        ):
            said = f"says {head['act']}" if head else "is missing"
            text = f"The chain ends at link {self._n}, and its head {said}: one of the two was changed."
            yield Break(what="deleted", link=self._n, text=text)
        if self._kept is not None:
            text = (
                f"The head {self._kept} is not in the chain: it was cut off before, or made again."
            )
            yield Break(what="rewritten", link=self._kept.n, text=text)
        if self._key is not None and self._n and not self._keyed:
            text = (
                "No link was made with the store's key: the chain was made again, or no act has been written "
                "with the key so far."
            )
            yield Break(what="rewritten", text=text)


def _break(
    act: int, link: _Link | None, row: RowMapping | None, acts: Mapping[str, int]
) -> Break | None:
    """Why an act does not fit its newest link; None if it does.

    :param acts: by the digests of their newest links.
    """
    if row is None:
        if link is None:
            return None
        text = f"Act {act} was deleted: link {link.n} has recorded it."
        return Break(what="deleted", act=act, link=link.n, text=text)
    shown = f"Act {act} ({row['act']} by {row['who']}, {row['at']:%Y-%m-%d %H:%M} UTC)"
    if link is None:
        return Break(
            what="inserted", act=act, text=f"{shown} was inserted: no link has recorded it."
        )
    digest = _digest(link.key, row)
    if digest == link.digest:
        return None
    if digest in acts:
        text = (
            f"{shown} is act {acts[digest]}: link {link.n} has recorded another one in its place."
        )
        return Break(what="reordered", act=act, link=link.n, text=text)
    text = f"{shown} was changed: it is not as link {link.n} has recorded it."
    return Break(what="changed", act=act, link=link.n, text=text)

"""Requests: acts that wait for a second person, each with its frozen plan. The transaction that takes the
last approval also carries out the act, or begins it, so an approval is used once."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, delete, func, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json, read_record, record_of
from celery_dlq.errors import FilterError, RequestRefused, UnknownRequest
from celery_dlq.model.request import Answer, Login, Request, RequestState
from celery_dlq.store.base import Edit, Filter, Operation
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours, narrow
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import change, letter, operation, request
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.letters.acts import MEMBER, delete_rows
from celery_dlq.store.redrive.claims import first_ids
from celery_dlq.store.redrive.history import save_edit
from celery_dlq.store.redrive.operations import create_operation
from celery_dlq.store.rows.audit import by_filter, write_audit
from celery_dlq.store.rows.query import narrow_to, one_of, without_claimed
from celery_dlq.store.rows.rows import Row, fit

#: The most letters of one request: their ids and versions are kept in one text.
MOST = 10_000

#: The version of a letter that is in the archive.
ARCHIVED = "archived"

#: Given the letters that have not changed, returns the operation of a redrive, or the new message of a
#: letter. None for the other acts.
Begin = Callable[[Sequence[str]], "Operation | Edit | None"]

_IS_OPEN = request.c.state == RequestState.OPEN.value


class Requests(StoreRole):
    """The requests. Times are those of the database's clock."""

    @reads
    def freeze(
        self, wanted: Filter, limit: int | None = None, archived: Iterable[str] = ()
    ) -> dict[str, str]:
        """The letters that ``wanted`` finds now, the oldest failures first, each with its version.

        :param limit: at most this many.
        :param archived: further letters, which are in the archive.
        :raises FilterError: there are too many letters.
        """
        states, most = sorted(wanted.wanted_states), min(limit or MOST, MOST)
        ids = first_ids(self.connection, wanted, states, most + 1)[:limit]
        letters = {**dict.fromkeys(archived, ARCHIVED), **_versions(self.connection, ids)}
        if len(letters) > MOST:
            raise FilterError(
                f"A second person decides about at most {MOST:,} letters at a time; choose fewer letters, by "
                "filters or by their ids."
            )
        return letters

    @writes
    def create(
        self, /, wanted: Filter, *, who: str, expires_after_s: float, **given: Any
    ) -> Request:
        """Write a new request for letters of ``wanted``; audited.

        :param given: its act, reason, letters and changes, by the names of its fields.
        """
        narrow_to(self.connection, wanted)
        now = clock.now(self.connection)
        new = Request(
            id=uuid.uuid4().hex[:12], state=RequestState.OPEN, who=who,
            proven=isinstance(who, Login), host=socket.gethostname(), at=now,
            expires_at=now + timedelta(seconds=expires_after_s),
            states=tuple(sorted(wanted.wanted_states)), **given,
        )  # fmt: skip
        self.connection.execute(insert(request).values(_values(self.connection, new)))
        _note(self.connection, new, "request", who, new.why, now)
        return new

    @reads
    def get(self, request_id: str) -> Request:
        """The request with this id.

        :raises UnknownRequest: there is none.
        """
        return _one(self.connection, request_id)

    @reads
    def find(self, *, limit: int = 50) -> list[Request]:
        """All requests that wait, and then up to ``limit`` others; the newest first."""
        newest = select(request).order_by(request.c.at.desc(), request.c.id)
        waiting, others = newest.where(_IS_OPEN), newest.where(~_IS_OPEN).limit(limit)
        return [*_read(self.connection, waiting), *_read(self.connection, others)]

    @reads
    def approved(self, operation_id: str) -> Mapping[str, str] | None:
        """The letters of an operation that a second person has approved, as they were when it was asked for;
        None for another operation."""
        found = _read(self.connection, select(request).where(request.c.id == operation_id))
        return next((one.letters for one in found if one.state is RequestState.DONE), None)

    @reads
    def changed(self, plan: Mapping[str, str], ids: Sequence[str]) -> dict[str, str]:
        """The letters of a claim that are not as they were in ``plan``, each with the reason."""
        # Without the state, which is that of the claim; it takes only letters in the states of the plan.
        before = {one: plan.get(one, "not planned").rpartition(" ")[0] for one in ids}
        return _differences(before, _versions(self.connection, ids))

    def answer(self, request_id: str, begin: Begin | None, *, who: str, why: str = "") -> Request:
        """Refuse a request, or approve it. If it needs no further approval, its act is carried out, or begun,
        for the letters that have not changed since it was made. All is audited, also that an answer does not
        count.

        :param begin: None to refuse it. It must change nothing: the transaction may be tried again.
        :raises UnknownRequest: no request has this id.
        :raises RequestRefused: ``who`` may not approve it, or it does not wait any more.
        """
        found, why_not = self._answer(request_id, who, why, begin)
        if why_not:
            raise RequestRefused(f"Request {found.id} was not changed. {why_not}.")
        return found

    @writes
    def prune(self, before: datetime | None) -> None:
        """Mark the requests as expired that have waited too long, so that they keep no values of messages;
        and delete those that would have expired before a moment (None: none). One whose operation is still
        stored stays: it may be sending."""
        is_over = _IS_OPEN, request.c.expires_at <= clock.now(self.connection)
        for over in _read(self.connection, select(request).where(*is_over).with_for_update()):
            _write(self.connection, over)
        if before is not None:
            is_kept = request.c.id.in_(select(operation.c.id))
            old = self.ours(request), request.c.expires_at < before, ~is_kept
            self.connection.execute(delete(request).where(*old))

    @writes
    def _answer(
        self, request_id: str, who: str, why: str, begin: Begin | None
    ) -> tuple[Request, str]:
        """Record an answer. Returns the request, and why the answer does not count; empty if it does."""
        found, now = _one(self.connection, request_id, is_locked=True), clock.now(self.connection)
        why_not = found.why_not_approved(who) if begin else found.why_ended
        if why_not:
            _note(self.connection, found, "deny", who, why_not, now)
            return found, why_not
        said = fit(request, {"why": why})
        answer = Answer(who=who, at=now, approves=begin is not None, **said)
        found = replace(found, answers=(*found.answers, answer))
        if begin is None:
            found = replace(found, state=RequestState.REFUSED)
        elif len(found.approvers) >= found.needed:
            found = self._begin(found, begin, now)
        _note(self.connection, found, "approve" if begin else "refuse", who, why, now)
        return _write(self.connection, found), ""

    def _begin(self, approved: Request, begin: Begin, now: datetime) -> Request:
        """Carry out, or begin, the act of a request for the letters that have not changed."""
        stored = _versions(self.connection, sorted(approved.letters), are_locked=True)
        left_out = _differences(approved.letters, stored)
        fresh = [task_id for task_id in approved.letters if task_id not in left_out]
        result: dict[str, Any] = {"letters": len(fresh), "left_out": left_out}
        what, state = begin(fresh) if fresh else None, RequestState.DONE
        searched = self._transactions.searched
        if not fresh or (isinstance(what, Edit) and not save_edit(self.connection, what, searched)):
            state, result["why"] = RequestState.FAILED, "every letter has changed since"
        elif isinstance(what, Operation):
            create_operation(self.connection, what, repair=approved.shown)
            result["operation"] = what.id
        elif approved.act == "delete":
            result["letters"] = _delete(self.connection, approved, fresh, now)
        return replace(approved, state=state, result=result)


def _delete(connection: Connection, approved: Request, ids: Sequence[str], now: datetime) -> int:
    """Delete letters, which are locked."""
    its = select(*MEMBER).where(one_of(connection, letter.c.task_id, ids))
    rows = without_claimed(connection, connection.execute(its).mappings().all())
    delete_rows(connection, rows)
    write_audit(
        connection, who=approved.who, act="delete", count=len(rows), why=approved.why, at=now,
        detail=by_filter(Filter(ids=tuple(ids))),
    )  # fmt: skip
    return len(rows)


def _one(connection: Connection, request_id: str, *, is_locked: bool = False) -> Request:
    """A request; from now on, the connection sees only its namespace."""
    stored = select(request).where(request.c.id == request_id, is_ours(connection, request))
    stored = stored.with_for_update() if is_locked else stored
    row = connection.execute(stored).mappings().one_or_none()
    if row is None:
        raise UnknownRequest
    narrow(connection, row["namespace"])
    return _request_from(connection, row)


def _read(connection: Connection, stored: Select[Any]) -> list[Request]:
    rows = connection.execute(stored.where(is_ours(connection, request))).mappings().all()
    return [_request_from(connection, row) for row in rows]


def _request_from(connection: Connection, row: Row) -> Request:
    row = sealing_of(connection).open(request, row)
    found = read_record(Request, {**json.loads(row["record"]), "why": row["why"]})
    # Checked only while the request waits, because an erasure changes the texts of others.
    digest = _digest(connection, row["why"] + row["record"])
    if found.state is not RequestState.OPEN or row["digest"] == digest:
        return found.shown_at(clock.now(connection))
    why = "it was changed in the database; find out by whom"
    return replace(found, state=RequestState.FAILED, result={"why": why})


def _digest(connection: Connection, text: str) -> str:
    """By this, a change of ``text`` in the database is noticed. Without ``dlq_encryption_keys``, anyone who
    can write to the database can make it, too."""
    key = sealing_of(connection).hash_key
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _values(connection: Connection, one: Request) -> dict[str, Any]:
    """The row of a request. After its end, it has no values of messages any more."""
    if one.state is not RequestState.OPEN:
        one = replace(one, changes={}, shown={})
    record = dump_json(record_of(one, "why"))
    why = fit(request, {"why": one.why})["why"]
    row = {
        "id": one.id, "state": one.state.value, "at": one.at, "expires_at": one.expires_at,
        "digest": _digest(connection, why + record), "record": record, "why": why,
    }  # fmt: skip
    return sealing_of(connection).seal(request, row)


def _write(connection: Connection, one: Request) -> Request:
    written = update(request).where(request.c.id == one.id).values(_values(connection, one))
    connection.execute(written)
    return one


def _note(
    connection: Connection, about: Request, act: str, who: str, why: str, at: datetime
) -> None:
    detail: dict[str, object] = {"request": about.id, "act": about.act}
    if about.count == 1:
        (detail["letter"],) = about.letters
    count = about.result.get("letters", about.count)
    write_audit(connection, who=who, act=act, count=count, why=why, detail=detail, at=at)


def _versions(
    connection: Connection, ids: Sequence[str], *, are_locked: bool = False
) -> dict[str, str]:
    """The versions of letters by task id: last failure, number of the last edit, and state. Letters that are
    not stored are left out."""
    stored = select(letter.c.task_id, letter.c.last_failed_at, letter.c.state)
    stored = stored.where(one_of(connection, letter.c.task_id, ids)).order_by(letter.c.id)
    rows = connection.execute(stored.with_for_update() if are_locked else stored).all()
    # After the letters were locked, so that no edit comes between.
    edited = select(change.c.task_id, func.max(change.c.id)).group_by(change.c.task_id)
    edits = dict(connection.execute(edited.where(one_of(connection, change.c.task_id, ids))).all())
    found = {one: f"{at.isoformat()} {edits.get(one, 0)} {state}" for one, at, state in rows}
    return {task_id: found[task_id] for task_id in ids if task_id in found}


def _differences(plan: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """The letters of a plan that have another version by now, each with the reason."""
    found = {
        one: _difference(was.split(), stored.get(one, "").split()) for one, was in plan.items()
    }
    return {task_id: why for task_id, why in found.items() if why}


def _difference(was: Sequence[str], now: Sequence[str]) -> str:
    if was == [ARCHIVED]:
        return "it was brought back from the archive" if now else ""
    if not now:
        return "it is no longer in the store"
    whys = "it has failed again", "its message was edited", f"it is {now[2]} now"
    return next((why for one, other, why in zip(was, now, whys, strict=False) if one != other), "")

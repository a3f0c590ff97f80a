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

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json, read_record, record_of
from celery_dlq.base.redact import hide_known
from celery_dlq.errors import FilterError, RequestRefused, UnknownRequest
from celery_dlq.model.request import Answer, Login, Request, RequestState
from celery_dlq.store.base import Edit, Filter, Operation
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours, narrow
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import change, letter, operation, request
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.letters.acts import Act
from celery_dlq.store.redrive.history import save_edit
from celery_dlq.store.redrive.operations import create_operation
from celery_dlq.store.rows.audit import write_audit
from celery_dlq.store.rows.query import conditions, in_states, narrow_to, one_of
from celery_dlq.store.rows.rows import TEXT_LIMIT, Row, fit

#: The most letters of one request: their ids and versions are kept in one text.
MOST = 10_000

#: The version of a letter that is in the archive.
ARCHIVED = "archived"

#: Given the letters that have not changed, returns the act to carry out: the operation of a redrive, the new
#: message of a letter, or the letters to delete. None if the caller carries it out afterwards.
Begin = Callable[[Sequence[str]], "Operation | Edit | Filter | None"]


def _digest(connection: Connection, text: str) -> str:
    """By this, a change of ``text`` in the database is noticed. Without ``dlq_encryption_keys``, anyone who
    can write to the database can make it, too."""
    key = sealing_of(connection).hash_key
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Requests(StoreRole):
    """The requests. Times are those of the database's clock."""

    @writes
    def create(
        self, *, act: str, who: str, why: str, wanted: Filter, limit: int | None,
        changes: Mapping[str, Any], shown: Mapping[str, Any], archived: Iterable[str] = (),
        expires_after_s: float,
    ) -> Request:  # fmt: skip
        """Write a new request with the letters that ``wanted`` finds now, the oldest failures first; audited.

        :param archived: further letters, which are in the archive.
        :raises FilterError: there are too many letters.
        """
        narrow_to(self.connection, wanted)
        now = clock.now(self.connection)
        lapse(self.connection, now)
        ids = _ids(self.connection, wanted, min(limit or MOST, MOST) + 1)[:limit]
        letters = {**dict.fromkeys(archived, ARCHIVED), **_versions(self.connection, ids)}
        new = Request(
            id=uuid.uuid4().hex[:12], act=act, state=RequestState.OPEN, who=who,
            proven=isinstance(who, Login), host=socket.gethostname(), why=hide_known(why), at=now,
            expires_at=now + timedelta(seconds=expires_after_s), count=len(letters),
            letters=letters, states=tuple(sorted(wanted.wanted_states)), changes=changes,
            shown=shown, result={},
        )  # fmt: skip
        row = _values(self.connection, new)
        if len(letters) > MOST or len(row["record"]) > TEXT_LIMIT:
            raise FilterError(
                f"A request for a second person holds at most {MOST:,} letters, and a million characters; "
                "choose fewer letters, by filters or by their ids."
            )
        self.connection.execute(insert(request).values(row))
        _note(self.connection, new, "request", who, why, now)
        return new

    @reads
    def get(self, request_id: str) -> Request:
        """The request with this id.

        :raises UnknownRequest: there is none.
        """
        row = _row(self.connection, request_id)
        return _request_from(row).shown_at(clock.now(self.connection))

    @reads
    def find(self, *, limit: int = 50) -> list[Request]:
        """Requests, the newest first."""
        now = clock.now(self.connection)
        newest = (
            select(request).where(self.ours(request)).order_by(request.c.at.desc(), request.c.id)
        )
        rows = self.connection.execute(newest.limit(limit)).mappings()
        return [_request_from(_opened(self.connection, row)).shown_at(now) for row in rows]

    @reads
    def has_approved(self, operation_id: str) -> bool:
        """Whether an operation is that of a request which was approved."""
        done = request.c.id == operation_id, request.c.state == RequestState.DONE.value
        return self.connection.execute(select(request.c.id).where(*done)).first() is not None

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
        """Mark the requests as expired that have waited too long, audited; and delete those that would have
        expired before a moment (None: none). One whose operation is still stored stays: it may be sending."""
        lapse(self.connection, clock.now(self.connection))
        if before is not None:
            is_kept = request.c.id.in_(select(operation.c.id))
            old = self.ours(request), request.c.expires_at < before, ~is_kept
            self.connection.execute(delete(request).where(*old))

    @writes
    def end(self, request_id: str, result: Mapping[str, Any]) -> Request:
        """Record the result of an act that the caller has carried out."""
        found = _request_from(_row(self.connection, request_id, is_locked=True))
        result = {**found.result, **result}
        found = replace(found, state=RequestState.DONE, result=result)
        _write(self.connection, found)
        return found

    @writes
    def _answer(
        self, request_id: str, who: str, why: str, begin: Begin | None
    ) -> tuple[Request, str]:
        """Record an answer. Returns the request, and why the answer does not count; empty if it does."""
        now = clock.now(self.connection)
        narrow(self.connection, _row(self.connection, request_id)["namespace"])
        lapse(self.connection, now)
        row = _row(self.connection, request_id, is_locked=True)
        found = _request_from(row).shown_at(now)
        why_not = found.why_not_approved(who) if begin else found.why_ended
        if not why_not and row["digest"] != _digest(self.connection, row["record"]):
            why_not = "It was changed in the database; ask for the act again, and find out by whom"
            found = replace(found, state=RequestState.FAILED, result={"why": why_not})
            _write(self.connection, found)
        if why_not:
            _note(self.connection, found, "deny", who, why_not, now)
            return found, why_not
        answer = Answer(who=who, at=now, approves=begin is not None, why=hide_known(why))
        found = replace(found, answers=(*found.answers, answer))
        if begin is None:
            found = replace(found, state=RequestState.REFUSED)
        elif len(found.approvers) >= found.needed:
            found = self._begin(found, begin, now)
        _write(self.connection, found)
        _note(self.connection, found, "approve" if begin else "refuse", who, why, now)
        return found, ""

    def _begin(self, approved: Request, begin: Begin, now: datetime) -> Request:
        """Carry out, or begin, the act of a request for the letters that have not changed."""
        left_out = _left_out(self.connection, approved.letters)
        fresh = [one for one in approved.letters if one not in left_out]
        result: dict[str, Any] = {"letters": len(fresh), "left_out": left_out}
        state, what = RequestState.DONE, begin(fresh) if fresh else None
        if isinstance(what, Operation):
            create_operation(self.connection, what, repair=approved.shown)
            result["operation"] = what.id
        elif isinstance(what, Filter):
            result["letters"] = _delete(self.connection, what, approved, now)
        elif fresh and what is None:
            state = RequestState.APPROVED
        elif what is None or not save_edit(self.connection, what, self._transactions.searched):
            state, result["why"] = RequestState.FAILED, "every letter has changed since"
        return replace(approved, state=state, result=result)


def lapse(connection: Connection, now: datetime) -> None:
    """Mark the requests as expired that have waited too long; audited."""
    old = select(request).where(
        is_ours(connection, request),
        request.c.state == RequestState.OPEN.value,
        request.c.expires_at <= now,
    )
    for row in connection.execute(old.with_for_update()).mappings().all():
        over = replace(_request_from(_opened(connection, row)), state=RequestState.EXPIRED)
        _write(connection, over)
        _note(connection, over, "lapse", over.who, "", now)


def _row(connection: Connection, request_id: str, *, is_locked: bool = False) -> Row:
    stored = select(request).where(request.c.id == request_id, is_ours(connection, request))
    stored = stored.with_for_update() if is_locked else stored
    row = connection.execute(stored).mappings().one_or_none()
    if row is None:
        raise UnknownRequest
    return _opened(connection, row)


def _opened(connection: Connection, row: Row) -> Row:
    return sealing_of(connection).open(request, row)


def _request_from(row: Row) -> Request:
    return read_record(Request, {**json.loads(row["record"]), "why": row["why"]})


def _values(connection: Connection, one: Request) -> dict[str, Any]:
    """The row of a request. After its end, it has no values of messages any more."""
    if one.state not in (RequestState.OPEN, RequestState.APPROVED):
        one = replace(one, changes={}, shown={})
    record = dump_json(record_of(one, "why"))
    row = {
        "id": one.id, "state": one.state.value, "at": one.at, "expires_at": one.expires_at,
        "digest": _digest(connection, record), "record": record,
        **fit(request, {"why": one.why}),
    }  # fmt: skip
    return sealing_of(connection).seal(request, row)


def _write(connection: Connection, one: Request) -> None:
    connection.execute(
        update(request).where(request.c.id == one.id).values(_values(connection, one))
    )


def _note(
    connection: Connection, about: Request, act: str, who: str, why: str, at: datetime
) -> None:
    detail: dict[str, object] = {"request": about.id, "act": about.act}
    if "operation" in about.result:
        detail["operation"] = about.result["operation"]
    elif about.count == 1:
        (detail["letter"],) = about.letters
    count = about.result.get("letters", about.count)
    write_audit(connection, who=who, act=act, count=count, why=why, detail=detail, at=at)


def _ids(connection: Connection, wanted: Filter, limit: int) -> list[str]:
    """The task ids of the first letters of ``wanted``, the oldest failures first."""
    ids = list[str]()
    for state in sorted(wanted.wanted_states):
        oldest = (
            select(letter.c.task_id)
            .where(in_states([state]), *conditions(connection, wanted))
            .order_by(letter.c.last_failed_at, letter.c.id)
            .limit(limit - len(ids))
        )
        ids += connection.scalars(oldest)
    return ids


def _versions(
    connection: Connection, ids: Sequence[str], *, is_locked: bool = False
) -> dict[str, str]:
    """The versions of letters by task id: state, last failure, and number of the last edit. Letters that are
    not stored are left out."""
    edited = select(change.c.task_id, func.max(change.c.id)).group_by(change.c.task_id)
    edits = dict(connection.execute(edited.where(one_of(connection, change.c.task_id, ids))).all())
    stored = select(letter.c.task_id, letter.c.state, letter.c.last_failed_at)
    stored = stored.where(one_of(connection, letter.c.task_id, ids)).order_by(letter.c.id)
    rows = connection.execute(stored.with_for_update() if is_locked else stored).all()
    found = {
        task_id: f"{state} {at.isoformat()} {edits.get(task_id, 0)}" for task_id, state, at in rows
    }
    return {task_id: found[task_id] for task_id in ids if task_id in found}


def _left_out(connection: Connection, letters: Mapping[str, str]) -> dict[str, str]:
    """The letters that have another version by now, each with the reason. The others are locked."""
    now = _versions(connection, sorted(letters), is_locked=True)
    return {
        task_id: _difference(was.split(), now.get(task_id, "").split())
        for task_id, was in letters.items()
        if was != now.get(task_id, ARCHIVED)
    }


def _difference(was: Sequence[str], now: Sequence[str]) -> str:
    if not now:
        return "it is no longer in the store"
    if len(was) == 1:
        return "it was brought back from the archive"
    if was[0] != now[0]:
        return f"it is {now[0]} now"
    return "it has failed again" if was[1] != now[1] else "its message was edited"


def _delete(connection: Connection, wanted: Filter, approved: Request, now: datetime) -> int:
    act = Act(
        name="delete", target=None, wanted=wanted, sources=wanted.states, who=approved.who,
        why=approved.why, at=now,
    )  # fmt: skip
    until, ongoing, total = act.newest_failure(connection), act.ongoing, 0
    while until is not None:
        changed, ongoing = act.change_chunk(connection, until, ongoing)
        if not changed:
            break
        total += changed
    return total

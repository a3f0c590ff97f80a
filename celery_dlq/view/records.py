"""The records of ``--format json``, ``jsonl`` and ``csv``. Their names are API and change only in a major
release."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.model.auto_redrive import HeldLetter
from celery_dlq.model.group import Group
from celery_dlq.model.handling import GroupTicket, Handling, HandlingState
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.operation import Sending
from celery_dlq.recorder import Left
from celery_dlq.redrive.payload import linked_to
from celery_dlq.spool import SpoolFile
from celery_dlq.store.base import AuditRow, Change, Operation, Stats
from celery_dlq.view.letter.raw_body import has_unread_body, shown_body
from celery_dlq.view.operations import state_word
from celery_dlq.view.times import iso, maybe_iso

if TYPE_CHECKING:
    from celery_dlq.upkeep.handlers.calling import HandlerTrial
    from celery_dlq.upkeep.handlers.definition import Handler


def attempts_of(letter: DeadLetter) -> int:
    """The number of failed runs of the letter's task."""
    return letter.attempt_count or len(letter.attempts)


def letter_record(letter: DeadLetter, *, owner: str) -> dict[str, Any]:
    """A letter in a list.

    :param owner: the owner of its route.
    """
    return {
        "task_id": letter.task_id,
        "task": letter.task,
        "state": letter.state.value,
        "reason": letter.reason.value,
        "verdict": letter.verdict.value,
        "rule": letter.rule,
        "exception_type": letter.exception_type,
        "message": letter.message,
        "fingerprint": letter.fingerprint,
        "queue": letter.queue,
        "attempts": attempts_of(letter),
        "first_failed_at": iso(letter.first_failed_at),
        "last_failed_at": iso(letter.last_failed_at),
        "worker": letter.worker,
        "release": letter.release,
        "redrive_count": letter.redrive_count,
        "due_at": maybe_iso(letter.due_at),
        "tags": list(letter.tags),
        "route": letter.route,
        "owner": owner,
        "args": letter.args,
        "kwargs": letter.kwargs,
    }


def whole_letter_record(
    letter: DeadLetter, redrives: Sequence[Sending], changes: Sequence[Change], *, owner: str
) -> dict[str, Any]:
    """A letter in full; the body in base64.

    :param owner: the owner of its route.
    """
    envelope, linked = letter.envelope, linked_to(letter.envelope)
    return {
        **letter_record(letter, owner=owner),
        "explanation": {
            **vars(letter.explanation),
            "verdict": letter.verdict.value,
        },
        "attempt_history": [attempt_record(attempt) for attempt in letter.attempts],
        "redrives": [sending_record(sending) for sending in redrives],
        "changes": [change_record(change) for change in changes],
        "grouped": letter.grouped,
        "traceback": letter.traceback,
        "pid": letter.pid,
        "root_id": letter.root_id,
        "parent_id": letter.parent_id,
        "group_id": letter.group_id,
        "correlation_id": letter.correlation_id,
        "canvas": letter.canvas,
        "errbacks": list(linked.tasks),
        "lease_expires_at": maybe_iso(letter.lease_expires_at),
        "closed_at": maybe_iso(letter.closed_at),
        "closed_by": letter.closed_by,
        "closed_reason": letter.closed_reason,
        "exchange": envelope.exchange,
        "routing_key": envelope.routing_key,
        "content_type": envelope.content_type,
        "content_encoding": envelope.content_encoding,
        "headers": dict(envelope.headers),
        "properties": dict(envelope.properties),
        "body": base64.b64encode(envelope.body).decode("ascii"),
        "body_size": len(envelope.body),
        "body_unread": linked.unread or None,
        "body_shown": shown_body(envelope.body) if has_unread_body(letter) else None,
    }


def handled_record(handlings: Sequence[Handling], tickets: Sequence[GroupTicket]) -> dict[str, Any]:
    """What repair handlers did about a letter, and the tickets of its group."""
    return {
        "handlings": [handling_record(handling) for handling in handlings],
        "tickets": [ticket_record(ticket) for ticket in tickets],
    }


def held_record(held: HeldLetter | None) -> dict[str, Any] | None:
    """Which automatic redrive holds a letter, and why; None if none does."""
    return None if held is None else {"name": held.name, "why": held.why, "at": iso(held.at)}


def attempt_record(attempt: Attempt) -> dict[str, Any]:
    """One run of a letter's task."""
    return {
        **vars(attempt),
        "failed_at": iso(attempt.failed_at),
        "verdict": attempt.verdict.value,
    }


def group_record(group: Group, now: datetime, *, route_owner: str) -> dict[str, Any]:
    """A group, and its marks at ``now``.

    :param route_owner: the owner of its route.
    """
    moments = ("first_seen_at", "last_seen_at", "status_at", "ignored_until", "regressed_at")
    return {
        **vars(group),
        **{name: maybe_iso(getattr(group, name)) for name in moments},
        "status": group.status.value,
        "marks": [mark.value for mark in group.marks(now)],
        "route_owner": route_owner,
    }


def ticketed_group_record(
    group: Group, tickets: Sequence[GroupTicket], now: datetime, *, route_owner: str
) -> dict[str, Any]:
    """:func:`group_record`, with the tickets and escalations of the group."""
    return {
        **group_record(group, now, route_owner=route_owner),
        "tickets": [ticket_record(ticket) for ticket in tickets],
    }


def stats_record(stats: Stats) -> dict[str, Any]:
    """The numbers of the whole store. ``up_to_s`` is null for ages above the highest bound."""
    return {
        "depth": stats.depth,
        "oldest_open_at": maybe_iso(stats.oldest_open_at),
        "by_state": _by_value(stats.by_state),
        "by_task": dict(stats.by_task),
        "by_exception": dict(stats.by_exception),
        "by_reason": _by_value(stats.by_reason),
        "arrivals_per_hour": list(stats.arrivals),
        "usual_arrivals_per_hour": stats.usual,
        "held": stats.held,
        "ages": [
            {"up_to_s": bound if math.isfinite(bound) else None, "count": count}
            for bound, count in stats.ages.items()
        ],
    }


def stats_rows(stats: Stats) -> list[dict[str, Any]]:
    """The same as rows, for CSV."""
    rows: list[dict[str, Any]] = [
        _row("depth", "", stats.depth),
        _row("oldest_open_at", "", maybe_iso(stats.oldest_open_at)),
    ]
    named: dict[str, Mapping[str, int]] = {
        "by_state": _by_value(stats.by_state),
        "by_task": stats.by_task,
        "by_exception": stats.by_exception,
        "by_reason": _by_value(stats.by_reason),
    }
    for measure, counts in named.items():
        rows += [_row(measure, name, count) for name, count in counts.items()]
    hours = len(stats.arrivals)
    rows += [
        _row("arrivals_per_hour", f"{hours - place}h ago", count)
        for place, count in enumerate(stats.arrivals)
    ]
    rows += [
        _row("usual_arrivals_per_hour", "", "" if stats.usual is None else f"{stats.usual:g}"),
        _row("held", "", stats.held),
    ]
    return rows + [_row("ages", f"{bound:g}", count) for bound, count in stats.ages.items()]


def spool_file_record(file: SpoolFile) -> dict[str, Any]:
    """A file of the spool."""
    return {
        "file": file.name,
        "state": file.state.value,
        "records": file.records,
        "size": file.size,
        "written_at": iso(file.written_at),
    }


def recorded_record(left: Left) -> dict[str, Any]:
    """A worker process's directory of the flight recorder."""
    found = left.owner
    return {
        "directory": left.path.name,
        "worker": found.worker if found else None,
        "host": found.host if found else None,
        "pid": found.pid if found else None,
        "state": left.state.value,
        "messages": left.messages,
        "size": left.size,
        "written_at": iso(left.written_at),
    }


def operation_record(operation: Operation) -> dict[str, Any]:
    """An operation, and the counts of its letters."""
    return {
        "id": operation.id,
        "state": operation.state.value,
        "word": state_word(operation),
        "cause": operation.cause,
        "who": operation.who,
        "host": operation.host,
        "app": operation.home.app,
        "broker": operation.home.broker,
        "detached": operation.detached,
        "created_at": iso(operation.created_at),
        "started_at": maybe_iso(operation.started_at),
        "ended_at": maybe_iso(operation.ended_at),
        **operation.counts.to_dict(),
        "sent_again": operation.sent_again,
        "wanted": operation.wanted.to_dict(),
        "orders": operation.orders.to_dict(),
    }


def whole_operation_record(operation: Operation, sendings: Sequence[Sending]) -> dict[str, Any]:
    """An operation with some of its letters."""
    return {
        **operation_record(operation),
        "sendings": [sending_record(sending) for sending in sendings],
    }


def sending_record(sending: Sending) -> dict[str, Any]:
    """A letter in an operation, and its outcome."""
    return {
        **vars(sending),
        "state": sending.state.value,
        "sent_at": maybe_iso(sending.sent_at),
        "ended_at": maybe_iso(sending.ended_at),
        "sent_again_at": maybe_iso(sending.sent_again_at),
    }


def change_record(change: Change) -> dict[str, Any]:
    """A manual change of a letter's message."""
    return {"at": iso(change.at), "who": change.who, "how": change.how, "diff": change.diff}


def handler_record(handler: Handler, counts: Mapping[HandlingState, int]) -> dict[str, Any]:
    """A repair handler, and how many letters it has had in each state."""
    return {
        "name": handler.name,
        "version": handler.version,
        "where": handler.where.to_dict(),
        "all": handler.all,
        "once_per_group": handler.once_per_group,
        "timeout": handler.timeout,
        "per_hour": handler.per_hour,
        "queue": handler.queue,
        **{state.value: counts.get(state, 0) for state in HandlingState},
    }


def whole_handler_record(
    handler: Handler, counts: Mapping[HandlingState, int], latest: Sequence[Handling]
) -> dict[str, Any]:
    """A repair handler with the latest letters that it had."""
    return {
        **handler_record(handler, counts),
        "latest": [handling_record(handling) for handling in latest],
    }


def handling_record(handling: Handling) -> dict[str, Any]:
    """What a repair handler did about one failure of a letter."""
    moments = ("failed_at", "queued_at", "started_at", "ended_at")
    return {
        **vars(handling),
        **{name: maybe_iso(getattr(handling, name)) for name in moments},
        "state": handling.state.value,
        "detail": dict(handling.detail),
    }


def trial_record(trial: HandlerTrial) -> dict[str, Any]:
    """What a repair handler would do about one letter."""
    return {**vars(trial), "detail": dict(trial.detail)}


def ticket_record(ticket: GroupTicket) -> dict[str, Any]:
    """The ticket or the escalation of a group."""
    return {**vars(ticket), "kind": ticket.kind.value, "at": iso(ticket.at)}


def audit_record(row: AuditRow) -> dict[str, Any]:
    """An act of an operator."""
    return {**vars(row), "at": iso(row.at)}


def _row(measure: str, name: str, value: Any) -> dict[str, Any]:
    return {"measure": measure, "name": name, "value": value}


def _by_value(counts: Mapping[Any, int]) -> dict[str, int]:
    return {key.value: count for key, count in counts.items()}

"""Values for tests: a whole letter with any of its fields replaced."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta, timezone
from typing import Any

from celery_dlq.model.headers import COMPRESSED_HEADER
from celery_dlq.model.letter import Attempt, DeadLetter, Envelope, Explanation
from celery_dlq.model.operation import Counts, Orders
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.model.worker import Delivery
from celery_dlq.redrive.letter.payload import OpenLetter, accepted_by
from celery_dlq.store.base import Filter, Operation

T0 = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


def attempt(number: int = 1, redrive: int = 0, minutes: float = 0, **changes: Any) -> Attempt:
    values = {
        "number": number,
        "redrive": redrive,
        "failed_at": T0 + timedelta(minutes=minutes),
        "exception_type": "ValueError",
        "message": "bad currency",
        "verdict": Verdict.TERMINAL,
        "rule": "python.bug",
        "worker": "celery@host",
        "pid": 4711,
        "evidence": "type=ValueError",
        "path": "RuntimeError <- ValueError",
    }
    return Attempt(**{**values, **changes})


def letter(task_id: str = "0d3f", *attempts: Attempt, **changes: Any) -> DeadLetter:
    attempts = attempts or (attempt(),)
    values = {
        "task_id": task_id,
        "task": "shop.charge",
        "reason": Reason.TERMINAL,
        "explanation": Explanation(verdict=Verdict.TERMINAL, rule="python.bug"),
        "exception_type": "ValueError",
        "message": "bad currency",
        "traceback": "Traceback (most recent call last):\nValueError: bad currency\n",
        "fingerprint": "9c1e0000deadbeef",
        "args": [17],
        "kwargs": {"currency": "EUX"},
        "attempts": attempts,
        "first_failed_at": attempts[0].failed_at,
        "last_failed_at": attempts[-1].failed_at,
        "worker": "celery@host",
        "pid": 4711,
        "release": "1.4.2",
        "message_release": changes.get("release", "1.4.2"),
        "root_id": task_id,
        "parent_id": None,
        "group_id": None,
        "correlation_id": task_id,
        "canvas": "",
        "tags": (),
        "envelope": envelope(task_id),
    }
    return DeadLetter(**{**values, **changes})


def envelope(task_id: str = "0d3f", **changes: Any) -> Envelope:
    values = {
        "body": b'[[17], {"currency": "EUX"}, {}]',
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": {"id": task_id, "task": "shop.charge", "retries": 0, "lang": "py"},
        "properties": {
            "correlation_id": task_id,
            "reply_to": "r",
            "priority": 0,
            "delivery_mode": 2,
        },
        "exchange": "",
        "routing_key": "celery",
        "queue": "celery",
    }
    return Envelope(**{**values, **changes})


def bomb(size: int, task_id: str = "0d3f", **changes: Any) -> DeadLetter:
    """A letter whose message was not unpacked when it came, and would be larger than ``size`` bytes."""
    chunk, packer = b"0" * 1_000_000, zlib.compressobj(1)
    parts = [packer.compress(b'[["')]
    parts += (packer.compress(chunk) for _ in range(size // len(chunk) + 1))
    body = b"".join([*parts, packer.compress(b'"], {}, {}]'), packer.flush()])
    headers = {"id": task_id, "task": "shop.charge", "compression": "gzip", COMPRESSED_HEADER: True}
    sent = envelope(task_id, body=body, headers=headers)
    return letter(task_id, envelope=sent, **{"args": None, "kwargs": None, **changes})


def opened(app: Any, made: DeadLetter) -> OpenLetter:
    """A letter whose body ``app`` may decode."""
    return OpenLetter(made, accepted_by(app))


def delivery(task_id: str = "0d3f", *, minutes: float = 0, **changes: Any) -> Delivery:
    values = {
        "task": "shop.charge",
        "redrive": 0,
        "attempt": 1,
        "number": 2,
        "started_at": T0 + timedelta(minutes=minutes),
        "worker": "celery@host",
        "process": "b00t-1:4711:99",
    }
    return Delivery(task_id=task_id, **{**values, **changes})


def parking(task_id: str, due_in_s: float, place: str = "here", **changes: Any) -> DeadLetter:
    """A retry that is due this many seconds from now."""
    values = {
        "state": State.PARKED,
        "reason": Reason.PARKED,
        "parking": f"{place}.{task_id}",
        "due_at": datetime.now(timezone.utc) + timedelta(seconds=due_in_s),
        **changes,
    }
    return letter(task_id, attempt(verdict=Verdict.TRANSIENT, delay_s=90.0), **values)


def unsent(task_id: str, due_in_s: float = -1.0, **changes: Any) -> DeadLetter:
    """A message that the broker did not take from its sender."""
    values = {
        "reason": Reason.UNSENT,
        "exception_type": "kombu.exceptions.OperationalError",
        "message": "[Errno 111] Connection refused",
        "traceback": "",
        "worker": "web-1",
        "explanation": Explanation(verdict=Verdict.TRANSIENT, rule="network.refused"),
    }
    return parking(task_id, due_in_s, **{**values, **changes})


def operation(operation_id: str = "0a1b2c3d4e5f", **changes: Any) -> Operation:
    """A redrive of everything that failed before a year from :data:`T0`."""
    values = {
        "wanted": Filter(until=T0 + timedelta(days=365)),
        "orders": Orders(),
        "counts": Counts(planned=3),
        "who": "ann",
        "host": "box:17",
        "created_at": T0,
    }
    return Operation(id=operation_id, **{**values, **changes})

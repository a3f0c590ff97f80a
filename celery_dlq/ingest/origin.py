"""Reads from a message's headers where it died before the broker moved it, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeGuard

#: Queues of Celery's native delayed delivery, in which a message expires on purpose to move on.
_DELAY_QUEUE = "celery_delayed_"

#: Other headers of RabbitMQ in addition to ``x-death``, the latest death first (since 3.13).
_SHORT_MARKS = ("x-last-death", "x-first-death")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The queue in which a message died, and how."""

    queue: str
    exchange: str
    routing_key: str
    #: The broker's word, such as ``rejected``, ``expired``, ``maxlen``, ``delivery_limit``.
    reason: str
    #: How often it died there for that reason; 0 if unknown.
    count: int = 0
    #: To the second; None if the broker does not say.
    died_at: datetime | None = None


def origin_of(headers: Mapping[str, Any]) -> Origin | None:
    """The latest death that the broker recorded in ``headers``; None if it recorded none."""
    return _from_table(headers) or _from_short_marks(headers)


def _from_table(headers: Mapping[str, Any]) -> Origin | None:
    """RabbitMQ's ``x-death``: a table for each queue and reason, the latest first."""
    deaths = headers.get("x-death")
    for death in deaths if isinstance(deaths, Sequence) else ():
        if isinstance(death, Mapping) and _is_death_in(death.get("queue")):
            return Origin(
                queue=death["queue"],
                exchange=_text(death.get("exchange")),
                routing_key=_first_text(death.get("routing-keys")) or death["queue"],
                reason=_text(death.get("reason")) or "dead_letter",
                count=_count(death.get("count")),
                died_at=_moment(death.get("time")),
            )
    return None


def _from_short_marks(headers: Mapping[str, Any]) -> Origin | None:
    for mark in _SHORT_MARKS:
        queue = headers.get(f"{mark}-queue")
        if _is_death_in(queue):
            return Origin(
                queue=queue,
                exchange=_text(headers.get(f"{mark}-exchange")),
                routing_key=queue,
                reason=_text(headers.get(f"{mark}-reason")) or "dead_letter",
            )
    return None


def _is_death_in(queue: object) -> TypeGuard[str]:
    return isinstance(queue, str) and queue != "" and not queue.startswith(_DELAY_QUEUE)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _first_text(values: object) -> str:
    return _text(values[0]) if isinstance(values, Sequence) and values else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _moment(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    # py-amqp returns UTC without a time zone.
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)

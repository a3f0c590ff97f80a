"""Tells whether the broker has delivered a message before, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def came_back(message: Any) -> bool:
    """Whether the broker has delivered ``message`` before."""
    info = message.delivery_info or {}
    if info.get("redelivered"):
        return True
    return "sqs_message" in info and (_sqs_count(info) or 1) > 1


def brokers_count(message: Any) -> int | None:
    """The number of this delivery by the broker's own count; None if the broker does not count.

    It includes deliveries that were never started.
    """
    info = message.delivery_info or {}
    if info.get("redelivered"):
        # Celery copies the header to retries, where it says nothing about the first delivery.
        given_back = _whole((message.headers or {}).get("x-delivery-count"))
        if given_back is not None:
            return given_back + 1
    return _sqs_count(info)


def _sqs_count(info: Mapping[str, Any]) -> int | None:
    raw = info.get("sqs_message")
    attributes = raw.get("Attributes") if isinstance(raw, Mapping) else None
    return _whole((attributes or {}).get("ApproximateReceiveCount"))


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None

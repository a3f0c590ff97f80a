"""Operations in words: which letters, in which orders, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_dlq.operation import Counts, Orders
from celery_dlq.view.text import counted
from celery_dlq.view.times import rate

#: Values of a filter or an order that are named one by one.
_NAMED = 5


def given_orders(orders: Orders) -> list[tuple[str, str]]:
    """The orders that are not as they would be without a word."""
    given, plain = orders.to_dict(), Orders().to_dict()
    return [
        (name, rate(value) if name == "rate" else as_text(value))
        for part, values in given.items()
        for name, value in values.items()
        if value != plain[part][name]
    ]


def named_values(values: Mapping[str, Any]) -> str:
    """``values``, and those of the tables in it, on one line."""
    said = (
        named_values(value) if isinstance(value, Mapping) else f"{name}={as_text(value)}"
        for name, value in values.items()
    )
    return ", ".join(filter(None, said))


def as_text(value: Any) -> str:
    """``value``, and the first of many."""
    if not isinstance(value, (list, tuple)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    more = f" and {len(value) - _NAMED:,} more" if len(value) > _NAMED else ""
    return " ".join(map(str, value[:_NAMED])) + more


def outcome_text(counts: Counts) -> str:
    """What became of the letters that were sent: ``3 succeeded, 1 failed again``."""
    named = [(counts.succeeded, "succeeded"), (counts.failed, "failed again"),
             (counts.unknown, "without an outcome"), (counts.sent, "awaited")]  # fmt: skip
    return ", ".join(f"{count:,} {what}" for count, what in named if count)


def summary(counts: Counts) -> list[str]:
    """Sentences about what an operation has done so far."""
    outcomes = outcome_text(counts)
    sent = f"Sent {counts.out:,} of {counted(counts.planned, 'dead letter')}"
    said = [f"{sent}: {outcomes}." if outcomes else f"{sent}."]
    if counts.skipped:
        said.append(f"{counts.skipped:,} were skipped and are as they were.")
    if counts.sending:
        said.append(
            f"{counts.sending:,} may have been sent, without the broker's word; "
            "they are free again when their claim ends (dlq_claim_lease)."
        )
    return said

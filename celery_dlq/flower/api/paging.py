"""How long a page is."""

from __future__ import annotations

from celery_dlq.errors import FilterError
from celery_dlq.flower.filters import Given
from celery_dlq.flower.request import first

#: Rows of a page when none are asked for, and at most.
USUAL, MOST = 50, 500


def limit_of(given: Given) -> int:
    """The rows that are asked for.

    :raises FilterError: that is no number, or too large a one.
    """
    text = first(given, "limit")
    if not text:
        return USUAL
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST):
        raise FilterError(f"limit must be a whole number from 1 to {MOST}, not {text[:40]!r}.")
    return int(text)

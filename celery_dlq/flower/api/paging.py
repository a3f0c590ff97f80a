"""The length of a page."""

from __future__ import annotations

from celery_dlq.errors import FilterError
from celery_dlq.flower.filters import Given
from celery_dlq.flower.http.request import first

#: Rows per page by default, and at most.
USUAL, MOST = 50, 500


def limit_of(given: Given) -> int:
    """The requested number of rows.

    :raises FilterError: it is not a number, or is out of range.
    """
    text = first(given, "limit")
    if not text:
        return USUAL
    # Longer texts are not numbers in this range, and Python refuses to read very long ones.
    is_short = len(text) <= len(str(MOST)) and text.isascii() and text.isdigit()
    if not (is_short and 1 <= int(text) <= MOST):
        raise FilterError(f"limit must be a whole number from 1 to {MOST}, not {text[:40]!r}.")
    return int(text)

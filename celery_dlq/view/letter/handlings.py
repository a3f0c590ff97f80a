"""What repair handlers did, in words."""

from __future__ import annotations

from collections.abc import Mapping

from celery_dlq.view.operations import named_values

#: The part of a verdict's contents that has several lines, and is shown as a block.
CHANGE = "change"

#: The latest handlings that are shown with a letter.
HANDLINGS_SHOWN = 20


def said_of(detail: Mapping[str, object], error: str) -> str:
    """Why a handling failed, or the contents of its verdict on one line."""
    rest = {name: value for name, value in detail.items() if name != CHANGE}
    return error or named_values(rest)

"""Redrives as tests make them: each has a token, which is the id of its operation, too."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from support.factories import T0, operation

from celery_dlq.store.base import Claim, Filter

if TYPE_CHECKING:
    from celery_dlq.store import Store


def claim(
    store: Store, wanted: Filter, *, token: str, lease_until: datetime, limit: int, now: datetime
) -> Claim:
    return store.claims.take(
        operation(token, wanted=wanted), token=token, lease_until=lease_until, limit=limit, now=now
    )


def confirm(store: Store, token: str, ids: Iterable[str]) -> int:
    return store.claims.confirm(token, token, dict.fromkeys(ids, ""), now=T0)


def end(store: Store, token: str, ids: Iterable[str]) -> None:
    store.claims.confirm(token, token, dict.fromkeys(ids, ""), now=T0, is_all=True)


def release(store: Store, token: str, ids: Iterable[str]) -> int:
    return store.claims.release(token, token, list(ids))

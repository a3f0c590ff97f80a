"""Chords on Celery's Redis result backend. It keeps, for each: ``.j`` results by index, ``.d`` members
that reported, ``.s`` size, ``.t`` what was added to it, ``.c`` the claim on the body."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from celery_dlq.redrive.parts import Part, by_group, why_revoked

_KEYS = (".j", ".d", ".s", ".t", ".c")


class CountedChords:
    """Uncounts members by these keys. The chord then completes by itself."""

    def __init__(self, backend: Any) -> None:
        self._backend, self._client = backend, backend.client

    def why_not_whole(self, part: Part, failed_at: datetime, now: datetime) -> str | None:
        """The reason why the chord would not complete with ``part`` sent again; None when it may."""
        results, _reported, size, _added, claim = self._keys(part.group_id)
        with self._client.pipeline(transaction=False) as pipe:
            has_size, has_results, claimed = pipe.exists(size).exists(results).get(claim).execute()
        if claimed == b"done" or has_size:
            return None
        if not has_results:
            return (
                "the result backend has forgotten its chord (result_expires), which would not go on; "
                "start the chord anew, and discard this"
            )
        return why_revoked(self._backend, part)

    def reopen(self, parts: Sequence[Part]) -> None:
        """Count ``parts`` as not being in. May be repeated."""
        for group_id, members in by_group(parts).items():
            self._uncount(group_id, members)

    def _uncount(self, group_id: str, members: Sequence[Part]) -> None:
        results, reported, size, added, claim = self._keys(group_id)
        if self._client.get(claim) == b"done":
            return  # it has completed without them
        ordered = self._client.type(results) == b"zset"
        arrived = self._arrived(results, ordered)
        if arrived and not self._client.exists(size):
            # Celery forgets the size when the chord fails, which it does when all parts are in.
            total = len(arrived) - int(self._client.get(added) or 0)
            self._client.set(size, total, ex=self._backend.expires or None)
        ids = {part.task_id for part in members}
        with self._client.pipeline() as pipe:
            for found in (item for item in arrived if self._backend.decode(item)[1] in ids):
                pipe.zrem(results, found) if ordered else pipe.lrem(results, 1, found)
            pipe.srem(reported, *map(_reported_as, members))
            pipe.delete(claim)
            pipe.execute()

    def _arrived(self, results: Any, ordered: bool) -> list[bytes]:
        read = self._client.zrange if ordered else self._client.lrange
        return list(read(results, 0, -1))

    def _keys(self, group_id: str) -> list[Any]:
        return [self._backend.get_key_for_group(group_id, suffix) for suffix in _KEYS]


def _reported_as(part: Part) -> str:
    return f"{part.task_id}:{'+inf' if part.index is None else part.index}"

"""Chords on Celery's Redis result backend. It keeps five keys for each chord: ``.j`` results by index,
``.d`` members that reported, ``.s`` the size, ``.t`` how many members were added to it, ``.c`` the claim on
the body."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from celery_dlq.redrive.chords.members import ChordMember, why_revoked

_KEYS = (".j", ".d", ".s", ".t", ".c")


class CountedChords:
    """Uncounts members in these keys. The chord then completes by itself."""

    def __init__(self, backend: Any) -> None:
        self._backend, self._client = backend, backend.client

    def why_not_whole(self, member: ChordMember, failed_at: datetime, now: datetime) -> str | None:
        """Why the chord would not complete if ``member`` were sent again; None if it would complete."""
        results, _reported, size, _added, claim = self._keys(member.group_id)
        with self._client.pipeline(transaction=False) as pipe:
            has_size, has_results, claimed = pipe.exists(size).exists(results).get(claim).execute()
        if claimed == b"done" or has_size:
            return None
        if not has_results:
            return (
                "the result backend has forgotten its chord (result_expires), so its body would never run; "
                "start the chord again, and discard this letter"
            )
        return why_revoked(self._backend, member)

    def reopen(self, group_id: str, members: Sequence[ChordMember]) -> None:
        """Uncount ``members`` of the chord, as if they had not reported. Idempotent."""
        results, reported, size, added, claim = self._keys(group_id)
        if self._client.get(claim) == b"done":
            return  # the chord has completed without them
        ordered = self._client.type(results) == b"zset"
        arrived = self._arrived(results, ordered)
        if arrived and not self._client.exists(size):
            # Celery deletes the size when the chord fails, which is when all members have reported.
            total = len(arrived) - int(self._client.get(added) or 0)
            self._client.set(size, total, ex=self._backend.expires or None)
        ids = {member.task_id for member in members}
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


def _reported_as(member: ChordMember) -> str:
    return f"{member.task_id}:{'+inf' if member.index is None else member.index}"

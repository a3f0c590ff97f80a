"""A chord counts each member of its header once; a member that is sent again must be uncounted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery_dlq.letter import DeadLetter


def reopen_chords(app: Any, letters: Sequence[DeadLetter]) -> None:
    """Take the failed parts of ``letters`` out of their chords' counts, for all letters before any is
    sent: a member that succeeds while another's failure still counts would fail the chord again.

    Only Celery's Redis result backend keeps such counts (``.j`` results by index, ``.d`` members
    that reported, ``.s`` size, ``.c`` claim on the body).
    """
    members = [letter for letter in letters if letter.canvas == "chord" and letter.group_id]
    if members and _counts_in_redis(app.backend):
        for letter in members:
            _uncount(app.backend, letter)


def _counts_in_redis(backend: Any) -> bool:
    return any(base.__module__ == "celery.backends.redis" for base in type(backend).__mro__)


def _uncount(backend: Any, letter: DeadLetter) -> None:
    client, group_id = backend.client, letter.group_id
    results, reported, size, claim = (
        backend.get_key_for_group(group_id, suffix) for suffix in (".j", ".d", ".s", ".c")
    )
    headers = letter.envelope.headers
    index, task_id = headers.get("group_index"), str(headers.get("id", letter.task_id))
    ordered = client.type(results) == b"zset"
    arrived = client.zcard(results) if ordered else client.llen(results)
    if client.get(size) is None and arrived:
        # Celery forgets the size when the chord fails, which it does when all parts are in.
        client.set(size, arrived, ex=backend.expires)
    with client.pipeline() as pipe:
        for part in _parts_of(backend, client, results, task_id, ordered):
            pipe.zrem(results, part) if ordered else pipe.lrem(results, 1, part)
        pipe.srem(reported, f"{task_id}:{'+inf' if index is None else index}")
        pipe.delete(claim)
        pipe.execute()


def _parts_of(backend: Any, client: Any, results: str, task_id: str, ordered: bool) -> list[bytes]:
    parts = client.zrange(results, 0, -1) if ordered else client.lrange(results, 0, -1)
    return [part for part in parts if backend.decode(part)[1] == task_id]

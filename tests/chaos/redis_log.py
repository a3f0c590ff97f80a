"""Finds what happened to each message inside Redis, from its append-only file.

Kombu takes a message off its list, and records it as held by the worker in a second step. A worker or
a Redis that dies between the two takes the message along: no worker ever had it, and Redis has it no
more. The file proves it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: What may happen to a message, by its delivery tag.
_TAKEN, _ELSEWHERE = "taken", "elsewhere"


def swallowed(directory: Path, queue: str) -> set[str]:
    """The ids of tasks of which a message was taken off ``queue`` and never seen again.

    :param directory: Redis' data directory. Its file must begin with its first command.
    """
    waiting: deque[bytes] = deque()
    last: dict[str, tuple[str, str]] = {}
    for name, *words in _commands(directory):
        if words[:1] == [queue.encode()]:
            _move(name, words[1:], waiting, last)
        elif name == b"HSET" and words[0] == b"unacked":
            tag = words[1].decode()
            last[tag] = (_ELSEWHERE, last.get(tag, ("", ""))[1])
    return {task_id for what, task_id in last.values() if what == _TAKEN}


def _move(
    name: bytes, messages: list[bytes], waiting: deque[bytes], last: dict[str, tuple[str, str]]
) -> None:
    if name == b"LPUSH":
        waiting.extendleft(messages)
    elif name == b"RPUSH":
        waiting.extend(messages)
    elif name in (b"RPOP", b"LPOP"):
        tag, task_id = _names(waiting.pop() if name == b"RPOP" else waiting.popleft())
        last[tag] = (_TAKEN, task_id)
        return
    for message in messages:
        tag, task_id = _names(message)
        last[tag] = (_ELSEWHERE, task_id)


def _names(message: bytes) -> tuple[str, str]:
    fields = json.loads(message)
    return fields["properties"]["delivery_tag"], fields["headers"].get("id", "")


def _commands(directory: Path) -> Iterator[list[bytes]]:
    for path in sorted((directory / "appendonlydir").glob("*.incr.aof")):
        with path.open("rb") as file:
            yield from iter(lambda: _command(file), [])


def _command(file: IO[bytes]) -> list[bytes]:
    """The next command; empty at the end of the file, even if that is torn."""
    head = file.readline()
    if not head.startswith(b"*"):
        return []
    words = []
    for _ in range(int(head[1:])):
        size = int(file.readline()[1:] or -1)
        if size < 0:
            return []
        words.append(file.read(size))
        file.read(2)
    return [words[0].upper(), *words[1:]]

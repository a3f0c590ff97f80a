"""Finds what a master of Redis had done before it was killed, and its successor does not know, from the
append-only files of both."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Undone:
    """Changes of a master that its successor did not have when it was promoted."""

    #: The ids of tasks of which a message was accepted, and is gone.
    accepted: frozenset[str] = frozenset()
    #: Of tasks of which a message was handed out, acknowledged or given back. The successor hands it out
    #: again, and does not say so if it still has it in its list.
    handed_out: frozenset[str] = frozenset()

    def __or__(self, other: Undone) -> Undone:
        return Undone(self.accepted | other.accepted, self.handed_out | other.handed_out)


#: How many commands in a row have to be the same for them to be the same ones.
_WINDOW = 20
#: How often a command may be there to be looked for.
_RARE = 5


def undone(fallen: Path, successor: Path, queue: str) -> Undone:
    """What the master with the directory ``fallen`` wrote at its end, and ``successor`` did not receive.

    A replica writes what it receives in the same order, so the last commands that both have end what was
    copied.
    """
    ours = [words for words in _commands(fallen) if words[0] != b"SELECT"]
    theirs = [words for words in _commands(successor) if words[0] != b"SELECT"]
    accepted, handed_out, ids = set[str](), set[str](), dict[bytes, str]()
    for words in ours:
        _learn(words, queue, ids)
    for words in ours[_copied(ours, theirs) :]:
        if words[0] == b"LPUSH" and words[1] == queue.encode():
            accepted |= {_names(message)[1] for message in words[2:]}
        elif words[0] in (b"HSET", b"HDEL") and words[1] == b"unacked":
            handed_out |= {ids[tag] for tag in words[2:3] if tag in ids}
    return Undone(frozenset(accepted), frozenset(handed_out))


def _copied(ours: list[list[bytes]], theirs: list[list[bytes]]) -> int:
    """How many of the commands of a master its successor has received."""
    places: dict[tuple[bytes, ...], list[int]] = {}
    for number, words in enumerate(theirs):
        places.setdefault(tuple(words), []).append(number)
    longest, found = 0, 0
    for end in range(len(ours), 0, -1):
        # Not the ends of transactions, for example, which are everywhere.
        for place in places.get(tuple(ours[end - 1]), ())[:_RARE]:
            size = _same(
                ours[max(0, end - _WINDOW) : end], theirs[max(0, place + 1 - _WINDOW) : place + 1]
            )
            if size == _WINDOW:
                return end
            if size > longest:  # a successor that has joined a moment before
                longest, found = size, end
    return found


def _same(ours: list[list[bytes]], theirs: list[list[bytes]]) -> int:
    """How many commands at the ends are the same."""
    pairs = zip(reversed(ours), reversed(theirs), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _learn(words: list[bytes], queue: str, ids: dict[bytes, str]) -> None:
    """Note the tasks of the tags in a command."""
    if words[0] in (b"LPUSH", b"RPUSH") and words[1].startswith(queue.encode()):
        for message in words[2:]:
            tag, task_id = _names(message)
            ids[tag.encode()] = task_id
    elif words[0] == b"HSET" and words[1] == b"unacked":
        for tag, note in zip(words[2::2], words[3::2], strict=True):
            ids[tag] = json.loads(note)[0]["headers"].get("id", "")


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

"""The values by which people look for a letter: ids, addresses and numbers in its arguments and its message.

A store keeps a hash of each value, and of where in the letter it is. A hash has the same length for every
value and every path, so that an index of hashes serves all of them. A store with encrypted contents makes
hashes with a key.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from celery_dlq.base.redact import LONGEST, as_in_a_form, text_of
from celery_dlq.model.fingerprint import variable_parts

#: The most values of a message that are kept.
MESSAGE_LIMIT = 8

#: Parts of the arguments that are looked at, so that a letter with a million of them takes no longer.
_VISITED = 10_000

#: The path of all values in a message.
IN_MESSAGE = 0


class Term(NamedTuple):
    """A value in a letter, as two hashes."""

    #: 64 bits.
    value: int
    #: 32 bits of the path to an argument; :data:`IN_MESSAGE` for a value in the message.
    path: int


def hash_of_value(value: str, key: bytes = b"") -> int:
    """A signed number of 64 bits.

    :param key: up to 64 bytes, without which the hash of a value cannot be made.
    """
    return _hash(value, 8, key)


def hash_of_path(path: str, key: bytes = b"") -> int:
    """A signed number of 32 bits.

    :param path: the name of a keyword argument or the position of a positional one; then the keys inside of
        it, after dots. Places in a list are left out: ``order.items.sku``.
    """
    return _hash(path, 4, key) or 1


def terms_of_arguments(args: Any, kwargs: Any, limit: int, key: bytes = b"") -> set[Term]:
    """The first ``limit`` values in the arguments; those that are nested least come first."""
    found: set[Term] = set()
    for path, text in leaves(args, kwargs):
        if len(found) >= limit:
            break
        found.add(Term(hash_of_value(text, key), hash_of_path(path, key)))
    return found


def terms_of_message(message: str, key: bytes = b"") -> set[Term]:
    """The values in the first line of a message: what differs between messages of one group."""
    parts = [part for part in variable_parts(message) if 0 < len(part) <= LONGEST]
    return {Term(hash_of_value(part, key), IN_MESSAGE) for part in parts[:MESSAGE_LIMIT]}


def leaves(args: Any, kwargs: Any) -> Iterator[tuple[str, str]]:
    """The values in the arguments, each after its path; those that are nested least come first."""
    waiting: deque[tuple[str, Any]] = deque()
    if isinstance(args, list):
        waiting.extend((str(position), value) for position, value in enumerate(args))
    if isinstance(kwargs, Mapping):
        waiting.extend((str(name), value) for name, value in kwargs.items())
    for _ in range(_VISITED):
        if not waiting:
            return
        path, value = waiting.popleft()
        if isinstance(value, Mapping):
            waiting.extend((f"{path}.{name}", item) for name, item in value.items())
        elif isinstance(value, list):
            waiting.extend((path, item) for item in value)
        else:
            text = text_of(value)
            if text is not None:
                yield path, text


def _hash(text: str, size: int, key: bytes) -> int:
    sent = as_in_a_form(text).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(sent, digest_size=size, key=key).digest()
    return int.from_bytes(digest, "big", signed=True)

"""Reads names as a person would: ``ConnectionTimeout``, ``TEMPORARILY_UNAVAILABLE``, ``rate-limit-exceeded``.

A closed grammar over whole words. A lasting word beside a phrase counts more.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

from celery_dlq.classify.builtin.codes import phrases, words
from celery_dlq.classify.evidence import text_of
from celery_dlq.model.states import Verdict

#: The longest name that is read, in characters and in words.
_LENGTH, _WORDS = 80, 8

# "HTTPTimeoutError" is HTTP, Timeout, Error; "Error503" is Error, 503.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:/ -]*\Z")


class Saying(NamedTuple):
    """The words of a name that say something, and their meaning."""

    verdict: Verdict
    words: str


_PASSING = tuple(tuple(phrase.split()) for phrase in phrases("names.passing"))
_LASTING = words("names.lasting")


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in CamelCase, snake_case or kebab-case, in small letters."""
    return tuple(word.lower() for word in _WORD.findall(name[:_LENGTH]))


def says(name: object) -> Saying | None:
    """The meaning of a name; None if its words decide nothing."""
    text = text_of(name)
    if text is None or len(text) > _LENGTH or not _NAME.match(text):
        return None
    parts = words_of(text)
    if len(parts) > _WORDS:
        return None
    phrase = next(filter(partial(_has, parts), _PASSING), ())
    # The other words: "bad" of "bad gateway" is not lasting.
    lasting = _LASTING.intersection(set(parts).difference(phrase))
    if lasting:
        return Saying(Verdict.TERMINAL, min(lasting))
    return Saying(Verdict.TRANSIENT, " ".join(phrase)) if phrase else None


def _has(parts: tuple[str, ...], phrase: tuple[str, ...]) -> bool:
    size = len(phrase)
    return any(parts[at : at + size] == phrase for at in range(len(parts) - size + 1))

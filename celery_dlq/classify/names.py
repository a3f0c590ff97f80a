"""Reads names as a person would: ``ConnectionTimeout``, ``TEMPORARILY_UNAVAILABLE``, ``rate-limit-exceeded``.

A closed grammar over whole words; docs/reference/unknown-libraries.md says how often each phrase was right in
a survey. A lasting word beside a phrase counts more.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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


def _phrases(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(phrase.split()) for phrase in text.split(","))


_PASSING = _phrases(
    "timeout,timeouts,timed out,time out,deadline exceeded,"
    "connection error,connection lost,connection reset,connection refused,connection aborted,"
    "connection failed,connection failure,connection broken,connection dropped,connection interrupted,"
    "disconnected,"
    "rate limit,rate limited,ratelimit,ratelimited,rate limits,too many requests,throttled,throttling,"
    "temporarily unavailable,service unavailable,server unavailable,bad gateway,"
    "temporary error,temporary failure,transient error,retryable,retry after,retries exceeded,"
    "in progress,concurrent,deadlock,serialization failure"
)

[_LASTING] = map(
    frozenset,
    _phrases(
        "acceptable access allowed already argument arguments assertion attribute auth authentication "
        "authorisation authorization bad callback cert certificate client command config configuration "
        "credential credentials decode decoding denied deprecated disabled duplicate encode encoding "
        "exist exists expired forbidden format found host illegal implemented import incompatible "
        "incorrect input invalid key license lifespan login malformed mismatch missing name non notfound "
        "parameter params parse parser parsing password payment permission permissions permitted protocol "
        "quota redirect required schema secret security setting settings signature ssl supported syntax "
        "tls token type unauthorised unauthorized unexpected unknown unprocessable unrecoverable "
        "unsupported url usage valid validation value verification verify version wrong"
    ),
)


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in CamelCase, snake_case or kebab-case, in small letters."""
    return tuple(word.lower() for word in _WORD.findall(name[:_LENGTH]))


def says(name: object) -> Saying | None:
    """The meaning of a name; None if its words decide nothing."""
    text = text_of(name)
    if text is None or len(text) > _LENGTH or not _NAME.match(text):
        return None
    words = words_of(text)
    if len(words) > _WORDS:
        return None
    phrase = _passing(words)
    lasting = _LASTING.intersection(_without(words, phrase))
    if lasting:
        return Saying(Verdict.TERMINAL, min(lasting))
    return Saying(Verdict.TRANSIENT, " ".join(phrase)) if phrase else None


def _passing(words: tuple[str, ...]) -> tuple[str, ...]:
    for phrase in _PASSING:
        size = len(phrase)
        if any(words[at : at + size] == phrase for at in range(len(words) - size + 1)):
            return phrase
    return ()


def _without(words: tuple[str, ...], phrase: tuple[str, ...]) -> set[str]:
    """The other words: "bad" of "bad gateway" is not lasting."""
    return {*words} - {*phrase}

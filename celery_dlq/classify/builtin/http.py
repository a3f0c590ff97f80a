"""HTTP answers: the meaning of a status, and the ways in which services say more than their status.

The functions here make probes.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from celery_dlq.classify.builtin.codes import numbers
from celery_dlq.classify.evidence import Source, message, number, read, text_of
from celery_dlq.classify.evidence import status as find_status
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.classify.wait import headers, retry_after
from celery_dlq.model.states import Verdict

TRANSIENT_STATUSES = numbers("http.transient")

# Terminal as such, but an answer that names a time to come back has said that it will pass:
# GitHub's secondary limits are 403, RFC 9110 (15.5.14) says so of 413.
_TRANSIENT_WITH_RETRY_AFTER = frozenset({403, 413, 500, 507})


def status_verdict(code: int) -> Verdict:
    """The verdict of an HTTP status alone. 500 means "unknown", and so does every unlisted status: RFC
    9110 says of 503 that the service will likely be back after some delay (15.6.4), of 500 only that
    the server met an unexpected condition (15.6.1)."""
    return Verdict.TRANSIENT if code in TRANSIENT_STATUSES else Verdict.TERMINAL


def http_status(*sources: Source, passing: Collection[int] = ()) -> Probe:
    """A probe that reads the status from ``sources``, the headers where the status alone is unclear.

    :param passing: further statuses that the service documents as worth another attempt.
    """

    def probe(exc: BaseException) -> Finding | None:
        found = find_status(exc, sources)
        if found is None:
            return None
        code, source = found
        evidence = f"status={code} from {source}"
        if code in _TRANSIENT_WITH_RETRY_AFTER and retry_after(exc) is not None:
            return Finding(Verdict.TRANSIENT, "http.status", f"{evidence}, with Retry-After")
        if code == 403 and headers(exc).get("x-ratelimit-remaining") == "0":
            # GitHub's primary limit: docs.github.com, "Rate limits for the REST API".
            return Finding(Verdict.TRANSIENT, "http.status", f"{evidence}, rate limit used up")
        passes = code in passing or status_verdict(code) is Verdict.TRANSIENT
        return transient_if(passes, "http.status", evidence)

    return probe


def status_in_text(
    pattern: str,
    rule: str = "http.status",
    evidence: str = "status={}",
    passing: Collection[int] = (),
) -> Probe:
    """A probe for a library that keeps the status in the message only.

    :param pattern: matches the beginning of the message; its group is the status.
    :param evidence: the text to show, with ``{}`` for the status.
    :param passing: further statuses that the service documents as worth another attempt.
    """
    compiled = re.compile(pattern)

    def probe(exc: BaseException) -> Finding | None:
        match = compiled.match(message(exc))
        if match is None:
            return None
        code = int(match[1])
        return transient_if(
            code in passing or code in TRANSIENT_STATUSES, rule, evidence.format(code)
        )

    return probe


def header_says(name: str, rule: str) -> Probe:
    """A probe for the header in which a service says outright whether to try again."""
    verdicts = {"true": Verdict.TRANSIENT, "false": Verdict.TERMINAL}

    def probe(exc: BaseException) -> Finding | None:
        said = headers(exc).get(name, "").strip().lower()
        return Finding(verdicts[said], rule, f"{name}: {said}") if said in verdicts else None

    return probe


def word(
    rule: str, *sources: Source, passing: Collection[str] = (), lasting: Collection[str] = ()
) -> Probe:
    """A probe for a service's own error code: the first of ``sources`` that holds a listed word."""

    def probe(exc: BaseException) -> Finding | None:
        for source in sources:
            found = text_of(read(exc, *source))
            if found in passing or found in lasting:
                return transient_if(found in passing, rule, f"{'.'.join(source)}={found}")
        return None

    return probe


def status(_rule: str, *words: str) -> Probe:
    """A probe for a row: :func:`http_status` of these paths. ``+500`` is a further passing status."""
    sources = [tuple(word.split(".")) for word in words if not word.startswith("+")]
    return http_status(*sources, passing={int(word) for word in words if word.startswith("+")})


def listed(rule: str, path: str, *passing: str) -> Probe:
    """A probe for a row: transient if the number at ``path`` is one of ``passing``, otherwise terminal."""

    def probe(exc: BaseException) -> Finding | None:
        code = number(read(exc, *path.split(".")))
        return None if code is None else transient_if(str(code) in passing, rule, f"{path}={code}")

    return probe


def flag(rule: str, name: str) -> Probe:
    """A probe for a row: transient if the flag is True. False is its default, and so means nothing."""

    def probe(exc: BaseException) -> Finding | None:
        is_set = read(exc, name) is True
        return Finding(Verdict.TRANSIENT, rule, f"{name}=True") if is_set else None

    return probe


def in_turn(*probes: Probe) -> Probe:
    """One probe out of several: the first that finds something."""

    def probe(exc: BaseException) -> Finding | None:
        return next((found for ask in probes if (found := ask(exc)) is not None), None)

    return probe

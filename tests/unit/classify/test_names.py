"""Names as evidence: whole words, in any spelling; a lasting word silences the rest."""

import pytest

from celery_dlq.classify.general import says, words_of


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ConnectionTimeout", "connection timeout"),
        ("HTTPTimeoutError", "http timeout error"),
        ("TEMPORARILY_UNAVAILABLE", "temporarily unavailable"),
        ("rate-limit.exceeded", "rate limit exceeded"),
        ("SQLSTATE40001", "sqlstate 40001"),
        ("E503", "e 503"),
        ("", ""),
    ],
)
def test_words(name, words):
    assert " ".join(words_of(name)) == words


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("ReadTimeout", "transient"),
        ("request_timed_out", "transient"),
        ("RateLimitExceededError", "transient"),
        ("TOO_MANY_REQUESTS", "transient"),
        ("BadGateway", "transient"),
        ("InvalidTimeout", "terminal"),
        ("AuthenticationTimeoutError", "terminal"),
        ("NotFound", "terminal"),
        ("NotReady", None),
        ("BadRequest", "terminal"),
        ("ApiError", None),
        ("Timeoutish", None),
        ("", None),
        ("timeout: it took more than 30 s (really!)", None),
        ("timeout " * 20, None),
        (503, None),
        (None, None),
    ],
)
def test_meanings(name, verdict):
    found = says(name)
    assert (found and found.verdict.value) == verdict

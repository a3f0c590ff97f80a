import json
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from celery_dlq.model import headers
from celery_dlq.model.headers import (
    ATTEMPTS_HEADER,
    COPY_HEADER,
    COUNT_LIMIT,
    FIRST_FAILED_HEADER,
    GROUP_HEADER,
    LETTER_HEADER,
    REDRIVE_HEADER,
    RELEASE_HEADER,
    attempt_number,
    changed,
    circuit_of,
    fingerprint_of,
    first_failure_of,
    free_runs,
    letter_of,
    redrive_headers,
    redrive_of,
    release_of,
    sending_of,
    trace_of,
)
from celery_dlq.model.letter import ATTEMPT_MESSAGE_LIMIT
from celery_dlq.worker.failure import read_attempts

OURS = [value for name, value in vars(headers).items() if name.endswith("_HEADER")]


def test_a_release_names_its_parking_and_its_copy():
    assert release_of({RELEASE_HEADER: "here.4711/2"}) == ("here.4711", 2)


@pytest.mark.parametrize(
    "value",
    [None, 7, "", "here.1", "/1", "here.1/x", "here.1/²", "a\x00b/1", "x" * 65 + "/1", "a/" + "9" * 20],
)  # fmt: skip
def test_an_invalid_release_header_is_ignored(value):
    assert release_of({RELEASE_HEADER: value}) is None


def test_a_redriven_message_names_its_redrive_and_its_copy():
    assert sending_of({REDRIVE_HEADER: 2, COPY_HEADER: "5c"}) == (2, "5c")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {REDRIVE_HEADER: 2},
        {COPY_HEADER: "5c"},
        {REDRIVE_HEADER: 0, COPY_HEADER: "5c"},
        {REDRIVE_HEADER: "2", COPY_HEADER: "5c"},
        *({REDRIVE_HEADER: 2, COPY_HEADER: copy} for copy in (5, "", "\x00", "é", "x" * 65)),
    ],
)
def test_an_invalid_sending_header_is_ignored(headers):
    assert sending_of(headers) is None


def test_the_time_of_the_first_failure_is_in_utc():
    at = first_failure_of({FIRST_FAILED_HEADER: "2026-01-01T02:00:00+02:00"})
    assert at == datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert at.tzinfo is timezone.utc


@pytest.mark.parametrize(
    "value", [None, 7, "", "yesterday", "2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00"]
)
def test_an_invalid_time_of_the_first_failure_is_ignored(value):
    assert first_failure_of({FIRST_FAILED_HEADER: value}) is None


def test_a_message_that_follows_a_redriven_one_keeps_all_that_makes_it_a_redrive():
    redriven = {
        REDRIVE_HEADER: 2, COPY_HEADER: "5c", LETTER_HEADER: "a",
        FIRST_FAILED_HEADER: "2026-01-01T00:00:00+00:00", GROUP_HEADER: "9c1e",
    }  # fmt: skip
    assert redrive_headers({**redriven, ATTEMPTS_HEADER: "[]", "tenant": "acme"}) == redriven


TRACE, OTHER = "0af7651916cd43dd8448eb211c80319c", "1" * 32


def test_the_trace_is_opentelemetrys_or_else_sentrys():
    otel = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    sentry = {"sentry-trace": f"{OTHER}-b7ad6b7169203331-1"}
    assert trace_of({**otel, **sentry}) == TRACE
    assert trace_of(sentry) == OTHER
    assert trace_of({"sentry-trace": f"{OTHER}-b7ad6b7169203331"}) == OTHER
    assert trace_of({"traceparent": "broken", **sentry}) == OTHER


@pytest.mark.parametrize(
    "value",
    [
        None, 7, "", b"00", [TRACE], TRACE, f"00-{TRACE}", f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"ff-{TRACE}-b7ad6b7169203331-01", f"00-{TRACE.upper()}-b7ad6b7169203331-01",
        f"00-{TRACE}-b7ad6b7169203331-01\n", f" 00-{TRACE}-b7ad6b7169203331-01",
        f"00-{TRACE}-b7ad6b7169203331-01<script>", f"{'0' * 32}-b7ad6b7169203331",
        f"{TRACE}-b7ad6b7169203331-2", "\u0660" * 32 + "-b7ad6b7169203331",
    ],
)  # fmt: skip
def test_no_other_value_names_a_trace(value):
    assert trace_of({"traceparent": value, "sentry-trace": value}) is None
    assert trace_of(None) is None


def test_the_group_of_a_redriven_message_is_a_name():
    assert fingerprint_of({GROUP_HEADER: "9c1e"}) == "9c1e"
    for value in (None, 7, "", "é", "x" * 65):
        assert fingerprint_of({GROUP_HEADER: value}) is None


def test_headers_are_changed_in_both_places():
    given = {"a": 1, "b": 2, "headers": {"a": 3, "c": 4}}
    assert changed(given, {"a"}.__contains__, {"n": 5}) == {
        "b": 2, "n": 5, "headers": {"c": 4, "n": 5},
    }  # fmt: skip
    assert given == {"a": 1, "b": 2, "headers": {"a": 3, "c": 4}}
    assert changed({"a": 1}, {"a"}.__contains__, {}) == {}


#: What a sender may put in the place of any value: deep, wide, huge, or of another type.
STRANGE = {
    "brackets": "[" * 30_000,
    "braces": '{"a":' * 30_000,
    "unfinished": '[{"number": 1',
    "huge": "x" * 2_000_000,
    "digits": "9" * 5_000,
    "digits in a list": "[" + "9" * 5_000 + "]",
    "surrogates": "\ud800",
    "NUL": "\x00",
    "blanks": " ",
    "bytes": b"\xff",
    "number": 10**400,
    "negative": -1,
    "fraction": 1.5,
    "not a number": float("nan"),
    "true": True,
    "list": [1],
    "table": {"a": 1},
    "table as text": '{"number": 1}',
    "wrong attempts": '[null, 7, [], {}, {"number": "x"}, {"failed_at": [], "verdict": 1}]',
}
READERS = (
    release_of, sending_of, redrive_of, first_failure_of, free_runs, letter_of, circuit_of,
    attempt_number, read_attempts,
)  # fmt: skip


class Lying(str):
    """A text whose every method raises."""

    def __len__(self):
        raise MemoryError

    strip = rpartition = isascii = __len__


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_raises_whatever_a_header_holds(reader):
    for name, value in {**STRANGE, "lying": Lying()}.items():
        headers = dict.fromkeys((*OURS, "retries"), value)
        try:
            answers = reader(headers), reader(dict(headers))
        except Exception as error:
            raise AssertionError(f"{reader.__name__} raises about {name}") from error
        assert answers[0] == answers[1], name


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_strange_headers_have_no_history_and_count_as_the_first_run(value):
    headers = dict.fromkeys((*OURS, "retries"), value)
    assert read_attempts(headers) == ()
    assert (redrive_of(headers), free_runs(headers), release_of(headers)) == (0, 0, None)
    assert first_failure_of(headers) is None
    assert 1 <= attempt_number(headers) <= COUNT_LIMIT


@pytest.mark.parametrize("reader", READERS)
def test_headers_that_are_not_a_table_are_empty(reader):
    for given in (None, {}, "text", 7, [1], b"x"):
        assert reader(given) == reader({}), given


WRITTEN = {
    "number": 1, "redrive": 0, "failed_at": "2026-01-01T00:00:00+00:00", "exception_type": "ValueError",
    "message": "no", "verdict": "transient", "rule": "x", "delay_s": 1.0, "worker": "w", "pid": 1,
    "evidence": "", "path": "",
}  # fmt: skip
BROKEN = [
    {"number": "1"}, {"number": -1}, {"number": 2**31}, {"number": True}, {"redrive": 1.5},
    {"failed_at": "2026-01-01T00:00:00"}, {"failed_at": "0001-01-01T00:00:00+14:00"}, {"failed_at": 7},
    {"exception_type": None}, {"message": ["a"]}, {"message": None}, {"rule": 5}, {"worker": {}},
    {"verdict": "maybe"}, {"delay_s": "1"}, {"delay_s": float("inf")}, {"delay_s": 10**400},
    {"pid": "a"}, {"pid": 2**40}, {"evidence": 1}, {"path": 1}, {"unknown": 1},
]  # fmt: skip


@pytest.mark.parametrize("change", BROKEN, ids=str)
def test_an_attempt_with_a_value_of_another_type_does_not_cost_the_others(change):
    text = json.dumps([WRITTEN, {**WRITTEN, **change}, {**WRITTEN, "number": 2}])
    kept = read_attempts({ATTEMPTS_HEADER: text})
    numbers = [attempt.number for attempt in kept]
    if change == {"failed_at": "2026-01-01T00:00:00"}:
        numbers.remove(1)  # a time without a zone is one of this machine's, and can be compared
    assert numbers == [1, 2]
    assert all(attempt.failed_at.tzinfo is timezone.utc for attempt in kept)


def test_very_many_attempts_are_cut_and_their_texts_too():
    text = json.dumps([{**WRITTEN, "number": n, "message": "x" * 2_000} for n in range(1, 100)])
    kept = read_attempts({ATTEMPTS_HEADER: text})
    assert [kept[0].number, kept[1].number, kept[-1].number] == [1, 81, 99]
    assert max(len(attempt.message) for attempt in kept) == ATTEMPT_MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("retries", "number"),
    [(None, 1), (0, 1), (2, 3), (-5, 1), (True, 1), ("2", 1), (1.0, 1), (10**400, COUNT_LIMIT)],
)
def test_celerys_retries_say_which_attempt_it_is(retries, number):
    assert attempt_number({"retries": retries}) == number


def test_all_our_headers_are_read_in_one_place():
    """Elsewhere they are written, and looked for; a look at the value may meet anything."""
    root = Path(headers.__file__).parent
    reads = re.compile(r"(\.get\(|\[)\s*(\w+_HEADER\b|[\"']x-dlq)(?!\] = )")
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        if path.name != "headers.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if reads.search(line)
    ]
    assert found == []

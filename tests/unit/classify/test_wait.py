from collections import UserDict
from datetime import datetime, timedelta, timezone
from email.message import Message
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from celery_dlq.classify.wait import headers, retry_after, seconds_until

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


class Throttled(Exception):
    def __init__(self, **attributes):
        super().__init__("slow down")
        self.__dict__.update(attributes)


def throttled(container):
    return Throttled(response=SimpleNamespace(headers=container))


def wait_s(exc):
    wait = retry_after(exc)
    return None if wait is None else seconds_until(wait, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        (" 30 ", 30.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("Sat, 21 Nov 2026 12:01:30 GMT", 90.0),
        ("Saturday, 21-Nov-26 12:00:10 GMT", 10.0),
        ("Sat Nov 21 12:00:05 2026", 5.0),
        ("Sat, 21 Nov 2026 14:00:20 +0200", 20.0),
        ("Fri, 01 Jan 1999 00:00:00 GMT", 0.0),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("99999999999", None),
        ("9" * 5000, None),
        ("³", None),
        ("soon", None),
        ("", None),
        ("Sat, 99 Foo 2026 12:00:00 GMT", None),
        ("Sat, 21 Nov 99999 12:00:00 GMT", None),
    ],
)
def test_header_values(text, seconds):
    assert wait_s(throttled({"Retry-After": text})) == seconds


def test_milliseconds_come_first():
    assert wait_s(throttled({"Retry-After": "9", "retry-after-ms": "250"})) == 0.25
    assert wait_s(throttled({"Retry-After": "9", "x-ms-retry-after-ms": "1500"})) == 1.5
    assert wait_s(throttled({"Retry-After": "9", "retry-after-ms": "soon"})) == 9.0


def _message():
    container = Message()
    container["Retry-After"] = "7"
    return container


class Raising(UserDict):
    def items(self):
        raise SystemExit


@pytest.mark.parametrize(
    ("container", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"RETRY-AFTER": "7"}, 7.0),
        ({b"Retry-After": b"7"}, 7.0),
        ({"Retry-After": ["7", "8"]}, 7.0),
        ({"Retry-After": 7}, None),
        ({7: "7", None: None, "Retry-After": "7"}, 7.0),
        ([("x", "y"), ("Retry-After", "7")], 7.0),
        ([(b"retry-after", b"7")], 7.0),
        (UserDict({"Retry-After": "7"}), 7.0),
        (_message(), 7.0),
        ([("Retry-After",)], None),
        (["Retry-After"], None),
        ("Retry-After: 7", None),
        (7, None),
        (None, None),
        (MagicMock(), None),
        (Raising({"Retry-After": "7"}), None),
        ({}, None),
    ],
)
def test_header_containers(container, seconds):
    assert wait_s(throttled(container)) == seconds
    assert wait_s(Throttled(headers=container)) == seconds


def test_header_containers_of_libraries():
    requests = pytest.importorskip("requests")
    urllib3 = pytest.importorskip("urllib3")
    httpx = pytest.importorskip("httpx")
    for kind in (requests.structures.CaseInsensitiveDict, urllib3.HTTPHeaderDict, httpx.Headers):
        assert wait_s(throttled(kind({"Retry-After": "7"}))) == 7.0


def test_header_containers_of_aiohttp():
    multidict = pytest.importorskip("multidict")
    container = multidict.CIMultiDict([("Retry-After", "7"), ("Retry-After", "8")])
    assert wait_s(throttled(container)) == 7.0


def test_an_endless_container_is_left_after_a_while():
    def endless():
        while True:
            yield ("x", "y")

    assert wait_s(throttled(endless())) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (30, 30.0),
        (0, 0.0),
        (2.5, 2.5),
        ("12", 12.0),
        (timedelta(minutes=2), 120.0),
        (datetime(2026, 11, 21, 12, 0, 4, tzinfo=timezone.utc), 4.0),
        (NOW.replace(second=4, tzinfo=None), 4.0),
        (datetime(1999, 1, 1, tzinfo=timezone.utc), 0.0),
        (True, None),
        (-1, None),
        (timedelta(seconds=-1), None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))), None),
        (MagicMock(), None),
        (object(), None),
        (None, None),
    ],
)
def test_the_attribute(value, seconds):
    assert wait_s(Throttled(retry_after=value)) == seconds


def test_headers_come_before_the_attribute():
    assert wait_s(Throttled(headers={"Retry-After": "3"}, retry_after=30)) == 3.0


def test_headers_have_lower_case_names_and_text_values():
    exc = throttled({"X-RateLimit-Remaining": "0", b"Date": b"now", 1: 2})
    assert headers(exc) == {"x-ratelimit-remaining": "0", "date": "now"}

import math
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
        ({"Retry-After": 7}, 7.0),
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


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("retry_after_s", 1500.0),
        ("retry_after_seconds", 1500.0),
        ("retryAfter", 1500.0),
        ("retry_after_ms", 1.5),
        ("retryAfterMs", 1.5),
        ("retry_after_minutes", None),
        ("retry_afterwards", None),
    ],
)
def test_the_attribute_may_have_a_unit_in_its_name(name, seconds):
    assert wait_s(Throttled(**{name: 1500})) == seconds


def test_a_time_needs_no_unit():
    moment = NOW + timedelta(seconds=7)
    assert wait_s(Throttled(retry_after_ms=moment)) == 7.0


def test_headers_come_before_the_attribute():
    assert wait_s(Throttled(headers={"Retry-After": "3"}, retry_after=30)) == 3.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(7, 7.0), (2.5, 2.5), (0, 0.0), (-1, None), (math.nan, None), (math.inf, None), (True, None)],
)
def test_headers_that_are_numbers(value, seconds):
    assert wait_s(throttled({"Retry-After": value})) == seconds


def test_a_number_too_long_to_print_spares_the_headers_beside_it():
    assert wait_s(throttled({"x": 10**5_000, "Retry-After": 7})) == 7.0


def test_a_header_that_came_twice_counts_once():
    assert wait_s(throttled({"Retry-After": "7, 9"})) == 7.0
    assert wait_s(throttled({"Retry-After": "7, soon"})) is None


EPOCH = str(int(NOW.timestamp()) + 42)


@pytest.mark.parametrize(
    ("container", "seconds"),
    [
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": EPOCH}, 42.0),
        ({"x-rate-limit-remaining": "0", "x-rate-limit-reset": EPOCH}, 42.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "1.25"}, 1.25),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": EPOCH, "Retry-After": "3"}, 3.0),
        ({"X-RateLimit-Remaining": "9", "X-RateLimit-Reset": EPOCH}, None),
        ({"X-RateLimit-Reset": EPOCH}, None),
        # Seconds for one vendor, milliseconds for another: not to be guessed.
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "42"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": EPOCH + "000"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1m30s"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "-1"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0999999999"}, None),
    ],
)
def test_a_rate_limit_that_is_used_up_ends_where_the_vendor_says_so(container, seconds):
    assert wait_s(throttled(container)) == seconds


def test_headers_in_other_places():
    aws = {"ResponseMetadata": {"HTTPHeaders": {"retry-after": "7"}}}
    assert wait_s(Throttled(response=aws)) == 7.0
    assert wait_s(Throttled(response={"ResponseMetadata": {"HTTPHeaders": "retry-after"}})) is None
    assert wait_s(Throttled(meta=SimpleNamespace(headers={"retry-after": "7"}))) == 7.0
    assert wait_s(Throttled(resp={"retry-after": "7", "status": "429"})) == 7.0
    assert (
        wait_s(Throttled(response=SimpleNamespace(headers={}), headers={"retry-after": "7"})) == 7.0
    )


def test_details_of_google_api_core():
    def detail(**parts):
        return SimpleNamespace(retry_delay=SimpleNamespace(**parts))

    assert wait_s(Throttled(details=[object(), detail(seconds=3, nanos=500_000_000)])) == 3.5
    assert wait_s(Throttled(details=[SimpleNamespace(retry_delay=timedelta(seconds=2))])) == 2.0
    assert wait_s(Throttled(details=[detail(seconds=-3, nanos=0)])) is None
    assert wait_s(Throttled(details=[detail(seconds=10**400, nanos=0)])) is None
    assert wait_s(Throttled(details=[MagicMock()])) is None
    assert wait_s(Throttled(details="retry_delay")) is None


class Call(Throttled):
    def __init__(self, *trailers):
        super().__init__()
        self.trailers = trailers

    def trailing_metadata(self):
        return self.trailers


RETRY_INFO = (
    b"\x08\x08\x12\x04busy\x1a\x32\n(type.googleapis.com/google.rpc.RetryInfo"
    b"\x12\x06\n\x04\x08\x05\x10\x07"
)


@pytest.mark.parametrize(
    ("trailer", "seconds"),
    [
        (("grpc-retry-pushback-ms", "1500"), 1.5),
        (("grpc-retry-pushback-ms", "-1"), None),
        (("grpc-status-details-bin", RETRY_INFO), 5.000000007),
        (("grpc-status-details-bin", RETRY_INFO[:20]), None),
        (("grpc-status-details-bin", "text"), None),
    ],
)
def test_trailers_of_grpc(trailer, seconds):
    pytest.importorskip("google.rpc.status_pb2")
    pytest.importorskip("google.rpc.error_details_pb2")
    assert wait_s(Call(("x", "y"), trailer)) == seconds
    assert wait_s(Throttled(response=Call(trailer))) == seconds


def test_headers_have_lower_case_names_and_text_values():
    exc = throttled({"X-RateLimit-Remaining": "0", b"Date": b"now", 1: 2})
    assert headers(exc) == {"x-ratelimit-remaining": "0", "date": "now"}

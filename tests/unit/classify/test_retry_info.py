import sys

import pytest

from celery_dlq.classify.wait import retry_delay

status_pb2 = pytest.importorskip("google.rpc.status_pb2")
error_details_pb2 = pytest.importorskip("google.rpc.error_details_pb2")


def status(*details):
    found = status_pb2.Status(code=8, message="busy")
    for detail in details:
        found.details.add().Pack(detail)
    return found.SerializeToString()


def retry_info(seconds=0, nanos=0):
    info = error_details_pb2.RetryInfo()
    info.retry_delay.seconds, info.retry_delay.nanos = seconds, nanos
    return info


HELP = error_details_pb2.Help()


def test_seconds_and_nanoseconds():
    assert retry_delay(status(retry_info(30))) == 30.0
    assert retry_delay(status(HELP, retry_info(1, 500_000_000))) == 1.5
    assert retry_delay(status(retry_info())) == 0.0
    assert retry_delay(status(retry_info(-30))) == -30.0


def test_no_retry_info():
    assert retry_delay(b"") is None
    assert retry_delay(status()) is None
    assert retry_delay(status(HELP)) is None


def test_garbage():
    whole = status(retry_info(30))
    for end in range(1, len(whole)):
        assert retry_delay(whole[:end]) in (None, 0.0)
    assert retry_delay(b"\xff" * 20) is None
    assert retry_delay(whole + bytes(20_000)) is None


def test_nothing_is_imported(monkeypatch):
    whole = status(retry_info(30))
    monkeypatch.delitem(sys.modules, "google.rpc.error_details_pb2")
    assert retry_delay(whole) is None
    assert "google.rpc.error_details_pb2" not in sys.modules

"""What a breaker hears of a request's end."""

from types import SimpleNamespace

from celery_dlq.worker.admission.watched import WatchedRequest


def test_a_breaker_that_fails_keeps_no_end_from_being_recorded(caplog):
    request = SimpleNamespace(
        _dlq_told=False, type="shop.charge", name="shop.charge", id="0d3f",
        task=SimpleNamespace(dlq=None), _verdict_on=lambda _einfo, _exc: None,
    )  # fmt: skip

    WatchedRequest._tell_breaker(request, None, ValueError("no currency"))

    assert "did not hear of the end of shop.charge[0d3f]" in caplog.text

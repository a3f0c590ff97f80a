"""What a breaker hears of a request's end."""

from types import SimpleNamespace

from celery_dlq.worker.request.breaker_watch import report_to_breaker
from celery_dlq.worker.run_end import UNREPORTED


def test_a_breaker_that_fails_keeps_no_end_from_being_recorded(caplog):
    request = SimpleNamespace(
        _dlq_reported=False, type="shop.charge", name="shop.charge", id="0d3f",
        task=SimpleNamespace(_makes_letters=True),
    )  # fmt: skip

    report_to_breaker(request, UNREPORTED, ValueError("no currency"))

    assert "the end of shop.charge[0d3f] was not reported to the breaker" in caplog.text

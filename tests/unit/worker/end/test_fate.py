"""What Celery does with a message after its run has died, by the task's options and the exception."""

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry

from celery_dlq.model.states import Reason
from celery_dlq.worker.end import fate
from celery_dlq.worker.end.fate import Fate, fate_of, is_bystander, is_of_run

LATE = {"acks_late": True, "reject_on_worker_lost": True}
LOST, SLOW = WorkerLostError("signal 9"), TimeLimitExceeded(5)


def request(*, success=False, acknowledged=False, cancelled=False, retries=0, **options):
    """A worker's Request, as far as its fate depends on it."""
    task = {
        "acks_late": False, "reject_on_worker_lost": False, "max_retries": 3,
        "acks_on_failure_or_timeout": True, **options,
    }  # fmt: skip
    return SimpleNamespace(
        id="4711", name="shop.charge", type="shop.charge", task=SimpleNamespace(**task),
        acknowledged=acknowledged, request_dict={"retries": retries}, ignore_result=False,
        _already_cancelled=cancelled, _already_revoked=False, _terminate_on_ack=None,
        _success_was_stored=lambda: success,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (ValueError("bad"), Reason.TERMINAL),
        (Reject("no", requeue=False), Reason.REJECTED),
        (LOST, Reason.POISON),
        (SystemExit(1), Reason.POISON),
        (SLOW, Reason.TIMEOUT),
        (Retry("later"), Fate.SETTLED),
        (Ignore(), Fate.SETTLED),
        (Terminated(15), Fate.SETTLED),
        (Reject("later", requeue=True), Fate.GOES_BACK),
    ],
)
def test_each_way_to_die_has_its_reason(exc, reason):
    assert fate_of(request(), exc) is reason


def test_a_message_that_is_acknowledged_cannot_be_requeued():
    assert fate_of(request(acknowledged=True), Reject(requeue=True)) is Reason.REJECTED


@pytest.mark.parametrize("ended", [{"cancelled": True}, {"success": True}])
def test_a_lost_process_whose_run_was_cancelled_or_had_succeeded_is_not_a_death(ended):
    assert fate_of(request(**ended), LOST) is Fate.SETTLED


@pytest.mark.parametrize(("retries", "reason"), [(2, Fate.SETTLED), (3, Reason.POISON)])
def test_a_lost_process_is_retried_as_often_as_the_task_allows(retries, reason):
    lost = request(retries=retries, retry_on_worker_lost=True)
    assert fate_of(lost, LOST) is reason


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"acks_late": True, "acks_on_failure_or_timeout": False}, Fate.GOES_BACK),
        ({"acks_late": True, "acks_on_timeout": False}, Fate.GOES_BACK),
        ({"acks_late": True, "acks_on_timeout": True}, Reason.TIMEOUT),
        ({"acks_on_timeout": False}, Reason.TIMEOUT),
    ],
)
def test_a_time_limit_may_requeue(options, reason):
    assert fate_of(request(**options), SLOW) is reason


def test_the_message_of_a_lost_process_goes_back_if_the_task_says_so():
    assert fate_of(request(**LATE), LOST) is Fate.GOES_BACK
    assert fate_of(request(acks_late=True), LOST) is Reason.POISON
    assert fate_of(request(**LATE, retry_on_worker_lost=True), LOST) is Fate.SETTLED


@pytest.mark.parametrize("exc", [LOST, SLOW, Reject("later", requeue=True)])
def test_the_message_of_a_cancelled_run_does_not_go_back(exc):
    cancelled = request(**LATE, acks_on_failure_or_timeout=False, cancelled=True)
    assert fate_of(cancelled, exc) is Fate.SETTLED


def test_a_message_that_is_acknowledged_does_not_go_back():
    assert fate_of(request(**LATE, acknowledged=True), LOST) is Reason.POISON
    late = request(acks_late=True, acks_on_failure_or_timeout=False, acknowledged=True)
    assert fate_of(late, SLOW) is Fate.SETTLED


@pytest.mark.parametrize("kept", [True, False])
def test_a_stored_success_goes_back_before_celery_5_7_only(kept, monkeypatch):
    monkeypatch.setattr(fate, "_SUCCESS_IS_KEPT", kept)
    kept_back = Fate.SETTLED if kept else Fate.GOES_BACK
    assert fate_of(request(**LATE, success=True), LOST) is kept_back


def test_an_ordinary_exception_does_not_send_its_message_back():
    assert fate_of(request(**LATE), ValueError("bad")) is Reason.TERMINAL


def test_a_bystander_is_neither_cancelled_nor_revoked(monkeypatch):
    assert is_bystander(request())
    assert not is_bystander(request(cancelled=True))
    monkeypatch.setattr(fate, "revoked_tasks", {"4711"})
    assert not is_bystander(request())


BEGAN = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("ended_at", "of_run"),
    [
        (BEGAN + timedelta(seconds=1), True),
        ((BEGAN + timedelta(seconds=1)).isoformat(), True),
        (BEGAN.replace(tzinfo=None) + timedelta(hours=1), True),  # Central European Time
        (BEGAN - timedelta(seconds=0.9), True),  # the database keeps whole seconds
        (BEGAN - timedelta(minutes=1), False),
        ((BEGAN - timedelta(minutes=1)).isoformat(), False),
        (BEGAN.replace(tzinfo=None) + timedelta(minutes=59), False),
        (None, True),
        ("yesterday", True),
    ],
)
def test_a_result_is_of_the_run_unless_it_is_older(ended_at, of_run):
    app = SimpleNamespace(timezone=ZoneInfo("Europe/Berlin"))
    assert is_of_run({"date_done": ended_at}, BEGAN, app) is of_run

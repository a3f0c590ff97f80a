"""The gate between a consumer and its pool; the requests are Celery's, the pool keeps what it is given."""

import threading
from types import SimpleNamespace

import pytest
from billiard.einfo import ExceptionInfo
from celery import Celery, Task
from celery.exceptions import Ignore, Retry
from celery.worker import state
from celery.worker.request import Request, create_request_cls
from kombu.common import QoS
from support.clock import Clock
from support.factories import T0, letter

from celery_dlq import DLQTask, Reason
from celery_dlq.model.letter import Outcome
from celery_dlq.worker.admission.brake import Brake, Limits
from celery_dlq.worker.admission.gate import HELD_BYTES, OF_A_RUN, Gate, announce
from celery_dlq.worker.admission.pipeline import Admission
from celery_dlq.worker.body.ending import RunEnd, report
from celery_dlq.worker.request.request import DLQRequest

LIMITS = Limits(failures=2, window_s=60, pause_s=30, pause_max_s=120)
PREFETCH = 4


class Timer:
    def __init__(self):
        self.running = []

    def call_repeatedly(self, _seconds, tick):
        self.running.append(tick)
        return SimpleNamespace(cancel=lambda: self.running.remove(tick))


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)

    def body(): ...

    for name, base in (("charge", DLQTask), ("mail", DLQTask), ("plain", Task)):
        app.task(body, base=base, name=name, shared=False)
    app.finalize()
    return app


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def consumer():
    """As much of a consumer as the gate looks at; ``ran`` is what reached the pool."""
    ran = []
    channel = SimpleNamespace(visibility_timeout=None)
    return SimpleNamespace(
        ran=ran,
        on_task_request=lambda request: ran.append(request.id),
        qos=QoS(lambda **_: None, PREFETCH),
        timer=Timer(),
        channel=channel,
        connection=SimpleNamespace(default_channel=channel),
    )


@pytest.fixture
def full():
    """Set while the writer is full."""
    return threading.Event()


@pytest.fixture
def gate(consumer, clock, full):
    gate = Gate(
        Brake(LIMITS, announce, clock), full.is_set, spare=3, hold_s=600, monotonic=clock
    )  # fmt: skip
    Admission([gate]).join(consumer, consumer.on_task_request)
    gate.start()
    yield gate
    gate.stop()


@pytest.fixture
def deliver(app, consumer):
    """A message of a task arrives; its request, with what was acknowledged or rejected on it."""
    made = []

    def deliver(number, task="charge", body=b"[[], {}, {}]", **headers):
        registered, done = app.tasks[task], []
        base = DLQRequest if isinstance(registered, DLQTask) else Request
        pool = SimpleNamespace(apply_async=None)
        cls = create_request_cls(base, registered, pool, "w@host", None, app=app)
        message = SimpleNamespace(
            headers={"id": f"m{number}", "task": task, **headers},
            body=body, payload=([], {}, {}), content_type="application/json",
            content_encoding="utf-8", properties={}, delivery_info={"redelivered": False},
        )  # fmt: skip
        request = cls(
            message, app=app, task=registered, hostname="w@host",
            on_ack=lambda *_: done.append("ack"), on_reject=lambda *a: done.append(f"reject {a[-1]}"),
        )  # fmt: skip
        request.done = done
        made.append(request)
        state.task_reserved(request)
        consumer.on_task_request(request)
        return request

    yield deliver
    for request in made:
        state.task_ready(request)
        state.revoked.discard(request.id)


@pytest.fixture
def braked(gate):
    for _ in range(LIMITS.failures):
        gate.note(letter(task="charge"))


def test_what_is_well_goes_straight_to_the_pool(gate, deliver, consumer):
    deliver(1)
    deliver(2, "plain")
    assert consumer.ran == ["m1", "m2"]


def test_a_braked_tasks_messages_are_held_unacknowledged(gate, braked, deliver, consumer):
    request = deliver(1)
    assert (consumer.ran, request.done) == ([], [])
    gate.tick()
    assert consumer.ran == [], "the pause is not over"
    assert state.requests["m1"] is request, "celery inspect reserved shows it"


def test_other_tasks_run_on(gate, braked, deliver, consumer):
    deliver(1)
    deliver(2, "mail")
    deliver(3, "plain")
    assert consumer.ran == ["m2", "m3"]


def test_the_prefetch_limit_makes_room_for_other_tasks_up_to_the_spare(
    gate, braked, deliver, consumer
):
    for number in range(10):
        deliver(number)
    assert consumer.qos.value == PREFETCH + 3


def test_large_messages_get_no_spare_room(gate, braked, deliver, consumer):
    deliver(1, body=b"x" * HELD_BYTES)
    deliver(2)
    assert consumer.qos.value == PREFETCH + 1


def test_after_the_pause_one_message_is_tried(gate, braked, deliver, consumer, clock):
    deliver(1), deliver(2)
    clock.now += 30
    gate.tick()
    gate.tick()
    assert consumer.ran == ["m1"]


def test_a_probe_that_succeeds_lets_all_go_in_order(gate, braked, deliver, consumer, clock):
    probe, *_ = [deliver(number) for number in range(6)]
    clock.now += 30
    gate.tick()
    probe.on_success((False, 1, 0.1))
    gate.tick()
    assert consumer.ran == [f"m{number}" for number in range(6)]
    assert consumer.qos.value == PREFETCH
    deliver(7)
    assert consumer.ran[-1] == "m7"


def test_a_probe_that_dies_lengthens_the_pause(gate, braked, deliver, consumer, clock):
    deliver(1), deliver(2)
    clock.now += 30
    gate.tick()
    gate.note(letter("m1", task="charge"))
    clock.now += 59
    gate.tick()
    assert consumer.ran == ["m1"]
    clock.now += 1
    gate.tick()
    assert consumer.ran == ["m1", "m2"]


def ended(*, for_error):
    """What the pool says of a run that was retried."""
    try:
        raise Retry("retried")
    except Retry:
        einfo = ExceptionInfo()
    report(einfo, RunEnd(retried=True, for_error=for_error))
    return True, einfo, 0.1


def test_runs_that_are_retried_for_an_error_are_failures(gate, deliver, consumer):
    for number in range(LIMITS.failures):
        deliver(number).on_success(ended(for_error=True))
    deliver(9)
    assert consumer.ran == ["m0", "m1"]


def test_a_body_that_looks_again_later_has_not_failed(gate, deliver, consumer):
    for number in range(LIMITS.failures):
        deliver(number).on_success(ended(for_error=False))
    deliver(9)
    assert consumer.ran == ["m0", "m1", "m9"]


def test_a_probe_that_is_retried_for_an_error_lengthens_the_pause(
    gate, braked, deliver, consumer, clock
):
    probe, _ = deliver(1), deliver(2)
    clock.now += 30
    gate.tick()
    probe.on_success(ended(for_error=True))
    clock.now += 59
    gate.tick()
    assert consumer.ran == ["m1"]
    clock.now += 1
    gate.tick()
    assert consumer.ran == ["m1", "m2"]


def test_a_probe_that_is_over_without_a_word_is_followed_by_another(
    gate, braked, deliver, consumer, clock
):
    probe, _ = deliver(1), deliver(2)
    clock.now += 30
    gate.tick()
    state.task_ready(probe)
    gate.tick()
    assert consumer.ran == ["m1"]
    clock.now += 30
    gate.tick()
    assert consumer.ran == ["m1", "m2"]


def test_any_success_of_the_task_releases_it(gate, deliver, consumer):
    early = deliver(1)
    for _ in range(LIMITS.failures):
        gate.note(letter(task="charge"))
    deliver(2)
    early.on_success((False, 1, 0.1))
    gate.tick()
    assert consumer.ran == ["m1", "m2"]


def test_a_failure_that_the_pool_hands_over_as_a_result_is_no_success(gate, braked, deliver):
    try:
        raise Ignore
    except Ignore:
        deliver(1).on_success((True, ExceptionInfo(), 0.1))
    assert "charge" in gate.status()["braked"]


def test_an_outcome_or_a_letter_of_a_task_that_did_not_run_does_not_count(gate):
    gate.note(Outcome(task_id="m", redrive=1, succeeded_at=T0, worker="w"))
    for reason in (Reason.MALFORMED, Reason.UNKNOWN_TASK, Reason.CANCELLED, Reason.INGESTED):
        gate.note(letter(task="charge", reason=reason))
    assert gate.status()["braked"] == {}


def test_what_waits_too_long_goes_back_to_the_broker(gate, braked, deliver, consumer, clock, full):
    full.set()  # or else it would be tried
    request = deliver(1)
    clock.now += 601
    gate.tick()
    assert request.done == ["reject True"]
    assert consumer.ran == []
    assert "m1" not in state.requests
    assert consumer.qos.value == PREFETCH


def test_it_goes_back_well_before_the_visibility_timeout(
    gate, braked, deliver, consumer, clock, full
):
    consumer.channel.visibility_timeout = 60
    gate.start()
    full.set()
    request = deliver(1)
    clock.now += 29
    gate.tick()
    assert request.done == []
    clock.now += 2
    gate.tick()
    assert request.done == ["reject True"]
    gate.stop()


def test_a_revoked_message_is_left_to_celery_at_once(gate, braked, deliver, consumer):
    deliver(1), deliver(2)
    state.revoked.add("m2")
    gate.tick()
    assert consumer.ran == ["m2"], "Celery discards it instead of running it"


def test_an_expired_message_is_left_to_celery_at_once(gate, braked, deliver, consumer):
    deliver(1, expires="2020-01-01T00:00:00+00:00")
    gate.tick()
    assert consumer.ran == ["m1"]


def test_a_lost_connection_forgets_what_the_broker_will_deliver_again(
    gate, braked, deliver, consumer, clock
):
    request = deliver(1)
    consumer.connection = None
    clock.now += 30
    gate.tick()
    assert consumer.ran == []
    gate.stop()
    consumer.connection = SimpleNamespace(default_channel=consumer.channel)
    gate.start()
    gate.tick()
    assert (consumer.ran, request.done) == ([], [])
    deliver(2)
    gate.tick()
    assert consumer.ran == ["m2"], "still braked, and the pause is over"


def test_after_a_probe_that_a_lost_connection_has_ended_there_is_another_one(
    gate, braked, deliver, consumer, clock
):
    deliver(1)
    clock.now += 30
    gate.tick()
    assert consumer.ran == ["m1"]
    gate.stop()
    state.reserved_requests.clear()  # as Celery does
    gate.start()
    deliver(2)
    gate.tick()
    clock.now += 30
    gate.tick()
    assert consumer.ran == ["m1", "m2"]


def test_nothing_starts_while_the_writer_is_full(gate, deliver, consumer, full):
    full.set()
    deliver(1)
    deliver(2, "plain")
    assert consumer.ran == ["m2"]
    assert consumer.qos.value == PREFETCH, "the broker is to keep the rest"
    gate.tick()
    assert consumer.ran == ["m2"]
    full.clear()
    gate.tick()
    assert consumer.ran == ["m2", "m1"]


def test_without_a_brake_successes_are_not_watched(consumer, deliver):
    gate = Gate(None, lambda: False, spare=3, hold_s=600)
    Admission([gate]).join(consumer, consumer.on_task_request)
    assert "on_success" not in vars(deliver(1))


def test_a_gate_that_fails_lets_everything_through(gate, deliver, consumer, caplog, monkeypatch):
    monkeypatch.setattr(gate, "_is_full", lambda: 1 / 0)
    deliver(1)
    gate.tick()
    assert consumer.ran == ["m1"]
    assert "ZeroDivisionError" in caplog.text


def test_the_timer_ends_with_the_connection(gate, consumer):
    assert consumer.timer.running == [gate.tick]
    gate.stop()
    assert consumer.timer.running == []
    gate.start()


def test_the_log_says_when_it_engages_and_releases(gate, deliver, clock, caplog):
    caplog.set_level("INFO")
    for _ in range(LIMITS.failures):
        gate.note(letter(task="charge"))
    probe = deliver(1)
    clock.now += 30
    gate.tick()
    gate.note(letter(task="charge"))
    probe.on_success((False, 1, 0.1))
    said = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert said == [
        ("WARNING", "brake on for charge: 2 failed runs and no success; its messages are held, "
                    "one is tried in 30 s"),
        ("WARNING", "brake still on for charge: probe 1 failed, the next is in 60 s"),
        ("INFO", "brake released for charge: it has succeeded, after 30 s (failed runs: 3, probes: 1)"),
    ]  # fmt: skip


def test_each_reason_counts_as_a_failed_run_or_is_known_not_to():
    of_no_run = {
        Reason.CANCELLED, Reason.LOST, Reason.UNKNOWN_TASK, Reason.MALFORMED, Reason.INGESTED,
        Reason.PARKED,
    }  # fmt: skip
    assert set(Reason) - OF_A_RUN == of_no_run

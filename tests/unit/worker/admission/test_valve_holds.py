"""The valve between a consumer and its pool holds messages; the requests are Celery's, the pool keeps what it
is given."""

import threading
import time
from functools import partial
from inspect import signature
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
from celery_dlq.worker.admission import Admission
from celery_dlq.worker.admission import valve as module
from celery_dlq.worker.admission.valve import OF_A_RUN, SPARE_BYTES, Valve
from celery_dlq.worker.body.ending import RunEnd
from celery_dlq.worker.body.report import report
from celery_dlq.worker.end.request import DLQRequest

STREAK, SPARE, PREFETCH = 2, 3, 4


class Timer:
    def __init__(self):
        self.running = []

    def call_repeatedly(self, _seconds, tick):
        self.running.append(tick)
        return SimpleNamespace(cancel=lambda: self.running.remove(tick))


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.dlq_breaker_streak = STREAK

    def body(): ...

    for name, base in (("charge", DLQTask), ("mail", DLQTask), ("plain", Task)):
        app.task(body, base=base, name=name, shared=False)
    app.finalize()
    return app


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def consumer(app):
    """As much of a consumer as the valve looks at; ``ran`` is what reached the pool."""
    ran = []
    channel = SimpleNamespace(visibility_timeout=None)
    return SimpleNamespace(
        app=app,
        ran=ran,
        on_task_request=lambda request: ran.append(request.id),
        qos=QoS(lambda **_: None, PREFETCH),
        timer=Timer(),
        channel=channel,
        connection=SimpleNamespace(default_channel=channel),
        controller=SimpleNamespace(),
    )


def new_valve(is_full=lambda: False, monotonic=time.monotonic):
    """One without a store."""
    return Valve(None, None, SimpleNamespace(is_full=is_full), monotonic=monotonic)


@pytest.fixture
def full():
    """Set while the writer is full."""
    return threading.Event()


@pytest.fixture
def valve(consumer, clock, full, monkeypatch):
    monkeypatch.setattr(module, "SPARE", SPARE)
    valve = new_valve(full.is_set, clock)
    Admission([valve]).join(consumer, consumer.on_task_request)
    valve.start()
    yield valve
    valve.stop()


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
def failing(valve):
    for _ in range(STREAK):
        valve.note(letter(task="charge"))


def test_what_is_well_goes_straight_to_the_pool(valve, deliver, consumer):
    deliver(1)
    deliver(2, "plain")
    assert consumer.ran == ["m1", "m2"]


def test_messages_of_a_task_that_only_fails_are_held_unacknowledged(
    valve, failing, deliver, consumer
):
    request = deliver(1)
    assert (consumer.ran, request.done) == ([], [])
    valve.look()
    assert consumer.ran == [], "the recovery time is not over"
    assert state.requests["m1"] is request, "celery inspect reserved shows it"


def test_other_tasks_run_on(valve, failing, deliver, consumer):
    deliver(1)
    deliver(2, "mail")
    deliver(3, "plain")
    assert consumer.ran == ["m2", "m3"]


def test_the_prefetch_limit_makes_room_for_other_tasks_up_to_the_spare(
    valve, failing, deliver, consumer
):
    for number in range(10):
        deliver(number)
    assert consumer.qos.value == PREFETCH + SPARE


def test_large_messages_get_no_spare_room(valve, failing, deliver, consumer):
    deliver(1, body=b"x" * SPARE_BYTES)
    deliver(2)
    assert consumer.qos.value == PREFETCH + 1


def test_after_the_recovery_time_one_message_is_tried(valve, failing, deliver, consumer, clock):
    deliver(1), deliver(2)
    clock.now += 30
    valve.look()
    valve.look()
    assert consumer.ran == ["m1"]


def test_a_probe_that_succeeds_lets_all_go_in_order(valve, failing, deliver, consumer, clock):
    probe, *_ = [deliver(number) for number in range(6)]
    clock.now += 30
    valve.look()
    probe.on_success((False, 1, 0.1))
    valve.look()
    assert consumer.ran == [f"m{number}" for number in range(6)]
    assert consumer.qos.value == PREFETCH
    deliver(7)
    assert consumer.ran[-1] == "m7"


def test_a_probe_that_dies_doubles_the_time(valve, failing, deliver, consumer, clock):
    deliver(1), deliver(2)
    clock.now += 30
    valve.look()
    valve.note(letter("m1", task="charge"))
    clock.now += 59
    valve.look()
    assert consumer.ran == ["m1"]
    clock.now += 1
    valve.look()
    assert consumer.ran == ["m1", "m2"]


def ended(*, for_error):
    """What the pool says of a run that was retried."""
    try:
        raise Retry("retried")
    except Retry:
        einfo = ExceptionInfo()
    report(einfo, RunEnd(retried=True, for_error=for_error))
    return True, einfo, 0.1


def test_runs_that_are_retried_for_an_error_are_failures(valve, deliver, consumer):
    for number in range(STREAK):
        deliver(number).on_success(ended(for_error=True))
    deliver(9)
    assert consumer.ran == ["m0", "m1"]


def test_a_body_that_looks_again_later_has_not_failed(valve, deliver, consumer):
    for number in range(STREAK):
        deliver(number).on_success(ended(for_error=False))
    deliver(9)
    assert consumer.ran == ["m0", "m1", "m9"]


def test_a_probe_that_is_retried_for_an_error_doubles_the_time(
    valve, failing, deliver, consumer, clock
):
    probe, _ = deliver(1), deliver(2)
    clock.now += 30
    valve.look()
    probe.on_success(ended(for_error=True))
    clock.now += 59
    valve.look()
    assert consumer.ran == ["m1"]
    clock.now += 1
    valve.look()
    assert consumer.ran == ["m1", "m2"]


def test_a_probe_that_is_over_without_a_word_is_followed_by_another(
    valve, failing, deliver, consumer, clock
):
    probe, _ = deliver(1), deliver(2)
    clock.now += 30
    valve.look()
    state.task_ready(probe)
    valve.look()
    assert consumer.ran == ["m1"]
    clock.now += 30
    valve.look()
    assert consumer.ran == ["m1", "m2"]


def test_any_success_of_the_task_closes_its_circuit(valve, deliver, consumer):
    early = deliver(1)
    for _ in range(STREAK):
        valve.note(letter(task="charge"))
    deliver(2)
    early.on_success((False, 1, 0.1))
    valve.look()
    assert consumer.ran == ["m1", "m2"]


def test_a_failure_that_the_pool_hands_over_as_a_result_is_no_success(valve, failing, deliver):
    try:
        raise Ignore
    except Ignore:
        deliver(1).on_success((True, ExceptionInfo(), 0.1))
    assert "charge" in valve.status()["circuits"]


def test_an_outcome_or_a_letter_of_a_task_that_did_not_run_does_not_count(valve):
    valve.note(Outcome(task_id="m", redrive=1, succeeded_at=T0, worker="w"))
    for reason in (Reason.MALFORMED, Reason.UNKNOWN_TASK, Reason.CANCELLED, Reason.INGESTED):
        valve.note(letter(task="charge", reason=reason))
    assert valve.status()["circuits"] == {}


def test_what_waits_too_long_goes_back_to_the_broker(
    valve, failing, deliver, consumer, clock, full
):
    full.set()  # or else it would be tried
    request = deliver(1)
    clock.now += 601
    valve.look()
    assert request.done == ["reject True"]
    assert consumer.ran == []
    assert "m1" not in state.requests
    assert consumer.qos.value == PREFETCH


def test_it_goes_back_well_before_the_visibility_timeout(
    valve, failing, deliver, consumer, clock, full
):
    consumer.channel.visibility_timeout = 60
    valve.start()
    full.set()
    request = deliver(1)
    clock.now += 29
    valve.look()
    assert request.done == []
    clock.now += 2
    valve.look()
    assert request.done == ["reject True"]
    valve.stop()


def test_a_revoked_message_is_left_to_celery_at_once(valve, failing, deliver, consumer):
    deliver(1), deliver(2)
    state.revoked.add("m2")
    valve.look()
    assert consumer.ran == ["m2"], "Celery discards it instead of running it"


def test_an_expired_message_is_left_to_celery_at_once(valve, failing, deliver, consumer):
    deliver(1, expires="2020-01-01T00:00:00+00:00")
    valve.look()
    assert consumer.ran == ["m1"]


def test_a_lost_connection_forgets_what_the_broker_will_deliver_again(
    valve, failing, deliver, consumer, clock
):
    request = deliver(1)
    consumer.connection = None
    clock.now += 30
    valve.look()
    assert consumer.ran == []
    valve.stop()
    consumer.connection = SimpleNamespace(default_channel=consumer.channel)
    valve.start()
    valve.look()
    assert (consumer.ran, request.done) == ([], [])
    deliver(2)
    valve.look()
    assert consumer.ran == ["m2"], "it is still open, and the recovery time is over"


def test_after_a_probe_that_a_lost_connection_has_ended_there_is_another_one(
    valve, failing, deliver, consumer, clock
):
    deliver(1)
    clock.now += 30
    valve.look()
    assert consumer.ran == ["m1"]
    valve.stop()
    state.reserved_requests.clear()  # as Celery does
    valve.start()
    deliver(2)
    valve.look()
    clock.now += 30
    valve.look()
    assert consumer.ran == ["m1", "m2"]


def test_nothing_starts_while_the_writer_is_full(valve, deliver, consumer, full):
    full.set()
    deliver(1)
    deliver(2, "plain")
    assert consumer.ran == ["m2"]
    assert consumer.qos.value == PREFETCH, "the broker is to keep the rest"
    valve.look()
    assert consumer.ran == ["m2"]
    full.clear()
    valve.look()
    assert consumer.ran == ["m2", "m1"]


def test_without_a_limit_successes_are_not_watched(app, consumer, deliver):
    app.tasks["charge"].dlq_breaker_streak = 0
    Admission([new_valve()]).join(consumer, consumer.on_task_request)
    assert "on_success" not in vars(deliver(1))
    assert "on_success" in vars(deliver(2, "mail"))


def test_a_task_has_limits_of_its_own(app, consumer, deliver, clock):
    app.tasks["charge"].dlq_breaker_streak = 1
    app.tasks["charge"].dlq_breaker_recovery = 5.0
    valve = new_valve(monotonic=clock)
    Admission([valve]).join(consumer, consumer.on_task_request)
    valve.note(letter(task="charge"))
    valve.note(letter(task="mail"))
    deliver(1), deliver(2, "mail")
    assert consumer.ran == ["m2"]
    clock.now += 5
    valve.look()
    assert consumer.ran == ["m2", "m1"]


def test_a_gate_that_fails_lets_everything_through(valve, deliver, consumer, caplog, monkeypatch):
    monkeypatch.setattr(valve, "_is_full", lambda: 1 / 0)
    deliver(1)
    valve.look()
    assert consumer.ran == ["m1"]
    assert "ZeroDivisionError" in caplog.text


def test_the_timer_ends_with_the_connection(valve, consumer):
    assert consumer.timer.running == [valve.look]
    valve.stop()
    assert consumer.timer.running == []
    valve.start()


def test_the_log_says_when_a_circuit_opens_and_closes(valve, deliver, clock, caplog):
    caplog.set_level("INFO")
    for _ in range(STREAK):
        valve.note(letter(task="charge"))
    probe = deliver(1)
    clock.now += 30
    valve.look()
    valve.note(letter(task="charge"))
    probe.on_success((False, 1, 0.1))
    said = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert said == [
        ("WARNING", "circuit of charge open in this worker: 2 failed runs and no success; its messages are "
                    "held, and one is tried in 30 s"),
        ("WARNING", "circuit of charge still open in this worker: probe 1 failed, the next is in 60 s"),
        ("INFO", "circuit of charge closed in this worker: its messages run again"),
    ]  # fmt: skip


def test_each_reason_counts_as_a_failed_run_or_is_known_not_to():
    of_no_run = {
        Reason.CANCELLED, Reason.LOST, Reason.UNKNOWN_TASK, Reason.MALFORMED, Reason.INGESTED,
        Reason.PARKED, Reason.UNSENT,
    }  # fmt: skip
    assert set(Reason) - OF_A_RUN == of_no_run


class TestRoom:
    """A message that waits for the writer takes up no place of the prefetch limit."""

    @pytest.fixture
    def qos(self):
        return QoS(lambda **_: None, 8)

    @pytest.fixture
    def valve(self, qos):
        valve = new_valve(lambda: valve.is_full)
        valve.is_full, valve._consumer = False, SimpleNamespace(qos=qos)
        return valve

    def test_another_one_comes_until_it_is_settled(self, valve, qos):
        settled = []
        first, second = (valve.make_room(partial(settled.append, number)) for number in range(2))
        assert qos.value == 10
        first()
        assert (qos.value, settled) == (9, [0])
        second()
        assert (qos.value, settled) == (8, [0, 1])

    def test_not_while_the_writer_is_full(self, valve, qos):
        valve.is_full = True
        settle = valve.make_room(lambda: None)
        assert qos.value == 8
        settle()
        assert qos.value == 8

    def test_a_limit_of_celerys_own_holds(self, valve, qos):
        if "max_prefetch" not in signature(QoS.__init__).parameters:
            pytest.skip("Celery 5.5 has no worker_eta_task_limit")
        qos.max_prefetch = 8
        settle = valve.make_room(lambda: None)
        assert qos.value == 8
        settle()
        assert qos.value == 8

    def test_after_a_lost_connection_the_new_limit_stays(self, valve, qos):
        settle = valve.make_room(lambda: None)
        valve._consumer.qos = QoS(lambda **_: None, 8)
        settle()
        assert (valve._consumer.qos.value, qos.value) == (8, 8)

"""Before the pool: the requests are Celery's, the store is a dictionary with a clock, the pool keeps what
it is given."""

import logging

import pytest
from celery.exceptions import TimeLimitExceeded
from celery.worker import state
from support.factories import attempt
from support.workers.with_breaker import FAILURES, RECOVERY_S, Worker

from celery_dlq import Reason, State
from celery_dlq.model.headers import (
    ATTEMPTS_HEADER,
    CIRCUIT_HEADER,
    FREE_HEADER,
    REDRIVE_HEADER,
    RELEASE_HEADER,
)
from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Circuit, CircuitState
from celery_dlq.retry import BreakerLimits
from celery_dlq.worker.admission.circuits import AT_ONCE, SharedCircuits
from celery_dlq.worker.admission.valve import IDLE_TICKS, QUIET_TICKS
from celery_dlq.worker.body.ending import UNREPORTED
from celery_dlq.worker.end.closing import report_to_valve
from celery_dlq.worker.failure import write_attempts


def test_without_a_breaker_nothing_stands_before_the_pool(app, world):
    app.tasks["charge"].dlq_breaker_failures = app.tasks["keyed"].dlq_breaker_failures = 0
    worker = Worker(app, world)
    worker.deliver(1)
    worker.tick()
    assert (worker.ran, world.asked) == (["m1"], 0)


def test_closed_circuits_ask_for_nothing_but_once_a_second(worker, world):
    for number in range(50):
        worker.deliver(number)
    assert (len(worker.ran), world.asked) == (50, 1)
    worker.tick()
    assert world.asked == 2


def test_a_worker_without_messages_asks_less_often(worker, world):
    for _ in range(QUIET_TICKS):
        worker.tick()
    asked = world.asked
    for _ in range(5 * IDLE_TICKS):
        worker.tick()
    assert world.asked == asked + 5


def test_the_first_message_after_a_quiet_time_makes_it_ask_at_once(app, world, worker):
    for _ in range(QUIET_TICKS + 2):
        worker.tick()
    Worker(app, world).open()
    worker.deliver(1)
    assert worker.parked == ["m1"]


def test_a_worker_that_knows_of_an_open_circuit_asks_in_each_tick(worker, world):
    worker.open()
    asked = world.asked
    for _ in range(3 * QUIET_TICKS):
        worker.tick()
    assert world.asked == asked + 3 * QUIET_TICKS


def test_at_the_limit_messages_are_parked_as_they_came_and_acknowledged_afterwards(worker, world):
    worker.open()
    headers = {REDRIVE_HEADER: 2, "retries": 1, "redelivered": True, "x-death": [], "x-own": "a"}

    request = worker.deliver(1, **headers)

    assert (worker.ran, request.done) == ([], [])
    [letter] = worker.desk.records
    assert (letter.state, letter.reason) == (State.PARKED, Reason.PARKED)
    assert (letter.task_id, letter.attempts, letter.rule) == ("m1", (), "breaker.open")
    assert letter.redrive_count == 2, "no attempt says it"
    assert letter.parking.startswith("here.")
    kept = letter.envelope.headers
    assert (kept[REDRIVE_HEADER], kept["retries"], kept["x-own"]) == (2, 1, "a")
    assert not {"redelivered", "x-death"} & set(kept)
    assert kept[CIRCUIT_HEADER] == "", "the upkeep need not send it while the circuit is open"
    worker.desk.release()
    assert request.done == ["ack"]
    assert "m1" not in state.requests


def test_it_is_due_when_the_recovery_time_is_over_and_not_all_at_once(worker, world):
    worker.open()
    world.seconds += 4
    before = worker.deliver(1) and worker.desk.records[-1]
    wait_s = (before.due_at - before.last_failed_at).total_seconds()
    assert wait_s == pytest.approx((RECOVERY_S - 4) + RECOVERY_S, abs=1)


def test_a_retry_keeps_its_attempts(worker):
    worker.open()
    history = write_attempts([attempt(1)])
    worker.deliver(1, retries=1, **{ATTEMPTS_HEADER: history})
    [letter] = worker.desk.records
    assert letter.attempts == (attempt(1),)
    assert letter.envelope.headers[ATTEMPTS_HEADER] == history


@pytest.mark.parametrize(("retries", "free"), [(0, None), (4, 4), (-1, None)])
def test_the_attempts_of_a_parked_message_begin_again(worker, retries, free):
    worker.open()
    worker.deliver(1, retries=retries)
    [letter] = worker.desk.records
    assert letter.envelope.headers["retries"] == retries, "the runs so far stay counted"
    assert letter.envelope.headers.get(FREE_HEADER) == free


def test_other_tasks_and_other_keys_run(worker):
    worker.open("keyed", order=1)
    worker.deliver(1, "keyed", order=1)
    worker.deliver(2, "keyed", order=2)
    worker.deliver(3, "charge")
    worker.deliver(4, "mail")
    worker.deliver(5, "plain")
    assert worker.ran == ["m2", "m3", "m4", "m5"]
    assert worker.parked == ["m1"]


@pytest.mark.parametrize(("how", "opens"), [
    ("retried", True), ("exhausted", True),
    ("postponed", False), ("terminal", False), ("ignored", False), ("lost", False),
])  # fmt: skip
def test_only_transient_failures_count(worker, how, opens):
    for number in range(FAILURES):
        worker.fail(worker.deliver(number), how)
    worker.tick()
    worker.deliver(9)
    assert ("m9" in worker.parked) == opens


def test_a_hard_time_limit_counts_once_by_its_rule(app, worker, world):
    app.dead_letter_queue.capture.__dict__["valve"] = worker.valve
    verdict = app.dead_letter_queue.classifier.decide(TimeLimitExceeded(3)).verdict
    for number in range(FAILURES):
        request = worker.deliver(number)
        report_to_valve(request, UNREPORTED, TimeLimitExceeded(3))
        report_to_valve(request, UNREPORTED, TimeLimitExceeded(3))
    worker.tick()
    counted = sum(c for _, c in world.circuits.get(("charge", ""), Circuit(task="")).recent)
    is_open = bool(world.open_circuits().circuits)
    assert is_open == (verdict is Verdict.TRANSIENT)
    assert is_open or counted == 0


def test_another_worker_finds_the_circuit_open(app, world, worker):
    other = Worker(app, world)
    worker.open()
    other.tick()
    other.deliver(1)
    assert (other.ran, other.parked) == ([], ["m1"])


def test_failures_of_all_workers_count_together(app, world, worker):
    other = Worker(app, world)
    worker.fail(worker.deliver(1))
    for number in range(2):
        other.fail(other.deliver(number))
    worker.tick(), other.tick()
    other.deliver(9)
    assert other.parked == ["m9"]


def test_after_the_recovery_time_one_message_of_all_workers_is_the_probe(app, world, worker):
    other = Worker(app, world)
    worker.open()
    other.tick()
    world.seconds += RECOVERY_S
    worker.deliver(1), other.deliver(2), worker.deliver(3), other.deliver(4)
    assert (worker.ran, other.ran) == (["m1"], [])
    assert [*worker.parked, *other.parked] == ["m3", "m2", "m4"]


def test_a_probe_that_succeeds_closes_the_circuit_for_all(app, world, worker):
    other = Worker(app, world)
    worker.open()
    other.tick()
    world.seconds += RECOVERY_S
    probe = worker.deliver(1)
    probe.on_success((False, 1, 0.1))
    assert probe.dlq_probe is None
    assert world.open_circuits().circuits == ()
    other.tick()
    worker.deliver(2), other.deliver(3)
    assert (worker.ran, other.ran) == (["m1", "m2"], ["m3"])


def test_a_probe_that_fails_doubles_the_time(worker, world, caplog):
    worker.open()
    world.seconds += RECOVERY_S
    worker.fail(worker.deliver(1))
    world.seconds += 2 * RECOVERY_S - 1
    worker.deliver(2)
    world.seconds += 1
    worker.deliver(3)
    assert worker.ran == ["m1", "m3"]
    assert "circuit of charge still open: probe 1 failed" in caplog.text


def test_a_terminal_failure_says_that_what_the_task_needs_is_there(worker, world):
    worker.open()
    world.seconds += RECOVERY_S
    worker.fail(worker.deliver(1), "terminal")
    worker.deliver(2)
    assert worker.ran == ["m1", "m2"]


@pytest.mark.parametrize("how", ["ignored", "lost", "postponed"])
def test_a_probe_that_tells_nothing_is_followed_by_another_one(worker, world, how):
    worker.open()
    world.seconds += RECOVERY_S
    worker.fail(worker.deliver(1), how)
    worker.deliver(2), worker.deliver(3)
    assert (worker.ran, worker.parked) == (["m1", "m2"], ["m3"])


def test_so_is_one_that_ended_without_a_word(worker, world):
    worker.open()
    world.seconds += RECOVERY_S
    state.task_ready(worker.deliver(1))
    worker.tick()
    worker.deliver(2)
    assert worker.ran == ["m1", "m2"]


def test_a_retry_under_the_same_id_does_not_end_the_probe(worker, world):
    worker.open()
    world.seconds += RECOVERY_S
    probe = worker.deliver(1)
    worker.deliver(1, retries=1)
    worker.tick()
    worker.fail(probe)
    [circuit] = world.open_circuits().circuits
    assert circuit.probes == 1


def test_a_long_probe_stays_the_only_one(worker, world):
    worker.open()
    world.seconds += RECOVERY_S
    worker.deliver(1)
    for number in range(2, 200):
        world.seconds += 1
        worker.tick()
        worker.deliver(number)
    assert worker.ran == ["m1"]


def test_while_the_store_is_away_all_circuits_count_as_closed(worker, world, caplog):
    caplog.set_level(logging.DEBUG)
    worker.open()
    world.is_away = True
    worker.tick(), worker.tick()
    worker.deliver(1)
    assert worker.ran == ["m1"]
    assert caplog.text.count("all count as closed") == 1
    world.is_away = False
    worker.tick()
    worker.deliver(2)
    assert worker.parked == ["m2"]


def test_a_probe_that_the_store_does_not_answer_about_runs(worker, world):
    worker.open()
    world.seconds += RECOVERY_S
    world.is_away = True
    worker.deliver(1)
    assert worker.ran == ["m1"]


def test_revoked_and_expired_messages_go_to_celery_to_be_dropped(worker):
    worker.open()
    state.revoked.add("m1")
    worker.deliver(1)
    worker.deliver(2, expires="2020-01-01T00:00:00+00:00")
    state.revoked.clear()
    assert worker.ran == ["m1", "m2"]


def test_a_released_message_is_parked_anew_under_another_name(worker):
    worker.open()
    worker.deliver(1, **{RELEASE_HEADER: "here.abc/1"})
    [letter] = worker.desk.records
    assert RELEASE_HEADER not in letter.envelope.headers
    assert letter.parking != "here.abc"


def test_a_message_that_came_back_takes_what_was_parked_of_it_back(worker, world):
    worker.open()
    first = worker.deliver(1)
    [letter] = worker.desk.records
    state.task_ready(first)
    world.circuits.clear()
    worker.tick()

    worker.deliver(1, redelivered=True)

    [(beginning, exact)] = world.taken_back
    assert letter.parking.startswith(beginning)
    assert exact, "the transport has given it a name"
    assert worker.ran == ["m1"]
    world.accepts = False
    again = worker.deliver(1, redelivered=True)
    assert (worker.ran, again.done) == (["m1"], ["ack"]), "its parked copy has run"


def test_one_that_came_back_runs_when_the_store_does_not_say(worker, world):
    world.is_away = True
    worker.deliver(1, redelivered=True)
    worker.deliver(2, "mail", redelivered=True)
    assert (worker.ran, world.asked) == (["m1", "m2"], 2)


def test_with_the_connection_lost_the_parked_copy_is_taken_back_and_nothing_acknowledged(
    worker, world
):
    worker.open()
    request = worker.deliver(1)
    worker.valve.stop()
    world.accepted = []
    world.accept_releases = lambda copies: [world.accepted.extend(copies)]
    worker.desk.release()
    assert request.done == []
    assert world.accepted == [(worker.desk.records[0].parking, 0)]


def test_with_the_connection_lost_nothing_runs_that_waited_for_an_answer(worker, world):
    worker.open()
    world.seconds += RECOVERY_S
    waiting = []
    worker.desk.ask = lambda question, then: waiting.append(lambda: then(question(world.store)))
    worker.deliver(1)
    worker.valve.stop()
    waiting.pop()()
    assert worker.ran == []
    [circuit] = world.open_circuits().circuits
    assert circuit.state is CircuitState.OPEN, "another one may be the probe"


def test_a_key_that_fails_lets_the_message_run_and_its_failures_count_nowhere(app, worker, world):
    app.tasks["keyed"].dlq_breaker_key = lambda *_: 1 / 0
    worker.open("charge")
    for number in range(FAILURES):
        worker.fail(worker.deliver(number, "keyed"))
    worker.tick()
    worker.deliver(9, "keyed")
    assert worker.ran[-1] == "m9"
    assert list(world.circuits) == [("charge", "")]


def test_a_hook_or_store_that_breaks_the_breaker_does_not_keep_messages_from_running(
    worker, world, caplog
):
    worker.open()
    worker.wiring.write = None
    worker.deliver(1)
    assert worker.ran == ["m1"]
    assert "could not park" in caplog.text


def test_what_is_open_is_seen_in_the_statistics_and_the_log(worker, caplog):
    caplog.set_level(logging.INFO)
    worker.open("keyed", order=7)
    assert worker.valve.status()["circuits"] == {
        "keyed[7]": {"state": "open", "failures": 3, "probes": 0, "messages": "parked"}
    }
    assert "circuit of keyed[7] open: 3 transient failures" in caplog.text


def test_failures_of_very_many_keys_are_told_bit_by_bit(world):
    board = SharedCircuits(world, world)
    for number in range(AT_ONCE + 5):
        board.failed(("keyed", str(number)), BreakerLimits(3, 60, 10))
    board.tick()
    assert len(world.circuits) == AT_ONCE
    board.tick()
    assert len(world.circuits) == AT_ONCE + 5

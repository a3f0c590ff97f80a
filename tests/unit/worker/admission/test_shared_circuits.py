"""A worker that has itself seen the limit: it opens the circuit at once, and says so to the others, to the
messages that wait for a slot, and to the processes of its pool."""

from functools import partial

import pytest
from celery.worker import state
from support.workers.with_breaker import FAILURES, RECOVERY_S, Worker, World

from celery_dlq.model.worker import CircuitState
from celery_dlq.retry import BreakerLimits
from celery_dlq.worker.admission.circuits import ROOM, WAITING, SharedCircuits, SharedNames

LIMITS = BreakerLimits(FAILURES, 60, RECOVERY_S)


class SlowWorld(World):
    """A store whose answers wait for the test."""

    def __init__(self):
        super().__init__()
        self.answers = []

    def ask(self, question, then):
        answer = None if self.is_away else question(self.store)
        self.answers.append(partial(then, answer))

    def answer(self):
        while self.answers:
            self.answers.pop(0)()


def fail(worker, times, task="charge", order=17):
    for number in range(times):
        worker.fail(worker.deliver(f"{task}{order}{number}", task, order))


class TestOpening:
    def test_at_the_limit_it_opens_without_waiting_and_the_store_is_told(self, worker, world):
        fail(worker, FAILURES)
        worker.deliver(9)
        assert worker.parked == ["m9"]
        [circuit] = world.open_circuits().circuits
        assert (circuit.failures, circuit.state) == (FAILURES, CircuitState.OPEN)

    def test_below_the_limit_it_does_not(self, worker, world):
        fail(worker, FAILURES - 1)
        worker.deliver(9)
        assert worker.parked == []
        assert world.asked == 1, "the start"

    def test_failures_are_told_sooner_than_once_a_second(self, app, worker, world):
        other = Worker(app, world)
        fail(worker, FAILURES - 1)
        fail(other, 1)
        asked = world.asked
        worker.valve.shared.tell(), other.valve.shared.tell(), worker.valve.shared.tell()
        assert world.asked == asked + 2, "the last one had nothing to tell"
        assert len(world.open_circuits().circuits) == 1

    def test_what_the_store_did_not_hear_of_counts(self, worker, world):
        """It was away while the first ones were told."""
        fail(worker, FAILURES - 1)
        world.circuits.clear()
        for seen in worker.valve.shared._seen.values():
            seen.untold = 0
        fail(worker, 1)
        [circuit] = world.open_circuits().circuits
        assert circuit.failures == FAILURES

    def test_an_answer_that_was_asked_for_before_does_not_close_it(self, app, caplog):
        world = SlowWorld()
        worker = Worker(app, world)
        fail(worker, FAILURES)
        worker.deliver(8)
        world.answer()
        worker.deliver(9)
        assert worker.parked == ["m8", "m9"]
        assert len(world.open_circuits().circuits) == 1
        assert caplog.text.count("circuit of charge open") == 1
        assert "closed" not in caplog.text

    def test_while_the_store_is_away_it_stays_closed(self, worker, world):
        world.is_away = True
        worker.tick()
        fail(worker, FAILURES + 1)
        worker.deliver(9)
        assert worker.ran[-1] == "m9"

    def test_it_closes_when_the_store_cannot_be_told(self, worker, world):
        fail(worker, FAILURES - 1)
        world.is_away = True
        fail(worker, 1)
        worker.deliver(9)
        assert worker.ran[-1] == "m9"

    def test_failures_that_left_the_window_do_not_count(self, worker, world):
        fail(worker, FAILURES - 1)
        world.seconds += 60
        fail(worker, 1)
        assert world.open_circuits().circuits == ()

    def test_after_it_has_closed_failures_count_from_none(self, worker, world):
        fail(worker, FAILURES)
        world.seconds += RECOVERY_S
        worker.deliver(8).on_success((False, 1, 0.1))
        fail(worker, FAILURES - 1)
        worker.deliver(9)
        assert worker.ran[-1] == "m9"

    def test_very_many_keys_are_not_all_remembered(self, world):
        board = SharedCircuits(world, world)
        for number in range(WAITING + 5):
            board.failed(("keyed", str(number)), LIMITS)
        assert len(board._seen) == WAITING

    def test_one_that_is_not_remembered_to_be_told_opens_all_the_same(self, world):
        board = SharedCircuits(world, world)
        for number in range(WAITING):
            board.failed(("keyed", str(number)), LIMITS)
        for _ in range(FAILURES):
            board.failed(("keyed", "last"), LIMITS)
        assert [circuit.key for circuit in world.open_circuits().circuits] == ["last"]


class TestSlots:
    @pytest.fixture
    def worker(self, app, world):
        return Worker(app, world, slots=1)

    def test_what_waits_for_one_when_the_circuit_opens_is_parked(self, worker):
        running = worker.deliver(0)
        for number in range(1, 40):
            worker.deliver(number)
        worker.deliver(99, "mail")
        fail(worker, FAILURES, order=18)
        assert worker.ran == ["m0"]

        worker.fail(running)
        worker.slots.release()
        worker.consumer.timer.run_waiting()

        assert worker.ran == ["m0", "m99"]
        assert {f"m{number}" for number in range(1, 40)} <= set(worker.parked)

    def test_the_slot_is_free_again(self, worker):
        worker.deliver(0), worker.deliver(1)
        fail(worker, FAILURES)
        worker.slots.release()
        worker.consumer.timer.run_waiting()
        worker.deliver(9, "mail")
        assert worker.ran == ["m0", "m9"]

    def test_while_it_is_closed_they_run(self, worker):
        requests = [worker.deliver(0), worker.deliver(1)]
        worker.slots.release()
        assert worker.ran == ["m0", "m1"]
        assert not any("execute_using_pool" in request.__dict__ for request in requests)

    def test_one_that_came_back_is_counted_all_the_same(self, app, worker):
        admitted = []
        app.dead_letter_queue.capture.__dict__["deliveries"] = type(
            "Deliveries", (), {"admit": lambda _, request: admitted.append(request.id)}
        )()
        worker.deliver(1, redelivered=True)
        assert admitted == ["m1"]

    def test_the_probe_has_to_wait_for_a_slot_as_others_do(self, worker, world):
        worker.deliver(0), worker.deliver(1)
        fail(worker, FAILURES)
        world.seconds += RECOVERY_S
        worker.slots.release()
        assert worker.ran == ["m0"]
        worker.consumer.timer.run_waiting()
        assert worker.ran == ["m0", "m1"]
        assert worker.slots.value == 0


class TestPool:
    """What a process of the pool is told about the failure that it has before it."""

    def opens(self, app, worker, task="charge", order=17):
        return worker.valve.opens_with(app.tasks[task], [order], {})

    def test_the_failure_that_opens_it_is_known_beforehand(self, app, worker):
        answers = [self.opens(app, worker)]
        for number in range(FAILURES):
            worker.fail(worker.deliver(number))
            answers.append(self.opens(app, worker))
        assert answers == [False, False, True, True]

    def test_one_that_another_worker_has_opened(self, app, world, worker):
        other = Worker(app, world)
        fail(other, FAILURES)
        worker.tick()
        assert self.opens(app, worker)

    def test_other_keys_and_other_tasks_have_circuits_of_their_own(self, app, worker):
        fail(worker, FAILURES, "keyed", order=1)
        assert self.opens(app, worker, "keyed", 1)
        assert not self.opens(app, worker, "keyed", 2)
        assert not self.opens(app, worker, "charge")
        assert not self.opens(app, worker, "mail")

    def test_a_limit_of_one_opens_with_each(self, app, worker):
        app.tasks["charge"].dlq_breaker_failures = 1
        assert self.opens(app, worker)

    def test_a_key_that_fails_says_nothing(self, app, worker, caplog):
        app.tasks["keyed"].dlq_breaker_key = lambda *_: 1 / 0
        fail(worker, FAILURES)
        assert not self.opens(app, worker, "keyed")
        worker.valve.shared = None
        assert not self.opens(app, worker)
        assert "could not look at the circuit of" in caplog.text

    def test_it_is_not_while_the_store_is_away_nor_when_the_failures_are_old(
        self, app, worker, world
    ):
        fail(worker, FAILURES - 1)
        world.seconds += 61
        worker.tick()
        assert not self.opens(app, worker)
        fail(worker, FAILURES)
        world.is_away = True
        worker.tick()
        assert not self.opens(app, worker)


def test_shared_names_are_what_was_written_last():
    names = SharedNames()
    assert not names
    names.write([("charge", "a"), ("charge", "b")])
    assert ("charge", "b") in names
    names.write([("charge", "\udc80")])
    assert ("charge", "b") not in names
    assert ("charge", "\udc80") in names
    names.write(("keyed", str(number)) for number in range(ROOM + 10))
    found = sum(("keyed", str(number)) in names for number in range(ROOM + 10))
    assert found == ROOM
    names.write([])
    assert not names


@pytest.fixture(autouse=True)
def _nothing_reserved():
    yield
    state.reset_state()

"""When a worker counts as stalled, and when it must not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_dlq.upkeep.stall import GAP_S, KEPT_S, LOOK_S, Recovered

DAY_S = 86_400


def test_one_that_receives_nothing_while_messages_wait_is_stalled(world):
    world.run(600)  # an idle night
    world.depths = {"celery": 7, "other": 9}
    began = world.clock.now
    world.run(310)
    [stall] = world.seen
    assert (stall.worker, stall.queues, stall.messages) == ("w@host", ("celery",), 7)
    assert stall.noticed_at - stall.since == timedelta(seconds=300)
    assert stall.seconds == 300
    assert world.stall is stall
    noticed_after_s = (
        (stall.noticed_at - world.watch._now()).total_seconds() + world.clock.now - began
    )
    assert noticed_after_s <= 310


@pytest.mark.parametrize("stall_after_s", [0.5, 2, 5, 17, 300, 3_600])
def test_it_is_noticed_within_ten_seconds_after_that_time(make_world, stall_after_s):
    world = make_world(stall_after_s)
    world.run(100)
    world.received += 1  # just before the connection dies
    world.depths, began = {"celery": 1}, world.clock.now
    while not world.seen:
        world.look()
    assert stall_after_s <= world.clock.now - began <= stall_after_s + 10


def test_where_each_question_is_paid_for_few_are_asked(make_world):
    world = make_world(pays=True)
    world.run(DAY_S)
    assert world.questions <= DAY_S / 60 + 1
    world.depths, began = {"celery": 1}, world.clock.now
    while not world.seen:
        world.look()
    assert 300 <= world.clock.now - began <= 370


def test_it_is_said_once_and_so_is_its_end(world):
    world.depths = {"celery": 1}
    world.run(DAY_S)
    assert len(world.seen) == 1
    world.received += 1
    assert world.look() == Recovered(pytest.approx(DAY_S - 300, abs=20))
    assert world.stall is None
    world.run(200)
    assert len(world.seen) == 2


def test_while_it_is_stalled_the_broker_is_not_asked(world):
    world.depths = {"celery": 1}
    world.run(310)
    asked = world.questions
    world.run(1_000)
    assert world.questions == asked


def test_that_others_empty_the_queue_does_not_end_a_stall(world):
    world.depths = {"celery": 1}
    world.run(310)
    world.depths = {}
    world.run(1_000)
    assert world.stall is not None


def test_a_worker_that_receives_messages_asks_the_broker_nothing(world):
    world.depths = {"celery": 1_000}

    def receive():
        world.received += 1

    world.run(3_600, receive)
    assert (world.questions, world.seen) == (0, [])


def test_a_message_that_comes_while_the_broker_is_asked_counts(world):
    world.depths = {"celery": 1}
    world.run(290)

    def receive():
        world.received += 1

    world.meanwhile = receive
    world.run(100)
    assert world.seen == []


def test_a_pool_that_fills_while_the_broker_is_asked_counts(world):
    world.depths = {"celery": 1}

    def fill():
        world.is_free = False

    world.meanwhile = fill
    world.run(1_000, lambda: setattr(world, "is_free", True))
    assert world.seen == []


def test_a_broker_that_does_not_answer_begins_the_time_again(world):
    world.depths = {"celery": 1}
    world.run(290)
    world.depths = None
    world.run(20)
    world.depths = {"celery": 1}
    world.run(290)
    assert world.seen == []
    world.run(20)
    assert len(world.seen) == 1


def test_a_machine_that_slept_begins_the_time_again(world):
    world.depths = {"celery": 1}
    world.run(100)
    world.clock.now += 8 * 3_600
    world.run(290)
    assert world.seen == []
    world.run(30)
    assert len(world.seen) == 1
    assert GAP_S > 3 * LOOK_S


def test_a_look_is_quick_to_come_and_never_endless(make_world):
    assert make_world(0.01).watch.wait_s == 0.25
    assert make_world(2).watch.wait_s == 0.5
    assert make_world(86_400).watch.wait_s == LOOK_S


# -- No false alarm in 24 hours --------------------------------------------------------------------


def test_an_idle_queue(world):
    world.run(DAY_S)
    assert world.seen == []
    assert world.questions <= DAY_S / LOOK_S


def test_messages_that_pass_by(world):
    """A message waits at some looks, and this worker or another one takes it."""
    numbers = iter(range(10**9))

    def pass_by():
        number = next(numbers)
        world.depths = {"celery": 1} if number % 40 else {}
        world.received += number % 60 == 0

    world.run(DAY_S, pass_by)
    assert world.seen == []


def test_other_workers_that_drain_the_queue(world):
    """This worker has free slots, and others are always faster. Now and then the queue is empty."""
    numbers = iter(range(10**9))
    world.run(
        DAY_S, lambda: setattr(world, "depths", {"celery": 500} if next(numbers) % 70 else {})
    )
    assert world.seen == []


def test_a_paused_consumer(world):
    """``cancel_consumer`` has taken away its only queue."""
    world.names, world.depths = [], {"celery": 1_000}
    world.run(DAY_S)
    assert (world.questions, world.seen) == (0, [])


def test_a_busy_worker_with_long_tasks(world):
    """Also one whose prefetched messages wait for their time or for a token, or are held: it has no room."""
    world.is_free, world.depths = False, {"celery": 1_000}
    world.run(DAY_S)
    assert (world.questions, world.seen) == (0, [])


def test_a_worker_that_is_full_for_hours_and_free_for_minutes(world):
    numbers = iter(range(10**9))

    def turn():
        number = next(numbers)
        world.is_free = number % 900 < 70
        world.received += number % 900 == 0
        world.depths = {"celery": 1_000}

    world.run(DAY_S, turn)
    assert world.seen == []


def test_a_broker_that_is_away(world):
    world.depths = None
    world.run(DAY_S)
    assert world.seen == []


def run_and_receive(world, seconds):
    """Other messages come and run."""

    def receive():
        world.received += 1

    world.run(seconds, receive)


def test_a_message_that_is_kept_longer_than_on_purpose_is_a_stall(world):
    world.keeps = {"a", "b"}
    run_and_receive(world, KEPT_S + 290)
    assert world.seen == []
    world.keeps = {"a", "b", "new"}
    run_and_receive(world, 20)
    [stall] = world.seen
    assert (stall.queues, stall.messages, stall.seconds) == ((), 2, KEPT_S + 300)
    assert stall.what == "has kept 2 messages for 1200 s that it has free slots for"
    run_and_receive(world, 100)
    assert world.seen == [stall], "although others come and run"
    world.keeps = {"new"}
    assert world.look() == Recovered(pytest.approx(110, abs=20))


def test_a_message_that_runs_meanwhile_is_not_kept(world):
    for number in range(100):
        world.keeps = {str(number), str(number + 1)}
        run_and_receive(world, 600)
    assert world.seen == []


def test_a_time_in_which_the_process_stood_still_does_not_count(world):
    world.keeps = {"a"}
    world.look()
    world.clock.now += 2 * KEPT_S
    world.run(KEPT_S)
    assert world.seen == []
    world.run(400)
    assert len(world.seen) == 1

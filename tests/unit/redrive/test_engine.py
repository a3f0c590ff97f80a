"""The redrive loop on a SQLite store and a publisher that fails as told."""

import contextlib
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from factories import T0, envelope

from celery_dlq import Filter
from celery_dlq.errors import StoreUnavailable
from celery_dlq.letter import NO_TASK, Outcome
from celery_dlq.operation import Checking, Guard, OperationState, Orders, Pacing, SendingState
from celery_dlq.redrive import engine as module
from celery_dlq.redrive.ledger import Ledger
from celery_dlq.redrive.sent import Sent
from celery_dlq.states import Reason, State
from celery_dlq.store.sql_redrives import SQLRedrives


def skipped(store, operation):
    rows = store.sendings(operation.id, states=frozenset({SendingState.SKIPPED})).rows
    return {row.task_id: row.why for row in rows}


def test_everything_goes_in_batches_and_is_marked(store, publisher, redrive, fill, states):
    fill(*"abcde")
    told = []
    done = redrive(on_progress=lambda progress: told.append(progress.counts.planned))
    assert publisher.batches == [["a", "b"], ["c", "d"], ["e"]]
    assert (done.state, done.counts.out, done.counts.left) == (OperationState.DONE, 5, 0)
    assert set(told) == {5}
    assert set(states().values()) == {"redriven"}
    assert store.get("a").redrive_count == 1


def test_a_batch_is_written_while_the_one_before_is_confirmed(publisher, redrive, fill, states):
    fill(*"abcdef")
    assert redrive().state is OperationState.DONE
    if publisher.confirms_later:
        steps = "write 1, write 2, confirm 1, write 3, confirm 2, confirm 3"
    else:
        steps = "write 1, confirm 1, write 2, confirm 2, write 3, confirm 3"
    assert ", ".join(publisher.steps) == steps
    assert set(states().values()) == {"redriven"}


@pytest.mark.parametrize(
    "orders",
    [
        Orders(pacing=Pacing(max_queue_depth=100)),
        Orders(checking=Checking(validate=True)),
    ],
    ids=["limit of a queue", "validation"],
)
def test_a_batch_that_takes_its_time_waits_for_the_one_before(
    publisher, redrive, fill, monkeypatch, orders
):
    tried = SimpleNamespace(why_not=lambda *_: None)
    monkeypatch.setattr(module, "open_checks", lambda *_: contextlib.nullcontext(tried))
    fill(*"abcd")
    assert redrive(orders=orders).state is OperationState.DONE
    assert publisher.steps == ["write 1", "confirm 1", "write 2", "confirm 2"]


def test_a_batch_that_fails_is_told_though_the_next_one_is_written(
    publisher, redrive, fill, states
):
    publisher.answers[1] = Sent(confirmed=["a"], unsent=["b"], error="reset")
    publisher.answers[2] = Sent(confirmed=["c"], unsent=["d"], error="reset")
    fill(*"abcdef")
    done = redrive()
    assert done.state is OperationState.PAUSED
    assert states()["a"] == "redriven"
    assert {states()[name] for name in "bdef"} == {"dead"}
    assert states()["c"] == ("redriven" if publisher.confirms_later else "dead")


def test_each_claim_is_a_copy_of_its_own(publisher, redrive, fill):
    tokens = []
    publisher.before = lambda letters: tokens.append({one.claim_token for one in letters})
    fill(*"abcd")
    redrive()
    [first], [second] = tokens
    assert first != second


def test_nothing_to_do_opens_no_broker(redrive, monkeypatch):
    monkeypatch.setattr(module, "open_publisher", lambda app: 1 / 0)
    assert redrive().state is OperationState.DONE


def test_a_limit_takes_the_oldest_failures(publisher, redrive, fill):
    for minutes, name in ((3, "young"), (1, "old"), (2, "middle")):
        moment = T0 + timedelta(minutes=minutes)
        fill(name, first_failed_at=moment, last_failed_at=moment)
    assert redrive(limit=2).counts.planned == 2
    assert publisher.sent == ["old", "middle"]


def test_batches_are_as_large_as_they_were_ordered(publisher, redrive, fill):
    fill(*"abcde")
    redrive(batch=4)
    assert [len(batch) for batch in publisher.batches] == [4, 1]


def test_letters_that_die_during_the_run_are_not_swept_in(publisher, redrive, fill, states, time):
    fill(*"abcd")
    late = time.now + timedelta(seconds=1)
    publisher.before = lambda letters: fill("new", first_failed_at=late, last_failed_at=late)
    assert redrive().counts.out == 4
    assert states()["new"] == "dead"


def test_unknown_tasks_are_skipped_once_and_free_afterwards(
    store, publisher, redrive, fill, states
):
    fill("x1", "x2", "x3", task="shop.gone")
    fill("a")
    done = redrive()
    assert publisher.sent == ["a"]
    assert sorted(skipped(store, done)) == ["x1", "x2", "x3"]
    assert (done.state, done.counts.left) == (OperationState.DONE, 0)
    assert states() == {"a": "redriven", "x1": "dead", "x2": "dead", "x3": "dead"}


def test_a_letter_without_a_way_back_is_skipped(store, redrive, fill):
    fill("lost", envelope=envelope("lost", queue="", exchange=""))
    assert "queue it came from is not known" in skipped(store, redrive())["lost"]


def test_what_the_broker_refuses_stays_dead_and_the_rest_goes(
    store, publisher, redrive, fill, states
):
    fill(*"abc")
    publisher.answers[1] = Sent(confirmed=["b"], refused={"a": "no queue takes it"})
    done = redrive()
    assert (done.state, done.counts.out) == (OperationState.DONE, 2)
    assert skipped(store, done) == {"a": "no queue takes it"}
    assert states() == {"a": "dead", "b": "redriven", "c": "redriven"}


def test_a_lost_connection_pauses_and_tells_three_fates_apart(
    store, publisher, redrive, fill, states
):
    fill(*"abcde")
    publisher.answers[1] = Sent(confirmed=["a"], uncertain=["b"], unsent=["c"], error="reset")
    paused = redrive(batch=3)
    assert (paused.state, paused.cause) == (OperationState.PAUSED, "reset")
    assert (paused.counts.out, paused.counts.sending, paused.counts.left) == (1, 1, 4)
    assert states() == {"a": "redriven", "b": "claimed", "c": "dead", "d": "dead", "e": "dead"}


def test_an_uncertain_letter_is_sent_as_another_copy_when_it_goes_on(
    store, publisher, operations, redrive, fill
):
    fill("a")
    publisher.answers[1] = Sent(uncertain=["a"])
    paused = redrive()
    assert paused.cause == "the broker did not confirm in time"
    done = operations.run(
        paused.id, who="tester", on_progress=lambda _: None, should_stop=lambda: False
    )
    assert (done.state, publisher.sent) == (OperationState.DONE, ["a", "a"])
    assert store.get("a").redrive_count == 1


def test_an_uncertain_letter_is_free_for_others_when_its_lease_ends(publisher, redrive, fill, time):
    fill("a")
    publisher.answers[1] = Sent(uncertain=["a"])
    redrive()
    assert redrive().counts.planned == 0
    time.pass_(121)
    assert redrive().counts.out == 1


def test_an_outcome_that_comes_before_the_mark_stands(
    store, publisher, redrive, fill, states, time
):
    fill("a")
    done = Outcome(task_id="a", redrive=1, succeeded_at=time.now, worker="w")
    publisher.before = lambda letters: store.record_outcomes([done])
    assert redrive().counts.succeeded == 1
    assert states() == {"a": "resolved"}


def test_an_outcome_before_the_mark_is_counted_once(publisher, worker, redrive, fill, states, time):
    fill(*"abcdef")

    def once_written(_progress):
        if len(publisher.batches) == 1:
            worker.run()
            time.pass_(0.6)  # the next look at the store is due

    done = redrive(on_progress=once_written)
    assert (done.state, done.counts.out, done.counts.left) == (OperationState.DONE, 6, 0)
    assert len(publisher.sent) == 6


def test_a_stop_is_heeded_between_batches(publisher, redrive, fill, states):
    fill(*"abcd")
    paused = redrive(should_stop=lambda: bool(publisher.batches))
    assert (paused.state, paused.counts.out, paused.counts.left) == (OperationState.PAUSED, 2, 2)
    assert sorted(states().values()) == ["dead", "dead", "redriven", "redriven"]


@pytest.fixture
def once_claimed(publisher, states):
    """A stop that comes, while a batch is sent, when so many letters are claimed."""

    def once_claimed(count):
        stopped = threading.Event()

        def stop_once_more_is_claimed(letters):
            while list(states().values()).count("claimed") < count:
                time.sleep(0.01)
            stopped.set()

        publisher.before = stop_once_more_is_claimed
        return stopped.is_set

    return once_claimed


def test_what_was_claimed_ahead_of_a_stop_is_given_back(redrive, fill, states, once_claimed):
    fill(*"abcd")
    paused = redrive(should_stop=once_claimed(4))
    assert (paused.state, paused.counts.out, paused.counts.left) == (OperationState.PAUSED, 2, 2)
    assert sorted(states().values()) == ["dead", "dead", "redriven", "redriven"]


class TestTwoClaimsAtOnce:
    """Where the database makes them side by side."""

    @pytest.fixture(autouse=True)
    def two(self, monkeypatch):
        monkeypatch.setattr(SQLRedrives, "claims_at_once", 2)

    def test_each_letter_is_sent_once(self, publisher, redrive, fill):
        names = [f"{number:02}" for number in range(25)]
        fill(*names)
        done = redrive()
        assert (done.state, done.counts.out, done.counts.left) == (OperationState.DONE, 25, 0)
        assert sorted(publisher.sent) == names

    def test_what_one_of_them_finds_is_sent_when_the_other_finds_nothing(
        self, publisher, redrive, fill, store, monkeypatch
    ):
        fill(*"abcdef")
        ask, asked = store.claim_for, []

        def empty_handed(operation, *, limit, **options):
            asked.append(limit)
            # As when others hold just these letters for a moment.
            return ask(operation, limit=0 if len(asked) == 2 else limit, **options)

        monkeypatch.setattr(store, "claim_for", empty_handed)
        done = redrive()
        assert (done.state, done.counts.left) == (OperationState.DONE, 0)
        assert sorted(publisher.sent) == list("abcdef")

    def test_what_both_have_claimed_is_given_back_on_a_stop(
        self, redrive, fill, states, once_claimed
    ):
        fill(*"abcdefgh")
        paused = redrive(should_stop=once_claimed(6))
        assert (paused.state, paused.counts.out, paused.counts.left) == (
            OperationState.PAUSED,
            2,
            6,
        )
        assert sorted(states().values()) == ["dead"] * 6 + ["redriven"] * 2


def test_a_stop_is_heeded_while_waiting_for_the_pace(redrive, fill, states, time):
    fill(*"ab")
    paused = redrive(rate=1.0, should_stop=lambda: len(time.slept) >= 3)
    assert (paused.state, paused.counts.out) == (OperationState.PAUSED, 1)
    assert max(time.slept) <= 0.25
    assert sorted(states().values()) == ["dead", "redriven"]


def test_a_result_backend_that_is_away_sends_nothing(publisher, redrive, fill, states, monkeypatch):
    def refuse(app, letters):
        raise ConnectionError("redis is gone")

    monkeypatch.setattr(module, "reopen_chords", refuse)
    fill(*"ab")
    paused = redrive()
    assert (paused.state, paused.counts.out) == (OperationState.PAUSED, 0)
    assert "result backend does not answer" in paused.cause
    assert set(states().values()) == {"dead"}


def test_a_publisher_that_raises_leaves_its_claim_to_the_lease(
    publisher, operations, redrive, fill, states
):
    fill(*"abc")

    def crash(letters):
        raise KeyboardInterrupt

    publisher.before = crash
    with pytest.raises(KeyboardInterrupt):
        redrive()
    assert sorted(states().values()) == ["claimed", "claimed", "dead"]


def test_a_mark_that_fails_is_the_end_of_the_run(store, publisher, redrive, fill, monkeypatch):
    def away(*_args, **_options):
        raise StoreUnavailable

    fill(*"ab")
    monkeypatch.setattr(store, "end_claim", away)
    with pytest.raises(StoreUnavailable):
        redrive()
    assert publisher.sent == ["a", "b"]


def test_what_follows_a_mark_that_failed_is_marked_or_given_back(
    store, publisher, redrive, fill, states, monkeypatch
):
    mark, asked = store.end_claim, []

    def away_at_first(*args, **options):
        asked.append(1)
        if len(asked) == 1:
            raise StoreUnavailable
        return mark(*args, **options)

    fill(*"abcdefghij")
    monkeypatch.setattr(store, "end_claim", away_at_first)
    with pytest.raises(StoreUnavailable):
        redrive()
    unmarked = {name for name, state in states().items() if state == "claimed"}
    assert unmarked == {"a", "b"}
    assert {name for name, state in states().items() if state == "redriven"} == {
        *publisher.sent
    } - unmarked


def test_of_two_batches_that_fail_the_first_one_says_why(publisher, redrive, fill):
    fill(*"abcd")
    publisher.answers[1] = Sent(uncertain=["a", "b"], error="no exchange")
    publisher.answers[2] = Sent(uncertain=["c", "d"], error="timed out")
    assert redrive().cause == "no exchange"


@pytest.mark.parametrize("letter_s", [0.01, 0.8])
def test_however_slow_it_is_each_claim_is_marked_before_it_ends(
    publisher, redrive, fill, time, monkeypatch, letter_s
):
    names = [f"{number:03}" for number in range(600)]
    fill(*names)
    take, taken = Ledger.take, threading.Semaphore(0)

    def counted(ledger):
        try:
            return take(ledger)
        finally:
            taken.release()

    def slowly(letters):
        if not publisher.batches:
            assert taken.acquire(timeout=20)  # its own
        assert taken.acquire(timeout=20), "the next claim is made before this batch is sent"
        assert len(publisher.batches) < 200, "it goes round in circles"
        time.pass_(letter_s * len(letters))

    monkeypatch.setattr(Ledger, "take", counted)
    publisher.before = slowly
    orders = Orders(pacing=Pacing(batch=100), guard=Guard(enabled=False))
    done = redrive(orders=orders)
    assert (done.state, done.counts.out) == (OperationState.DONE, 600)
    assert sorted(publisher.sent) == names, "each once"


def test_what_was_claimed_ahead_of_a_slow_batch_is_claimed_anew(
    store, publisher, redrive, fill, time, once_claimed, monkeypatch
):
    fill(*"abcdef")
    is_claimed = once_claimed(4)
    wait, release, released = publisher.before, store.release_sendings, []

    def releasing(operation_id, token, ids):
        released.extend(ids)
        return release(operation_id, token, ids)

    def slow_at_first(letters):
        if not publisher.batches:
            wait(letters)
            assert is_claimed()
            time.pass_(100)  # of a lease of 120 s

    publisher.before = slow_at_first
    monkeypatch.setattr(store, "release_sendings", releasing)
    assert redrive().counts.out == 6
    assert released == ["c", "d"]
    assert sorted(publisher.sent) == list("abcdef"), "each once"


def test_a_redriven_letter_is_taken_only_by_name(store, redrive, fill):
    fill("a")
    redrive()
    assert redrive().counts.planned == 0
    assert redrive(Filter(states=frozenset({State.REDRIVEN}))).counts.out == 1
    assert store.get("a").redrive_count == 2


def test_redriven_letters_are_each_sent_once_more(publisher, redrive, fill):
    fill(*"abcde")
    redrive()
    publisher.batches.clear()
    done = redrive(Filter(states=frozenset({State.REDRIVEN})), limit=4)
    assert (done.counts.out, done.counts.left) == (4, 0)
    assert len(set(publisher.sent)) == 4


@pytest.mark.parametrize("reason", NAMED := [Reason.UNSTORED, Reason.MALFORMED])
class TestLettersThatMustBeNamed:
    def test_are_left_alone_by_a_redrive_of_everything(
        self, publisher, operations, redrive, fill, reason
    ):
        fill("fine")
        fill("apart", reason=reason)
        plan = operations.plan(Filter(), Orders())
        assert (plan.matched, plan.sendable, plan.in_flight) == (2, 1, 0)
        assert f"--reason {reason.value}" in plan.notes[0]
        assert redrive().counts.out == 1
        assert publisher.sent == ["fine"]

    @pytest.mark.parametrize("by", ["id", "reason"])
    def test_are_sent_when_they_are(self, operations, redrive, fill, reason, by):
        fill("apart", reason=reason)
        wanted = Filter(ids=("apart",)) if by == "id" else Filter(reason=reason)
        plan = operations.plan(wanted, Orders())
        assert (plan.sendable, plan.notes) == (1, ())
        assert redrive(wanted).counts.out == 1


def test_what_names_no_task_is_sent_when_it_is_named(store, publisher, redrive, fill):
    fill("a", task=NO_TASK, reason=Reason.MALFORMED)
    fill("b", task="far.away")
    done = redrive(Filter(ids=("a", "b")))
    assert publisher.sent == ["a"]
    assert list(skipped(store, done)) == ["b"]


class TestCanary:
    def test_goes_first_and_the_others_when_it_has_succeeded(
        self, publisher, worker, redrive, fill, time
    ):
        fill(*"abcdefg")
        time.meanwhile = worker.run
        done = redrive(canary=3)
        assert done.state is OperationState.DONE
        assert publisher.batches == [["a", "b"], ["c"], ["d", "e"], ["f", "g"]]

    def test_that_ends_in_part_before_its_mark_is_waited_for(
        self, publisher, redrive, fill, time, store, monkeypatch
    ):
        fill(*"abcdef")
        ended = Outcome(task_id="a", redrive=1, succeeded_at=time.now, worker="w")
        settle, looked = Ledger.settle, []

        def look_first(ledger, settled):
            if not looked:
                looked.append(1)
                store.record_outcomes([ended])
                time.pass_(0.6)  # the next look at the store is due
                assert ledger.goes_on()
            settle(ledger, settled)

        monkeypatch.setattr(Ledger, "settle", look_first)
        assert redrive(canary=2, should_stop=lambda: bool(time.slept[3:])).counts.out == 2
        assert publisher.batches == [["a", "b"]]

    def test_that_fails_ends_the_operation(self, publisher, worker, redrive, fill, states, time):
        fill(*"abcdefg")
        time.meanwhile = lambda: worker.run(fails=lambda task_id: task_id == "b")
        ended = redrive(canary=3)
        assert (ended.state, ended.counts.left) == (OperationState.ABORTED, 4)
        assert ended.cause.startswith("the canary failed: ValueError: bad currency")
        assert ended.cause.endswith("letters b")
        assert publisher.sent == ["a", "b", "c"]
        assert states() == {
            "a": "resolved", "b": "dead", "c": "resolved", **dict.fromkeys("defg", "dead"),
        }  # fmt: skip

    def test_waits_as_long_as_it_takes(self, worker, redrive, fill, time):
        fill(*"abc")
        told = []
        time.meanwhile = lambda: worker.run() if len(time.slept) == 500 else None
        done = redrive(canary=1, on_progress=lambda progress: told.append(progress.waits_for))
        assert done.state is OperationState.DONE
        assert told.count("the canary") >= 400


class TestGuard:
    def test_a_fix_that_cures_half_is_stopped(self, publisher, worker, redrive, fill, time):
        fill(*(f"{number:03}" for number in range(300)))
        time.meanwhile = lambda: worker.run(fails=lambda task_id: int(task_id) % 2)
        orders = Orders(pacing=Pacing(canary=1, batch=10), guard=Guard(window=40))
        ended = redrive(orders=orders)
        assert ended.state is OperationState.ABORTED
        assert "came back" in ended.cause
        assert "ValueError: bad currency" in ended.cause
        assert len(publisher.sent) <= 1 + 40
        assert ended.counts.left == 300 - len(publisher.sent)

    def test_a_fix_that_cures_nearly_all_goes_on(self, worker, redrive, fill, time):
        fill(*(f"{number:03}" for number in range(300)))
        time.meanwhile = lambda: worker.run(fails=lambda task_id: int(task_id) % 50 == 7)
        orders = Orders(pacing=Pacing(batch=10), guard=Guard(window=40))
        done = redrive(orders=orders)
        assert (done.state, done.counts.left) == (OperationState.DONE, 0)

    def test_one_that_is_off_waits_for_nothing(self, publisher, redrive, fill, time):
        fill(*(f"{number:03}" for number in range(100)))
        orders = Orders(pacing=Pacing(batch=50), guard=Guard(enabled=False, window=1))
        assert redrive(orders=orders).counts.out == 100
        assert not time.slept

    def test_tasks_that_report_nothing_are_not_waited_for(self, publisher, redrive, fill, silent):
        silent.add("shop.charge")
        fill(*"abcde")
        done = redrive(orders=Orders(guard=Guard(window=1)))
        assert (done.state, done.counts.unknown, done.counts.sent) == (OperationState.DONE, 5, 0)


def test_no_more_are_in_flight_than_was_ordered(store, publisher, worker, redrive, fill, time):
    fill(*"abcdefg")
    publisher.before = lambda letters: most.append(len(publisher.sent) + len(letters) - ended())
    most, time.meanwhile = [], worker.run

    def ended():
        return store.count(Filter(states=frozenset({State.RESOLVED})))

    assert redrive(max_in_flight=3).counts.out == 7
    assert max(most) == 3


class TestSomebodyElse:
    @pytest.mark.parametrize(
        ("act", "state"),
        [("pause", OperationState.PAUSED), ("cancel", OperationState.CANCELLED)],
    )
    def test_stops_it_between_batches(
        self, publisher, operations, redrive, fill, states, time, act, state
    ):
        fill(*"abcdefghij")

        def after_the_first(letters):
            if len(publisher.batches) == 1:
                [operation] = operations.left()
                getattr(operations, act)(operation.id, who="boss")
            time.pass_(1.0)

        publisher.before = after_the_first
        ended = redrive()
        assert (ended.state, ended.cause.split()[-1]) == (state, "boss")
        assert ended.counts.left == 10 - len(publisher.sent) >= 2
        assert set(states().values()) <= {"dead", "redriven"}

"""The redrive loop on a SQLite store and a publisher that fails as told."""

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.factories import T0, envelope

from celery_dlq import Filter
from celery_dlq.model.letter import NO_TASK, Outcome
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing, SendingState
from celery_dlq.model.states import Reason, State
from celery_dlq.redrive import loop as module
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.ledger import Ledger
from celery_dlq.redrive.letter.payload import OpenLetter
from celery_dlq.redrive.letter.repair import Prepared
from celery_dlq.store.redrive.claims import Claims


def skipped(store, operation):
    rows = store.sendings.of_operation(operation.id, states=frozenset({SendingState.SKIPPED})).rows
    return {row.task_id: row.why for row in rows}


def test_everything_goes_in_batches_and_is_marked(store, publisher, redrive, fill, states):
    fill(*"abcde")
    told = []
    done = redrive(on_progress=lambda progress: told.append(progress.counts.planned))
    assert publisher.batches == [["a", "b"], ["c", "d"], ["e"]]
    assert (done.state, done.counts.out, done.counts.left) == (OperationState.DONE, 5, 0)
    assert set(told) == {5}
    assert set(states().values()) == {"redriven"}
    assert store.letters.get("a").redrive_count == 1


def test_a_batch_is_written_while_the_one_before_is_confirmed(publisher, redrive, fill, states):
    fill(*"abcdef")
    assert redrive().state is OperationState.DONE
    if publisher.confirms_later:
        steps = "write 1, write 2, confirm 1, write 3, confirm 2, confirm 3"
    else:
        steps = "write 1, confirm 1, write 2, confirm 2, write 3, confirm 3"
    assert ", ".join(publisher.steps) == steps
    assert set(states().values()) == {"redriven"}


def test_a_slow_batch_waits_for_the_one_before(publisher, redrive, fill, monkeypatch):
    prepared = lambda letter, _now: Prepared(OpenLetter(letter, frozenset()))  # noqa: E731
    tried = SimpleNamespace(prepare=prepared, approved=None)
    monkeypatch.setattr(module, "preparation_of", lambda *_: tried)
    fill(*"abcd")
    orders = Orders(pacing=Pacing(max_queue_depth=100))
    assert redrive(orders=orders).state is OperationState.DONE
    assert publisher.steps == ["write 1", "confirm 1", "write 2", "confirm 2"]


def test_the_error_of_a_batch_is_told_though_the_next_one_is_written(
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


def test_a_letter_without_a_queue_is_skipped(store, redrive, fill):
    fill("lost", envelope=envelope("lost", queue="", exchange=""))
    assert "queue it came from is unknown" in skipped(store, redrive())["lost"]


def test_letters_that_the_broker_refuses_stay_dead(store, publisher, redrive, fill, states):
    fill(*"abc")
    publisher.answers[1] = Sent(confirmed=["b"], refused={"a": "no queue takes it"})
    done = redrive()
    assert (done.state, done.counts.out) == (OperationState.DONE, 2)
    assert skipped(store, done) == {"a": "no queue takes it"}
    assert states() == {"a": "dead", "b": "redriven", "c": "redriven"}


def test_an_outcome_that_comes_before_the_mark_stands(
    store, publisher, redrive, fill, states, time
):
    fill("a")
    done = Outcome(task_id="a", redrive=1, succeeded_at=time.now, worker="w")
    publisher.before = lambda letters: store.letters.record_outcomes([done])
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


class TestTwoClaimsAtOnce:
    """Where the database makes them side by side."""

    @pytest.fixture(autouse=True)
    def two(self, monkeypatch):
        monkeypatch.setattr(Claims, "at_once", 2)

    def test_each_letter_is_sent_once(self, publisher, redrive, fill):
        names = [f"{number:02}" for number in range(25)]
        fill(*names)
        done = redrive()
        assert (done.state, done.counts.out, done.counts.left) == (OperationState.DONE, 25, 0)
        assert sorted(publisher.sent) == names

    def test_a_claim_is_sent_when_the_other_one_is_empty(
        self, publisher, redrive, fill, store, monkeypatch
    ):
        fill(*"abcdef")
        ask, asked = store.claims.take, []

        def empty_handed(operation, *, limit, **options):
            asked.append(limit)
            # As when others hold just these letters for a moment.
            return ask(operation, limit=0 if len(asked) == 2 else limit, **options)

        monkeypatch.setattr(store.claims, "take", empty_handed)
        done = redrive()
        assert (done.state, done.counts.left) == (OperationState.DONE, 0)
        assert sorted(publisher.sent) == list("abcdef")

    def test_both_claims_are_given_back_on_a_stop(self, redrive, fill, states, once_claimed):
        fill(*"abcdefgh")
        paused = redrive(should_stop=once_claimed(6))
        assert (paused.state, paused.counts.out, paused.counts.left) == (
            OperationState.PAUSED,
            2,
            6,
        )
        assert sorted(states().values()) == ["dead"] * 6 + ["redriven"] * 2


@pytest.mark.parametrize("letter_s", [0.01, 0.8])
def test_however_slow_it_is_each_claim_is_marked_before_it_ends(
    publisher, redrive, fill, time, monkeypatch, letter_s
):
    names = [f"{number:03}" for number in range(300)]
    fill(*names)
    take, taken = Ledger.take, threading.Semaphore(0)

    def counted(ledger):
        try:
            return take(ledger)
        finally:
            taken.release()

    def slowly(letters):
        if not publisher.batches:
            assert taken.acquire(timeout=60)  # its own
        assert taken.acquire(timeout=60), "the next claim is made before this batch is sent"
        assert len(publisher.batches) < 200, "it goes round in circles"
        time.pass_(letter_s * len(letters))

    monkeypatch.setattr(Ledger, "take", counted)
    publisher.before = slowly
    orders = Orders(pacing=Pacing(batch=100), guard=Guard(enabled=False))
    done = redrive(orders=orders)
    assert (done.state, done.counts.out) == (OperationState.DONE, 300)
    assert sorted(publisher.sent) == names, "each once"


def test_letters_claimed_ahead_of_a_slow_batch_are_claimed_again(
    store, publisher, redrive, fill, time, once_claimed, monkeypatch
):
    fill(*"abcdef")
    is_claimed = once_claimed(4)
    wait, release, released = publisher.before, store.claims.release, []

    def releasing(operation_id, token, ids):
        released.extend(ids)
        return release(operation_id, token, ids)

    def slow_at_first(letters):
        if not publisher.batches:
            wait(letters)
            assert is_claimed()
            time.pass_(100)  # of a lease of 120 s

    publisher.before = slow_at_first
    monkeypatch.setattr(store.claims, "release", releasing)
    assert redrive().counts.out == 6
    assert released == ["c", "d"]
    assert sorted(publisher.sent) == list("abcdef"), "each once"


def test_a_redriven_letter_is_taken_only_by_name(store, redrive, fill):
    fill("a")
    redrive()
    assert redrive().counts.planned == 0
    assert redrive(Filter(states=frozenset({State.REDRIVEN}))).counts.out == 1
    assert store.letters.get("a").redrive_count == 2


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


def test_a_letter_without_a_task_is_sent_by_its_id(store, publisher, redrive, fill):
    fill("a", task=NO_TASK, reason=Reason.MALFORMED)
    fill("b", task="far.away")
    done = redrive(Filter(ids=("a", "b")))
    assert publisher.sent == ["a"]
    assert list(skipped(store, done)) == ["b"]

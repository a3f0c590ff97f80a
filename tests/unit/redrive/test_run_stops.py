"""What ends or pauses a redrive: a stop, another process, a broker, result backend or store that fails."""

import threading

import pytest
from support.factories import envelope

from celery_dlq import Filter
from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.operation import OperationState, Orders, Pacing, Repair, SendingState
from celery_dlq.redrive import loop
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.letter import functions
from celery_dlq.redrive.letter.functions import functions_of


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
    done = operations.resume(
        paused.id, who="tester", on_progress=lambda _: None, should_stop=lambda: False
    )
    assert (done.state, publisher.sent) == (OperationState.DONE, ["a", "a"])
    assert store.letters.get("a").redrive_count == 1


def test_an_uncertain_letter_is_free_for_others_when_its_lease_ends(publisher, redrive, fill, time):
    fill("a")
    publisher.answers[1] = Sent(uncertain=["a"])
    redrive()
    assert redrive().counts.planned == 0
    time.pass_(121)
    assert redrive().counts.out == 1


def test_a_stop_is_heeded_between_batches(publisher, redrive, fill, states):
    fill(*"abcd")
    paused = redrive(should_stop=lambda: bool(publisher.batches))
    assert (paused.state, paused.counts.out, paused.counts.left) == (OperationState.PAUSED, 2, 2)
    assert sorted(states().values()) == ["dead", "dead", "redriven", "redriven"]


def test_letters_claimed_ahead_of_a_stop_are_given_back(redrive, fill, states, once_claimed):
    fill(*"abcd")
    paused = redrive(should_stop=once_claimed(4))
    assert (paused.state, paused.counts.out, paused.counts.left) == (OperationState.PAUSED, 2, 2)
    assert sorted(states().values()) == ["dead", "dead", "redriven", "redriven"]


def test_a_stop_is_heeded_while_waiting_for_the_pace(redrive, fill, states, time):
    fill(*"ab")
    paused = redrive(rate=1.0, should_stop=lambda: len(time.slept) >= 3)
    assert (paused.state, paused.counts.out) == (OperationState.PAUSED, 1)
    assert max(time.slept) <= 0.25
    assert sorted(states().values()) == ["dead", "redriven"]


def test_a_result_backend_that_is_away_sends_nothing(publisher, redrive, fill, states, monkeypatch):
    def refuse(app, letters):
        raise ConnectionError("redis is gone")

    monkeypatch.setattr(loop, "reopen_chords", refuse)
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


def test_a_failed_mark_ends_the_run(store, publisher, redrive, fill, monkeypatch):
    def away(*_args, **_options):
        raise StoreUnavailable

    fill(*"ab")
    monkeypatch.setattr(store.claims, "confirm", away)
    with pytest.raises(StoreUnavailable):
        redrive()
    assert publisher.sent == ["a", "b"]


def test_batches_after_a_failed_mark_are_marked_or_given_back(
    store, publisher, redrive, fill, states, monkeypatch
):
    mark, asked = store.claims.confirm, []

    def away_at_first(*args, **options):
        asked.append(1)
        if len(asked) == 1:
            raise StoreUnavailable
        return mark(*args, **options)

    fill(*"abcdefghij")
    monkeypatch.setattr(store.claims, "confirm", away_at_first)
    with pytest.raises(StoreUnavailable):
        redrive()
    unmarked = {name for name, state in states().items() if state == "claimed"}
    assert unmarked == {"a", "b"}
    assert {name for name, state in states().items() if state == "redriven"} == {
        *publisher.sent
    } - unmarked


def test_the_first_of_two_failing_batches_is_the_cause(publisher, redrive, fill):
    fill(*"abcd")
    publisher.answers[1] = Sent(uncertain=["a", "b"], error="no exchange")
    publisher.answers[2] = Sent(uncertain=["c", "d"], error="timed out")
    assert redrive().cause == "no exchange"


class TestAnotherProcess:
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


class TestFunctionsOfTheUser:
    """Repairs run in the process of the redrive; they may be slow, or hang."""

    @pytest.fixture
    def repaired_by(self, app):
        def repaired_by(function):
            functions_of(app).repairs["it"] = function
            return Orders(pacing=Pacing(batch=6), repair=Repair(function="it"))

        return repaired_by

    @pytest.fixture
    def hanging(self, repaired_by, monkeypatch):
        monkeypatch.setattr(functions, "TIMEOUT_S", 0.02)
        end = threading.Event()
        yield repaired_by(lambda *_: end.wait())
        end.set()

    def test_a_letter_that_it_makes_impossible_is_skipped_and_the_others_are_sent(
        self, store, publisher, redrive, fill, repaired_by
    ):
        def enlarge(args, kwargs, headers):
            return args, {"amount": 10**4_300 if headers["id"] == "b" else 1}, headers

        for name in "abc":
            # With Celery's own copies of the arguments.
            headers = {"id": name, "task": "shop.charge", "kwargsrepr": "{'currency': 'EUX'}"}
            fill(name, envelope=envelope(name, headers=headers))
        done = redrive(orders=repaired_by(enlarge))
        assert (done.state, publisher.sent) == (OperationState.DONE, ["a", "c"])
        [row] = store.sendings.of_operation(done.id, states=frozenset({SendingState.SKIPPED})).rows
        assert row.task_id == "b"
        assert "ValueError: Exceeds the limit" in row.why

    def test_the_rest_of_a_slow_batch_is_given_back(
        self, publisher, redrive, fill, time, repaired_by
    ):
        fill(*"abcdef")

        def slow(*parts):
            time.pass_(20)
            return parts

        done = redrive(orders=repaired_by(slow))
        assert (done.state, done.counts.out) == (OperationState.DONE, 6)
        assert publisher.sent == list("abcdef")
        assert max(map(len, publisher.batches)) == 2

    def test_letters_of_one_that_hangs_are_skipped_and_then_the_run_ends(
        self, publisher, redrive, fill, states, hanging
    ):
        fill(*"abcdef")
        paused = redrive(orders=hanging)
        assert (paused.state, paused.counts.skipped) == (OperationState.PAUSED, 3)
        assert paused.cause.startswith(
            "3 calls did not end within 0.02 seconds, the last one of repair 'it'; "
        )
        assert (publisher.sent, set(states().values())) == ([], {"dead"})

    def test_a_worker_does_not_try_again(self, operations, fill, hanging):
        fill(*"abcd")
        made = operations.make(Filter(), hanging, who="tester", detached=True)
        assert operations.carry_on(made.id, lambda: False).is_permanent_error
        assert operations.get(made.id).state is OperationState.PAUSED

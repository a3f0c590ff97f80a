"""How outcomes steer a redrive: the canary, the guard, and the most letters in flight."""

from support.factories import attempt, letter

from celery_dlq import Filter
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing
from celery_dlq.model.states import State
from celery_dlq.redrive.ledger import Ledger


class TestCanary:
    def test_takes_letters_of_every_cause(self, publisher, worker, redrive, fill, store, time):
        fill(*"abcdefg", fingerprint="aaaa")
        store.letters.save([letter(one, attempt(minutes=9), fingerprint=one * 4) for one in "xy"])
        time.meanwhile = lambda: worker.run(fails=lambda task_id: task_id == "y")
        ended = redrive(canary=3, rate=4.0)
        assert (ended.state, publisher.sent) == (OperationState.ABORTED, ["a", "x", "y"])

    def test_of_a_limited_redrive_is_among_its_letters(
        self, publisher, worker, redrive, fill, store, time
    ):
        fill(*"abc", fingerprint="aaaa")
        store.letters.save([letter("x", attempt(minutes=9), fingerprint="xxxx")])
        time.meanwhile = worker.run
        assert redrive(canary=2, limit=3).state is OperationState.DONE
        assert publisher.sent == ["a", "b", "c"]

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
        mark, looked = Ledger.mark, []

        def look_first(ledger, result):
            if not looked:
                looked.append(1)
                store.letters.record_outcomes([ended])
                time.pass_(0.6)  # the next look at the store is due
                assert ledger.may_continue()
            mark(ledger, result)

        monkeypatch.setattr(Ledger, "mark", look_first)
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
    def test_a_small_redrive_whose_letters_fail_again_is_stopped_after_its_first_letters(
        self, publisher, worker, redrive, fill, time
    ):
        fill(*(f"{number:03}" for number in range(200)))
        time.meanwhile = lambda: worker.run(fails=lambda task_id: True)
        ended = redrive(batch=50)
        assert ended.state is OperationState.ABORTED
        assert len(publisher.sent) == 10

    def test_a_success_makes_room_for_one_more(self, publisher, worker, redrive, fill, time):
        fill(*(f"{number:03}" for number in range(200)))
        time.meanwhile = worker.run
        assert redrive(batch=500).state is OperationState.DONE
        assert [len(batch) for batch in publisher.batches] == [10, 20, 40, 80, 50]
        assert sum(time.slept) < 1

    def test_without_outcomes_the_room_grows_with_the_time(self, publisher, redrive, fill, time):
        fill(*(f"{number:03}" for number in range(200)))
        assert redrive(batch=500).counts.sent == 200
        assert 120 < sum(time.slept) < 150
        assert len(publisher.batches[0]) == 10

    def test_every_cause_is_tried_first(self, publisher, worker, redrive, fill, store, time):
        fill(*(f"a{number:03}" for number in range(300)), fingerprint="aaaa")
        store.letters.save(
            [
                letter(f"b{number:03}", attempt(minutes=9), fingerprint="bbbb")
                for number in range(200)
            ]
        )
        time.meanwhile = lambda: worker.run(fails=lambda task_id: task_id[0] == "b")
        ended = redrive(batch=500)
        assert ended.state is OperationState.ABORTED
        assert publisher.batches[0] == [*(f"{cause}00{n}" for cause in "ab" for n in range(5))]
        assert len(publisher.sent) == 10

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

    def test_a_disabled_guard_waits_for_nothing(self, publisher, redrive, fill, time):
        fill(*(f"{number:03}" for number in range(100)))
        orders = Orders(pacing=Pacing(batch=50), guard=Guard(enabled=False, window=1))
        assert redrive(orders=orders).counts.out == 100
        assert not time.slept

    def test_tasks_without_outcomes_are_not_waited_for(self, publisher, redrive, fill, silent):
        silent.add("shop.charge")
        fill(*"abcde")
        done = redrive(orders=Orders(guard=Guard(window=1)))
        assert (done.state, done.counts.unknown, done.counts.sent) == (OperationState.DONE, 5, 0)


def test_no_more_are_in_flight_than_was_ordered(store, publisher, worker, redrive, fill, time):
    fill(*"abcdefg")
    publisher.before = lambda letters: most.append(len(publisher.sent) + len(letters) - ended())
    most, time.meanwhile = [], worker.run

    def ended():
        return store.counts.letters(Filter(states=frozenset({State.RESOLVED})))

    assert redrive(max_in_flight=3).counts.out == 7
    assert max(most) == 3

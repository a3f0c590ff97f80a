"""The redrive loop on a SQLite store and a publisher that fails as told."""

from contextlib import contextmanager
from datetime import timedelta

import pytest
from celery import Celery
from factories import T0, envelope, letter

from celery_dlq import Filter, Settings
from celery_dlq.errors import FilterError
from celery_dlq.letter import NO_TASK
from celery_dlq.redrive import engine as module
from celery_dlq.redrive.engine import Redrive
from celery_dlq.redrive.plan import NAMED_ONLY, make_plan, redrivable
from celery_dlq.redrive.publish import Sent
from celery_dlq.states import Reason, State
from celery_dlq.store.sql import SQLStore

NOW = T0 + timedelta(hours=1)
EVERYTHING = Filter()


class FakePublisher:
    """Confirms everything, unless the test says otherwise for a batch."""

    def __init__(self):
        self.batches, self.answers = [], {}
        self.before = lambda letters: None

    def send(self, letters):
        self.before(letters)
        ids = [made.task_id for made in letters]
        self.batches.append(ids)
        return self.answers.get(len(self.batches), Sent(confirmed=list(ids)))

    @property
    def sent(self):
        return [task_id for batch in self.batches for task_id in batch]


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.task(_charge, name="shop.charge", shared=False)
    app.finalize()
    return app


def _charge(): ...


@pytest.fixture
def store(tmp_path):
    store = SQLStore(f"sqlite:///{tmp_path}/store.sqlite3")
    yield store
    store.close()


@pytest.fixture
def publisher(monkeypatch):
    publisher = FakePublisher()

    @contextmanager
    def opened(app):
        yield publisher

    monkeypatch.setattr(module, "open_publisher", opened)
    return publisher


@pytest.fixture
def run(app, store, publisher):
    """Redrive, with batches of two and without real waits."""

    def run(wanted=EVERYTHING, now=NOW, batch_size=2, **options):
        slept = options.pop("slept", [])
        engine = Redrive(
            app, store, Settings(batch_size=batch_size), sleep=slept.append, now=lambda: now
        )
        return engine.run(wanted, who="tester", **options)

    return run


def fill(store, *names, **changes):
    store.save([letter(name, **changes) for name in names])


def states(store):
    page = store.find(Filter(states=frozenset(State)), limit=100)
    return {made.task_id: made.state.value for made in page.letters}


def test_everything_goes_in_batches_and_is_marked(store, publisher, run):
    fill(store, *"abcde")
    told = []
    report = run(on_progress=lambda progress: told.append((progress.sent, progress.total)))
    assert sorted(publisher.sent) == list("abcde")
    assert [len(batch) for batch in publisher.batches] == [2, 2, 1]
    assert (report.planned, report.sent, report.unsent, report.skipped, report.error) == (
        5,
        5,
        0,
        (),
        None,
    )
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert set(states(store).values()) == {"redriven"}
    assert store.get("a").redrive_count == 1


def test_nothing_to_do_opens_no_broker(run, monkeypatch):
    monkeypatch.setattr(module, "open_publisher", lambda app: 1 / 0)
    assert run().planned == 0


def test_a_limit_takes_the_oldest_failures(store, publisher, run):
    for minutes, name in ((3, "young"), (1, "old"), (2, "middle")):
        moment = T0 + timedelta(minutes=minutes)
        fill(store, name, first_failed_at=moment, last_failed_at=moment)
    assert run(limit=2).planned == 2
    assert publisher.sent == ["old", "middle"]


def test_letters_that_die_during_the_run_are_not_swept_in(store, publisher, run):
    fill(store, *"abcd")
    late = NOW + timedelta(seconds=1)
    publisher.before = lambda letters: fill(store, "new", first_failed_at=late, last_failed_at=late)
    assert run().sent == 4
    assert states(store)["new"] == "dead"


def test_unknown_tasks_are_skipped_once_and_free_afterwards(store, publisher, run):
    fill(store, "x1", "x2", "x3", task="shop.gone")
    fill(store, "a")
    report = run()
    assert publisher.sent == ["a"]
    assert sorted(item.task_id for item in report.skipped) == ["x1", "x2", "x3"]
    assert report.unsent == 0
    assert states(store) == {"a": "redriven", "x1": "dead", "x2": "dead", "x3": "dead"}


def test_a_letter_without_a_way_back_is_skipped(store, publisher, run):
    fill(store, "lost", envelope=envelope("lost", queue="", exchange=""))
    [skipped] = run().skipped
    assert "queue it came from is not known" in skipped.why


def test_what_the_broker_refuses_stays_dead_and_the_rest_goes(store, publisher, run):
    fill(store, *"abc")
    publisher.answers[1] = Sent(confirmed=["b"], refused={"a": "no queue takes it"})
    report = run()
    assert (report.sent, report.unsent) == (2, 0)
    assert [(item.task_id, item.why) for item in report.skipped] == [("a", "no queue takes it")]
    assert states(store) == {"a": "dead", "b": "redriven", "c": "redriven"}


def test_a_lost_connection_stops_the_run_and_tells_three_fates_apart(store, publisher, run):
    fill(store, *"abcde")
    publisher.answers[1] = Sent(confirmed=["a"], uncertain=["b"], unsent=["c"], error="reset")
    report = run(batch_size=3)
    assert (report.sent, report.uncertain, report.unsent, report.error) == (1, 1, 3, "reset")
    assert states(store) == {"a": "redriven", "b": "claimed", "c": "dead", "d": "dead", "e": "dead"}


def test_an_uncertain_letter_is_free_again_when_its_lease_ends(store, publisher, run):
    fill(store, "a")
    publisher.answers[1] = Sent(uncertain=["a"])
    assert run().error == "the broker did not confirm in time"
    assert run(now=NOW + timedelta(seconds=119)).planned == 0
    assert run(now=NOW + timedelta(seconds=121)).sent == 1
    assert store.get("a").redrive_count == 1


def test_an_outcome_that_comes_before_the_mark_stands(store, publisher, run):
    from celery_dlq.letter import Outcome

    fill(store, "a")
    done = Outcome(task_id="a", redrive=1, succeeded_at=NOW, worker="w")
    publisher.before = lambda letters: store.record_outcomes([done])
    told = []
    assert run(on_progress=told.append).sent == 1
    assert told[0].overtaken == 1
    assert states(store) == {"a": "resolved"}


def test_a_stop_is_heeded_between_batches(store, publisher, run):
    fill(store, *"abcd")
    report = run(should_stop=lambda: bool(publisher.batches))
    assert (report.sent, report.unsent, report.interrupted) == (2, 2, True)
    assert sorted(states(store).values()) == ["dead", "dead", "redriven", "redriven"]


def test_a_stop_is_heeded_while_waiting_for_the_pace(store, publisher, run):
    fill(store, *"ab")
    slept = []
    report = run(rate=1.0, slept=slept, should_stop=lambda: len(slept) >= 3)
    assert (report.sent, report.interrupted) == (1, True)
    assert max(slept) <= 0.25
    assert sorted(states(store).values()) == ["dead", "redriven"]


def test_a_result_backend_that_is_away_sends_nothing(store, publisher, run, monkeypatch):
    def refuse(app, letters):
        raise ConnectionError("redis is gone")

    monkeypatch.setattr(module, "reopen_chords", refuse)
    fill(store, *"ab")
    report = run()
    assert (report.sent, report.unsent) == (0, 2)
    assert "result backend does not answer" in report.error
    assert set(states(store).values()) == {"dead"}


def test_a_publisher_that_raises_leaves_claims_to_their_lease(store, publisher, run):
    fill(store, *"abc")

    def crash(letters):
        raise KeyboardInterrupt

    publisher.before = crash
    with pytest.raises(KeyboardInterrupt):
        run()
    assert sorted(states(store).values()) == ["claimed", "claimed", "dead"]


def test_a_redriven_letter_is_taken_only_by_name(store, publisher, run):
    fill(store, "a")
    run()
    assert run().planned == 0
    assert run(Filter(states=frozenset({State.REDRIVEN}))).sent == 1
    assert store.get("a").redrive_count == 2


def test_redriven_letters_are_each_sent_once_more(store, publisher, run):
    fill(store, *"abcde")
    run()
    publisher.batches.clear()
    report = run(Filter(states=frozenset({State.REDRIVEN})), limit=4)
    assert (report.sent, report.unsent) == (4, 0)
    assert len(set(publisher.sent)) == 4


def test_the_run_is_audited(store, run):
    fill(store, "a")
    run()
    from sqlalchemy import select

    from celery_dlq.store import tables

    acts = store.database.read(lambda c: c.execute(select(tables.audit)).mappings().all())
    assert [(act["who"], act["act"]) for act in acts] == [("tester", "redrive")]


def test_the_plan_says_what_the_run_will_do(app, store, run):
    fill(store, *"abc")
    fill(store, "x", task="shop.gone")
    run(Filter(ids=("c",)))
    before = states(store)
    plan = make_plan(app, store, Filter())
    assert (plan.matched, plan.sendable, plan.in_flight) == (4, 2, 1)
    assert plan.by_task == {"shop.charge": 2}
    assert [item.task_id for item in plan.skipped] == ["x"]
    assert any("awaited" in note for note in plan.notes)
    assert states(store) == before
    limited = make_plan(app, store, Filter(), limit=1)
    assert limited.sendable == 1
    assert any("oldest" in note for note in limited.notes)


def test_closed_letters_cannot_be_asked_for():
    with pytest.raises(FilterError, match="resolved cannot be redriven"):
        redrivable(Filter(states=frozenset({State.RESOLVED})))
    assert redrivable(Filter()).states == {State.DEAD}


@pytest.mark.parametrize("reason", NAMED_ONLY)
class TestLettersThatMustBeNamed:
    def test_are_left_alone_by_a_redrive_of_everything(self, store, publisher, run, app, reason):
        fill(store, "fine")
        fill(store, "apart", reason=reason)
        plan = make_plan(app, store, EVERYTHING)
        assert (plan.matched, plan.sendable, plan.in_flight) == (2, 1, 0)
        assert f"--reason {reason.value}" in plan.notes[0]
        assert run().sent == 1
        assert publisher.sent == ["fine"]

    @pytest.mark.parametrize("by", ["id", "reason"])
    def test_are_sent_when_they_are(self, store, publisher, run, app, reason, by):
        fill(store, "apart", reason=reason)
        wanted = Filter(ids=("apart",)) if by == "id" else Filter(reason=reason)
        assert (make_plan(app, store, wanted).sendable, make_plan(app, store, wanted).notes) == (
            1,
            (),
        )
        assert run(wanted).sent == 1


def test_what_names_no_task_is_sent_when_it_is_named(app, store, publisher, run):
    store.save([letter("a", task=NO_TASK, reason=Reason.MALFORMED), letter("b", task="far.away")])
    assert make_plan(app, store, Filter(reason=Reason.MALFORMED)).by_task == {NO_TASK: 1}
    report = run(Filter(ids=("a", "b")))
    assert publisher.sent == ["a"]
    assert [skipped.task_id for skipped in report.skipped] == ["b"]

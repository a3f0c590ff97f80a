"""Celery's own tasks that carry tasks of the user, in a worker that runs in a thread."""

from __future__ import annotations

import shutil
import time
import uuid

import pytest
from celery import Celery, Task
from celery.canvas import chunks, xmap, xstarmap
from celery.exceptions import Ignore, Reject
from support.workers.embedded_worker import PATIENCE_S, QUICK, working

from celery_dlq import DeadLetterQueue, DLQTask, Filter, Reason, State, Verdict
from celery_dlq.worker.builtin_tasks import Carrier, capture_carriers
from celery_dlq.worker.end.classes import RecordedRequest, bound


class Shop:
    """An app whose tasks fail for some orders until they are fixed."""

    def __init__(self, directory, task_cls):
        self.is_fixed, self.ran = False, []
        self.app = Celery("carried", broker="memory://", task_cls=task_cls, set_as_current=False)
        self.app.conf.update(
            task_default_queue=f"carried-{uuid.uuid4().hex}",
            task_ignore_result=True,
            broker_transport_options=QUICK,
            dlq_store_url=f"sqlite:///{directory}/store.sqlite3",
            dlq_spool_dir=str(directory / "spool"),
            dlq_retry_base=0.01,
            task_annotations={"celery.map": {"max_retries": 1}},
        )
        self.exc = ConnectionError("the bank is down")

        @self.app.task(base=DLQTask, name="charge", shared=False, dlq_terminal=[LookupError])
        def charge(order, fails=False):
            self.run(order, fails)

        @self.app.task(base=DLQTask, name="poll", bind=True, shared=False)
        def poll(task, order, fails=False):
            try:
                self.run(order, fails)
            except ConnectionError:
                task.retry()

        @self.app.task(base=Task, name="plain", shared=False)
        def plain(order, fails=False):
            self.run(order, fails)

        self.app.finalize()
        self.dlq = DeadLetterQueue.of(self.app)

    def run(self, order, fails):
        self.ran.append(order)
        if (fails or order is None) and not self.is_fixed:
            raise self.exc

    def signature(self, name):
        return self.app.tasks[name].s()

    def letters(self):
        return self.dlq.store.letters.find(Filter(states=frozenset(State))).letters

    def wait_for(self, what, is_so):
        deadline = time.monotonic() + PATIENCE_S
        while not (found := is_so()):
            assert time.monotonic() < deadline, f"waited in vain for {what}; ran {self.ran}"
            time.sleep(0.01)
        return found

    def dead(self):
        [letter] = self.wait_for("a letter", self.letters)
        return self.dlq.store.letters.get(letter.task_id)


@pytest.fixture(params=[Task, DLQTask], ids=["plain-app", "dlq-app"])
def shop(request, tmp_path, empty_store):
    shutil.copy(empty_store, tmp_path / "store.sqlite3")
    shop = Shop(tmp_path, request.param)
    yield shop
    shop.app.close()


ITEMS = [(1,), (2, True), (3,)]


def test_an_item_of_starmap_that_raises_makes_a_letter_of_the_whole_message(shop):
    with working(shop.app):
        xstarmap(shop.signature("charge"), ITEMS, app=shop.app).apply_async()
        letter = shop.dead()
        assert shop.ran == [1, 2], "no other attempt runs the first item again"
        assert (letter.task, letter.reason) == ("celery.starmap", Reason.EXHAUSTED)
        assert (letter.verdict, letter.message) == (Verdict.TRANSIENT, "the bank is down")
        assert "charge" in letter.explanation.evidence
        assert "a redrive runs its whole message again" in letter.explanation.evidence
        assert letter.kwargs["it"] == [[1], [2, True], [3]]
        shop.is_fixed = True
        shop.dlq.redrives.start(Filter(ids=(letter.task_id,)), who="tester")
        shop.wait_for("the success", lambda: shop.letters()[0].state is State.RESOLVED)
    assert shop.ran == [1, 2, 1, 2, 3]


def test_chunks_are_captured_one_by_one(shop):
    with working(shop.app):
        chunks(shop.signature("charge"), [*ITEMS, (4,)], 2, app=shop.app).apply_async()
        letter = shop.dead()
        shop.wait_for("the other chunk", lambda: 4 in shop.ran)
    assert letter.kwargs["it"] == [[1], [2, True]]


def test_map_is_captured_and_judged_by_the_rules_of_the_carried_task(shop):
    shop.exc = KeyError("eur")
    with working(shop.app):
        xmap(shop.signature("charge"), [1, None], app=shop.app).apply_async()
        letter = shop.dead()
    assert (letter.task, letter.reason) == ("celery.map", Reason.TERMINAL)
    assert letter.rule == "task.dlq_terminal"


def test_attempts_of_its_own_are_the_users_choice(shop):
    with working(shop.app):
        xmap(shop.signature("charge"), [1, None], app=shop.app).apply_async()
        letter = shop.dead()
    assert shop.ran == [1, None, 1, None]
    assert len(letter.attempts) == 2


def test_a_retry_within_an_item_cannot_be_sent_and_is_a_letter(shop):
    with working(shop.app):
        xstarmap(shop.signature("poll"), ITEMS, app=shop.app).apply_async()
        assert shop.dead().task == "celery.starmap"
    assert shop.ran == [1, 2]


def test_what_cannot_be_sent_is_a_letter_too(shop):
    with working(shop.app):
        sig = dict(shop.signature("charge"))
        shop.app.send_task("celery.chunks", kwargs={"task": sig, "it": 7, "n": 2})
        letter = shop.dead()
    assert (letter.task, letter.exception_type) == ("celery.chunks", "TypeError")


def test_items_of_another_base_class_stay_celerys(shop):
    with working(shop.app):
        xstarmap(shop.signature("plain"), ITEMS, app=shop.app).apply_async()
        xstarmap(shop.signature("charge"), [(7,)], app=shop.app).apply_async()
        shop.wait_for("the second message", lambda: 7 in shop.ran)
    assert not shop.letters()


@pytest.mark.parametrize(("exc", "count"), [(Ignore(), 0), (Reject("no", requeue=False), 1)])
def test_an_item_may_drop_or_reject_the_message(shop, exc, count):
    shop.exc = exc
    with working(shop.app):
        xstarmap(shop.signature("charge"), ITEMS, app=shop.app).apply_async()
        xstarmap(shop.signature("charge"), [(7,)], app=shop.app).apply_async()
        shop.wait_for("the second message", lambda: 7 in shop.ran)
    assert [letter.reason for letter in shop.letters()] == [Reason.REJECTED] * count


def test_a_chord_that_is_not_polled_any_more_is_a_letter(shop):
    """Celery sends no further message, and the body never runs."""
    member = shop.app.AsyncResult("member")
    with working(shop.app):
        body = dict(shop.signature("charge"))
        shop.app.send_task(
            "celery.chord_unlock",
            ("group", body),
            {"result": [member.as_tuple()], "max_retries": 0, "interval": 0},
        )
        letter = shop.dead()
    assert letter.task == "celery.chord_unlock"


def test_its_message_is_recorded_while_it_runs(shop):
    capture_carriers(shop.app)
    capture_carriers(shop.app)
    task = shop.app.tasks["celery.starmap"]
    with bound(task, shop.dlq.capture):
        assert issubclass(task.Request, RecordedRequest)
    assert not isinstance(task._celerys, Carrier)

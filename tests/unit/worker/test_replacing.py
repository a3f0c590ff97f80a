"""A redriven message whose task replaces itself, in a worker that runs in a thread."""

from __future__ import annotations

import shutil
import time
import uuid

import pytest
from celery import Celery
from celery.exceptions import Retry
from support.workers.embedded_worker import PATIENCE_S, QUICK, working

from celery_dlq import DeadLetterQueue, DLQTask, Filter, Reason, State


class Shop:
    """An app with tasks that fail until they are fixed, and replace themselves from then on."""

    def __init__(self, directory):
        self.is_fixed, self.ran, self.runs = False, [], []
        self.app = Celery("replacing", broker="memory://", set_as_current=False)
        self.app.conf.update(
            task_default_queue=f"replacing-{uuid.uuid4().hex}",
            task_ignore_result=True,
            broker_transport_options=QUICK,
            dlq_store_url=f"sqlite:///{directory}/store.sqlite3",
            dlq_spool_dir=str(directory / "spool"),
        )

        @self.app.task(base=DLQTask, name="charge", bind=True, shared=False)
        def charge(task, order):
            self.check()
            return task.replace(self.app.tasks["mail"].s(order))

        @self.app.task(base=DLQTask, name="mail", shared=False)
        def mail(order):
            self.ran.append(f"mail {order}")

        @self.app.task(base=DLQTask, name="pages", bind=True, shared=False)
        def pages(task, left, fails):
            self.runs.append(task.dlq)
            self.check()
            if left:
                task.replace(task.s(left - 1, fails))
            if fails:
                raise ValueError("the last page")
            self.ran.append("last page")

        @self.app.task(base=DLQTask, name="later", shared=False)
        def later():
            raise Retry("later", when=1)

        @self.app.task(base=DLQTask, name="later_sent", bind=True, shared=False)
        def later_sent(task):
            if not task.request.retries:
                task.retry(countdown=0, throw=False)
                raise Retry("later", when=0)
            self.ran.append("again")

        self.app.finalize()
        self.dlq = DeadLetterQueue.of(self.app)

    def check(self):
        if not self.is_fixed:
            raise ValueError("not fixed")

    def send(self, name, *args):
        return self.app.tasks[name].apply_async(args).id

    def redrive(self, *sent):
        self.is_fixed = True
        return self.dlq.redrives.start(Filter(ids=sent), who="tester")

    def letter(self, task_id):
        return self.dlq.store.letters.get(task_id)

    def wait_for(self, task_id, state, redrive=0):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.letter(task_id)
            if found and found.state is state and found.redrive_count == redrive:
                return found
            assert time.monotonic() < deadline, f"waited in vain; now {found}"
            time.sleep(0.01)


@pytest.fixture
def shop(tmp_path, empty_store):
    shutil.copy(empty_store, tmp_path / "store.sqlite3")
    shop = Shop(tmp_path)
    with working(shop.app):
        yield shop
    shop.app.close()


def test_its_letter_is_resolved_when_another_task_goes_on(shop):
    sent = shop.send("charge", 1)
    shop.wait_for(sent, State.DEAD)
    shop.redrive(sent)
    shop.wait_for(sent, State.RESOLVED, redrive=1)
    deadline = time.monotonic() + PATIENCE_S
    while shop.ran != ["mail 1"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_replacement_by_the_same_task_belongs_to_the_same_redrive(shop):
    sent = shop.send("pages", 2, False)
    shop.wait_for(sent, State.DEAD)
    shop.redrive(sent)
    letter = shop.wait_for(sent, State.RESOLVED, redrive=1)
    assert shop.ran == ["last page"]
    assert [run.redrive for run in shop.runs] == [0, 1, 1, 1]
    assert [run.first_failed_at for run in shop.runs] == [None, *[letter.first_failed_at] * 3]
    assert len({run.key for run in shop.runs}) == 1


def test_if_that_one_fails_the_letter_is_dead_again(shop):
    sent = shop.send("pages", 2, True)
    shop.wait_for(sent, State.DEAD)
    shop.redrive(sent)
    again = shop.wait_for(sent, State.DEAD, redrive=1)
    assert (again.message, again.args) == ("the last page", [2, True]), "it keeps its message"
    assert [(one.redrive, one.number) for one in again.attempts] == [(0, 1), (1, 1)]


def test_in_a_chain_it_belongs_to_the_same_redrive_too(shop):
    first = shop.app.tasks["pages"].s(2, False)
    sent = (first | shop.app.tasks["mail"].si(7)).apply_async().parent.id
    shop.wait_for(sent, State.DEAD)
    shop.redrive(sent)
    shop.wait_for(sent, State.RESOLVED, redrive=1)
    deadline = time.monotonic() + PATIENCE_S
    while shop.ran != ["last page", "mail 7"]:
        assert time.monotonic() < deadline, shop.ran
        time.sleep(0.01)


def test_in_a_chain_its_failure_is_that_of_the_letter(shop):
    first = shop.app.tasks["pages"].s(2, True)
    sent = (first | shop.app.tasks["mail"].si(7)).apply_async().parent.id
    shop.wait_for(sent, State.DEAD)
    shop.redrive(sent)
    assert shop.wait_for(sent, State.DEAD, redrive=1).message == "the last page"


def test_a_retry_that_was_sent_before_it_was_raised_is_no_letter(shop):
    sent = shop.send("later_sent")
    deadline = time.monotonic() + PATIENCE_S
    while shop.ran != ["again"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert shop.letter(sent) is None


def test_a_retry_that_was_raised_without_being_sent_is_a_letter(shop):
    sent = shop.send("later")
    dead = shop.wait_for(sent, State.DEAD)
    assert (dead.reason, dead.rule) == (Reason.TERMINAL, "task.aborted")
    assert "sends no message; call self.retry() instead" in dead.explanation.evidence

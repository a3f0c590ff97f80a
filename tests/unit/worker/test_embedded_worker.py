"""Workers that run in threads of this process, as in the tests of users: what they start ends with them."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from pathlib import Path

import pytest
from celery import Celery
from celery.worker.request import Request
from celery.worker.strategy import default
from support.workers.embedded_worker import PATIENCE_S, QUICK, working

from celery_dlq import DeadLetterQueue, DLQTask, State
from celery_dlq.model.fingerprint import own_fingerprint
from celery_dlq.worker import consumer as module


@pytest.fixture
def make_app(tmp_path, empty_store):
    """Apps with one task and a store in a file; each has a queue of its own."""
    made = []

    def make(base=DLQTask, options=None, **settings):
        shutil.copy(empty_store, tmp_path / f"store{len(made)}.sqlite3")
        app = Celery(f"embedded{len(made)}", broker="memory://", set_as_current=False)
        app.conf.update(
            task_default_queue=f"embedded-{uuid.uuid4().hex}",
            task_ignore_result=True,
            broker_transport_options=QUICK,
            dlq_store_url=f"sqlite:///{tmp_path}/store{len(made)}.sqlite3",
            dlq_spool_dir=str(tmp_path / f"spool{len(made)}"),
            **settings,
        )
        app.told = []

        @app.task(base=base, name="charge", shared=False, **(options or {}))
        def charge(order):
            raise ValueError(order)

        app.finalize()
        # Its threads, too, are the worker's.
        DeadLetterQueue.of(app).on_dead_letter(app.told.append)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


def wait_until(what, ready):
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)


def die(app, number=1):
    """Send so many messages that fail, and wait for their letters."""
    sent = [app.tasks["charge"].delay(order).id for order in range(number)]
    store = app.dead_letter_queue.store
    wait_until(
        "letters are stored",
        lambda: all(
            (found := store.letters.get(one)) and found.state is State.DEAD for one in sent
        ),
    )
    return sent


def open_files(directory):
    """Files of the store that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(link))
    return [path for path in found if path.startswith(str(directory))]


def ours(threads):
    return sorted(thread.name for thread in threads if thread.name.startswith("dlq-"))


@pytest.mark.parametrize("shared", [False, True], ids=["an app for each", "the same app"])
def test_three_workers_one_after_the_other_leave_nothing_behind(make_app, tmp_path, shared):
    before, app = set(threading.enumerate()), make_app()
    for _ in range(3):
        app = app if shared else make_app()
        with working(app):
            die(app)
            assert {"dlq-writer", "dlq-upkeep"} <= {*ours(threading.enumerate())}
        assert ours(set(threading.enumerate()) - before) == []
        assert open_files(tmp_path) == []
    assert len(app.told) == (3 if shared else 1)
    assert set(threading.enumerate()) <= before


def test_letters_that_wait_are_written_before_the_threads_end(make_app):
    app = make_app()
    with working(app):
        charge = app.tasks["charge"]
        store = app.dead_letter_queue.store
        sent = [charge.delay(order).id for order in range(50)]
        wait_until("the first has died", lambda: store.letters.get(sent[0]))
    store = app.dead_letter_queue.store
    dead = {one for one in sent if store.letters.get(one)}
    # What the worker did not take any more, the next one does.
    with working(app):
        wait_until("the rest has died", lambda: all(store.letters.get(one) for one in sent))
    assert sent[0] in dead


def test_two_workers_of_an_app_at_the_same_time_have_gates_of_their_own(make_app):
    app = make_app(dlq_breaker_streak=2, dlq_breaker_recovery=60.0)
    queue = app.conf.task_default_queue
    with working(app) as first:
        die(app, 2)
        wait_until("its circuit is open", lambda: status_of(first)["circuits"])
        first.consumer.call_soon(first.consumer.task_consumer.cancel_by_queue, queue)
        wait_until(
            "it takes no more", lambda: not first.consumer.task_consumer.consuming_from(queue)
        )
        with working(app) as second:
            die(app, 2)  # a circuit of both would hold them
            wait_until("its circuit is open", lambda: status_of(second)["circuits"])
            app.tasks["charge"].delay(2)
            wait_until("a message is held", lambda: status_of(second)["held"])
            assert status_of(first)["held"] == 0


def status_of(worker):
    return worker.consumer.blueprint.info(worker.consumer)["dlq"]


class Logging(Request):
    """A Request class as in Celery's documentation, on Celery's own."""

    heard = []

    def on_failure(self, exc_info, send_failed_event=True, return_ok=False):
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        self.heard.append(self.id)


def test_a_task_with_a_request_class_of_its_own_is_captured_and_its_class_is_used(make_app):
    Logging.heard.clear()
    app = make_app(options={"Request": Logging})
    with working(app):
        sent = die(app)
        wait_until("the user's own class has heard", lambda: Logging.heard == sent)
    assert app.tasks["charge"].Request is Logging, "the task is as the user made it"


def test_a_task_that_is_not_captured_is_told_once_when_a_worker_starts(make_app, monkeypatch):
    told = []
    monkeypatch.setattr(module.logger, "warning", lambda text, *args: told.append(text % args))
    app = make_app(options={"Strategy": staticmethod(odd_strategy)})
    with working(app):
        pass
    assert len(told) == 1
    assert told[0].startswith("task charge: it has a Strategy of its own, odd_strategy")


def odd_strategy(task, app, consumer):
    return default(task, app, consumer)


def by_function(failure):
    return failure.frames[-1].rpartition(":")[2]


def test_a_worker_groups_by_the_recipe_and_a_regrouping_applies_another(make_app):
    app = make_app(dlq_fingerprint=by_function)
    app.tasks["charge"].delay("one")
    with working(app):
        wait_until("the letter is told", lambda: app.told)
    (own,) = app.told
    assert own.fingerprint == own_fingerprint(["charge"])

    app.conf.dlq_fingerprint = None
    dlq = app.dead_letter_queue
    for name in ("_read_settings", "settings", "grouping"):
        vars(dlq).pop(name)
    assert dlq.groups.regrouper().begin(who="ann", why="") == 1
    assert dlq.groups.regrouper().run()
    app.tasks["charge"].delay("two")
    with working(app):
        wait_until("another letter is told", lambda: len(app.told) > 1)
    for letter in app.told:
        found = dlq.store.letters.get(letter.task_id)
        assert found.fingerprint == own.fingerprint, "the group is the same"
        assert found.grounds.recipe == ""


def test_a_worker_makes_its_store_and_says_which_one_it_is(make_app, tmp_path, caplog):
    app, file = make_app(), tmp_path / "store0.sqlite3"
    file.unlink()
    with caplog.at_level("INFO"), working(app):
        app.tasks["charge"].delay(1)
        wait_until("the letter is stored", lambda: app.told)
    assert f"dead letters go to sqlite:///{file}\n" in caplog.text
    assert file.exists()

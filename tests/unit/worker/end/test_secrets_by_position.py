"""A positional argument has the name of its parameter, and is hidden by it."""

import functools
import json

import pytest
from support.factories import T0, attempt, envelope, letter

from celery_dlq import DLQTask
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.redact import REDACTED
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.states import Reason
from celery_dlq.store.base import Argument, Filter
from celery_dlq.store.hiding import hide_letter
from celery_dlq.view.lookup import hash_secret_arguments, with_positions
from celery_dlq.worker.end.letters import dead_letter
from celery_dlq.worker.failure import failure_after
from celery_dlq.worker.message import Contents

SECRET = "hunter2xyz"


class Odd:
    """Something that has no signature."""

    def __call__(self, *args): ...

    @property
    def __signature__(self):
        raise RuntimeError("gotcha")


@pytest.fixture
def app(shop_app):
    @shop_app.task(name="shop.login", base=DLQTask, shared=False)
    def login(user, password, *more, note="", **others): ...

    @shop_app.task(
        name="shop.bound", base=DLQTask, bind=True, autoretry_for=(OSError,), shared=False
    )
    def bound(self, password, user): ...

    @shop_app.task(name="shop.only_by_name", base=DLQTask, shared=False)
    def only_by_name(user, *, password=""): ...

    @shop_app.task(name="shop.odd", base=DLQTask, shared=False)
    def odd(password): ...

    odd.run = Odd()
    wrapped = functools.wraps(login.run)(lambda *args: None)
    shop_app.task(name="shop.wrapped", base=DLQTask, shared=False)(wrapped)
    return shop_app


@pytest.fixture
def queue(app):
    return DeadLetterQueue.of(app)


@pytest.fixture
def made(queue):
    """The letter that a worker makes of a call."""

    def made(task, args, kwargs=None):
        failure = failure_after(
            (attempt(),), Reason.TERMINAL, traceback="", grounds=Grounds(needs_message=True)
        )
        body = json.dumps([args, kwargs or {}, {}]).encode()
        sent = envelope(headers={"id": "0d3f", "task": task}, body=body)
        return dead_letter(
            "0d3f", sent, Contents({"task": task}, args, kwargs or {}), failure, queue
        )

    return made


@pytest.mark.parametrize(
    ("task", "args", "shown"),
    [
        ("shop.login", ["u1", SECRET], ["u1", REDACTED]),
        ("shop.login", ("u1", {"deep": [SECRET]}), ["u1", REDACTED]),
        ("shop.login", ["u1", SECRET, "a", "b"], ["u1", REDACTED, "a", "b"]),
        ("shop.login", ["u1", None], ["u1", None]),
        ("shop.login", ["u1"], ["u1"]),
        ("shop.login", [], []),
        ("shop.bound", [SECRET, "u1"], [REDACTED, "u1"]),
        ("shop.wrapped", ["u1", SECRET], ["u1", REDACTED]),
        ("shop.only_by_name", ["u1", "more"], ["u1", "more"]),
        ("shop.odd", ["u1"], ["u1"]),
        ("shop.unknown", ["u1"], ["u1"]),
        ("shop.login", "not a list", "not a list"),
        ("shop.login", None, None),
    ],
)
def test_at_capture(made, task, args, shown):
    assert made(task, args).args == shown


def test_neither_a_search_nor_a_value_finds_it_and_the_message_stays(app, queue, made):
    queue.store.letters.save([made("shop.login", ["u1", SECRET, "a"])])

    def found(**wanted):
        return [one.task_id for one in queue.store.letters.find(Filter(**wanted), limit=9).letters]

    assert found(search=SECRET) == found(values=(SECRET,)) == []
    by_place = with_positions(app, Filter(args=(Argument(path="password", value=SECRET),)))
    assert found(args=by_place.args) == found(args=(Argument(path="1", value=SECRET),)) == []
    assert found(search="u1") == found(values=("u1",)) == found(values=("a",)) == ["0d3f"]
    assert SECRET in queue.store.letters.get("0d3f").envelope.body.decode()


def test_with_a_key_it_is_found_by_its_name(app, queue, made):
    app.conf.dlq_search_redacted_key = "a long random text"
    for name in ("_read_settings", "settings", "redactor"):
        vars(queue).pop(name, None)
    queue.store.letters.save([made("shop.login", ["u1", SECRET])])
    wanted = Filter(args=(Argument(path="password", value=SECRET),))
    wanted = with_positions(app, hash_secret_arguments(queue.redactor, wanted))
    [found] = queue.store.letters.find(wanted, limit=9).letters
    assert hide_letter(found, queue.redactor).args == ["u1", REDACTED]


def test_a_letter_of_an_earlier_release_is_shown_without_it(queue):
    stored = letter(task="shop.login", args=["u1", SECRET])
    queue.store.letters.save([stored])
    assert hide_letter(queue.store.letters.get("0d3f"), queue.redactor).args == ["u1", REDACTED]


def test_the_fingerprint_before_and_after_are_the_same(queue, made):
    after = made("shop.login", ["u1", SECRET])
    failure = failure_after((attempt(),), Reason.TERMINAL, traceback="", grounds=after.grounds)
    before = queue.grouping.fingerprint_of("shop.login", failure, ["u1", SECRET], {})
    assert before == after.fingerprint


def test_a_changed_one_is_reported_without_its_value(queue, made):
    queue.store.letters.save([made("shop.login", ["u1", SECRET])])
    diff = queue.edit("0d3f", who="ann", args=["u2", f"{SECRET}2"])
    assert diff == (
        '- args[0] = "u1"\n+ args[0] = "u2"\n- args[1] = [redacted]\n+ args[1] = [redacted]'
    )
    edited = queue.store.letters.get("0d3f")
    assert edited.args == ["u2", REDACTED]
    assert f"{SECRET}2" in edited.envelope.body.decode()
    assert edited.last_failed_at == T0


def test_a_command_imports_the_task_of_a_letter_once(app, queue, monkeypatch):
    imported = []

    def late():
        imported.append(1)
        if len(imported) == 1:

            @app.task(name="shop.late", base=DLQTask, shared=False)
            def late(user, password): ...

        raise ImportError("another module")

    monkeypatch.setattr(app.loader, "import_default_modules", late)
    named = queue.redactor.named
    assert named("shop.late", ["u1", SECRET]) == ["u1", REDACTED]
    assert named("shop.unknown", ["u1", SECRET]) == ["u1", SECRET]
    assert imported == [1]

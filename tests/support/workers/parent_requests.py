"""What the worker's parent deals with, for tests of requests without a worker."""

from __future__ import annotations

from types import SimpleNamespace

from billiard.einfo import ExceptionInfo
from celery import Celery
from celery.worker import state
from celery.worker.request import create_request_cls

from celery_dlq import DLQTask
from celery_dlq.worker.end.request import DLQRequest


class HeldDesk:
    """Keeps what is to be written, and what is to follow, until the test lets it go on."""

    #: Where questions are put to; without it they have no answer.
    store = None
    is_in_loop = False

    def __init__(self):
        self.records, self.waiting = [], []
        #: The records that do not wait for others.
        self.urgent = []

    def write(self, what, then, urgent=False):
        self.records.append(what)
        self.urgent += [what] if urgent else []
        self.waiting.append(then)

    def write_now(self, what):
        self.records.append(what)

    def ask(self, question, then):
        self.waiting.append(lambda: then(question(self.store) if self.store else None))

    def ask_together(self, question, about, then):
        self.ask(lambda store: question(store, [about])[0], then)

    def release(self):
        while self.waiting:
            self.waiting.pop(0)()


class Message:
    """What a transport delivers, as far as a request looks."""

    content_type, content_encoding = "application/json", "utf-8"

    def __init__(self, task, **headers):
        self.body = b'[[17], {"token": "s3cret"}, {}]'
        self.payload = ([17], {"token": "s3cret"}, {})
        self.headers = {"id": "4711", "task": task, "retries": 0, "root_id": "4711", **headers}
        self.properties = {
            "correlation_id": "4711",
            "reply_to": "r",
            "priority": 2,
            "delivery_tag": "t",
        }
        self.delivery_info = {"exchange": "", "routing_key": "slow", "redelivered": False}


def einfo(exc):
    try:
        raise exc
    except BaseException:
        return ExceptionInfo()


def charging_app(**settings):
    """An app with one task, ``shop.charge``."""
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(settings)

    @app.task(base=DLQTask, name="shop.charge", shared=False, dlq_tags=("money",))
    def charge(*args, **kwargs): ...

    app.finalize()
    return app


def held_desk(app):
    """What the requests of ``app`` have written from now on."""
    desk = app.dead_letter_queue.capture.__dict__["desk"] = HeldDesk()
    return desk


def request_maker(app):
    """Makes requests as the worker's strategy does; what each acknowledged or rejected is on it."""

    def make(redelivered=False, task="shop.charge", pool=None, payload=None, **headers):
        registered, done = app.tasks[task], []
        pool = pool or SimpleNamespace(apply_async=None)
        cls = create_request_cls(DLQRequest, registered, pool, "w@host", None, app=app)
        message = Message(task, **headers)
        message.payload = payload or message.payload
        message.delivery_info["redelivered"] = redelivered
        request = cls(
            message, app=app, task=registered, hostname="w@host", body=message.body,
            on_ack=lambda *_: done.append("ack"), on_reject=lambda *a: done.append(f"reject {a[-1]}"),
        )  # fmt: skip
        request.done = done
        return request

    return make


def arrivals(app, consumer):
    """Lets requests with these headers come to ``consumer``."""
    make = request_maker(app)

    def arrive(**headers):
        request = make(**headers)
        state.task_reserved(request)
        consumer.on_task_request(request)
        return request

    return arrive


class Ticks:
    """The timer of a worker, whose calls are made when the test says so."""

    def __init__(self):
        self.ticks = []

    def call_after(self, seconds, call):
        self.ticks.append(call)

    def tick(self):
        ticks, self.ticks = self.ticks, []
        for call in ticks:
            call()

"""Modes: what is wrong with a message, and what is done to it from outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial

from matrix.bodies import sends
from matrix.mode import BROKERS, Mode, Watched, done, dropped, letter
from matrix.stage import Stage
from project import wait_for

from celery_dlq.model.states import Reason

one = partial(Mode, scene="calm")

_ACKED = "Acknowledged and gone, without a result; a line in the log."
_REJECTED = "Rejected: gone on Redis; on RabbitMQ to the queue's dead-letter exchange."
_ENDS_WORKERS = "It ends the worker, or its connection, and that of every worker after it."


def _foreign(id_: str, title: str, kind: str, plain: str) -> Mode:
    return one(
        id=id_, title=title, plain=plain, send=lambda stage: stage.foreign(kind),
        ours="A letter with the message as it was, byte for byte.",
        end=letter(Reason.MALFORMED, attempts=None, result=None, runs=0),
    )  # fmt: skip


_UNREADABLE = (
    _foreign("bad-json", "Its body is not JSON", "no JSON", _ACKED),
    _foreign("bad-utf8", "Its body is not UTF-8", "no UTF-8", _ACKED),
    _foreign("bad-compression", "It says that it is compressed, and is not",
             "broken compression", _ACKED),
    _foreign("content-disallowed", "Its content type is not accepted", "pickle is not accepted",
             _REJECTED),
    _foreign("content-unknown", "Its content type is not known",
             "unknown content type", _REJECTED),
)  # fmt: skip

_MISSHAPEN = (
    _foreign("no-body", "Its body is empty", "no body", _ENDS_WORKERS),
    _foreign("body-no-triple", "Its body is not a list of three", "body of two", _ENDS_WORKERS),
    _foreign("headers-without-id", "Its headers have no `id`", "no id", _ENDS_WORKERS),
    _foreign("kwargs-no-mapping", "Its keyword arguments are a list", "kwargs are not a table",
             "Acknowledged; reported as a success that never was."),
    _foreign("bad-eta", "Its `eta` is not a time", "bad eta", _REJECTED),
    _foreign("bad-expires", "Its `expires` is not a time", "bad expires", _REJECTED),
    _foreign("foreign-json", "It is JSON, but not a task", "JSON that is not a task", _REJECTED),
    _foreign("foreign-binary", "It is binary, and no task", "binary", _REJECTED),
    _foreign("foreign-text", "It is text, and no task", "text", _ACKED),
    replace(
        _foreign("unknown-task", "The worker knows no task of that name", "unknown task", _REJECTED),
        ours="A letter; redrive it when the task is there.",
        end=letter(Reason.UNKNOWN_TASK, attempts=None, result=None, runs=0),
    ),
)  # fmt: skip


def _called_off() -> Iterator[Mode]:
    meant = {"plain": "Dropped, as it is meant.", "ours": "The same; no letter."}
    yield one(
        id="expired", title="It has expired when a worker takes it",
        send=_expired, end=dropped("REVOKED"), **meant,
    )  # fmt: skip
    yield one(
        id="expired-on-the-queue", title="It expires on the queue",
        send=sends("proj.succeed", expires=0.001),
        end=dropped("PENDING"),
        other_ends={"redis": dropped("REVOKED"), "sqs": dropped("REVOKED")},
        plain="Dropped: on Redis and SQS by the worker, on RabbitMQ by the broker itself.",
        ours="The same; no letter.",
    )  # fmt: skip
    yield one(
        id="revoked", part="live", title="It is revoked before it runs",
        send=_revoked, end=dropped("REVOKED"), brokers=BROKERS, **meant,
    )  # fmt: skip
    yield one(
        id="revoked-terminate", part="live", title="It is revoked with `terminate` while it runs",
        send=_terminated, end=dropped("REVOKED", runs=1), brokers=BROKERS,
        other_ends=dict.fromkeys(("threads", "solo"), done()),
        plain="Its run is ended, as it is meant; threads and solo cannot end it.",
        ours="The same; no letter.",
    )  # fmt: skip


def _expired(stage: Stage) -> Watched:
    # The header alone: RabbitMQ would drop a message whose property says so, too.
    past = datetime.now(timezone.utc) - timedelta(minutes=5)
    return stage.task("proj.succeed", headers={"expires": past.isoformat()})


def _revoked(stage: Stage) -> Watched:
    unsent = stage.signature("proj.succeed")
    unsent.freeze()
    stage.revoke(unsent.id)
    unsent.apply_async()
    return Watched(unsent.id)


def _terminated(stage: Stage) -> Watched:
    stage.revoke("nothing, but now it listens")
    watched = stage.task("matrix.sleeps", 1.5)
    wait_for("the task to run", lambda: stage.counted(f"started-{watched.task_id}"))
    stage.project.app.control.revoke(
        watched.task_id, terminate=True, destination=[stage.workers[-1].node]
    )
    return watched


MESSAGES: tuple[Mode, ...] = (*_UNREADABLE, *_MISSHAPEN, *_called_off())

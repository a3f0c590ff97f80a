"""Messages that no worker can run, one for each way to be wrong: as their sender makes them, and what
their letters say."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from typing import Any

from celery import Celery
from kombu import Producer
from support.factories import bomb

from celery_dlq.model.letter import NO_TASK
from celery_dlq.model.states import Reason

JSON = "application/json"
GOOD_BODY = b"[[1], {}, {}]"
#: An id that no database can store unchanged.
LONG_ID = "long-" + "x" * 295
#: Out of range once it is converted to the system's time zone, whichever that is.
BEFORE_TIME = "0001-01-01T00:00:00+14:00"


@dataclass(frozen=True)
class Foreign:
    """One message."""

    body: bytes
    headers: dict[str, Any] | None = None
    content_type: str = JSON
    content_encoding: str = "utf-8"
    reason: Reason = Reason.MALFORMED
    rule: str = "message.invalid"
    task: str = "proj.succeed"
    #: The task id of its letter, if the message has one.
    task_id: str | None = None


def task(name: str = "proj.succeed", task_id: Any = "id", **headers: Any) -> dict[str, Any]:
    return {"task": name, "id": task_id, "root_id": task_id, "retries": 0, "lang": "py", **headers}


def without_id() -> dict[str, Any]:
    headers = task()
    del headers["id"]
    return headers


def named(name: str, body: bytes = GOOD_BODY, **changes: Any) -> Foreign:
    headers = task(task_id=name, **changes.pop("headers", {}))
    return Foreign(body, headers, task_id=name, **changes)


def old_protocol(**fields: Any) -> bytes:
    return json.dumps(
        {"task": "proj.succeed", "id": "old", "args": [1], "kwargs": {}, **fields}
    ).encode()


UNKNOWN = {"reason": Reason.UNKNOWN_TASK, "rule": "message.unknown_task"}
UNDECODABLE = {"rule": "message.undecodable"}
NAMELESS = {"rule": "message.no_task", "task": NO_TASK}

MESSAGES = {
    "unknown task": Foreign(b'[[1], {"token": "s"}, {}]', task("far.away", "u1"), task="far.away",
                            task_id="u1", **UNKNOWN),
    "unknown task in the protocol of Celery 3": Foreign(
        old_protocol(task="far.old", id="u2"), task="far.old", task_id="u2", **UNKNOWN),
    "unknown task without id": Foreign(b"[[2], {}, {}]", {"task": "far.away"}, task="far.away", **UNKNOWN),
    "unknown task with an id of 300": Foreign(
        b"[[3], {}, {}]", task("far.away", LONG_ID), task="far.away", task_id=LONG_ID, **UNKNOWN),
    "no JSON": named("m1", b'[[1], {"a', **UNDECODABLE),
    "no UTF-8": named("m2", b'[["\xff\xfe"], {}, {}]', **UNDECODABLE),
    "broken compression": named(
        "m3", b"\x00not gzip", headers={"compression": "application/x-gzip"}, **UNDECODABLE),
    "unknown compression": named("m4", zlib.compress(GOOD_BODY), headers={"compression": "x-none"},
                                 **UNDECODABLE),
    "unpacks to too much": named("m19", bomb(134_217_728).envelope.body, headers={"compression": "gzip"},
                                 **UNDECODABLE),
    "pickle is not accepted": named("m5", b"\x80\x04N.", content_type="application/x-python-serialize",
                                    content_encoding="binary", rule="message.content_type"),
    "unknown content type": named("m6", b"<a/>", content_type="application/x-nobody",
                                            rule="message.content_type"),
    "JSON that is not a task": Foreign(b'{"hello": 1}', **NAMELESS),
    "JSON list": Foreign(b"[1, 2, 3, 4]", **NAMELESS),
    "binary": Foreign(b"\x00\x01\xfe", content_type="application/data", content_encoding="binary",
                      **NAMELESS),
    "text": Foreign(b"hello", content_type="text/plain", rule="message.content_type", task=NO_TASK),
    "broken JSON without headers": Foreign(b"{", task=NO_TASK, **UNDECODABLE),
    "no body": named("m7", b""),
    "no body and no headers": Foreign(b"", **NAMELESS),
    "body of two": named("m8", b"[[1], {}]"),
    "body is a number": named("m9", b"7"),
    "no id": Foreign(GOOD_BODY, without_id()),
    "id is empty": Foreign(GOOD_BODY, task(task_id="")),
    "id is a list": Foreign(GOOD_BODY, task(task_id=["a"])),
    "name is a list": Foreign(GOOD_BODY, {"task": ["a"], "id": "m10"}, task=NO_TASK,
                              task_id="m10"),
    "kwargs are not a table": named("m11", b"[[1], [2], {}]"),
    "args are not a list": named("m12", b'["abc", {}, {}]'),
    "third part is not a table": named("m13", b"[[1], {}, 5]"),
    "bad eta": named("m14", headers={"eta": "soon"}),
    "bad expires": named("m15", headers={"expires": [1]}),
    "eta out of range": named("m16", headers={"eta": BEFORE_TIME}),
    "bad time limit": named("m17", headers={"timelimit": ["a", 1]}),
    "bad retries": named("m18", headers={"retries": "many"}),
    "protocol of Celery 3 without id": Foreign(old_protocol(id=None)),
}  # fmt: skip


def publish(app: Celery, queue: str, kind: str, **changes: Any) -> None:
    """Send one of :data:`MESSAGES` as a stranger would: past Celery, straight to the queue."""
    message = replace(MESSAGES[kind], **changes)
    with app.connection_for_write() as connection, connection.channel() as channel:
        Producer(channel).publish(
            message.body, exchange="", routing_key=queue, content_type=message.content_type,
            content_encoding=message.content_encoding, headers=message.headers, type=kind,
        )  # fmt: skip

"""The process in which a task is validated: ``python -m celery_dlq.redrive.sandbox MODULE:APP SECONDS``.
It reads letters from its input, one a line, and answers each with what its task raised."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import IO, Any

from celery._state import _task_stack
from celery.app.utils import find_app
from celery.exceptions import Ignore

from celery_dlq.letter import Envelope
from celery_dlq.redact import safe_message
from celery_dlq.redrive.payload import Payload, accepted_by, read_payload


def serve(where: str, timeout_s: float) -> None:
    """Answer until the input ends."""
    questions, answers = _own_streams()
    try:
        app = find_app(where)
        app.loader.import_default_modules()
    except BaseException as error:  # noqa: BLE001 - modules may raise anything
        _say(answers, _told(error))
        return
    _say(answers, "")
    for line in questions:
        _say(answers, _judge(app, json.loads(line), timeout_s))


def _judge(app: Any, question: Mapping[str, Any], timeout_s: float) -> str:
    # Who asked may be dead by then: it ends by itself.
    signal.setitimer(signal.ITIMER_REAL, timeout_s + 1.0)
    try:
        envelope = Envelope.from_dict(question["envelope"])
        payload = read_payload(envelope, accepted_by(app))
        request = {"id": question["task_id"], "delivery_info": _delivery_info(envelope)}
        _run(app.tasks[question["task"]], payload, request)
    except Ignore:
        return ""
    except BaseException as error:  # noqa: BLE001 - tasks may raise anything
        return f"its validation failed: {_told(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return ""


def _delivery_info(envelope: Envelope) -> dict[str, Any]:
    """As a worker's, for tasks that read it."""
    return {
        "exchange": envelope.exchange,
        "routing_key": envelope.routing_key,
        "priority": envelope.properties.get("priority"),
        "redelivered": False,
    }


def _run(task: Any, payload: Payload, request: Mapping[str, Any]) -> None:
    hook = getattr(task, "validate", None)
    function = hook if callable(hook) else task.run
    _task_stack.push(task)
    # Called directly, retry() raises the error and sends nothing.
    task.push_request(**request, args=payload.args, kwargs=payload.kwargs, called_directly=True)
    try:
        function(*payload.args, **payload.kwargs)
    finally:
        task.pop_request()
        _task_stack.pop()


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Input and output, taken away from the tasks, which may read and print."""
    streams = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return streams


def _say(answers: IO[bytes], why: str) -> None:
    answers.write(json.dumps({"why": why}).encode() + b"\n")
    answers.flush()


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__qualname__}: {safe_message(error)}".split())


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))

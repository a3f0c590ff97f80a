"""The process that validates a task: ``python -m celery_dlq.redrive.check.sandbox MODULE:APP SECONDS``.
It reads letters from its input, one per line, and answers each with the error that its task raised."""

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

from celery_dlq.model.letter import Envelope
from celery_dlq.redact import safe_message
from celery_dlq.redrive.payload import Payload, accepted_by, read_payload


def serve(where: str, timeout_s: float) -> None:
    """Answer until the input ends."""
    questions, answers = _own_streams()
    try:
        app = find_app(where)
        app.loader.import_default_modules()
    except BaseException as error:  # noqa: BLE001 - modules may raise anything
        _say(answers, _described(error))
        return
    _say(answers, "")
    for line in questions:
        _say(answers, _judge(app, json.loads(line), timeout_s))


def _judge(app: Any, question: Mapping[str, Any], timeout_s: float) -> str:
    # The process that asked ends this one when time is up. If it has died, this alarm does it.
    signal.setitimer(signal.ITIMER_REAL, timeout_s + 1.0)
    try:
        envelope = Envelope.from_dict(question["envelope"])
        payload = read_payload(envelope, accepted_by(app))
        request = {"id": question["task_id"], "delivery_info": _delivery_info(envelope)}
        _run(app.tasks[question["task"]], payload, request)
    except Ignore:
        return ""
    except BaseException as error:  # noqa: BLE001 - tasks may raise anything
        return f"its validation failed: {_described(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return ""


def _delivery_info(envelope: Envelope) -> dict[str, Any]:
    """The delivery info that a worker would set, for tasks that read it."""
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
    # In a task that is called directly, retry() raises the error and sends nothing.
    task.push_request(**request, args=payload.args, kwargs=payload.kwargs, called_directly=True)
    try:
        function(*payload.args, **payload.kwargs)
    finally:
        task.pop_request()
        _task_stack.pop()


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """The process's input and output. Tasks, which may read and print, get ``/dev/null`` instead."""
    streams = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return streams


def _say(answers: IO[bytes], why: str) -> None:
    answers.write(json.dumps({"why": why}).encode() + b"\n")
    answers.flush()


def _described(error: BaseException) -> str:
    return " ".join(f"{type(error).__qualname__}: {safe_message(error)}".split())


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))

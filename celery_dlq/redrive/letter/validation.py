"""Runs the task of a letter before the letter is sent, in a process of its own: the task may hang or die.

The process is ``python -m celery_dlq.redrive.letter.validation MODULE:APP SECONDS``. It reads letters from
its input, one per line, and answers each with the error that its task raised.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import IO, Any, cast

from celery import Task
from celery._state import _task_stack
from celery.app.utils import find_app
from celery.exceptions import Ignore

from celery_dlq.base.redact import safe_message
from celery_dlq.errors import SandboxError
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.redrive.letter.payload import Payload, accepted_by, read_payload, task_of

#: Seconds that the process has to import the app.
START_TIMEOUT_S = 60.0
#: Modules that have the app, but not in another process: Celery's reference to the current app exists in this
#: process only, and a script that is imported has another name.
_NOT_WHERE_APP_IS = frozenset({"celery", "__main__", "__mp_main__"})


class Validator:
    """Asks a process about one letter after another. A process that hangs or dies is replaced.

    :param timeout_s: seconds that one letter may take.
    :raises SandboxError: another process could not find the app.
    """

    def __init__(self, app: Any, *, timeout_s: float) -> None:
        self._where, self._timeout_s = where_is(app), timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Validator:
        return self

    def __exit__(self, *_error: object) -> None:
        self._kill()

    def why_not(self, letter: DeadLetter) -> str | None:
        """The error that the task raises for ``letter``: in ``validate()``, or in its body if it has no
        ``validate()``. None if it raises nothing.

        :raises SandboxError: the process cannot import the app.
        """
        process = self._process = self._process or self._started()
        self._ask(process, letter)
        try:
            answer = _read_line(process, self._timeout_s)
        except TimeoutError:
            self._kill()
            return f"its validation took longer than {self._timeout_s:g} s (validate_timeout_s)"
        if not answer:
            self._kill()
            return f"its validation ended the process it ran in (exit status {process.returncode})"
        return json.loads(answer)["why"] or None

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - nothing in it comes from a message
            [sys.executable, "-m", "celery_dlq.redrive.letter.validation", self._where, str(self._timeout_s)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._process = process
        with contextlib.suppress(TimeoutError):
            why = json.loads(_read_line(process, START_TIMEOUT_S) or b'{"why": "it died"}')["why"]
            if not why:
                return process
            raise SandboxError(f"{self._where} cannot be imported for --validate: {why}")
        raise SandboxError(
            f"{self._where} was not imported within {START_TIMEOUT_S:g} s for --validate"
        )

    def _ask(self, process: subprocess.Popen[bytes], letter: DeadLetter) -> None:
        question = {
            "task_id": letter.task_id,
            "task": task_of(letter),
            "envelope": letter.envelope.to_dict(),
        }
        with contextlib.suppress(BrokenPipeError):  # it has died, so reading its answer fails, too
            stdin = cast(IO[bytes], process.stdin)
            stdin.write(json.dumps(question).encode() + b"\n")
            stdin.flush()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            # Together with all processes that the task has started.
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError), process:
            pass  # closes its pipes and waits


def where_is(app: Any) -> str:
    """Where another process finds ``app``, as ``module:attribute``.

    :raises SandboxError: no importable module has it.
    """
    found = [
        (name, attribute)
        for name, module in list(sys.modules.items())
        if _root(name) not in _NOT_WHERE_APP_IS
        for attribute, value in dict(getattr(module, "__dict__", None) or {}).items()
        if value is app
    ]
    if not found:
        raise SandboxError(
            "--validate needs an app that another process can import; create it in a module of its own"
        )
    main = str(app.main or "")
    # Any module may have imported the app. It is named after the module or package that creates it.
    name, attribute = min(
        found, key=lambda one: (one[0] != main, _root(one[0]) != _root(main), one[0])
    )
    return f"{name}:{attribute}"


def _root(module: str) -> str:
    return module.partition(".")[0]


def _read_line(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """The next line from ``process``; empty if it has ended.

    :raises TimeoutError: it neither wrote a line nor ended in time.
    """
    stdout = cast(IO[bytes], process.stdout).fileno()
    line, deadline = b"", time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            chunk = os.read(stdout, 65_536)
            if not chunk:
                return b""
            line += chunk
    return line


def serve(where: str, timeout_s: float) -> None:
    """Answer until the input ends."""
    questions, answers = _own_streams()
    # As in a worker, the call of a task does not begin a request of its own.
    Task.__call__ = lambda task, *args, **kwargs: task.run(*args, **kwargs)
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
        # The delivery info that a worker would set, for tasks that read it.
        delivery_info = {
            "exchange": envelope.exchange,
            "routing_key": envelope.routing_key,
            "priority": envelope.properties.get("priority"),
            "redelivered": False,
        }
        request = {"id": question["task_id"], "delivery_info": delivery_info}
        _run(app.tasks[question["task"]], payload, request)
    except Ignore:
        return ""
    except BaseException as error:  # noqa: BLE001 - tasks may raise anything
        return f"its validation failed: {_described(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return ""


def _run(task: Any, payload: Payload, request: Mapping[str, Any]) -> None:
    hook = getattr(task, "validate", None)
    function = hook if callable(hook) else task
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

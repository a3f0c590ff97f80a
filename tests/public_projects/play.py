"""Lets the tasks of a public project fail in a worker, and redrives them: ``python -m play MODULE``, in the
project's environment and in a directory of its own. Prints what happened as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service import Service

if TYPE_CHECKING:
    from cases import Case

_PATIENCE_S = 900.0


def main(module: str) -> None:
    """Play all cases of ``module``, which has ``app``, ``CASES``, ``prepare()`` and ``mend()``."""
    began = time.monotonic()
    service = Service()
    os.environ["CELERY_DLQ_STORE_URL"] = f"sqlite:///{Path.cwd()}/store.sqlite3"
    os.environ["PUBLIC_PROJECTS_QUEUE"] = f"public-projects-{uuid.uuid4().hex[:12]}"
    os.environ["PUBLIC_PROJECTS_SERVICE"] = service.address
    project = import_module(module)
    service.answers.update(getattr(project, "ANSWERS", {}))
    try:
        project.prepare()
        with _worker(module, getattr(project, "WORKER_OPTIONS", ("-P", "solo"))):
            played = _play(project, service, began)
    finally:
        service.close()
        _remove_queues(project.app)
    print(json.dumps(played))


def _play(project: Any, service: Service, began: float) -> dict[str, Any]:
    # It reads the environment that was set above.
    from cases import SECRET

    from celery_dlq import DeadLetterQueue

    app = project.app
    app.loader.import_default_modules()
    app.finalize()
    letters = DeadLetterQueue.of(app).store.letters
    sent = {_send(app, case): case for case in project.CASES}
    _wait_for("the first letter", lambda: any(map(letters.get, sent)))
    first_letter_s = time.monotonic() - began
    _wait_for("all letters", lambda: all(map(letters.get, sent)))
    shown = [_dlq(app, "show", task_id, "--format", "json") for task_id in sent]
    listed = _dlq(app, "list", "--format", "json"), _dlq(app, "groups", "list", "--format", "json")
    project.mend(service)
    redrive = _dlq(app, "redrive", *sent, "--yes", "--wait", "--no-guard")
    found = [json.loads(_dlq(app, "show", task_id, "--format", "json")) for task_id in sent]
    before = [json.loads(text) for text in shown]
    return {
        "first_letter_s": round(first_letter_s, 1),
        "letters": [
            {
                **{name: old[name] for name in _FIELDS},
                "expected": {name: getattr(case, name) for name in ("exception", "verdict", "reason")},
                "state": new["state"],
                "again": new["message"] if new["state"] != "resolved" else "",
            }
            for case, old, new in zip(sent.values(), before, found, strict=True)
        ],
        "groups": len({letter["fingerprint"] for letter in before}),
        "secret_sent": any(SECRET in repr((case.args, case.kwargs, case.options)) for case in sent.values()),
        "secret_shown": any(SECRET in text for text in [*shown, *listed]),
        "redrive": redrive.strip().splitlines()[-3:],
    }  # fmt: skip


_FIELDS = (
    "task",
    "exception_type",
    "message",
    "verdict",
    "rule",
    "reason",
    "attempts",
    "fingerprint",
)


def _send(app: Any, case: Case) -> str:
    return app.tasks[case.task].apply_async(case.args, dict(case.kwargs), **case.options).id


def _dlq(app: Any, *words: str) -> str:
    """The output of ``dlq`` with these words."""
    from celery.bin.base import CLIContext
    from click.testing import CliRunner

    from celery_dlq.cli import dlq

    context = CLIContext(app=app, no_color=True, workdir=None, quiet=False)
    result = CliRunner().invoke(dlq, words, obj=context)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout if "json" in words else result.output


@contextlib.contextmanager
def _worker(module: str, options: tuple[str, ...]) -> Iterator[None]:
    """A worker that is ready; it is stopped at the end."""
    log = Path("worker.log")
    command = [
        *(sys.executable, "-m", "celery", "-A", module, "worker", "-l", "INFO"),
        *("-n", f"{uuid.uuid4().hex[:8]}@%h", *options),
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        _wait_for(
            "the worker", lambda: b" ready." in log.read_bytes() or process.poll() is not None
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(what: str, ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"waited {_PATIENCE_S:g} s in vain for {what}; see {Path.cwd()}/worker.log"
            )
        time.sleep(0.05)


def _remove_queues(app: Any) -> None:
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        for name in app.amqp.queues:
            channel.queue_delete(name)


if __name__ == "__main__":
    main(sys.argv[1])

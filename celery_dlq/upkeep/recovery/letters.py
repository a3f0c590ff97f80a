"""The letter of a message that was running when its worker was killed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from celery_dlq.errors import TaskLost
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import redrive_of
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.recorder import Accepted
from celery_dlq.redact import safe_message
from celery_dlq.worker.failure import failure_after, read_attempts, type_name
from celery_dlq.worker.message import envelope, letter_id, read_contents
from celery_dlq.worker.request.letters import dead_letter
from celery_dlq.worker.wiring import Wiring

#: Takes the place of a classifier's rule.
RULE = "task.lost"


def letter_of_lost(message: Accepted, app: Any, wiring: Wiring, *, remark: str = "") -> DeadLetter:
    """The letter of ``message``. It is the same each time, so a recovery that was killed may be repeated.

    :param remark: is added to the evidence.
    """
    contents = read_contents(message)
    if "task" not in contents.fields:
        contents = replace(contents, fields=message.fields)
    error = TaskLost()
    last = Attempt(
        number=contents.attempt_number,
        redrive=redrive_of(message.headers),
        # The time of the death is unknown, but the time of the start is not.
        failed_at=message.accepted_at,
        exception_type=type_name(type(error)),
        message=safe_message(error),
        verdict=Verdict.TERMINAL,
        rule=RULE,
        evidence="; ".join(filter(None, (_account(message), remark))),
        worker=message.worker,
        pid=message.pid,
    )
    attempts = (*read_attempts(message.headers), last)
    failure = failure_after(attempts, Reason.LOST, traceback="", grounds=Grounds(evidence=(RULE,)))
    task_id = letter_id(message, contents.fields.get("id"))
    letter = dead_letter(task_id, envelope(message, app), contents, failure, wiring)
    return letter.with_(tags=tuple(getattr(app.tasks.get(letter.task), "dlq_tags", ())))


def _account(message: Accepted) -> str:
    began = f"{message.accepted_at:%Y-%m-%d %H:%M:%S}"
    where = f"process {message.pid} of {message.worker}" if message.pid else message.worker
    account = f"{where} was about to run it at {began}; it is unknown how far it came"
    if message.is_acknowledged:
        return account
    return (
        f"{account}; it may not have been acknowledged, but the broker has not delivered it again"
    )

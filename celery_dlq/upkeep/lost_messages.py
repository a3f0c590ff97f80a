"""The messages of killed workers: their letters, whether they had ended after all, and reports to the store.

The reports are about messages that a worker cannot recover yet, and about those that it cannot copy, so that
screens on other machines show them.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery.utils.log import get_logger

from celery_dlq.base import process
from celery_dlq.base.redact import safe_message
from celery_dlq.errors import TaskLost
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import redrive_of
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.model.worker import RecorderReport, ReportKind
from celery_dlq.recorder.files import LockedFiles
from celery_dlq.recorder.flight import Uncovered
from celery_dlq.recorder.owner import owner_in
from celery_dlq.recorder.segment import CopiedMessage
from celery_dlq.worker.end.fate import is_of_run, stored_success
from celery_dlq.worker.end.letters import dead_letter
from celery_dlq.worker.failure import failure_after, read_attempts, type_name
from celery_dlq.worker.message import envelope, letter_id, read_contents
from celery_dlq.worker.wiring import Wiring

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

#: Takes the place of a classifier's rule.
RULE = "task.lost"


def letter_of_lost(
    message: CopiedMessage, app: Any, wiring: Wiring, release: str = ""
) -> DeadLetter:
    """The letter of ``message``. It is the same each time, so a recovery that was killed may be repeated.

    :param release: that of the killed worker. This one may run a later release, which was deployed since.
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
        evidence=_account(message),
        worker=message.worker,
        pid=message.pid,
    )
    attempts = (*read_attempts(message.headers), last)
    failure = failure_after(attempts, Reason.LOST, traceback="", grounds=Grounds(evidence=(RULE,)))
    task_id = letter_id(message, contents.fields.get("id"))
    letter = dead_letter(task_id, envelope(message, app), contents, failure, wiring)
    tags = tuple(getattr(app.tasks.get(letter.task), "dlq_tags", ()))
    return letter.with_(tags=tags, release=release, message_release=release)


def _account(message: CopiedMessage) -> str:
    began = f"{message.accepted_at:%Y-%m-%d %H:%M:%S}"
    where = f"process {message.pid} of {message.worker}" if message.pid else message.worker
    account = f"{where} was about to run it at {began}; it is unknown how far it came"
    if message.is_acknowledged:
        return account
    return (
        f"{account}; it may not have been acknowledged, but the broker has not delivered it again"
    )


#: Added to the evidence of a letter.
NOT_ASKED = "the result backend did not say whether it succeeded"


class Outcomes:
    """Asks the store and the result backend whether messages had ended just before their worker was
    killed."""

    def __init__(self, app: Any, store: Store) -> None:
        self._app, self._store = app, store
        #: Whether the result backend failed. It is not asked again, because each question may take long.
        self._is_silent = False

    def how_ended(self, message: CopiedMessage, letter: DeadLetter) -> str:
        """How the run of ``message``, which may become ``letter``, had ended; empty if it had not.

        :raises StoreError: the store failed.
        """
        stored = self._store.letters.get(letter.task_id)
        if stored is not None and stored.task == letter.task and _covers(stored, letter):
            return "its end is in the store"
        last = letter.attempts[-1]
        run = (last.redrive, last.number)
        if self._store.deliveries.came_again(
            letter.task_id, letter.task, run, message.accepted_at, message.process
        ):
            return "the broker has delivered it again, or it has ended"
        if self._has_succeeded(message, letter.task_id):
            return "it has succeeded"
        return ""

    def remarked(self, letter: DeadLetter) -> DeadLetter:
        """``letter``, whose evidence says so if the result backend did not answer."""
        if not self._is_silent:
            return letter
        *before, last = letter.attempts
        evidence = f"{last.evidence}; {NOT_ASKED}"
        return letter.with_(
            attempts=(*before, replace(last, evidence=evidence)),
            explanation=replace(letter.explanation, evidence=evidence),
        )

    def _has_succeeded(self, message: CopiedMessage, task_id: str) -> bool:
        task = self._app.tasks.get(message.task)
        is_ignored = message.headers.get("ignore_result") or getattr(task, "ignore_result", False)
        if is_ignored or self._is_silent:
            return False
        try:
            backend = self._app.backend if task is None else task.backend
            success = stored_success(backend, task_id)
            return success is not None and is_of_run(success, message.accepted_at, self._app)
        except Exception as error:  # noqa: BLE001 - backends raise anything
            self._is_silent = True
            logger.warning("%s (%s)", NOT_ASKED, error)
            return False


def _covers(stored: DeadLetter, lost: DeadLetter) -> bool:
    """Whether ``stored`` is from the run that ``lost`` is about, or from a later one. The number of a redrive
    is not used again. Without one, an earlier message may have had the same id, and ended before this run
    began."""
    last = lost.attempts[-1]
    if stored.state is State.PARKED or stored.due_at is not None:  # its retry waits in the store
        return True
    if any(
        (attempt.redrive, attempt.number) == (last.redrive, last.number)
        and (attempt.redrive > 0 or attempt.failed_at >= last.failed_at)
        for attempt in stored.attempts
    ):
        return True
    if stored.state is not State.RESOLVED or stored.redrive_count < last.redrive:
        return False
    return last.redrive > 0 or (stored.closed_at is not None and stored.closed_at >= last.failed_at)


def stuck(directory: Path, why: str) -> RecorderReport:
    """The report about ``directory``, which cannot be recovered."""
    owner = owner_in(directory)
    return RecorderReport(
        kind=ReportKind.STUCK, about=directory.name, worker=owner.worker if owner else "",
        host=owner.host if owner else "", messages=0, since=_written_at(directory), why=why,
    )  # fmt: skip


def waiting(found: LockedFiles, accepted_at: Sequence[datetime]) -> RecorderReport:
    """The report about messages in ``found`` that the broker may deliver again.

    :param accepted_at: when each of them was accepted; at least one.
    """
    return RecorderReport(
        kind=ReportKind.WAITING, about=found.directory.name, worker=found.worker, host=found.host,
        messages=len(accepted_at), since=min(accepted_at), why="the broker may deliver them again",
    )  # fmt: skip


def uncovered(worker: str, found: Sequence[Uncovered]) -> RecorderReport:
    """The report about this process, whose ``worker`` runs messages without a copy.

    :param found: the trouble of each of its recorders that has some; at least one.
    """
    host, first = socket.gethostname(), min(found, key=lambda one: one.since)
    return RecorderReport(
        kind=ReportKind.UNCOVERED, about=process.identity() or f"{host} {os.getpid()}", worker=worker,
        host=host, messages=sum(one.messages for one in found), since=first.since, why=first.why,
    )  # fmt: skip


class Reporter:
    """Keeps one worker's reports in the store up to date. It does not call the store if there is nothing to
    report.

    :param store: opens the store.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._reported: dict[tuple[ReportKind, str], RecorderReport] = {}

    def report(self, reports: Sequence[RecorderReport]) -> None:
        """Write ``reports``, and delete the earlier ones that are not among them.

        :raises StoreError: the store failed; it is tried again the next time.
        """
        true = {(one.kind, one.about): one for one in reports}
        over = [one for key, one in self._reported.items() if key not in true]
        self._reported |= true
        if over:
            self._store().recorder_reports.withdraw(over)
        if true:
            self._store().recorder_reports.note([*true.values()])
        self._reported = true

    def end(self) -> None:
        """Delete the reports about this worker, which ends. Those about killed workers stay true.

        :raises StoreError: the store failed; the reports fade.
        """
        about_others = [
            one for one in self._reported.values() if one.kind is not ReportKind.UNCOVERED
        ]
        if len(about_others) < len(self._reported):
            self.report(about_others)


def _written_at(directory: Path) -> datetime:
    try:
        seconds = directory.stat().st_mtime
    except OSError:  # it cannot even be looked at
        return datetime.now(timezone.utc)
    return datetime.fromtimestamp(seconds, timezone.utc)

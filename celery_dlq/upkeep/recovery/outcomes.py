"""Finds out whether a message ended after all, in the moment before its worker was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.utils.log import get_logger

from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.recorder import Accepted
from celery_dlq.worker.request.fate import is_of_run, stored_success

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger = get_logger(__name__)

#: Added to the evidence of a letter.
NOT_ASKED = "the result backend did not say whether it succeeded"


class Outcomes:
    """Asks the store and the result backend what became of messages."""

    def __init__(self, app: Any, store: Store) -> None:
        self._app, self._store = app, store
        #: Whether the result backend failed. It is not asked again, because each question may take long.
        self._is_silent = False

    def how_ended(self, message: Accepted, letter: DeadLetter) -> str:
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

    @property
    def remark(self) -> str:
        """For the evidence of the letters that are made now."""
        return NOT_ASKED if self._is_silent else ""

    def _has_succeeded(self, message: Accepted, task_id: str) -> bool:
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

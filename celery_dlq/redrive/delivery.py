"""Hands a batch to the broker: each letter is repaired and checked, chords are reopened, and the messages are
published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from celery.utils.log import get_logger

from celery_dlq.errors import FunctionHangs, RedriveError, SandboxError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.checks import Checks
from celery_dlq.redrive.chords import reopen_chords
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.ledger import BatchResult
from celery_dlq.redrive.message import Sent
from celery_dlq.redrive.publisher import Publisher
from celery_dlq.redrive.queues import Depths
from celery_dlq.redrive.repair import Repairs
from celery_dlq.redrive.trace import Tracing

logger: logging.Logger = get_logger(__name__)

#: Errors with which the next run would fail, too.
_LASTING = (SandboxError, FunctionHangs)

#: Seconds after which the rest of a batch is given back. Functions of the user may be slow, and the claim
#: must not expire before its letters are sent.
PREPARE_S = 30.0


@dataclass(kw_only=True)
class Outgoing:
    """A batch that was given to the broker, without the letters that cannot be sent."""

    #: The fates that are known before the broker answers.
    result: BatchResult
    letters: Sequence[DeadLetter] = ()
    #: The changes in the messages, by task id.
    changes: Mapping[str, str] = field(default_factory=dict)
    #: Waits for the broker's answer.
    answer: Callable[[], Sent] = Sent
    #: The error that ends the run, and whether the next run in this process would fail with it, too.
    error: str | None = None
    lasts: bool = False


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The steps of one run between a claim and its mark."""

    context: RedriveContext
    repairs: Repairs
    checks: Checks
    publisher: Publisher
    tracing: Tracing
    depths: Depths

    def begin(self, token: str, letters: Sequence[DeadLetter]) -> Outgoing:
        """Publish ``letters``, which are claimed under ``token``, without waiting for the broker's answer."""
        result = BatchResult(token=token)
        try:
            ready, changes = self._prepare(letters, result)
        except RedriveError as error:
            result.unsent = [one for one in ids_of(letters) if one not in result.skipped]
            return Outgoing(result=result, error=str(error), lasts=isinstance(error, _LASTING))
        why_not = self._reopen_chords(ready) if ready else None
        if why_not is not None:
            result.unsent += ids_of(ready)
        if why_not is not None or not ready:
            return Outgoing(result=result, error=why_not)
        answer = self.tracing.publish(self.publisher, ready)
        return Outgoing(result=result, letters=ready, changes=changes, answer=answer)

    def finish(self, outgoing: Outgoing) -> BatchResult:
        """Wait for the broker's answer; returns the fates of all letters. If the broker fails, ``outgoing``
        gets the error."""
        result, sent = outgoing.result, outgoing.answer()
        result.sent = {task_id: outgoing.changes.get(task_id, "") for task_id in sent.confirmed}
        tasks = {letter.task for letter in outgoing.letters}
        quiet = {task for task in tasks if not self.context.reports(task)}
        result.silent = {one.task_id for one in outgoing.letters if one.task in quiet}
        result.skipped |= sent.refused
        result.unsent += sent.unsent
        if sent.uncertain or sent.error:
            outgoing.error = sent.error or "the broker did not confirm in time"
        return result

    def _prepare(
        self, letters: Sequence[DeadLetter], result: BatchResult
    ) -> tuple[list[DeadLetter], dict[str, str]]:
        """The repaired letters that pass the checks and fit into their queues, and the changes in them by
        task id."""
        now, ready, changes = self.context.clock.now(), list[DeadLetter](), dict[str, str]()
        until = self.context.clock.monotonic() + PREPARE_S
        for place, original in enumerate(letters):
            if place and self.context.clock.monotonic() >= until:
                result.unsent = ids_of(letters[place:])
                break
            letter, change, why = self.repairs.repaired(original, now)
            why = why or self.checks.why_not(letter, now)
            if why is not None:
                result.skipped[letter.task_id] = why
                continue
            ready.append(letter)
            if change:
                changes[letter.task_id] = change
        fit, rest = self.depths.part(ready)
        result.unsent += ids_of(rest)
        return fit, changes

    def _reopen_chords(self, letters: Sequence[DeadLetter]) -> str | None:
        """Why the chords of ``letters`` could not be reopened; None if they were."""
        try:
            reopen_chords(self.context.app, letters)
        except Exception as error:
            logger.exception("result backend failed while chords were reopened")
            return f"the result backend does not answer ({type(error).__name__}: {error})"
        return None


def ids_of(letters: Sequence[DeadLetter]) -> list[str]:
    """The task ids of ``letters``."""
    return [letter.task_id for letter in letters]

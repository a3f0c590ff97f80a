"""Calls a handler: in a worker, which carries out its verdict, or in a dry run, which shows it.

In a worker, this is the body of a Celery task. The store decides at the start whether the task's message is
still wanted, and at the end whether the verdict still fits. If the process is killed in between, the
dispatcher finds the handling overdue, and sends its message again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery.utils.log import get_logger

from celery_dlq.base.redact import Redactor, safe_message
from celery_dlq.classify import is_a
from celery_dlq.classify.chain import Budget, Link, reachable, walk
from celery_dlq.errors import HandlerError, NothingChanged, RecordRefused, RepairError, StoreError
from celery_dlq.model.automation import actor_of
from celery_dlq.model.handling import (
    VERDICTS,
    Discard,
    Escalate,
    GroupTicket,
    HandlerLetter,
    HandlerVerdict,
    Handling,
    HandlingState,
    Redrive,
    Ticket,
    name_of,
)
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.redrive.letter.contents import contents_of
from celery_dlq.redrive.letter.edit import make_edit
from celery_dlq.redrive.letter.payload import accepted_by
from celery_dlq.redrive.letter.repair import upgraded
from celery_dlq.store.base import Edit, Scope
from celery_dlq.store.hiding import hide_letter
from celery_dlq.upkeep.automation.conditions import why_stopped
from celery_dlq.upkeep.automation.definition import Handler
from celery_dlq.worker.failure import is_shutdown, type_name
from celery_dlq.worker.secrecy import hidden

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

#: Seconds after its timeout at which a call is ended with its process, in a pool that can do that.
HARD_S = 5.0
#: Seconds after its timeout at which a call counts as lost. They include the time that the store needs.
LOST_S = 60.0
#: Seconds until a handler that raised is called again for the same letter; they double with each call.
AGAIN_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a call."""

    #: None if the handler gave none; then the error says why.
    verdict: HandlerVerdict | None = None
    #: The new message of a redrive; None if it stays.
    edit: Edit | None = None
    #: The contents of the verdict, without secrets.
    detail: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    #: Whether another call may end in another way.
    may_pass: bool = False


class Caller:
    """Calls the handlers of an app.

    :param now: the time by the store's clock.
    """

    def __init__(self, app: Any, redactor: Redactor, now: Callable[[], datetime]) -> None:
        self._app, self._redactor, self._now = app, redactor, now
        accepted = accepted_by(app)
        self._read = lambda stored: contents_of(upgraded(app, stored), accepted)
        self._hide = lambda stored: hide_letter(stored, redactor)

    def call(
        self, handler: Handler, stored: DeadLetter, tickets: Sequence[GroupTicket] = ()
    ) -> Answer:
        """The answer of ``handler`` about a letter. An exception of the handler is part of the answer,
        unless it ends the process."""
        if stored.unreadable:
            return self._failed(stored.unreadable, may_pass=True)
        letter = HandlerLetter(stored, self._read, self._hide, tickets)
        try:
            verdict = handler.function(letter)
            why_not = _why_not(handler, verdict)
            return self._failed(why_not) if why_not else self._answered(handler, stored, verdict)
        except (Exception, SystemExit) as error:
            if is_shutdown(error):
                raise
            if _is_late(error):
                late = f"it did not end within its timeout of {handler.timeout:g} seconds"
                return self._failed(late, may_pass=True)
            if isinstance(error, (HandlerError, RepairError)):
                return self._failed(str(error))
            text = f"it raised {type_name(type(error))}: {safe_message(error)}"
            return self._failed(text, may_pass=True)

    def _answered(self, handler: Handler, stored: DeadLetter, verdict: HandlerVerdict) -> Answer:
        if isinstance(verdict, Redrive):
            return self._changed(handler, stored, verdict)
        shown = _without_secrets(verdict, self._redactor)
        return Answer(verdict=shown, detail=dict(vars(shown)))

    def _changed(self, handler: Handler, stored: DeadLetter, verdict: Redrive) -> Answer:
        """The answer with the new message, if a part of it was changed."""
        if not verdict.changes and verdict.repair is None:
            return Answer(verdict=verdict)
        who, at = actor_of(handler.name), self._now()
        by = "" if verdict.repair is None else f", repair {verdict.repair}"
        try:
            edit = make_edit(
                self._app, stored, verdict.changes, self._redactor, repair=verdict.repair, who=who,
                at=at, why=f"version {handler.version}{by}",
            )  # fmt: skip
        except NothingChanged:
            return Answer(verdict=verdict)
        except RepairError as error:
            raise HandlerError(f"its Redrive cannot be done: {error}") from error
        return Answer(verdict=verdict, edit=edit, detail={"change": edit.diff})

    def _failed(self, error: str, *, may_pass: bool = False) -> Answer:
        return Answer(error=self._redactor.text(error), may_pass=may_pass)


def _is_late(error: BaseException) -> bool:
    """Whether the time limit has caused ``error``. The limit may cut off a step, which then says that it
    failed itself."""
    behind = walk(Link(error), reachable, Budget())
    return any(is_a(link.exc, SoftTimeLimitExceeded) for link in behind)


def _why_not(handler: Handler, verdict: object) -> str:
    """Why what the handler returned is not a verdict; empty if it is one."""
    if not isinstance(verdict, tuple(VERDICTS.values())):
        named = ", ".join(kind.__name__ for kind in VERDICTS.values())
        return f"it returned {type(verdict).__name__}; return one of {named}"
    if isinstance(verdict, (Ticket, Escalate)) and not handler.once_per_group:
        kind = type(verdict).__name__
        return f"it returned {kind}, which only a handler with once_per_group=True may return"
    return ""


def _without_secrets(verdict: HandlerVerdict, redactor: Redactor) -> HandlerVerdict:
    if isinstance(verdict, Discard):
        return Discard(redactor.text(verdict.reason))
    if isinstance(verdict, Escalate):
        return Escalate(to=verdict.to, why=redactor.text(verdict.why))
    return verdict


def run_handling(
    store: Store, handlers: Mapping[str, Handler], caller: Caller, handling_id: int, *, worker: str
) -> HandlingState | None:
    """Carry out a handling. Returns its last state, or None if the handling did not end here.

    :raises StoreError: the store failed; the handling is tried again.
    """
    queued = store.automations.get(handling_id)
    if queued is None or queued.state is not HandlingState.QUEUED:
        return None  # another copy of the message came first
    handler = handlers.get(queued.name)
    if handler is None or handler.version != queued.version:
        # Another worker may have it: new code does not reach all workers at one moment.
        logger.warning(
            "this worker has no handler %s in version %s; its message is sent again",
            queued.name, queued.version,
        )  # fmt: skip
        return None
    if why_stopped(store.automations.statuses(), handler.name):
        return None  # its message is sent again after it was resumed
    within_s = handler.timeout + LOST_S
    started = store.automations.start(handling_id, worker=worker, within_s=within_s)
    letter = None if started is None else store.letters.get(started.task_id)
    if started is None or letter is None:
        return None
    tickets = store.tickets.of_groups([started.fingerprint]).get(started.fingerprint, ())
    return _end(store, started, letter, caller.call(handler, letter, tickets))


def _end(
    store: Store, started: Handling, letter: DeadLetter, answer: Answer
) -> HandlingState | None:
    if answer.verdict is None:
        again_s = AGAIN_S * 2 ** (started.tries - 1) if answer.may_pass else None
        store.automations.fail(started, answer.error, again_s=again_s)
        logger.error(
            "handler %s, letter %s: %s", started.name, started.task_id, hidden(answer.error)
        )
        return None
    try:
        ended = store.automations.end(
            started, letter, answer.verdict, edit=answer.edit, detail=answer.detail
        )
    except RecordRefused as error:
        # The store would refuse it again; a message may be too large.
        refused = Answer(error=f"its verdict cannot be stored: {error}")
        return _end(store, started, letter, refused)
    named = name_of(answer.verdict) if ended is HandlingState.DONE else "too late, nothing was done"
    logger.info("handler %s, letter %s: %s", started.name, started.task_id, named)
    return ended


def register_task(app: Any, name: str, dlq: Any, base: type | None) -> None:
    """Register the Celery task that runs handlings of ``app``.

    :param dlq: the app's dead-letter queue.
    :param base: its base class; None for the app's.
    """

    def handle(task: Any, handling_id: int) -> None:
        try:
            caller = Caller(app, dlq.redactor, dlq.store.now)
            worker = str(task.request.hostname or "")
            run_handling(dlq.store, dlq.handlers, caller, handling_id, worker=worker)
        except StoreError as error:
            # It is sent again when it is overdue.
            logger.error("handling %s could not be finished: %s", handling_id, error)  # noqa: TRY400
        except Exception:
            logger.exception("handling %s failed unexpectedly", handling_id)

    # The store repeats lost calls, so the broker need not, and no one needs a result.
    options = {"acks_late": False, "ignore_result": True, "max_retries": 0, "bind": True}
    app.task(name=name, base=base, shared=False, **options)(handle)


@dataclass(frozen=True, kw_only=True)
class HandlerTrial:
    """The result of a handler for one letter in a dry run."""

    task_id: str
    task: str
    #: The name of the verdict; empty if the handler gave none.
    verdict: str
    #: The contents of the verdict, without secrets: see :class:`~celery_dlq.model.handling.Handling`.
    detail: Mapping[str, Any]
    #: Why the handler gave no verdict; otherwise empty.
    error: str


def earlier_than(handler: Handler, handlers: Mapping[str, Handler]) -> Sequence[Scope]:
    """The handlers that were registered before ``handler``, which get their letters first."""
    names = list(handlers)
    return [handlers[name].scope for name in names[: names.index(handler.name)]]


def dry_run(
    store: Store, caller: Caller, handler: Handler, ids: Sequence[str]
) -> Iterator[HandlerTrial]:
    """Call ``handler`` with the letters of ``ids``, one after another. Letters that are gone are left out."""
    for task_id in ids:
        letter = store.letters.get(task_id)
        if letter is None:
            continue
        answer = _tried(store, caller, handler, letter)
        yield HandlerTrial(
            task_id=letter.task_id,
            task=letter.task,
            verdict="" if answer.verdict is None else name_of(answer.verdict),
            detail=answer.detail,
            error=answer.error,
        )


def _tried(store: Store, caller: Caller, handler: Handler, letter: DeadLetter) -> Answer:
    if letter.state is not State.DEAD:
        return Answer(error=f"it is {letter.state.value}; handlers get dead letters only")
    if not _matches(store, handler, letter):
        return Answer(error="the handler's where does not match it")
    fingerprint = letter.fingerprint
    tickets = store.tickets.of_groups([fingerprint]).get(fingerprint, ())
    return caller.call(handler, letter, tickets)


def _matches(store: Store, handler: Handler, letter: DeadLetter) -> bool:
    where = handler.where
    if where.ids and letter.task_id not in where.ids:
        return False
    this = replace(where, ids=(letter.task_id,), states=frozenset({State.DEAD}))
    return bool(store.letters.find(this, limit=1).letters)

"""The body of the Celery task that calls a handler: start the handling, call, carry out the verdict.

The store decides at the start whether this message is still wanted, and at the end whether the verdict still
fits. If the process is killed in between, the dispatcher finds the handling overdue, and sends it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery.utils.log import get_logger

from celery_dlq.errors import RecordRefused, StoreError
from celery_dlq.model.handling import Handling, HandlingState, name_of
from celery_dlq.model.letter import DeadLetter
from celery_dlq.upkeep.handlers.answer import Answer, Caller
from celery_dlq.upkeep.handlers.definition import Handler

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger = get_logger(__name__)

#: Seconds after its timeout at which a call is ended with its process, in a pool that can do that.
HARD_S = 5.0
#: Seconds after its timeout at which a call counts as lost: what the store needs to end it included.
LOST_S = 60.0
#: Seconds until a handler that raised is called again for the same letter; they double with each call.
AGAIN_S = 60.0


def run_handling(
    store: Store,
    handlers: Mapping[str, Handler],
    caller: Caller,
    handling_id: int,
    *,
    worker: str,
) -> HandlingState | None:
    """Carry out a handling; returns the state in which it ended, or None if it did not end here.

    :raises StoreError: the store failed; the handling is tried again.
    """
    queued = store.handlings.get(handling_id)
    if queued is None or queued.state is not HandlingState.QUEUED:
        return None  # another copy of the message came first
    handler = handlers.get(queued.handler)
    if handler is None or handler.version != queued.version:
        # Another worker may have it: new code does not reach all workers at one moment.
        logger.warning(
            "this worker has no handler %s in version %s; its message is sent again",
            queued.handler, queued.version,
        )  # fmt: skip
        return None
    within_s = handler.timeout + LOST_S
    started = store.handlings.start(handling_id, worker=worker, within_s=within_s)
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
        store.handlings.fail(started, answer.error, again_s=again_s)
        logger.error("handler %s, letter %s: %s", started.handler, started.task_id, answer.error)
        return None
    try:
        ended = store.handlings.end(
            started, letter, answer.verdict, edit=answer.edit, detail=answer.detail
        )
    except RecordRefused as error:
        # The store would refuse it again; a message may be too large.
        refused = Answer(error=f"its verdict cannot be stored: {error}")
        return _end(store, started, letter, refused)
    named = name_of(answer.verdict) if ended is HandlingState.DONE else "too late, nothing was done"
    logger.info("handler %s, letter %s: %s", started.handler, started.task_id, named)
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

    # The store repeats what is lost, so the broker need not, and a result is of no use to anyone.
    options = {"acks_late": False, "ignore_result": True, "max_retries": 0, "bind": True}
    app.task(name=name, base=base, shared=False, **options)(handle)

"""Sends the messages of an app: each of them, by ``delay()``, ``apply_async()``, a canvas, beat or a retry,
comes to the app's ``send_task()``. With ``dlq_unsent``, kombu's producer is replaced there by a
:class:`Sender`, which gets the message as Celery would publish it."""

from __future__ import annotations

import itertools
import logging
import os
import time
import uuid
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from celery._state import task_join_will_block

from celery_dlq.classify import decide
from celery_dlq.model.headers import SENT_HEADER
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.outbox.transmission import BrokerCircuit, Unsent, transmit, will_pass
from celery_dlq.redrive.broker.message import arguments_of
from celery_dlq.worker.body.parking import Catcher
from celery_dlq.worker.failure import logged

if TYPE_CHECKING:
    from celery_dlq.outbox.keeper import Keeper

logger: logging.Logger = logging.getLogger(__name__)

#: Values of ``dlq_unsent``.
RAISE, COMMIT = "raise", "commit"

#: ``send_task()`` has this many positional arguments before the producer, apart from the name.
_BEFORE_PRODUCER = 5


class Outbox:
    """The messages that an app sends.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    def __init__(self, dlq: Any) -> None:
        self.dlq: Any = dlq
        #: Whether the broker is away.
        self.circuit: BrokerCircuit = BrokerCircuit()
        self._prefix, self._numbers, self._pid = "", itertools.count(1), 0

    @cached_property
    def keeper(self) -> Keeper:
        """Keeps unsent messages. Its modules are imported at the first failure."""
        from celery_dlq.outbox.keeper import Keeper

        return Keeper(self.dlq)

    @cached_property
    def _has_no_headers(self) -> bool:
        # A message of Celery's first protocol.
        return bool(self.dlq.app.conf.task_protocol == 1)

    def send_task(self, name: str, *args: Any, **options: Any) -> Any:
        """Celery's ``send_task()``."""
        app, mode = self.dlq.app, self._mode_of(name, options)
        if mode == RAISE or len(args) > _BEFORE_PRODUCER:
            return type(app).send_task(app, name, *args, **options)
        given = options.get("producer") or options.get("publisher")
        if isinstance(given, Catcher):
            return type(app).send_task(app, name, *args, **options)
        connection = options.get("connection")
        if connection is not None:
            given = app.amqp.Producer(connection, auto_declare=False)
        _subscribe_later(app.backend)
        with app.producer_or_acquire(given) as producer:
            options["producer"] = Sender(self, producer, commits=mode == COMMIT)
            options["connection"] = None
            return type(app).send_task(app, name, *args, **options)

    def send_committed(self, letter: DeadLetter, options: dict[str, Any]) -> None:
        """Send the message of ``letter``, whose transaction is committed. Raises nothing: a worker sends what
        is not sent here."""
        with logged(logger, "celery_dlq could not send %s after its commit", letter.task_id):
            message = {**options, **arguments_of(letter)}
            with self.dlq.app.producer_or_acquire() as producer:
                unsent = self.transmit(producer, message.pop("body"), message)
            self.keeper.settle(letter, unsent)

    def transmit(self, producer: Any, body: Any, options: dict[str, Any]) -> Unsent | None:
        """Publish a message, unless the broker is known to be away; returns None once the broker has taken
        it."""
        circuit, within_s = self.circuit, self.dlq.task_settings.unsent_after
        error = circuit.why_not_now()
        if error is not None:
            return Unsent(error)
        began = time.monotonic()
        unsent = transmit(producer, body, options, within_s=within_s, retries=not circuit.is_open)
        if unsent is not None or circuit.is_open:
            circuit.note(unsent, time.monotonic() - began)
        return unsent

    def new_name(self) -> str:
        """A name for a message that no other one has, also not of a process that was forked from this one."""
        if self._pid != os.getpid():
            self._pid, self._prefix = os.getpid(), uuid.uuid4().hex[:16]
        return f"{self._prefix}{next(self._numbers):x}"

    def _mode_of(self, name: str, options: dict[str, Any]) -> str:
        if self._has_no_headers:
            return RAISE
        task = options.get("task_type") or self.dlq.app._tasks.get(name)
        mode = getattr(task, "dlq_unsent", None)
        return mode if isinstance(mode, str) else str(self.dlq.task_settings.unsent)


class Sender:
    """Stands for a producer while one message is sent.

    :param producer: kombu's.
    :param commits: whether the message is written in the open transaction of this thread, if there is one.
    """

    def __init__(self, outbox: Outbox, producer: Any, *, commits: bool) -> None:
        self._outbox, self._producer, self._commits = outbox, producer, commits
        self._has_message = False
        #: kombu's.
        self.connection: Any = producer.connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> None:
        """kombu's ``publish()``: first of the message, then perhaps of the event that it was sent.

        :raises Exception: the message is neither sent nor kept.
        """
        outbox, is_event, self._has_message = self._outbox, self._has_message, True
        if is_event:
            if not outbox.circuit.is_open:
                outbox.transmit(self._producer, body, options)
            return
        if not options["headers"].get("ignore_result") and not task_join_will_block():
            _declare_replies(outbox.dlq.app.backend, options)
        if self._commits and self._is_written(body, options):
            return
        options["headers"][SENT_HEADER] = outbox.new_name()
        unsent = outbox.transmit(self._producer, body, options)
        if unsent is not None:
            self._keep(unsent, body, options)

    def _is_written(self, body: Any, options: dict[str, Any]) -> bool:
        """Whether the message is written in an open transaction."""
        # A retry ends its task with an exception, which rolls the transaction back.
        if options["headers"].get("retries"):
            return False
        from celery_dlq.outbox.commit import open_transaction

        transaction = open_transaction(self._outbox.dlq)
        if transaction is None:
            return False
        letter = self._outbox.keeper.letter_of_commit(self._caught(body, options))
        transaction.park(letter)
        kept = {name: options.get(name) for name in ("retry", "retry_policy", "declare")}
        transaction.after_commit(partial(self._outbox.send_committed, letter, kept))
        return True

    def _keep(self, unsent: Unsent, body: Any, options: dict[str, Any]) -> None:
        if not will_pass(unsent.error):
            raise unsent.error
        envelope = self._caught(body, options)
        try:
            self._outbox.keeper.keep(envelope, unsent, decide(unsent.error))
        except Exception:
            logger.exception("a message could be neither sent nor kept: %s", envelope.headers["id"])
            raise unsent.error from None

    def _caught(self, body: Any, options: dict[str, Any]) -> Envelope:
        """The message, as it would be sent.

        :raises Exception: it cannot be serialised.
        """
        catcher = Catcher(self._outbox.dlq.app)
        catcher.publish(body, **options)
        assert catcher.envelope is not None, "it has an id"  # noqa: S101
        return catcher.envelope


def _subscribe_later(backend: Any) -> None:
    """Let ``backend`` not subscribe to the result of a message that is not sent yet: Redis, if it is away,
    would be asked for 20 seconds. ``result.get()`` subscribes, too, and looks whether the result has come."""
    ask = backend.on_task_call
    if getattr(ask, "func", None) is not _unless_ours:
        backend.on_task_call = partial(_unless_ours, ask)


def _unless_ours(on_task_call: Callable[..., Any], producer: Any, task_id: str) -> Any:
    return None if isinstance(producer, Sender) else on_task_call(producer, task_id)


def _declare_replies(backend: Any, options: dict[str, Any]) -> None:
    """Declare the queue for replies, if ``backend`` has one, together with the message's own."""
    queue = getattr(backend, "binding", None)
    if queue is not None:
        options["declare"] = [*(options.get("declare") or ()), queue]

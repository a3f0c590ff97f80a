"""Keeps an unsent message: makes its letter, and writes it to the store, or else to the spool of this
machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from celery_dlq.base.redact import safe_message
from celery_dlq.classify import Decision
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.headers import doubtful_parking, release_header, sent_of
from celery_dlq.model.letter import DeadLetter, Envelope, Explanation, Failure
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.outbox.transmission import Unsent
from celery_dlq.spool.directory import Spool
from celery_dlq.spool.segment import Record
from celery_dlq.store.base import Release
from celery_dlq.worker.body.parking import new_parking
from celery_dlq.worker.end.letters import dead_letter
from celery_dlq.worker.failure import read_attempts, type_name
from celery_dlq.worker.message import read_contents
from celery_dlq.worker.writing.writer import Writer

_COMMITS = Explanation(
    verdict=Verdict.TRANSIENT,
    rule="outbox.commit",
    evidence="written in a transaction of its sender",
)


def letter_of_unsent(
    dlq: Any, envelope: Envelope, unsent: Unsent, decision: Decision
) -> DeadLetter:
    """The letter of a message that the broker has not confirmed."""
    sent, place = sent_of(envelope.headers), dlq.hold.place
    doubtful = doubtful_parking(place, sent) if unsent.in_doubt and sent else ""
    text, kind = safe_message(unsent.error), type_name(type(unsent.error))
    letter = _letter(dlq, envelope, decision.explanation(), kind, text)
    return _parked(letter, doubtful) if doubtful else letter.with_(parking=new_parking(place))


def _letter(
    dlq: Any, envelope: Envelope, explanation: Explanation, kind: str, text: str
) -> DeadLetter:
    contents, now = read_contents(envelope), datetime.now(timezone.utc)
    failure = Failure(
        reason=Reason.UNSENT, explanation=explanation, exception_type=kind, message=text, traceback="",
        grounds=Grounds(), failed_at=now, attempts=read_attempts(envelope.headers), pid=os.getpid(),
    )  # fmt: skip
    tags = tuple(getattr(dlq.app.tasks.get(contents.task), "dlq_tags", ()))
    task_id = str(contents.fields.get("id"))
    letter = dead_letter(
        task_id, envelope, contents, failure, dlq, worker=dlq.client.node, tags=tags
    )
    return letter.with_(state=State.PARKED, due_at=now)


def _parked(letter: DeadLetter, parking: str) -> DeadLetter:
    """``letter``, whose message may be in the broker as the first copy."""
    headers = {**letter.envelope.headers, **release_header(parking, 1)}
    envelope = replace(letter.envelope, headers=headers)
    return letter.with_(parking=parking, envelope=envelope)


class Keeper:
    """Writes letters for threads that wait until they are safe. A process that was forked begins again: it
    has none of the threads of the other.

    :param dlq: the app's :class:`~celery_dlq.api.queue.DeadLetterQueue`.
    """

    def __init__(self, dlq: Any) -> None:
        self._dlq, self._lock = dlq, threading.Lock()
        self._pid, self._spool = 0, _StrictSpool("")
        self._writer: Writer | None = None

    def keep(self, envelope: Envelope, unsent: Unsent, decision: Decision) -> None:
        """Make the letter of an unsent message durable.

        :param decision: the verdict on the error.
        :raises Exception: neither the store nor the spool accepts it.
        """
        letter = letter_of_unsent(self._dlq, envelope, unsent, decision)
        writer, is_safe = self.writer, threading.Event()
        writer.write(letter, is_safe.set, quiet_s=0.0)
        is_safe.wait()
        error = self._spool.refused.pop(letter.parking, None)
        if error is not None:
            raise error

    def letter_of_commit(self, envelope: Envelope) -> DeadLetter:
        """The letter of a message that its sender publishes after the commit, as the first copy."""
        letter = _letter(self._dlq, envelope, _COMMITS, "", "")
        return _parked(letter, new_parking(self._dlq.hold.place))

    def settle(self, letter: DeadLetter, unsent: Unsent | None) -> None:
        """Note whether the message of a commit was sent, without waiting until that is written. If it is
        unknown, nothing is noted, and a worker sends another copy after a while."""
        release = Release(parking=letter.parking, copy=1, letter=letter)
        if unsent is None:
            self.writer.ask(lambda store: store.parked.confirm([release]), _ignore)
        elif not unsent.in_doubt:
            self.writer.ask(lambda store: store.parked.put_off([release], delay_s=0.0), _ignore)

    @property
    def writer(self) -> Writer:
        """The thread that writes."""
        with self._lock:
            if self._writer is None or self._pid != os.getpid():
                chosen, dlq = self._dlq.settings, self._dlq
                self._spool = _StrictSpool(
                    chosen.spool_dir, max_size=chosen.spool_max_size, ring=dlq.keyring
                )
                self._writer = Writer(
                    lambda: dlq.store,
                    self._spool,
                    timeout=chosen.unsent_after,
                    health=dlq.store_health,
                )
                self._pid = os.getpid()
            return self._writer


def _ignore(_answer: object) -> None:
    pass


class _StrictSpool(Spool):
    """Remembers which letters it could not keep, instead of writing them to the log: their sender gets an
    error."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: The errors, by parking.
        self.refused: dict[str, Exception] = {}

    def keep(self, records: Sequence[Record]) -> None:
        """Append ``records``, one by one, because the remaining space may be enough for some of them."""
        for record in records:
            self._keep(record)

    def _keep(self, record: Record) -> None:
        try:
            self.append([record])
        except Exception as error:  # noqa: BLE001 - the sender gets it
            self.refused[record.parking if isinstance(record, DeadLetter) else ""] = error

"""The values that travel between processes: a failure, and the dead letter made from it."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from celery_dlq.base.codec import plain_form, read_plain_form, read_record, record_of
from celery_dlq.base.redact import clip
from celery_dlq.model.fingerprint import FingerprintInput, Grounds, within
from celery_dlq.model.headers import COUNT_LIMIT
from celery_dlq.model.states import Reason, State, Verdict

#: Version of the dictionary form, checked when a spooled letter is read back.
FORMAT = 1

#: The task's name in the letter of a message that names no task.
NO_TASK = "<no task>"

#: The most characters of an attempt's message; the letter has the whole message of the last one.
ATTEMPT_MESSAGE_LIMIT = 500


def digest_of(body: bytes) -> str:
    """Identifies the body of a message among those with the same id."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of the task that ended in a failure."""

    #: 1-based; Celery's ``retries`` + 1.
    number: int
    #: Which redrive this run belongs to; 0 is the original message.
    redrive: int
    failed_at: datetime
    exception_type: str
    message: str
    verdict: Verdict
    rule: str
    #: The wait before the next attempt, in seconds; None if there was no next attempt.
    delay_s: float | None = None
    worker: str = ""
    pid: int | None = None
    #: The evidence of ``rule``: see :class:`Explanation`.
    evidence: str = ""
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The grounds of a verdict: the storable form of a classifier's decision."""

    verdict: Verdict
    #: Stable id of the rule that decided, such as ``http.status``.
    rule: str
    #: One line naming what was read, such as ``status=503 from response.status_code``.
    evidence: str = ""
    #: Type names walked from the raised exception to the one that decided.
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure as the process that ran the task knows it. It travels to the worker's parent."""

    reason: Reason
    explanation: Explanation
    exception_type: str
    message: str
    traceback: str
    #: The facts by which it is grouped.
    grounds: Grounds
    failed_at: datetime
    #: Every failed run of this message, this one last.
    attempts: tuple[Attempt, ...]
    pid: int | None
    #: The lines that the run logged.
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """The message as the broker delivered it, which a redrive sends back."""

    body: bytes
    content_type: str
    content_encoding: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    exchange: str
    routing_key: str
    #: The queue's name, if it is known: the default exchange's routing key, or the consumer's.
    queue: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form: the body in base64, headers and properties without loss."""
        return {
            **vars(self),
            "body": base64.b64encode(self.body).decode("ascii"),
            "headers": plain_form(self.headers),
            "properties": plain_form(self.properties),
        }

    def with_body(self, body: bytes) -> Envelope:
        """A copy with another ``body``."""
        return replace(self, body=body)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Envelope:
        """The inverse of :meth:`to_dict`."""
        tables = {name: read_plain_form(data[name]) for name in ("headers", "properties")}
        return cls(**{**data, **tables, "body": base64.b64decode(data["body"])})


@dataclass(frozen=True, kw_only=True)
class Parking:
    """A retry that will wait in the store. It travels to the worker's parent."""

    #: Place and number: see :attr:`DeadLetter.parking`.
    id: str
    #: The failure that it retries.
    failure: Failure
    #: The message of the retry.
    envelope: Envelope
    due_at: datetime


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A whole message that failed for good."""

    task_id: str
    task: str
    state: State = State.DEAD
    reason: Reason
    explanation: Explanation
    exception_type: str
    message: str
    traceback: str
    #: The lines that the run that died had logged, without secrets; empty if it logged none, or if they
    #: are unknown, because its process was killed.
    log: str = ""
    #: The group in which it is counted.
    fingerprint: str = ""
    #: The fingerprint that a recipe made of its failure, if it differs from that of the group: groups were
    #: merged, or the group was made by another recipe.
    raw_fingerprint: str = ""
    #: The facts by which it is grouped; None if they are unknown.
    grounds: Grounds | None = None
    #: Display copies: redacted, bounded, never sent anywhere.
    args: Any
    kwargs: Any
    attempts: tuple[Attempt, ...]
    #: Set by the store, so that lists know the number without reading the attempts.
    attempt_count: int = 0
    first_failed_at: datetime
    last_failed_at: datetime
    worker: str
    pid: int | None
    release: str
    root_id: str | None
    parent_id: str | None
    group_id: str | None
    correlation_id: str | None
    #: The canvas that the message is part of: ``chord``, ``chain``, ``group``, or empty.
    canvas: str
    tags: tuple[str, ...]
    #: The person that its message is about, by dlq_subject; empty if none. The store does not keep the name:
    #: it seals the letter with the person's key.
    subject: str = ""
    #: The name of the route that its last failure is on: see :class:`~celery_dlq.Route`; empty if none.
    route: str = ""
    #: The namespace of the app in which it failed (``dlq_namespace``); empty if that has none.
    namespace: str = ""
    redrive_count: int = 0
    envelope: Envelope
    #: The release for which its message is: that in which it became a letter, or was edited last.
    message_release: str = ""
    #: Set by the store while a redrive holds the letter.
    claim_token: str | None = None
    lease_expires_at: datetime | None = None
    #: Set when the letter is closed: when, by whom, and why.
    closed_at: datetime | None = None
    closed_by: str = ""
    closed_reason: str = ""
    #: If the state is ``PARKED``: the place (the broker that gets the message), a dot, and an identifier of
    #: this parking; and when the retry is due. For a letter that is sent back: when a worker may run it, if
    #: not at once.
    parking: str = ""
    due_at: datetime | None = None
    #: Set by the store if its contents, which are then empty, cannot be decrypted: why not.
    unreadable: str = ""
    #: Set by the store: the label of the key that encrypts its contents; that of a person begins with ``@``.
    #: Empty if they are not encrypted.
    sealed_by: str = ""

    @property
    def queue(self) -> str:
        """The queue the message came from."""
        return self.envelope.queue

    @property
    def grouped(self) -> str:
        """Why it is in its group, in words; empty if that is unknown."""
        return "" if self.grounds is None else self.grounds.in_words()

    @property
    def place(self) -> str:
        """The fingerprint of the place in the code where it failed; empty if that is unknown, or if a recipe
        of the user grouped it."""
        if self.grounds is None or self.grounds.recipe:
            return ""
        failure = FingerprintInput.of(self.task, self.exception_type, "", self.grounds, "")
        return within(self.namespace, failure.place)

    @property
    def verdict(self) -> Verdict:
        """The classifier's verdict on the last failure."""
        return self.explanation.verdict

    @property
    def rule(self) -> str:
        """The rule that decided about the last failure."""
        return self.explanation.rule

    def with_(self, **changes: Any) -> DeadLetter:
        """A copy with ``changes``."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The whole letter in JSON-able form, for the spool. :data:`FORMAT` is its version."""
        shown = {"args": plain_form(self.args), "kwargs": plain_form(self.kwargs)}
        left_out = ("unreadable", "sealed_by") + (() if self.subject else ("subject",))
        return {"format": FORMAT, **record_of(self, *shown, *left_out), **shown}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DeadLetter:
        """The inverse of :meth:`to_dict`.

        :raises ValueError: this release does not know its format.
        """
        values = _checked(data)
        shown = {name: read_plain_form(values[name]) for name in ("args", "kwargs")}
        return read_record(cls, {**values, **shown})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The success of a message that was redriven, delivered again, or retried."""

    task_id: str
    #: The redrive that succeeded; 0 for the original message, delivered again or retried.
    redrive: int
    succeeded_at: datetime
    worker: str
    #: The name of the task, because messages of different tasks may have the same id; empty if unknown.
    task: str = ""
    #: The release of the worker's code (``dlq_release``); empty if unknown.
    release: str = ""
    #: The digest of the message's body, because messages with other contents may have the same id; empty if
    #: unknown.
    digest: str = ""
    #: The namespace of the app in which it ran.
    namespace: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form, for the spool."""
        return {"format": FORMAT, **record_of(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """The inverse of :meth:`to_dict`.

        :raises ValueError: this release does not know its format.
        """
        return read_record(cls, _checked(data))


def attempt_to_dict(attempt: Attempt) -> dict[str, Any]:
    """A JSON-able form of one attempt, its message cut to :data:`ATTEMPT_MESSAGE_LIMIT`."""
    return {**record_of(attempt), "message": clip(attempt.message, ATTEMPT_MESSAGE_LIMIT)}


def attempt_from_outside(data: Mapping[str, Any]) -> Attempt:
    """The inverse of :func:`attempt_to_dict`, for an untrusted table: checks that every value has its type,
    and that the time can be compared with others.

    :raises Exception: it is not such a table.
    """
    attempt = read_record(Attempt, data)
    texts = (
        attempt.exception_type, attempt.message, attempt.rule, attempt.worker, attempt.evidence, attempt.path,
    )  # fmt: skip
    counts = (attempt.number, attempt.redrive, attempt.pid or 0)
    if not (
        all(type(text) is str for text in texts)
        and all(type(count) is int and 0 <= count <= COUNT_LIMIT for count in counts)
        and (attempt.delay_s is None or math.isfinite(attempt.delay_s))
    ):
        raise ValueError("an attempt has a value of another type")
    return replace(
        attempt,
        failed_at=attempt.failed_at.astimezone(timezone.utc),
        message=clip(attempt.message, ATTEMPT_MESSAGE_LIMIT),
    )


def _checked(data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` without its version, after a check that the version is known."""
    values = dict(data)
    version = values.pop("format")
    if not 1 <= version <= FORMAT:
        raise ValueError(f"format {version} is unknown; upgrade celery-dlq")
    return values

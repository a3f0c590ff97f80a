"""From a worker's request to a dead letter: the one place that knows Celery's message fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from billiard.exceptions import WorkerLostError

from celery_dlq.classify import Decision, subject
from celery_dlq.codec import raw_body
from celery_dlq.model.delivery import Delivery
from celery_dlq.model.headers import (
    COMPRESSED_HEADER,
    DELIVERY_HEADERS,
    RELEASE_HEADERS,
    attempt_number,
    has_header,
    redrive_of,
)
from celery_dlq.model.letter import Attempt, DeadLetter, Envelope, Explanation, Failure
from celery_dlq.model.route import routed
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.process import pid_of, pid_of_run
from celery_dlq.redact import safe_message, safe_text
from celery_dlq.worker.failure import (
    bounded_traceback,
    failure_after,
    read_attempts,
    type_name,
)
from celery_dlq.worker.grounds import grounds_of
from celery_dlq.worker.identity import letter_id
from celery_dlq.worker.wiring import Wiring

#: AMQP's message properties that a sender may set; the rest belongs to one delivery.
_PROPERTIES = (
    "correlation_id", "reply_to", "priority", "delivery_mode", "expiration",
    "message_id", "timestamp", "type", "user_id", "app_id",
)  # fmt: skip

_DELAYED_EXCHANGE = "celery_delayed_delivery"


def snapshot(request: Any, failure: Failure, wiring: Wiring) -> DeadLetter:
    """The letter of ``request`` (a worker's Request), which died of ``failure``."""
    redactor, embed = wiring.redactor, _embed(request)
    task, attempts = request.type, failure.attempts
    letter = DeadLetter(
        task_id=letter_id(request.message, request.id),
        task=task,
        reason=failure.reason,
        explanation=failure.explanation,
        exception_type=failure.exception_type,
        message=failure.message,
        traceback=failure.traceback,
        grounds=failure.grounds,
        args=redactor.display(request.args),
        kwargs=redactor.display(request.kwargs),
        attempts=attempts,
        # A message that a breaker parked may have no attempts.
        first_failed_at=attempts[0].failed_at if attempts else failure.failed_at,
        last_failed_at=failure.failed_at,
        worker=attempts[-1].worker if attempts else request.hostname or "",
        pid=failure.pid,
        release=wiring.settings.release,
        root_id=text_or_none(request.root_id),
        parent_id=text_or_none(request.parent_id),
        group_id=text_or_none(request.group),
        correlation_id=text_or_none(request.correlation_id),
        canvas=canvas_of(embed, request.group),
        tags=tuple(getattr(request.task, "dlq_tags", ())),
        envelope=envelope(request.message, request.app),
    )
    return routed(wiring.grouping.grouped(letter), wiring.settings.routes)


def envelope(message: Any, app: Any) -> Envelope:
    """The raw message, as far as it can be sent again."""
    info = message.delivery_info or {}
    exchange, routing_key = (str(info.get(name) or "") for name in ("exchange", "routing_key"))
    return Envelope(
        body=raw_body(message.body, message.content_encoding),
        content_type=str(message.content_type or ""),
        content_encoding=str(message.content_encoding or ""),
        headers=_headers(message),
        properties=sent_properties(message.properties or {}),
        exchange=exchange,
        routing_key=routing_key,
        queue=queue_name(exchange, routing_key, app),
    )


def sendable_envelope(message: Any, app: Any, marks: Mapping[str, Any]) -> Envelope:
    """The message in the form in which it is sent again: unchanged, without having been run or redriven.
    ``marks`` are headers that mark it."""
    came = envelope(message, app)
    # kombu has undone the compression, unless the mark says otherwise.
    undone = () if has_header(came.headers, COMPRESSED_HEADER) else ("compression",)
    headers = {
        name: value
        for name, value in came.headers.items()
        if not str(name).startswith((*DELIVERY_HEADERS, *RELEASE_HEADERS, *undone))
    }
    return replace(came, headers={**headers, **marks})


def failure_of(
    request: Any,
    exc: BaseException,
    traceback: str,
    reason: Reason,
    wiring: Wiring,
    decision: Decision | None = None,
) -> Failure:
    """The failure of a run that reported none: its process died, or the error came from outside the body.

    :param decision: the judgement, if it does not depend on ``exc``.
    """
    decision = decision or wiring.classifier.decide(exc)
    if reason is Reason.TERMINAL and decision.verdict is Verdict.TRANSIENT:
        # It is too late for a retry, so a transient failure counts as exhausted.
        reason = Reason.EXHAUSTED
    last = _last_attempt(request, subject(exc), decision.explanation())
    return failure_after(
        (*read_attempts(request.request_dict), last),
        reason,
        traceback=bounded_traceback(traceback),
        grounds=grounds_of(exc, decision),
    )


def _last_attempt(request: Any, exc: BaseException, explanation: Explanation) -> Attempt:
    return Attempt(
        number=attempt_number(request.request_dict),
        redrive=redrive_of(request.message.headers),
        failed_at=datetime.now(timezone.utc),
        exception_type=_raised_type(exc),
        message=safe_message(exc),
        verdict=explanation.verdict,
        rule=explanation.rule,
        evidence=explanation.evidence,
        path=explanation.path,
        worker=request.hostname or "",
        pid=pid_of_run(request.worker_pid),
    )


def poisoned(failure: Failure, known: Sequence[Delivery], *, seen: bool) -> Failure:
    """``failure``, with the deliveries of its message that did not end as attempts.

    :param seen: whether the failure is the end of the last of ``known``; otherwise the message was
        not run this time.
    """
    *before, now = failure.attempts
    died = tuple(_attempt_of(item, now) for item in (known[:-1] if seen else known))
    attempts = (*before, *died, *([now] if seen or not died else []))
    evidence = "; ".join(filter(None, (failure.explanation.evidence, *map(_account, known))))
    return replace(
        failure,
        attempts=attempts,
        explanation=replace(failure.explanation, evidence=evidence),
        pid=attempts[-1].pid,
    )


def _attempt_of(item: Delivery, now: Attempt) -> Attempt:
    return replace(
        now,
        number=item.attempt,
        redrive=item.redrive,
        # The time of the death is unknown, but the time of the start is not.
        failed_at=item.started_at,
        exception_type=type_name(WorkerLostError),
        message=item.death or "the worker died while this ran",
        worker=item.worker,
        pid=pid_of(item.process),
    )


def _account(item: Delivery) -> str:
    where = f"{item.worker} alone" if item.alone else item.worker
    died = item.death or "its worker died"
    return f"delivery {item.number} started {item.started_at:%Y-%m-%d %H:%M:%S} on {where}: {died}"


def _raised_type(exc: BaseException) -> str:
    # Celery replaces an exception that cannot be pickled with this wrapper.
    module, name = getattr(exc, "exc_module", None), getattr(exc, "exc_cls_name", None)
    if isinstance(module, str) and isinstance(name, str):
        return name if module == "builtins" else f"{module}.{name}"
    return type_name(type(exc))


def _embed(request: Any) -> Mapping[str, Any]:
    _args, _kwargs, embed = request._payload
    return embed if isinstance(embed, Mapping) else {}


def canvas_of(embed: object, group: object) -> str:
    """The kind of canvas that a message is part of, by the third part of its body and the group in its
    headers."""
    if isinstance(embed, Mapping):
        if embed.get("chord"):
            return "chord"
        if embed.get("chain"):
            return "chain"
    return "group" if group else ""


def text_or_none(value: object) -> str | None:
    """An id as it is stored; None if it is not text."""
    return safe_text(value) if isinstance(value, str) else None


def _headers(message: Any) -> dict[str, Any]:
    headers = dict(message.headers or {})
    # kombu notes an error when it cannot undo the compression, and leaves the body as it came.
    if "compression" in headers and message.errors:
        headers[COMPRESSED_HEADER] = True
    return headers


def sent_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a message that its sender set."""
    return {name: properties[name] for name in _PROPERTIES if properties.get(name) is not None}


def queue_name(exchange: str, routing_key: str, app: Any) -> str:
    """The queue that takes ``routing_key`` from ``exchange``; empty if unknown."""
    if exchange == _DELAYED_EXCHANGE:
        # Native delayed delivery writes the wait as 28 binary digits before the routing key.
        routing_key = routing_key.split(".", 28)[-1]
        return _bound_queue(None, routing_key, app) or routing_key
    if not exchange:
        return routing_key
    return _bound_queue(exchange, routing_key, app)


def _bound_queue(exchange: str | None, routing_key: str, app: Any) -> str:
    """The one configured queue that takes ``routing_key`` from ``exchange``; empty if none or several do."""
    names = [
        queue.name
        for queue in app.amqp.queues.values()
        if queue.routing_key == routing_key and exchange in (None, queue.exchange.name)
    ]
    return str(names[0]) if len(names) == 1 else ""

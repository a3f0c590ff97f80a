"""The checks of the doctor on Amazon SQS: which queues answer, and what their attributes do to messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from celery_dlq.cli.doctor import Findings, failure, ok, said, warning
from celery_dlq.cli.session import Session
from celery_dlq.recorder.owner import BEAT_S
from celery_dlq.redrive.broker.queues import attributes_of
from celery_dlq.view.times import duration


def check_queues(session: Session, channel: Any) -> Findings:
    """
    :param channel: one of kombu's SQS transport.
    """
    app = session.cli.app
    for queue in sorted(app.amqp.queues):
        yield from _queue(session, channel, queue)
    if app.conf.worker_enable_remote_control:
        yield warning(
            "worker_enable_remote_control is on: it does nothing on Amazon SQS, but each worker makes a "
            "queue for it, and asks it all the time; set it to False"
        )


def _queue(session: Session, channel: Any, queue: str) -> Findings:
    try:
        found = attributes_of(channel, queue, "VisibilityTimeout", "RedrivePolicy")
    except Exception as error:  # noqa: BLE001 - boto3 raises anything
        yield failure(
            f"queue {queue} does not answer ({said(error)}); check the credentials and their rights: celery "
            "-A <app> dlq help amazon-sqs"
        )
        return
    if found is None:
        step = "add it there" if channel.predefined_queues else "a worker that reads it creates it"
        where = "in predefined_queues" if channel.predefined_queues else "on Amazon SQS"
        yield warning(f"there is no queue {queue} {where}; {step}")
        return
    dangers = [*_of_timeout(session, channel, found), *_of_policy(session, found)]
    yield from (warning(f"queue {queue}: {danger}") for danger in dangers)
    if not dangers:
        hidden = duration(float(found["VisibilityTimeout"]))
        yield ok(f"queue {queue} answers; its visibility timeout is {hidden}")


def _of_timeout(session: Session, channel: Any, found: Mapping[str, str]) -> Iterator[str]:
    own_s, assumed_s = float(found["VisibilityTimeout"]), float(channel.visibility_timeout)
    pause_s = min(BEAT_S, assumed_s / 4)
    if not session.queue.settings.restore_unacked:
        if own_s < assumed_s:
            yield (
                f"its visibility timeout is {duration(own_s)}, but visibility_timeout in "
                f"broker_transport_options is {duration(assumed_s)}: a message is run again while it still "
                "waits or runs; set both to the same time, longer than the longest run"
            )
    elif own_s < 2 * pause_s:
        yield (
            f"its visibility timeout is {duration(own_s)}, and workers renew it for the first time after up "
            f"to {duration(pause_s)}: a message may be run twice; set it to {duration(2 * pause_s)} or more"
        )


def _of_policy(session: Session, found: Mapping[str, str]) -> Iterator[str]:
    """SQS moves messages that were delivered too often to its own dead-letter queue."""
    policy = json.loads(found.get("RedrivePolicy") or "{}")
    most, ours = int(policy.get("maxReceiveCount") or 0), session.queue.settings.max_deliveries
    if policy and most <= ours:
        yield (
            f"SQS moves a message to its own dead-letter queue after {most} deliveries, so what kills its "
            f"worker does not become a letter (dlq_max_deliveries is {ours}); set maxReceiveCount to "
            f"{max(10, 3 * ours)} or more"
        )

"""Amazon SQS: sends original messages, and counts those in a queue. kombu creates a queue when it is asked
about one that does not exist, and its errors of connections and channels do not include SQS' own answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kombu import Producer
from kombu.exceptions import KombuError

from celery_dlq.model.letter import DeadLetter
from celery_dlq.redrive.broker.message import UNENCODABLE, AtOnce, Sent, arguments_of, reason

#: Answers about one message or its queue; SQS may take the next message.
_ABOUT_MESSAGE = frozenset({
    "InvalidParameterValue", "InvalidMessageContents", "InvalidAddress", "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
})  # fmt: skip

_COUNTS = (
    "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)  # fmt: skip


def is_on_sqs(channel: Any) -> bool:
    """Whether ``channel`` is one of kombu's SQS transport."""
    return hasattr(channel, "sqs")


def broker_errors(connection: Any) -> tuple[type[Exception], ...]:
    """The errors by which the broker of ``connection`` refuses something, or does not answer."""
    known = (*connection.connection_errors, *connection.channel_errors)
    if connection.transport.driver_type != "sqs":
        return known
    # Installed only in this case.
    from botocore.exceptions import ClientError

    return (*known, ClientError, *_missing())


def _missing() -> tuple[type[Exception], ...]:
    # Before kombu 5.7, they are not derived from KombuError.
    from kombu.transport.SQS import DoesNotExistQueueException, UndefinedQueueException

    return (KombuError, DoesNotExistQueueException, UndefinedQueueException)


def attributes_of(channel: Any, queue: str, *names: str) -> dict[str, str] | None:
    """The attributes of ``queue`` that it has; None if there is no such queue.

    :raises Exception: one of :func:`broker_errors`.
    """
    try:
        url = channel._resolve_queue_url(queue)
    except _missing():
        return None
    client = channel.sqs(queue=channel.canonical_queue_name(queue))
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names))
    return dict(found.get("Attributes", {}))


class Depth(NamedTuple):
    """About how many messages a queue has."""

    waiting: int
    #: Those that workers hold, and those that are not due yet.
    held: int


def depth_of(channel: Any, queue: str) -> Depth | None:
    """The messages in ``queue``; None if there is no such queue.

    :raises Exception: one of :func:`broker_errors`.
    """
    found = attributes_of(channel, queue, *_COUNTS)
    if found is None:
        return None
    waiting, *held = (int(found[name]) for name in _COUNTS)
    return Depth(waiting, sum(held))


class SQSPublisher(AtOnce):
    """Sends one message after the other. SQS' answer is the confirmation."""

    def __init__(self, channel: Any) -> None:
        self._producer = Producer(channel, auto_declare=False)

    def send(self, letters: Sequence[DeadLetter]) -> Sent:
        """Publish the original messages; never raises."""
        sent = Sent()
        for place, letter in enumerate(letters):
            try:
                self._producer.publish(**arguments_of(letter))
            except Exception as error:  # noqa: BLE001 - a connection can fail in any way
                if _is_about_message(error):
                    sent.refused[letter.task_id] = reason(error)
                    continue
                sent.error, sent.unsent = reason(error), [one.task_id for one in letters[place:]]
                if not _is_refusal(error):
                    sent.uncertain.append(sent.unsent.pop(0))
                break
            sent.confirmed.append(letter.task_id)
        return sent


def _is_about_message(error: Exception) -> bool:
    if isinstance(error, (*UNENCODABLE, *_missing())):
        return True
    return _answer(error).get("Error", {}).get("Code") in _ABOUT_MESSAGE


def _is_refusal(error: Exception) -> bool:
    """Whether SQS has answered that it does not take the message. If an earlier try of boto3's has reached
    the queue all the same, a worker runs one copy, as after a redrive that was killed."""
    status = int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return 400 <= status < 500


def _answer(error: Exception) -> dict[str, Any]:
    return getattr(error, "response", None) or {}

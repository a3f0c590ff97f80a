"""Amazon SQS: messages of a killed worker wait for the visibility timeout, and a run that takes longer
than that is run a second time beside the first.

kombu receives a message for the queue's visibility timeout, and never prolongs it (kombu 5.7.0,
transport/SQS). SQS lets a message stay with a worker for twelve hours at most. Only the receipt of a
message allows it to be given back. An old receipt may still count after SQS has given the message to
another worker, so each is used once, and only while it is certain that no other worker has the message.

It can be deleted when kombu does this. ``tests/unit/worker/celery_quirks/test_unacked_sqs.py`` fails
without it.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from celery_dlq.recorder.tags import Noted, Tags
from celery_dlq.worker.celery_quirks.unacked import Unacknowledged, Whereabouts

#: Messages in one call, as many as SQS takes.
_AT_ONCE = 10

#: Seconds for which a message that was not renewed yet is certainly with its worker: SQS' own default for
#: a queue is 30.
_FIRST_S = 20.0


class _Receipt(NamedTuple):
    """What SQS gave a worker with a message."""

    routing_key: str
    url: str
    handle: str

    @classmethod
    def of(cls, message: Any) -> _Receipt | None:
        """The receipt of one of kombu's messages."""
        info = message.delivery_info
        received = info.get("sqs_message")
        if received is None:
            return None
        # A program without kombu sends messages that have no routing key.
        return cls(info.get("routing_key", ""), info["sqs_queue"], received["ReceiptHandle"])


class OnSQS(Unacknowledged):
    """The messages of one of kombu's SQS channels."""

    longest = 1_400
    is_repeatable = False

    def __init__(self, channel: Any, tags: Tags | None, *given: Any, **options: Any) -> None:
        super().__init__(channel, tags, *given, **options)
        #: When each message was renewed.
        self._renewed: dict[str, float] = {}

    @staticmethod
    def is_on(channel: Any) -> bool:
        """Whether ``channel`` is one."""
        return hasattr(channel, "predefined_queues") and hasattr(channel, "sqs")

    @staticmethod
    def broker_of(channel: Any) -> str:
        """A name of the account and the region."""
        options = channel.connection.client
        place = (
            options.as_uri(include_password=False),
            str(channel.region),
            channel.queue_name_prefix,
        )
        return hashlib.sha256("\n".join(place).encode()).hexdigest()[:16]

    def note(self, tags: Tags) -> None:
        """Note each message from its arrival until SQS has deleted it."""
        qos = self.qos
        append, reject = qos.append, qos.reject

        def append_noted(message: Any, delivery_tag: str) -> None:
            receipt = _Receipt.of(message)
            if receipt is not None:
                tags.add(delivery_tag, "\n".join(receipt))
            append(message, delivery_tag)

        def reject_noted(delivery_tag: str, requeue: bool = False) -> None:
            tags.discard(delivery_tag)
            reject(delivery_tag, requeue=requeue)

        qos.append, qos.ack, qos.reject = append_noted, self.acking(qos.ack, tags), reject_noted

    def renew(self) -> None:
        """Let the visibility timeout of the messages begin again for which it is time. SQS refuses this
        twelve hours after it gave the message to the worker."""
        now, timeout = self.now(), self.channel.visibility_timeout
        receipts = {tag: _Receipt.of(message) for tag, message in self.unacknowledged()}
        self._renewed = {tag: at for tag, at in self._renewed.items() if tag in receipts}
        due = {
            tag: receipt
            for tag, receipt in receipts.items()
            if receipt and now - self._renewed.get(tag, 0.0) >= self.renews_every_s
        }
        done = list(_change(self.channel, due, timeout))
        self._renewed.update(dict.fromkeys(due, now))
        if self.tags is not None:
            self.tags.renewed(done, now)

    @staticmethod
    def give_back(
        channel: Any,
        noted: Iterable[Noted],
        process: str,
        now: Callable[[], float] = time.time,
    ) -> Mapping[str, Whereabouts]:
        """Give messages back, if no other worker can have them yet. About others, nothing is known."""
        receipts = {}
        for one in noted:
            known_s = (
                channel.visibility_timeout / 2 if one.renewed_at > one.received_at else _FIRST_S
            )
            receipt = _Receipt(*one.tag.split("\n"))
            if now() - one.renewed_at < known_s:
                receipts[receipt.handle] = receipt
        return dict.fromkeys(_change(channel, receipts, 0), Whereabouts.GIVEN_BACK)


def delete_if_rejected(message: Any) -> None:
    """Let a rejection delete ``message`` from SQS. Called when its letter is safe; does nothing on other
    brokers.

    kombu leaves a rejected message in a queue that has a redrive policy (kombu 5.7.0, transport/SQS, line
    1024), and before 5.7, in any queue. SQS would deliver it again, its task would run again beside its
    letter, and in the end SQS would move it to its own dead-letter queue.
    """
    if "sqs_message" not in (message.delivery_info or {}):
        return
    reject = message.reject

    def reject_or_delete(requeue: bool = False) -> None:
        if requeue:
            reject(requeue=True)
        else:
            message.ack()

    message.reject = reject_or_delete


def _change(channel: Any, receipts: Mapping[str, _Receipt], timeout: int) -> Iterator[str]:
    """Let the visibility timeout of messages begin again; yields the tags of those for which SQS has done
    it."""
    by_queue: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for tag, receipt in receipts.items():
        by_queue[receipt.routing_key, receipt.url].append((tag, receipt.handle))
    for (routing_key, url), found in by_queue.items():
        # As kombu does when it acknowledges.
        client = channel.sqs(queue=channel.canonical_queue_name(routing_key) or None)
        for begin in range(0, len(found), _AT_ONCE):
            some = found[begin : begin + _AT_ONCE]
            entries = [
                {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": timeout}
                for place, (_, handle) in enumerate(some)
            ]
            answer = client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
            yield from (some[int(done["Id"])][0] for done in answer.get("Successful", ()))

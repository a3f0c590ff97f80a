"""Redis: an hour after a worker was killed, its messages come back.

Redis has no idea which worker has a message. kombu keeps it in the hash ``unacked`` until it is
acknowledged, and gives it back when the visibility timeout is over (kombu 5.7.0, transport/redis.py,
``QoS``; the same since 5.5): an hour after a worker was killed (celery/celery#4984, celery/kombu#905),
and beside a run that takes longer than an hour (celery/celery#5935, open).

Here one script gives a message back together with the check that no other worker has it by now: the tag of a
message stays the same when it is delivered again.

It can be deleted when kombu gives messages of killed workers back, and renews those of living ones.
``tests/integration/recorder/test_given_back.py`` fails without it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from celery.utils.log import get_logger
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from celery_dlq.base.addresses import broker_of
from celery_dlq.recorder.tags import ASKED, Noted, Tags
from celery_dlq.worker.celery_quirks.brokers import is_on_redis
from celery_dlq.worker.celery_quirks.redis_take import taken_at
from celery_dlq.worker.celery_quirks.unacked import Unacknowledged, Whereabouts

logger: logging.Logger = get_logger(__name__)

#: Tags in one command, or in one transaction, during which Redis does nothing else.
_AT_ONCE = 500

#: Seconds for which Redis remembers which messages of a process were given back; longer than a recovery
#: that is repeated because its process was killed, too.
_REMEMBERED_S = 86_400

#: KEYS: kombu's hash and sorted set of messages that are with a worker; the set of tags that were given
#: back; lists. ARGV: the tag; the note that was read; the message for the lists; the latest score of a
#: message that no other worker has received since; how long the set is kept.
#:
#: Redis does not undo what a script did before an error. So each command is called first where it changes
#: nothing that counts: Redis refuses some if its memory is full, or for the rights of its user.
GIVE_BACK = """
if redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 1 then return 1 end
local noted = redis.call('HGET', KEYS[1], ARGV[1])
if not noted then return 0 end
local score = redis.call('ZSCORE', KEYS[2], ARGV[1])
if noted ~= ARGV[2] or #KEYS == 3 or (score and tonumber(score) > tonumber(ARGV[4])) then return 2 end
redis.call('SADD', KEYS[3], KEYS[3])
redis.call('EXPIRE', KEYS[3], ARGV[5])
redis.call('HDEL', KEYS[1], KEYS[3])
redis.call('ZREM', KEYS[2], KEYS[3])
for number = 4, #KEYS do redis.call('LLEN', KEYS[number]) end
for number = 4, #KEYS do redis.call('RPUSH', KEYS[number], ARGV[3]) end
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
"""


class OnRedis(Unacknowledged):
    """The messages of one of kombu's Redis channels."""

    longest = 40

    @staticmethod
    def is_on(channel: Any) -> bool:
        """Whether ``channel`` is one, and notes messages in Redis."""
        return is_on_redis(channel) and bool(channel.ack_emulation)

    @staticmethod
    def broker_of(channel: Any) -> str:
        """A name of the database and the keys."""
        place = (
            broker_of(channel.connection.client), channel.global_keyprefix, channel.unacked_key,
            channel.unacked_index_key,
        )  # fmt: skip
        return hashlib.sha256("\n".join(place).encode()).hexdigest()[:16]

    def note(self, tags: Tags) -> None:
        """Note each message before Redis does, until Redis has forgotten it. A message that kombu itself
        gives back is not noted any more when another worker may get it."""
        qos = self.qos
        append, reject, restore = qos.append, qos.reject, qos.restore_by_tag

        def append_noted(message: Any, delivery_tag: str) -> None:
            tags.add(delivery_tag)
            append(message, delivery_tag)

        def reject_noted(delivery_tag: str, requeue: bool = False) -> None:
            reject(delivery_tag, requeue=requeue)
            tags.discard(delivery_tag)

        def restore_noted(tag: Any, *args: Any, **options: Any) -> None:
            tags.discard(bytes_to_str(tag))
            restore(tag, *args, **options)

        qos.append, qos.ack, qos.reject = append_noted, self.acking(qos.ack, tags), reject_noted
        qos.restore_by_tag = restore_noted

    def renew(self) -> None:
        """Let the visibility timeout of all messages begin again. Called in a thread of its own."""
        tags = iter([tag for tag, _ in self.unacknowledged()])
        while some := list(islice(tags, _AT_ONCE)):
            now = self.now()
            with self.channel.conn_or_acquire() as client:
                # Only those that are still there: others were acknowledged in the meantime.
                client.zadd(self.qos.unacked_index_key, dict.fromkeys(some, now), xx=True)
            if self.tags is not None:
                self.tags.renewed(some, now)

    @staticmethod
    def give_back(channel: Any, noted: Iterable[Noted], process: str) -> Mapping[str, Whereabouts]:
        """Give messages back before all others in their queues, in their order, marked as redelivered."""
        # The queue's end is taken first.
        every = _with_unread(channel, noted, process)
        last_first = iter(sorted(every, key=lambda one: one.received_at, reverse=True))
        where: dict[str, Whereabouts] = {}
        while some := list(islice(last_first, _AT_ONCE)):
            where.update(_give_back(channel, some, process))
        return where


def _with_unread(channel: Any, noted: Iterable[Noted], process: str) -> Iterator[Noted]:
    """``noted``, with the message that the process had not read yet in the place of its question."""
    for one in noted:
        if one.tag.startswith(ASKED):
            tag = taken_at(channel, process, float(one.tag.removeprefix(ASKED)))
            if tag is not None:
                yield one._replace(tag=tag)
        else:
            yield one


def _give_back(
    channel: Any, noted: Sequence[Noted], process: str
) -> Iterator[tuple[str, Whereabouts]]:
    qos, prefix = channel.qos, channel.global_keyprefix
    with channel.conn_or_acquire() as client, client.pipeline() as pipe:
        for one in noted:
            pipe.hget(qos.unacked_key, one.tag)
        found = pipe.execute()
        # In one transaction: a worker that waits for messages would take the last one first.
        for one, note in zip(noted, found, strict=True):
            message, lists = ("", []) if note is None else _as_redelivered(channel, one.tag, note)
            keys = (
                qos.unacked_key,
                qos.unacked_index_key,
                f"celery_dlq.given_back.{process}",
                *lists,
            )
            # Another worker receives it after a whole timeout at the earliest; clocks may differ.
            latest = one.renewed_at + qos.visibility_timeout / 2
            pipe.execute_command(
                "EVAL", GIVE_BACK, len(keys), *(prefix + key for key in keys),
                one.tag, note or "", message, latest, _REMEMBERED_S,
            )  # fmt: skip
        answers = pipe.execute(raise_on_error=False)
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    if len(refused) == len(noted):
        raise refused[0]
    for one, answer in zip(noted, answers, strict=True):
        if isinstance(answer, Exception):
            logger.error(_STAYS, one.tag, type(answer).__name__, answer)
            answer = Whereabouts.ELSEWHERE
        yield one.tag, Whereabouts(answer)


_STAYS = "message %s of a killed worker waits for the visibility timeout: it cannot be given back (%s: %s)"


def _as_redelivered(channel: Any, tag: str, found: bytes) -> tuple[str, list[str]]:
    """The message as kombu would give it back, and its lists; none if it has no queue any more, or if it
    cannot be read. Another program may have written it."""
    try:
        payload, exchange, routing_key = loads(bytes_to_str(found))
        for marked in (payload.get("headers"), payload["properties"].get("delivery_info")):
            if isinstance(marked, dict):
                marked["redelivered"] = True
        priority = channel._get_message_priority(payload, reverse=False)
        queues = channel._lookup(exchange, routing_key)
        dead = channel.deadletter_queue
        return dumps(payload), [channel._q_for_pri(one, priority) for one in queues if one != dead]
    except Exception as error:  # noqa: BLE001 - what another program wrote raises anything
        logger.error(_STAYS, tag, type(error).__name__, error)  # noqa: TRY400 - the line says why
        return "", []

"""A worker that is killed just after Redis has given it a message loses the message.

``Channel._brpop_start`` takes a message off its list with BRPOP, and ``QoS.append`` notes in the hash
``unacked`` that a worker has it, when the worker has read it (kombu 5.7.0, transport/redis.py, lines 1457 and
524; the same since 5.5). If the worker or its connection dies in between, the message is in neither place.
celery/celery#7950 is about it, open. Here one script does both, so that kombu's own restoring gives the
message back after the visibility timeout. ``QoS.append`` has nothing left to write, which saves a round trip
for each message.

The script also writes which message a process has taken last, and before it asks, the process notes that it
does. So if it dies before it has read the answer, the message comes back as soon as all others that it had.

A script cannot wait. To wait, the worker has one message moved to the list of the queue's next priority, from
where the script, sent with it, takes it. All lists are kombu's own: if Redis or the worker fails between the
two, the message waits in a list that every worker reads, also one without this. A wait can watch only one
list, so it is short, and the script looks at all of them after it.

It can be deleted when kombu takes and notes a message in one step.
``test_a_worker_that_dies_before_it_has_noted_a_message`` in ``tests/integration/recorder/test_redis_take.py``
fails without it.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Sequence
from typing import Any, cast

from kombu.transport.virtual import QoS
from kombu.utils.encoding import bytes_to_str

from celery_dlq.recorder.tags import ASKED, Tags

#: How long a worker waits at one list, in seconds, before it looks at the others. A message in one of these
#: comes at most this much later than with BRPOP. Each wait of an idle worker is one write and one read.
WAIT_S = 0.1

#: KEYS: kombu's hash and sorted set of messages that are with a worker; the tag that the process has taken
#: last; lists. ARGV: the time, and for how many seconds that tag is kept.
#: Takes one message from the first list that has one, as BRPOP would, and notes it as ``QoS.append`` does.
#: Returns the number of the list, the item, and the tag under which it is noted; nothing if all are empty.
#:
#: The note is written first: if Redis refuses it, such as when its memory is full, the message is still in
#: its list. It holds the item's own text, because Lua's numbers are not exact. A note that Python could not
#: read would stop kombu from restoring any message; Lua reads JSON without looking at the encoding, so
#: ``is_utf8`` does. It leaves out a body in base64, because it takes 20 ms for each MB, in which Redis does
#: nothing else. An item that is not a message is not noted.
TAKE = r"""
local more = '[\128-\191]'
local sequences = {
  '[\194-\223]' .. more, '\224[\160-\191]' .. more, '[\225-\236\238\239]' .. more .. more,
  '\237[\128-\159]' .. more, '\240[\144-\191]' .. more .. more,
  '[\241-\243]' .. more .. more .. more, '\244[\128-\143]' .. more .. more
}
local function is_utf8(text)
  if not text:find('[\128-\255]') then return true end
  local rest = text:gsub('[%z\1-\127]+', '.')
  for _, sequence in ipairs(sequences) do rest = rest:gsub(sequence, '.') end
  return not rest:find('[\128-\255]')
end
local function without_body(item, message)
  local body = message.properties.body_encoding == 'base64' and message.body
  local first, last
  if type(body) == 'string' then first, last = item:find(body, 1, true) end
  return first and item:sub(1, first - 1) .. item:sub(last + 1) or item
end
local function is_name(value) return type(value) == 'string' or value == cjson.null end
local function address_of(item)
  local is_json, message = pcall(cjson.decode, item)
  local properties = is_json and type(message) == 'table' and message.properties
  local info = type(properties) == 'table' and properties.delivery_info
  if type(info) == 'table' and type(properties.delivery_tag) == 'string'
      and is_name(info.exchange) and is_name(info.routing_key)
      and is_utf8(without_body(item, message)) then
    return properties.delivery_tag, cjson.encode(info.exchange), cjson.encode(info.routing_key)
  end
end
for number = 4, #KEYS do
  local item = redis.call('LINDEX', KEYS[number], -1)
  if item then
    local tag, exchange, routing_key = address_of(item)
    if tag then
      redis.call('SET', KEYS[3], tag, 'EX', ARGV[2])
      redis.call('HSET', KEYS[1], tag, '[' .. item .. ',' .. exchange .. ',' .. routing_key .. ']')
      redis.call('ZADD', KEYS[2], ARGV[1], tag)
    end
    redis.call('RPOP', KEYS[number])
    return {number - 3, item, tag or ''}
  end
end
return false
"""


#: By which Redis knows the script, once it has run.
_SHA = hashlib.sha1(TAKE.encode(), usedforsecurity=False).hexdigest()


def why_not(channel: Any, queue: str) -> str:
    """Why messages cannot be taken in one step on ``channel``; empty if they can. Changes nothing in Redis.

    :param queue: one of the queues that the worker consumes.
    """
    if not channel.ack_emulation:
        return "ack_emulation is off in broker_transport_options, so kombu never notes a message"
    key, keys = channel.global_keyprefix + queue, _keys(channel, "nothing")
    with channel.conn_or_acquire() as client:
        try:
            # From a list to itself: a message that is there stays where it is.
            client.execute_command("BLMOVE", key, key, "RIGHT", "RIGHT", 0.01)
            client.execute_command("LINDEX", key, -1)
            client.execute_command("RPOP", key, 0)
            client.execute_command("SET", keys[-1], "", "EX", 1, "XX")
            client.execute_command("EVAL", TAKE, len(keys), *keys)
            client.execute_command("EVALSHA", _SHA, len(keys), *keys)
        except channel.ResponseError as error:
            return (
                f"Redis refuses it ({error}); it needs Redis 6.2 or newer, and a user who may call BLMOVE, "
                "LINDEX, RPOP, SET, EVAL and EVALSHA, and use keys that begin with celery_dlq"
            )
    return ""


def taken_at(channel: Any, process: str, moment: float) -> str | None:
    """The tag of the message that ``process`` took when it asked at ``moment``; None if it has taken none, or
    another process may have it by now."""
    _, index, last = _keys(channel, process)
    with channel.conn_or_acquire() as client:
        tag = client.execute_command("GET", last)
        # Another process receives it at another time, and so does this one.
        if tag is None or client.execute_command("ZSCORE", index, tag) != moment:
            return None
    return cast("str", bytes_to_str(tag))


class Taker:
    """Lets ``channel`` take messages off their lists, and note that it has them, in one step. Sends the
    script in the place of BRPOP, and reads its answer as if it were that of BRPOP.

    :param channel: one of kombu's Redis channels, for which :func:`why_not` has no reason.
    :param tags: notes what the process has received.
    :param before: of the process's last channel, whose connection is lost.
    """

    def __init__(self, channel: Any, tags: Tags | None = None, before: Taker | None = None) -> None:
        self._channel, self._tags = channel, tags
        self._process = uuid.uuid4().hex if tags is None else tags.process
        self._keys = _keys(channel, self._process)
        self._parse, self._append = channel.client.parse_response, channel.qos.append
        #: The lists of the script that was sent last.
        self._lists: list[str] = []
        #: Whether the lists were empty, and how often it has waited since the start.
        self._waits, self._waited = True, 0
        #: Whether Redis has the script.
        self._is_known = False
        #: When it asked; 0 if the answer was read.
        self._asked_at = 0.0
        #: The tag under which the item that was taken last is noted, until kombu has the message.
        self._tag: str | None = None
        if before is not None:
            before.give_back_unread(channel)
        channel._brpop_start, channel.qos.append = self.start, self.append
        channel.client.parse_response = self.parse_response

    def start(self, timeout: float | None = None) -> None:
        """Ask for one message. Takes the place of ``Channel._brpop_start``."""
        channel = self._channel
        queues = channel._queue_cycle.consume(len(channel.active_queues))
        if not queues:
            return
        self.give_back_unread(channel)
        connection = channel.client.connection
        channel._in_poll, channel._brpop_sent_at = connection, time.monotonic()
        self._lists = [
            channel._q_for_pri(queue, step) for step in channel.priority_steps for queue in queues
        ]
        commands = [self._wait(queues)] if self._waits else []
        self._note(time.time())
        commands.append(self._take())
        connection.send_packed_command(connection.pack_commands(commands))

    def give_back_unread(self, channel: Any) -> None:
        """Give back by ``channel`` what was taken by a connection that was lost before its answer came."""
        tag = self._asked_at and taken_at(channel, self._process, self._asked_at)
        if tag:
            channel.qos.restore_by_tag(tag)
        self._asked_at = 0.0

    def _note(self, asked_at: float) -> None:
        """Note when it has asked; 0 if it waits for no answer."""
        self._asked_at = asked_at
        if self._tags is not None:
            self._tags.discard(ASKED)
            if asked_at:
                self._tags.add(ASKED, f"{ASKED}{asked_at!r}")

    def _wait(self, queues: Sequence[str]) -> tuple[object, ...]:
        """Wait for a message in the first list of a queue, each queue in turn."""
        queue = queues[self._waited % len(queues)]
        self._waited += 1
        first, *others = (
            self._channel._q_for_pri(queue, step) for step in self._channel.priority_steps
        )
        beside = others[0] if others else first
        self._lists.insert(0, beside)
        prefix = self._channel.global_keyprefix
        return "BLMOVE", prefix + first, prefix + beside, "RIGHT", "RIGHT", WAIT_S

    def _take(self) -> tuple[object, ...]:
        channel = self._channel
        script = ("EVALSHA", _SHA) if self._is_known else ("EVAL", TAKE)
        keys = *self._keys, *(channel.global_keyprefix + one for one in self._lists)
        return *script, len(keys), *keys, self._asked_at, max(1, int(channel.visibility_timeout))

    def parse_response(self, connection: Any, command: str, **options: Any) -> Any:
        """Read an answer. Takes the place of the method of the channel's client.

        The first BRPOP may be one of kombu's: a worker that starts asks its neighbours who they are, stops
        waiting after one second, and reads the answer of Redis later.
        """
        if command != "BRPOP" or not self._asked_at:
            return self._parse(connection, command, **options)
        self._tag = None
        _, refused = self._read(connection, "BLMOVE") if self._waits else (None, None)
        answer, failed = self._read(connection, "EVAL", **options)
        if not self._is_known:
            refused = refused or failed
        # If Redis has forgotten it, or refuses it now, the next question says which.
        self._is_known = failed is None
        self._waits = not answer
        taken = self._taken(*answer) if answer else None
        self._asked_at = 0.0
        if self._tag is None:
            self._note(0.0)
        if taken is None and refused is not None:
            raise refused
        return taken

    def _read(self, connection: Any, command: str, **options: Any) -> tuple[Any, Exception | None]:
        """Read one answer: what it is, or the error with which Redis refuses the command."""
        try:
            return self._parse(connection, command, **options), None
        except self._channel.ResponseError as error:
            return None, cast("Exception", error)

    def _taken(self, number: int, item: bytes, tag: bytes) -> tuple[str, bytes] | None:
        """The list and the item that the script has answered. None if another worker may have the message,
        because the answer is read so late: while a worker has as many messages as it may have, kombu leaves
        an answer unread, and the message is not renewed."""
        noted, timeout = bytes_to_str(tag), self._channel.visibility_timeout
        is_late = bool(noted) and time.time() - self._asked_at > timeout / 2
        if is_late and taken_at(self._channel, self._process, self._asked_at) != noted:
            return None
        self._tag = noted or None
        return self._lists[number - 1], item

    def append(self, message: Any, tag: str) -> None:
        """Remember a message. Takes the place of ``QoS.append``, and writes nothing that the script has."""
        if self._tag is None or tag != self._tag:
            self._append(message, tag)
            return
        if self._tags is not None:
            self._tags.add(tag)
        self._note(0.0)
        QoS.append(self._channel.qos, message, tag)

    def noted(self) -> str | None:
        """The tag under which the item that was taken last is noted; None if it is not. Another message takes
        the place of the item under this tag, and is to be written."""
        tag, self._tag = self._tag, None
        return tag


def _keys(channel: Any, process: str) -> list[str]:
    """The script's keys before the lists."""
    names = channel.unacked_key, channel.unacked_index_key, f"celery_dlq.taken.{process}"
    return [channel.global_keyprefix + name for name in names]

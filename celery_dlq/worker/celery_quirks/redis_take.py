"""A worker that is killed just after Redis has given it a message loses the message.

``Channel._brpop_start`` takes a message off its list with BRPOP, and ``QoS.append`` notes in the hash
``unacked`` that a worker has it, when the worker has read it (kombu 5.7.0, transport/redis.py, lines 1457 and
524; the same since 5.5). If the worker or its connection dies in between, the message is in neither place.
celery/celery#7950 is about it, open. Here one script does both, so that kombu's own restoring gives the
message back after the visibility timeout.

A script cannot wait. To wait, the worker has one message moved to the list of the queue's next priority, from
where the script, sent with it, takes it. All lists are kombu's own: if Redis or the worker fails between the
two, the message waits in a list that every worker reads, also one without this. A wait can watch only one
list, so it is short, and the script looks at all of them after it.

It can be deleted when kombu takes and notes a message in one step.
``test_a_worker_that_dies_before_it_has_noted_a_message`` in ``tests/integration/recorder/test_redis_take.py``
fails without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

#: How long a worker waits at one list, in seconds, before it looks at the others. A message in one of these
#: comes at most this much later than with BRPOP. Each wait of an idle worker is one write and one read.
WAIT_S = 0.1

#: KEYS: kombu's hash and sorted set of messages that are with a worker, then lists. ARGV: the time.
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
for number = 3, #KEYS do
  local item = redis.call('LINDEX', KEYS[number], -1)
  if item then
    local tag, exchange, routing_key = address_of(item)
    if tag then
      redis.call('HSET', KEYS[1], tag, '[' .. item .. ',' .. exchange .. ',' .. routing_key .. ']')
      redis.call('ZADD', KEYS[2], ARGV[1], tag)
    end
    redis.call('RPOP', KEYS[number])
    return {number - 2, item, tag or ''}
  end
end
return false
"""


def why_not(channel: Any, queue: str) -> str:
    """Why messages cannot be taken in one step on ``channel``; empty if they can. Changes nothing in Redis.

    :param queue: one of the queues that the worker consumes.
    """
    if not channel.ack_emulation:
        return "ack_emulation is off in broker_transport_options, so kombu never notes a message"
    key = channel.global_keyprefix + queue
    with channel.conn_or_acquire() as client:
        try:
            # From a list to itself: a message that is there stays where it is.
            client.execute_command("BLMOVE", key, key, "RIGHT", "RIGHT", 0.01)
            client.execute_command("LINDEX", key, -1)
            client.execute_command("RPOP", key, 0)
            client.execute_command("EVAL", TAKE, *_notes(channel), 0)
        except channel.ResponseError as error:
            return (
                f"Redis refuses it ({error}); it needs Redis 6.2 or newer, and a user who may call BLMOVE, "
                "LINDEX, RPOP and EVAL"
            )
    return ""


def take_in_one_step(channel: Any) -> Callable[[], str | None]:
    """Let ``channel`` take messages off their lists, and note that it has them, in one step.

    :param channel: one of kombu's Redis channels, for which :func:`why_not` has no reason.
    :returns: the tag under which the item that was taken last is noted; None if it is not.
    """
    taker = _Taker(channel)
    channel._brpop_start = taker.start
    channel.client.parse_response = taker.parse_response
    return lambda: taker.tag


class _Taker:
    """Sends the script in the place of BRPOP, and reads its answer as if it were that of BRPOP."""

    def __init__(self, channel: Any, now: Callable[[], float] = time.time) -> None:
        self._channel, self._now = channel, now
        self._parse = channel.client.parse_response
        #: The lists of the script that was sent last.
        self._lists: list[str] = []
        #: Whether the lists were empty, and how often it has waited since the start.
        self._waits, self._waited = True, 0
        self.tag: str | None = None

    def start(self, timeout: float | None = None) -> None:
        """Ask for one message. Takes the place of ``Channel._brpop_start``."""
        channel = self._channel
        queues = channel._queue_cycle.consume(len(channel.active_queues))
        if not queues:
            return
        connection = channel.client.connection
        channel._in_poll, channel._brpop_sent_at = connection, time.monotonic()
        self._lists = [
            channel._q_for_pri(queue, step) for step in channel.priority_steps for queue in queues
        ]
        commands = [self._wait(queues)] if self._waits else []
        commands.append(self._take())
        connection.send_packed_command(connection.pack_commands(commands))

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
        lists = (self._channel.global_keyprefix + one for one in self._lists)
        return "EVAL", TAKE, *_notes(self._channel, *lists), self._now()

    def parse_response(self, connection: Any, command: str, **options: Any) -> Any:
        """Read an answer. Takes the place of the method of the channel's client."""
        if command != "BRPOP":
            return self._parse(connection, command, **options)
        self.tag = None
        refused = self._end_of_wait(connection) if self._waits else None
        answer = self._parse(connection, "EVAL", **options)
        self._waits = not answer
        if answer:
            number, item, tag = answer
            self.tag = tag.decode() or None
            return self._lists[number - 1], item
        if refused is not None:
            raise refused
        return None

    def _end_of_wait(self, connection: Any) -> Exception | None:
        """Read the wait's answer; its error, if Redis has refused it. The script's answer follows anyway."""
        try:
            self._parse(connection, "BLMOVE")
        except self._channel.ResponseError as error:
            return cast("Exception", error)
        return None


def _notes(channel: Any, *lists: str) -> tuple[object, ...]:
    """The script's keys, and their number before them."""
    prefix = channel.global_keyprefix
    keys = prefix + channel.unacked_key, prefix + channel.unacked_index_key, *lists
    return len(keys), *keys

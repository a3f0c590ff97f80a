"""Generates messages as an enemy, or a broken client, sends them: deep, wide and huge ones, wrong types in
each header of Celery's and of ours, broken bodies, wrong content types. The same seed gives the same ones."""

from __future__ import annotations

import json
import random
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from celery import Celery
from kombu import Producer

from celery_dlq import DeadLetter
from celery_dlq.model import headers as own

JSON = "application/json"
GOOD_BODY = b'[[1], {"a": 2}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'

TASKS = (
    "early",
    "late",
    "fails",
    "fails_late",
    "exhausted",
    "asks_again",
    "lies",
    "lies_late",
)

#: All headers that Celery's second protocol knows, some of its first, and those of delayed delivery.
CELERYS = (
    "lang", "task", "id", "root_id", "parent_id", "group", "group_index", "shadow", "eta", "expires",
    "retries", "timelimit", "argsrepr", "kwargsrepr", "origin", "ignore_result", "meth",
    "replaced_task_nesting", "stamped_headers", "stamps", "groups", "taskset", "compression", "headers",
    "reply_to", "correlation_id", "delivery_info", "args", "kwargs", "utc", "hostname", "properties",
    "is_eager", "called_directly", "_protected", "_children", "_dlq_refused", "_dlq_judged",
    "x-delivery-count", "x-death", "redelivered",
)  # fmt: skip
OURS = tuple(sorted(value for name, value in vars(own).items() if name.endswith("_HEADER")))

#: Depths below, around and beyond the recursion limit of 1000.
DEPTHS = (60, 300, 700, *range(820, 1000, 20), 1_500, 20_000, 200_000)


#: Headers that say which letter a message belongs to.
IDS = ("id", own.LETTER_HEADER)

#: Values that are a time in the future.
LATER = ("a far date", "a time")


@dataclass(frozen=True)
class Hostile:
    """One message, and what is wrong with it."""

    number: str
    why: str
    body: bytes = GOOD_BODY
    headers: Mapping[str, Any] | None = None
    content_type: str = JSON
    content_encoding: str = "utf-8"
    #: Whether it counts as delivered again, if the broker lets the sender say so.
    redelivered: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)


def messages(seed: int, count: int, *, tables: bool) -> Iterator[Hostile]:
    """``count`` messages. Every kind of fault comes once before any comes again.

    :param tables: headers are an AMQP table, which holds less than JSON.
    """
    chance = random.Random(seed)
    kinds = _kinds(tables)
    order: list[tuple[str, Callable[..., Hostile]]] = []
    for number in range(count):
        if not order:
            order = chance.sample(kinds, len(kinds))
        why, spoil = order.pop()
        good = _good(chance, number, why)
        yield spoil(good, chance)


def _good(chance: random.Random, number: int, why: str) -> Hostile:
    task_id = f"hostile-{number}"
    return Hostile(
        number=str(number),
        why=why,
        headers={
            "lang": "py", "task": f"proj_hostile.{chance.choice(TASKS)}", "id": task_id,
            "root_id": task_id, "retries": 0, "timelimit": [None, None], "x-number": str(number),
        },
        # Redis only: as a message that was handed out again.
        redelivered=chance.random() < 0.25,
    )  # fmt: skip


def _kinds(tables: bool) -> list[tuple[str, Callable[..., Hostile]]]:
    kinds: list[tuple[str, Callable[..., Hostile]]] = [
        (f"header {name}", _header(name, tables)) for name in (*CELERYS, *OURS)
    ]
    kinds += [(f"embedded {name}", _embedded(name)) for name in EMBEDDED]
    kinds += [(one.__name__.strip("_").replace("_", " "), one) for one in BODIES]
    # The faults that did the most harm come more often.
    kinds += [("deep arguments", _deep_arguments)] * 6
    kinds += [("several headers", _several_headers(tables))] * 6
    return kinds


def _header(name: str, tables: bool) -> Callable[..., Hostile]:
    def spoil(good: Hostile, chance: random.Random) -> Hostile:
        value, said = _value(chance, tables)
        if name in IDS:
            value = _own_id(value, good)
        while name == "eta" and said in LATER:  # the worker would wait
            value, said = _value(chance, tables)
        return replace(
            good, headers={**(good.headers or {}), name: value}, why=f"{good.why} is {said}"
        )

    return spoil


def _several_headers(tables: bool) -> Callable[..., Hostile]:
    names = [name for name in (*CELERYS, *OURS) if name != "eta"]

    def spoil(good: Hostile, chance: random.Random) -> Hostile:
        bad = {name: _value(chance, tables)[0] for name in chance.sample(names, 4)}
        bad |= {name: _own_id(bad[name], good) for name in IDS if name in bad}
        return replace(good, headers={**(good.headers or {}), **bad}, why=f"headers {sorted(bad)}")

    return spoil


def _own_id(value: Any, good: Hostile) -> Any:
    """``value``, made unique: messages with the same id would be one letter."""
    if type(value) is str and value.strip():
        return f"{value}-hostile-{good.number}"
    return value + int(good.number) if type(value) is int else value


def _value(chance: random.Random, tables: bool) -> tuple[Any, str]:
    """A value that a header should not have, and its name."""
    depth = chance.choice([50, 200, 400, 600] if tables else [50, 200, 450, 700, 950])
    long = 20_000 if tables else 40_000  # all headers of one message must fit into a frame
    values: dict[str, Any] = {
        "null": None, "true": True, "zero": 0, "minus one": -1, "a fraction": 1.5,
        "a number beyond 32 bits": 2**31, "a number beyond 63 bits": 2**62,
        "an empty text": "", "blanks": "  \n", "a long text": "x" * long, "NUL": "a\x00b",
        "brackets": "[" * long, "an unfinished text": '[{"number": 1', "a number as text": "7",
        "a date as text": "2031-02-30T25:61:00", "a far date": "9999-12-31T23:59:59+00:00",
        "an early date": "0001-01-01T00:00:00+14:00",
        "a list of nothing": [], "a list": [1, "a", None], "a table of nothing": {},
        "a table": {"a": {"b": [1]}},
        "a deep list": _deep(depth), "a deep table": _deep_table(depth), "a wide list": [1] * (long // 8),
        "attempts of another program": json.dumps([{"number": "x", "failed_at": 5, "verdict": "maybe"}]),
        "attempts of wrong types": json.dumps([_strange_attempt(chance)]),
        "very many attempts": json.dumps([_strange_attempt(chance)] * (6 if tables else 40)),
        "emoji": "\U0001f4a3" * 50,
    }  # fmt: skip
    if tables:
        values["a time"] = datetime(2030, 1, 1, tzinfo=timezone.utc)
        values["bytes"] = b"\xff\x00\xfe"
    else:
        values |= {
            "a number of 5000 digits": 10**4_000, "no number": float("nan"), "infinite": float("inf"),
            "a lone surrogate": "a\ud800b", "very deep": _deep(3_000), "a number of 400 digits": 10**400,
            "no numbers": [float("nan"), float("inf")],
        }  # fmt: skip
    said = chance.choice(sorted(values))
    return values[said], said


def _strange_attempt(chance: random.Random) -> dict[str, Any]:
    attempt = {
        "number": 1, "redrive": 0, "failed_at": "2026-01-01T00:00:00+00:00", "exception_type": "ValueError",
        "message": "no", "verdict": "transient", "rule": "x", "delay_s": 1.0, "worker": "w", "pid": 1,
        "evidence": "", "path": "",
    }  # fmt: skip
    wrong = [
        None,
        "x" * 3_000,
        -1,
        10**30,
        [1],
        {"a": 1},
        "2026-01-01T00:00:00",
        "a\x00b",
        True,
        1e308,
    ]
    return {**attempt, chance.choice(sorted(attempt)): chance.choice(wrong)}


def _deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def _deep_table(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


#: Keys of the body's third part: those that Celery sends, and some that it takes for a request's own.
EMBEDDED = (
    "callbacks", "errbacks", "chain", "chord", "id", "retries", "task", "is_eager", "called_directly",
    "group", "timelimit", "reply_to", "delivery_info", "headers", "hostname", "correlation_id", "args",
    "kwargs", "ignore_result", "expires", "eta", "stamps", "stamped_headers", "root_id", "origin", "utc",
)  # fmt: skip


def _embedded(name: str) -> Callable[..., Hostile]:
    def spoil(good: Hostile, chance: random.Random) -> Hostile:
        value, said = _value(chance, tables=True)
        while not isinstance(value, (str, int, float, list, dict, type(None))):
            value, said = _value(chance, tables=True)
        body = json.dumps([[1], {}, {name: value}]).encode()
        return replace(good, body=body, why=f"{good.why} is {said}")

    return spoil


def _deep_arguments(good: Hostile, chance: random.Random) -> Hostile:
    depth = chance.choice(DEPTHS)
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}")])
    deep = opening * depth + b"1" + closing * depth
    place = chance.choice([b"[[%s], {}, {}]", b'[[], {"a": %s}, {}]', b'[[], {}, {"chain": %s}]',
                           b'[[], {}, {"callbacks": [%s]}]', b"%s", b"[[], {}, %s]"])  # fmt: skip
    if chance.random() < 0.5:
        # With a task on its own base class, Celery does the same as ever, except for messages that the pool
        # cannot take.
        is_argument = place.startswith((b"[[%s]", b'[[], {"a"'))
        good = _only_task(good, chance.choice(["early", "late", *["plain"] * is_argument]))
    return replace(good, body=place % deep, why=f"{good.why} of {depth} levels in {place!r}")


def _only_task(good: Hostile, task: str) -> Hostile:
    return replace(good, headers={**(good.headers or {}), "task": f"proj_hostile.{task}"})


def _wide_arguments(good: Hostile, chance: random.Random) -> Hostile:
    width = chance.choice([1_000, 50_000, 200_000])
    wide = [list(range(width)), {str(number): number for number in range(width)}]
    return replace(good, body=json.dumps([[chance.choice(wide)], {}, {}]).encode())


def _many_keywords(good: Hostile, chance: random.Random) -> Hostile:
    names = {chr(0x4E00 + number % 5_000) + str(number): number for number in range(20_000)}
    return replace(good, body=json.dumps([[], names, {}]).encode())


def _huge_text(good: Hostile, chance: random.Random) -> Hostile:
    size = chance.choice([100_000, 1_000_000, 4_000_000])
    return replace(good, body=json.dumps([["x" * size], {}, {}]).encode())


def _huge_number(good: Hostile, chance: random.Random) -> Hostile:
    digits = chance.choice([20, 400, 4_200, 6_000])
    return replace(good, body=b"[[%s], {}, {}]" % (b"9" * digits))


def _no_numbers(good: Hostile, chance: random.Random) -> Hostile:
    return replace(good, body=b'[[NaN, Infinity], {"a": -Infinity}, {}]')


def _strange_keywords(good: Hostile, chance: random.Random) -> Hostile:
    name = chance.choice(["self", "", "a b", "__class__", "request", "\x00", "args"])
    return replace(good, body=json.dumps([[1], {name: 1}, {}]).encode())


def _lone_surrogates(good: Hostile, chance: random.Random) -> Hostile:
    return replace(good, body=b'[["\\ud800"], {"\\udfff": "\\u0000"}, {}]')


def _tagged_values(good: Hostile, chance: random.Random) -> Hostile:
    """JSON that kombu decodes as values of other types."""
    kind = chance.choice(["datetime", "uuid", "decimal", "base64", "bytes", "nosuch", 5, None, [1]])
    value = chance.choice(["nonsense", 5, None, [1], {"a": 1}])
    return replace(
        good, body=json.dumps([[{"__type__": kind, "__value__": value}], {}, {}]).encode()
    )


def _random_bytes(good: Hostile, chance: random.Random) -> Hostile:
    return replace(good, body=chance.randbytes(chance.choice([0, 1, 40, 5_000])))


def _broken_json(good: Hostile, chance: random.Random) -> Hostile:
    return replace(good, body=GOOD_BODY[: chance.randrange(len(GOOD_BODY))])


def _another_shape(good: Hostile, chance: random.Random) -> Hostile:
    shapes = [b"null", b"7", b'"abc"', b"{}", b"[]", b"[1, 2]", b"[[], {}, {}, {}]", b"[{}, [], {}]",
              b'{"args": 5}', b'{"args": [], "kwargs": {}}', b'{"args": [1], "kwargs": 7, "task": 5}',
              b'["abc", {}, {}]', b"[[], {}, []]", b"[[], {}, 7]", b"[[], null, null]",
              b"[null, null, null]",
              b'{"task": "proj_hostile.early", "id": {}, "args": [], "kwargs": {}}']  # fmt: skip
    return replace(good, body=chance.choice(shapes))


def _without_headers(good: Hostile, chance: random.Random) -> Hostile:
    bodies: list[Any] = [
        {"task": "proj_hostile.early", "id": f"old-{good.number}", "args": [1], "kwargs": {}},
        {"task": "proj_hostile.late", "id": f"old-{good.number}", "args": 1, "kwargs": []},
        {"task": "proj_hostile.early", "id": f"old-{good.number}", "retries": "x", "eta": 5},
        {"task": {"a": 1}}, [1, 2, 3], "text", None,
    ]  # fmt: skip
    return replace(good, headers=None, body=json.dumps(chance.choice(bodies)).encode())


def _missing_headers(good: Hostile, chance: random.Random) -> Hostile:
    kept = dict(good.headers or {})
    for name in chance.sample(sorted(kept), chance.randrange(1, 4)):
        del kept[name]
    return replace(good, headers=kept)


def _unknown_task(good: Hostile, chance: random.Random) -> Hostile:
    name = chance.choice(["far.away", "", "\x00", "x" * 5_000, "celery.nosuch", "proj_hostile"])
    return replace(good, headers={**(good.headers or {}), "task": name})


def _expired(good: Hostile, chance: random.Random) -> Hostile:
    return replace(good, headers={**(good.headers or {}), "expires": "2020-01-01T00:00:00+00:00"})


def _content_type(good: Hostile, chance: random.Random) -> Hostile:
    kind = chance.choice(["", "application/x-python-serialize", "application/x-yaml", "application/x-msgpack",
                          "text/plain", "application/data", "nonsense", "x" * 200])  # fmt: skip
    return replace(good, content_type=kind)


def _content_encoding(good: Hostile, chance: random.Random) -> Hostile:
    kind = chance.choice(["", "binary", "utf-16", "nonsense", "us-ascii", "zlib_codec", "idna"])
    return replace(good, content_encoding=kind)


def _compression(good: Hostile, chance: random.Random) -> Hostile:
    kind = chance.choice(["application/x-gzip", "application/x-bz2", "zlib", "nosuch"])
    body = chance.choice([zlib.compress(good.body), b"\x00", good.body])
    return replace(good, headers={**(good.headers or {}), "compression": kind}, body=body)


def _strange_properties(good: Hostile, chance: random.Random) -> Hostile:
    properties = {"reply_to": "", "correlation_id": "x" * 200, "priority": 9, "expiration": None}
    return replace(good, properties=properties)


BODIES: tuple[Callable[..., Hostile], ...] = (
    _deep_arguments, _wide_arguments, _many_keywords, _huge_text, _huge_number, _no_numbers,
    _strange_keywords, _lone_surrogates, _tagged_values, _random_bytes, _broken_json, _another_shape,
    _without_headers, _missing_headers, _unknown_task, _expired, _content_type,
    _content_encoding, _compression, _strange_properties,
)  # fmt: skip


#: As kombu writes it to Redis. If headers nest too deeply to be read, the letter's body is all of that.
_NUMBER = re.compile(r'hostile-(\d+)|"type": "(\d+)"')


def number_of(letter: DeadLetter) -> str | None:
    """The number of the message that became ``letter``."""
    envelope = letter.envelope
    number = envelope.properties.get("type") or envelope.headers.get("x-number")
    if number is not None:
        return str(number)
    # A retry carries its request's headers, which the message may have replaced.
    where = (str(letter.task_id), str(envelope.headers.get("id")), envelope.body.decode("latin-1"))
    found = (_NUMBER.search(text) for text in where)
    return next((match[1] or match[2] for match in found if match), None)


def send(app: Celery, queue: str, hostile: Iterator[Hostile]) -> list[Hostile]:
    """Send them past Celery, straight to the queue; returns those that the client library could write."""
    limit, sent = sys.getrecursionlimit(), []
    sys.setrecursionlimit(20_000)  # the sender writes what the worker cannot read
    try:
        with app.connection_for_write() as connection, connection.channel() as channel:
            is_redis = connection.transport.driver_type == "redis"
            for one in hostile:
                again = {"delivery_info": {"redelivered": True}} if one.redelivered else {}
                Producer(channel).publish(
                    one.body, exchange="", routing_key=queue, content_type=one.content_type,
                    content_encoding=one.content_encoding, headers=one.headers, type=one.number,
                    **{**one.properties, **(again if is_redis else {})},
                )  # fmt: skip
                sent.append(one)
    finally:
        sys.setrecursionlimit(limit)
    return sent

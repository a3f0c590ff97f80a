"""Kafka: kafka-python, aiokafka and confluent-kafka."""

from __future__ import annotations

from types import BuiltinMethodType

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.evidence import arguments, dotted_name, number, read
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# kafka.apache.org/protocol, "Error Codes", those that are retriable.
_PROTOCOL_CODES = frozenset(
    {
        2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88,
        89, 100, 103, 106, 122, 123,
    }
)  # fmt: skip
# librdkafka's own, src/rdkafka.h: transport, host, message or request timed out, brokers down, queue
# full, waits and work in progress, interrupted, retry.
_LOCAL_CODES = frozenset(
    {-195, -194, -193, -192, -187, -185, -184, -180, -178, -177, -166, -164, -163, -153}
)


def retriable(exc: BaseException) -> Finding | None:
    """kafka/errors.py and aiokafka/errors.py declare it for each class."""
    flag = read(exc, "retriable")
    if type(flag) is not bool:
        return None
    verdict = Verdict.TRANSIENT if flag else Verdict.TERMINAL
    return Finding(verdict, "kafka.retriable", f"retriable={flag}")


def confluent(exc: BaseException) -> Finding | None:
    """The ``KafkaError`` in ``args[0]``: fatal, retriable, else by its code."""
    error = next(iter(arguments(exc)), None)
    if dotted_name(type(error)) not in ("cimpl.KafkaError", "confluent_kafka.cimpl.KafkaError"):
        return None
    code = number(_answer(error, "code"))
    if _answer(error, "fatal") is True:
        return Finding(Verdict.TERMINAL, "kafka.code", f"code={code}, fatal")
    if _answer(error, "retriable") is True:
        return Finding(Verdict.TRANSIENT, "kafka.code", f"code={code}, retriable")
    passes = code in _PROTOCOL_CODES or code in _LOCAL_CODES
    return Finding(Verdict.TRANSIENT if passes else Verdict.TERMINAL, "kafka.code", f"code={code}")


def _answer(error: object, method: str) -> object:
    """What a method written in C says."""
    function = read(error, method)
    return function() if type(function) is BuiltinMethodType else None


ROWS: tuple[Row, ...] = (
    probed("kafka.retriable", retriable, "retriable", *within("kafka.errors", "KafkaError")),
    # aiokafka/errors.py: a broker that is gone, in classes that declare nothing else.
    probed("kafka.retriable", retriable, "retriable", "aiokafka.errors.KafkaError"),
    network("kafka.network", "aiokafka.errors.KafkaConnectionError"),
    transient(
        "kafka.network",
        *within("aiokafka.errors", "KafkaTimeoutError KafkaUnavailableError NoBrokersAvailable"),
    ),
    terminal("kafka.usage", *within("aiokafka.errors", "ConsumerStoppedError IllegalOperation")),
    probed(
        "kafka.code",
        confluent,
        "the code in args[0]",
        "cimpl.KafkaException",
        "confluent_kafka.cimpl.KafkaException",
    ),
    terminal("kafka.message", "confluent_kafka.serialization.SerializationError"),
    terminal(
        "kafka.usage", *within("cimpl", "IllegalStateException ConcurrentModificationException")
    ),
    probed(
        "http.status",
        http_status(("http_status_code",)),
        "http_status_code",
        "confluent_kafka.schema_registry.error.SchemaRegistryError",
    ),
)

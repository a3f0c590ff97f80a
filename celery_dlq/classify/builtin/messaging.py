"""Probes of AMQP and Kafka."""

from __future__ import annotations

from types import BuiltinMethodType

from celery_dlq.classify.evidence import arguments, dotted_name, number, read
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.model.states import Verdict

# AMQP 0-9-1, "Reply codes": an operator closed the connection; a resource is locked; the server
# lacks resources.
_TRANSIENT_REPLIES = frozenset({320, 405, 506})


def amqp_reply(exc: BaseException) -> Finding | None:
    """pika and aiormq: the code with which the broker closed the connection or the channel."""
    code = number(read(exc, "reply_code"))
    if code is None:
        code = number(next(iter(arguments(exc)), None))
    if code is None:
        return None
    return transient_if(code in _TRANSIENT_REPLIES, "amqp.reply", f"reply_code={code}")


# kafka.apache.org/protocol, "Error Codes": the retriable ones.
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


def kafka_retriable(exc: BaseException) -> Finding | None:
    """kafka/errors.py and aiokafka/errors.py declare it for each class."""
    flag = read(exc, "retriable")
    if type(flag) is not bool:
        return None
    return transient_if(flag, "kafka.retriable", f"retriable={flag}")


def confluent(exc: BaseException) -> Finding | None:
    """confluent-kafka: the ``KafkaError`` in ``args[0]`` is fatal, retriable, or decides by its code."""
    error = next(iter(arguments(exc)), None)
    if dotted_name(type(error)) not in ("cimpl.KafkaError", "confluent_kafka.cimpl.KafkaError"):
        return None
    code = number(_answer(error, "code"))
    if _answer(error, "fatal") is True:
        return Finding(Verdict.TERMINAL, "kafka.code", f"code={code}, fatal")
    if _answer(error, "retriable") is True:
        return Finding(Verdict.TRANSIENT, "kafka.code", f"code={code}, retriable")
    passes = code in _PROTOCOL_CODES or code in _LOCAL_CODES
    return transient_if(passes, "kafka.code", f"code={code}")


def _answer(error: object, method: str) -> object:
    """The result of a method that is written in C."""
    function = read(error, method)
    return function() if type(function) is BuiltinMethodType else None

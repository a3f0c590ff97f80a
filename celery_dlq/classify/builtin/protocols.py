"""Probes of protocols other than HTTP: mail, news, FTP, SSH, SFTP, DNS, AMQP and Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from types import BuiltinMethodType
from typing import cast

from celery_dlq.classify.builtin.codes import numbers, texts
from celery_dlq.classify.evidence import (
    arguments,
    dotted_name,
    message,
    number,
    os_errno,
    read,
    text_of,
)
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.model.states import Verdict

# -- Mail, news and FTP -----------------------------------------------------------------------------

# The first digit of a reply says whether the failure will pass.

_RECIPIENT_LIMIT = 1_000

# RFC 2449, 8.1.1 and RFC 3206: a mailbox in use, a login too soon, trouble that will pass. "-ERR EOF" is
# poplib's own for a line that never came.
_POP_PASSING = re.compile(r"-ERR (?:\[(?:IN-USE|LOGIN-DELAY|SYS/TEMP)\]|EOF\Z)", re.IGNORECASE)

# RFC 5530, 3: a part of the server is down, the mailbox is in use.
_IMAP_PASSING = re.compile(r"[^\[]{0,64}\[(?:UNAVAILABLE|INUSE)\]", re.IGNORECASE)


def smtp_reply(rule: str, attribute: str) -> Probe:
    """A probe for a row: an SMTP reply by its first digit (RFC 5321, 4.2.1: 4yz passes, 5yz stays)."""

    def probe(exc: BaseException) -> Finding | None:
        code = number(read(exc, attribute))
        if code is None or not 400 <= code <= 599:
            return None
        return transient_if(code < 500, rule, f"{attribute}={code}")

    return probe


def smtp_recipients(exc: BaseException) -> Finding | None:
    """``recipients``: addresses and their replies; one permanent refusal is enough."""
    replies = _replies(read(exc, "recipients"))
    if replies is None:
        return None
    codes = [number(reply) for reply in islice(replies, _RECIPIENT_LIMIT)]
    passes = bool(codes) and all(code and 400 <= code < 500 for code in codes)
    listed = ",".join(sorted({str(code) for code in codes}))
    return transient_if(passes, "smtp.reply", f"smtp_code={listed} from recipients")


def _replies(recipients: object) -> Iterable[object] | None:
    """smtplib maps addresses to (code, text); aiosmtplib lists exceptions that have a code."""
    if type(recipients) is dict:
        replies = cast("dict[object, object]", recipients).values()
        return [reply[0] for reply in replies if isinstance(reply, tuple) and reply]
    if type(recipients) is list:
        return [read(refused, "code") for refused in recipients]
    return None


def pop_reply(exc: BaseException) -> Finding:
    """poplib gives the line of the server, mostly as bytes."""
    line = text_of(next(iter(arguments(exc)), None)) or ""
    passes = _POP_PASSING.match(line)
    return transient_if(bool(passes), "pop.reply", f"reply {passes[0]}" if passes else "")


def imap_reply(exc: BaseException) -> Finding:
    """imaplib gives the server's text, which may have a response code."""
    passes = _IMAP_PASSING.match(message(exc))
    evidence = "a response code that passes" if passes else "type=error"
    return transient_if(bool(passes), "imap.error", evidence)


def ftp_codes(exc: BaseException) -> Finding | None:
    """aioftp: ``received_codes``, the last of them (RFC 959, 4.2)."""
    received = read(exc, "received_codes")
    code = number(received[-1]) if type(received) is tuple and received else None
    if code is None:
        return None
    return transient_if(400 <= code <= 499, "ftp.reply", f"reply {code}")


# -- SSH, SFTP and DNS ------------------------------------------------------------------------------

_PARAMIKO_PASSING = texts("ssh.paramiko")

# ares.h, as pycares gives it: 3 "server failure", 11 "refused the connection", 12 "timed out".
_ARES_PASSING = frozenset({3, 11, 12})


def paramiko_text(exc: BaseException) -> Finding | None:
    """``SSHException``: some of its texts are about the line, not about keys or hosts."""
    match = _PARAMIKO_PASSING.match(message(exc))
    if match is None:
        return None
    return Finding(Verdict.TRANSIENT, "ssh.closed", f"message {match[0][:80]!r}")


def ares_code(exc: BaseException) -> Finding | None:
    """aiodns and pycares: the number in ``args[0]``."""
    args = arguments(exc)
    code = args[0] if args else os_errno(exc)
    if type(code) is not int or not 0 < code < 100:
        return None
    return transient_if(code in _ARES_PASSING, "dns.lookup", f"c-ares code={code}")


# -- AMQP -------------------------------------------------------------------------------------------

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


# -- Kafka ------------------------------------------------------------------------------------------

_KAFKA_CODES = numbers("kafka.protocol", "kafka.local")


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
    passes = code in _KAFKA_CODES
    return transient_if(passes, "kafka.code", f"code={code}")


def _answer(error: object, method: str) -> object:
    """The result of a method that is written in C."""
    function = read(error, method)
    return function() if type(function) is BuiltinMethodType else None

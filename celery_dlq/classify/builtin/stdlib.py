"""Probes of the standard library: files, sockets, names, TLS, processes; and the lasting cause of a failed
connection, which a library may report by its own number or text."""

from __future__ import annotations

import errno
import re
import socket

from celery_dlq.classify.builtin.codes import texts, words
from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.chain import Link, causes, linked, reachable
from celery_dlq.classify.evidence import (
    bases,
    dotted_name,
    message,
    number,
    os_errno,
    read,
    status,
    text_of,
)
from celery_dlq.classify.guarded import is_known
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.model.states import Verdict

TRANSIENT_ERRNOS = frozenset(
    getattr(errno, name) for name in words("os.network", "os.local") if hasattr(errno, name)
)

# getaddrinfo(3): EAI_AGAIN is "temporary failure in name resolution". An unknown name is terminal:
# it is a typing error more often than a nameserver that forgets.
_TRANSIENT_EAI = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY})

_NO_ANSWER, _NO_HOST = texts("resolver.no_answer"), texts("lasting.host", "resolver.no_host")

# netdb.h TRY_AGAIN, for the older gethostbyname(3).
_HERROR_TRY_AGAIN = 2

# sysexits.h EX_TEMPFAIL, "the user is invited to retry".
_EX_TEMPFAIL = 75

# Bare OSErrors without an errno: amqp/transport.py (two texts), socket.py SocketIO.readinto(),
# asyncio/base_events.py create_connection(), http/client.py _tunnel().
_CLOSED = (
    "Server unexpectedly closed connection",
    "Socket closed",
    "cannot read from timed out object",
)
_SEVERAL = "Multiple exceptions: "
_ERRNO_IN_TEXT = re.compile(r"\[Errno ([0-9]{1,5})\]")
_TUNNEL = re.compile(r"Tunnel connection failed: ([0-9]{3})")

# openssl/sslerr.h SSL_R_UNEXPECTED_EOF_WHILE_READING.
_EARLY_END = "UNEXPECTED_EOF_WHILE_READING"

# rdkafka.c, RD_KAFKA_RESP_ERR__QUEUE_FULL.
_QUEUE_FULL = "Local: Queue full"


def os_error(exc: BaseException) -> Finding | None:
    """``errno``; without one, the texts of the places that raise a bare OSError."""
    code = os_errno(exc)
    if code is None:
        return _bare_os_error(message(exc)) if type(exc) is OSError else None
    if code not in errno.errorcode and not is_known(type(exc)):
        return None  # ftputil and others keep a reply of their protocol in it
    evidence = f"errno={errno.errorcode.get(code, code)}"
    return transient_if(code in TRANSIENT_ERRNOS, "os.errno", evidence)


def _bare_os_error(text: str) -> Finding | None:
    if text in _CLOSED:
        return Finding(Verdict.TRANSIENT, "os.closed", f"message {text!r}")
    if text.startswith(_SEVERAL):
        codes = {int(code) for code in _ERRNO_IN_TEXT.findall(text)}
        names = ",".join(str(errno.errorcode.get(code, code)) for code in sorted(codes))
        passes = bool(codes) and codes <= TRANSIENT_ERRNOS
        return transient_if(passes, "os.errno", f"errno={names} of several attempts")
    refused = _TUNNEL.match(text)
    if refused:
        verdict = status_verdict(int(refused[1]))
        return Finding(verdict, "http.proxy", f"the proxy answered {refused[1]}")
    return None


def name_lookup(exc: BaseException) -> Finding | None:
    """``gaierror`` by its EAI code; by its text if a library made it without a code."""
    code = os_errno(exc)
    if code is None:
        return _by_resolver(message(exc))
    return transient_if(code in _TRANSIENT_EAI, "dns.lookup", f"getaddrinfo code={code}")


def _by_resolver(text: str) -> Finding | None:
    for pattern, passes in ((_NO_ANSWER, True), (_NO_HOST, False)):
        found = pattern.search(text)
        if found is not None:
            return transient_if(passes, "dns.lookup", f"message has {found[0]!r}")
    return None


def host_lookup(exc: BaseException) -> Finding | None:
    """``herror`` by its h_errno."""
    code = os_errno(exc)
    if code is None:
        return None
    return transient_if(code == _HERROR_TRY_AGAIN, "dns.lookup", f"h_errno={code}")


def exit_code(exc: BaseException) -> Finding:
    """``CalledProcessError``: only EX_TEMPFAIL invites to try again."""
    code = number(read(exc, "returncode"))
    return transient_if(code == _EX_TEMPFAIL, "subprocess.exit_code", f"exit code={code}")


def tls_reason(exc: BaseException) -> Finding | None:
    """``SSLError``: Python versions that do not know OpenSSL 3 have no separate class for an early end.

    Only the ssl module can set ``reason``; a copy, such as an unpickled exception, has only the text.
    """
    if text_of(read(exc, "reason")) != _EARLY_END and f"[SSL: {_EARLY_END}]" not in message(exc):
        return None
    return Finding(Verdict.TRANSIENT, "tls.closed", f"reason={_EARLY_END}")


def full_queue(exc: BaseException) -> Finding | None:
    """``BufferError``: confluent-kafka's producer raises it while its queue is full."""
    if message(exc) != _QUEUE_FULL:
        return None
    return Finding(Verdict.TRANSIENT, "kafka.queue", f"message {_QUEUE_FULL!r}")


# -- The lasting cause behind a failed connection ---------------------------------------------------

#: The rule of each kind of text.
_LASTING_TEXTS = {
    "tls.certificate": texts("lasting.certificate"),
    "tls.protocol": texts("lasting.protocol"),
    "dns.lookup": texts("lasting.host"),
}


def unless_lasting(exc: BaseException, rule: str, evidence: str) -> Finding:
    """Transient by ``rule``, unless a certificate or an unknown host is behind ``exc``."""
    return lasting_cause(exc) or Finding(Verdict.TRANSIENT, rule, evidence)


def lasting_cause(exc: BaseException) -> Finding | None:
    """The certificate, TLS error or unknown host that the next attempt will meet again."""
    for link in linked(Link(exc)):
        finding = _lasting(link.exc)
        if finding is not None:
            return finding
    return None


def raised_over(exc: BaseException) -> Finding | None:
    """A ConnectionError or TimeoutError without an errno is raised by a program, often on top of the real
    error: a refusal by the other side, an unknown host, a wrong certificate."""
    if os_errno(exc) is not None:
        return None
    for cause in causes(exc):
        found = status(cause)
        if found is not None and found[0] < 500 and status_verdict(found[0]) is Verdict.TERMINAL:
            return Finding(Verdict.TERMINAL, "http.status", f"status={found[0]} from {found[1]}")
    return lasting_cause(exc)


def refusal(exc: BaseException, rule: str, names: frozenset[str]) -> Finding | None:
    """An exception behind ``exc`` whose type is one of those ``names``: the login is refused."""
    for link in linked(Link(exc)):
        found = names.intersection(dotted_name(base) for base in bases(type(link.exc)))
        if found:
            return Finding(Verdict.TERMINAL, rule, f"type={min(found)}")
    return None


def lasting_text(value: object) -> Finding | None:
    """The certificate, TLS error or unknown host that the only message of a library mentions."""
    text = text_of(value) or ""
    for rule, pattern in _LASTING_TEXTS.items():
        found = pattern.search(text)
        if found is not None:
            return Finding(Verdict.TERMINAL, rule, f"message has {found[0]!r}")
    return None


def lasting_copy(exc: BaseException) -> Finding | None:
    """The lasting cause that the message repeats, if pickling has removed the exceptions behind ``exc``."""
    return None if reachable(exc) else lasting_text(message(exc))


def _lasting(exc: BaseException) -> Finding | None:
    names = [dotted_name(base) for base in bases(type(exc))]
    if "ssl.SSLCertVerificationError" in names:
        return Finding(Verdict.TERMINAL, "tls.certificate", "type=ssl.SSLCertVerificationError")
    if "ssl.SSLError" in names and not {"ssl.SSLEOFError", "ssl.SSLZeroReturnError"} & {*names}:
        return Finding(Verdict.TERMINAL, "tls.protocol", f"type={names[0]}")
    if "socket.gaierror" in names:
        finding = name_lookup(exc)
        return finding if finding and finding.verdict is Verdict.TERMINAL else None
    return None

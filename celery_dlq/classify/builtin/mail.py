"""Probes of mail, news and FTP: the first digit of a reply says whether the failure will pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import cast

from celery_dlq.classify.evidence import arguments, message, number, read, text_of
from celery_dlq.classify.table import Finding, Probe, transient_if

_RECIPIENT_LIMIT = 1_000

# RFC 2449, 8.1.1 and RFC 3206: a mailbox in use, a login too soon, trouble that will pass. "-ERR EOF" is
# poplib's own for a line that never came.
_POP_PASSING = re.compile(r"-ERR (?:\[(?:IN-USE|LOGIN-DELAY|SYS/TEMP)\]|EOF\Z)", re.IGNORECASE)

# RFC 5530, 3: a part of the server is down, the mailbox is in use.
_IMAP_PASSING = re.compile(r"[^\[]{0,64}\[(?:UNAVAILABLE|INUSE)\]", re.IGNORECASE)

# RFC 3977, 3.2.1: not now; an internal fault. Other 4yz of NNTP are "no such article" and the like.
_NEWS_PASSING = frozenset({400, 403})


def reply_code(attribute: str) -> Probe:
    """A probe of an SMTP reply by its first digit (RFC 5321, 4.2.1: 4yz passes, 5yz stays)."""

    def probe(exc: BaseException) -> Finding | None:
        code = number(read(exc, attribute))
        if code is None or not 400 <= code <= 599:
            return None
        return transient_if(code < 500, "smtp.reply", f"{attribute}={code}")

    return probe


smtp_code = reply_code("smtp_code")
code = reply_code("code")


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


def news_reply(exc: BaseException) -> Finding:
    """nntplib's temporary errors (Python <= 3.12)."""
    code = number(read(exc, "response"))
    return transient_if(code in _NEWS_PASSING, "nntp.reply", f"reply {code}")


def ftp_codes(exc: BaseException) -> Finding | None:
    """aioftp: ``received_codes``, the last of them (RFC 959, 4.2)."""
    received = read(exc, "received_codes")
    code = number(received[-1]) if type(received) is tuple and received else None
    if code is None:
        return None
    return transient_if(400 <= code <= 499, "ftp.reply", f"reply {code}")

"""Mail, news and FTP: protocols whose replies say by their first digit whether they will pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import cast

from celery_dlq.classify.evidence import arguments, message, number, read, text_of
from celery_dlq.classify.table import Finding, Probe, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

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
        return Finding(_transient_if(code < 500), "smtp.reply", f"{attribute}={code}")

    return probe


def smtp_recipients(exc: BaseException) -> Finding | None:
    """``recipients``: addresses and their replies; one permanent refusal is enough."""
    replies = _replies(read(exc, "recipients"))
    if replies is None:
        return None
    codes = [number(reply) for reply in islice(replies, _RECIPIENT_LIMIT)]
    verdict = _transient_if(bool(codes) and all(code and 400 <= code < 500 for code in codes))
    listed = ",".join(sorted({str(code) for code in codes}))
    return Finding(verdict, "smtp.reply", f"smtp_code={listed} from recipients")


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
    return Finding(_transient_if(bool(passes)), "pop.reply", f"reply {passes[0]}" if passes else "")


def imap_reply(exc: BaseException) -> Finding:
    """imaplib gives the server's text, which may have a response code."""
    passes = _IMAP_PASSING.match(message(exc))
    verdict = _transient_if(bool(passes))
    return Finding(verdict, "imap.error", "a response code that passes" if passes else "type=error")


def news_reply(exc: BaseException) -> Finding:
    """nntplib's temporary errors (Python <= 3.12)."""
    code = number(read(exc, "response"))
    return Finding(_transient_if(code in _NEWS_PASSING), "nntp.reply", f"reply {code}")


def ftp_codes(exc: BaseException) -> Finding | None:
    """aioftp: ``received_codes``, the last of them (RFC 959, 4.2)."""
    received = read(exc, "received_codes")
    code = number(received[-1]) if type(received) is tuple and received else None
    if code is None:
        return None
    return Finding(_transient_if(400 <= code <= 499), "ftp.reply", f"reply {code}")


def _transient_if(condition: bool) -> Verdict:
    return Verdict.TRANSIENT if condition else Verdict.TERMINAL


_STDLIB = (
    probed("smtp.reply", reply_code("smtp_code"), "smtp_code", "smtplib.SMTPResponseException"),
    probed("smtp.reply", smtp_recipients, "recipients", "smtplib.SMTPRecipientsRefused"),
    transient("smtp.closed", "smtplib.SMTPServerDisconnected"),
    terminal("smtp.unsupported", "smtplib.SMTPNotSupportedError"),
    # ftplib: RFC 959, 4.2, the same digits, one class for each.
    transient("ftp.reply", "ftplib.error_temp"),
    terminal("ftp.reply", "ftplib.Error"),
    # imaplib documents that after abort "closing the instance and instantiating a new one will
    # usually allow recovery".
    transient("imap.abort", "imaplib.IMAP4.abort"),
    probed("imap.error", imap_reply, "the response code in the text", "imaplib.IMAP4.error"),
    probed("pop.reply", pop_reply, "the response code in the reply", "poplib.error_proto"),
    probed("nntp.reply", news_reply, "the code in response", "nntplib.NNTPTemporaryError"),
    terminal("nntp.reply", "nntplib.NNTPError"),
    # Another program holds the lock of the mailbox.
    transient("mailbox.lock", "mailbox.ExternalClashError"),
    terminal("mailbox.error", "mailbox.Error"),
)

# aiosmtplib/errors.py: the same names, the code in "code".
_AIOSMTPLIB = (
    probed(
        "smtp.reply",
        reply_code("code"),
        "code",
        *within("aiosmtplib.errors", "SMTPResponseException SMTPConnectResponseError"),
    ),
    probed("smtp.reply", smtp_recipients, "recipients", "aiosmtplib.errors.SMTPRecipientsRefused"),
    transient(
        "smtp.closed",
        *within("aiosmtplib.errors", "SMTPServerDisconnected SMTPConnectError SMTPTimeoutError"),
    ),
    terminal("smtp.unsupported", "aiosmtplib.errors.SMTPNotSupported"),
)

# aioftp/errors.py.
_AIOFTP = (
    probed("ftp.reply", ftp_codes, "received_codes", "aioftp.errors.StatusCodeError"),
    transient("ftp.ports", "aioftp.errors.NoAvailablePort"),
    terminal("ftp.usage", *within("aioftp.errors", "InvalidCommand PathIsNotAbsolute")),
)

ROWS = (*_STDLIB, *_AIOSMTPLIB, *_AIOFTP)

"""Probes of SSH, SFTP and DNS."""

from __future__ import annotations

import re

from celery_dlq.classify.evidence import arguments, message, number, os_errno, read
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.model.states import Verdict

# RFC 4254, 5.1: 2 "connect failed", 4 "resource shortage"; 1 "prohibited", 3 "unknown channel type".
_CHANNEL_PASSING = frozenset({2, 4})

# RFC 4253, 11.1: 10 "connection lost", 11 "by application" (a server that shuts down), 12 "too many
# connections". All others are about keys, versions, hosts and users.
_DISCONNECT_PASSING = frozenset({10, 11, 12})

# draft-ietf-secsh-filexfer-13, 9.1: 6 no connection, 7 connection lost, 14 no space, 15 quota, 17 lock
# conflict, 24 delete pending, 25 and 26 byte range locks.
_SFTP_PASSING = frozenset({6, 7, 14, 15, 17, 24, 25, 26})

# Where paramiko has a text only (paramiko/transport.py, auth_handler.py, client.py, sftp_client.py).
_PARAMIKO_PASSING = re.compile(
    r"Error reading SSH protocol banner|Timeout open?ning channel|SSH session not active"
    r"|Server connection dropped|Key-exchange timed out|Authentication timeout"
    r"|Timeout, server .{0,256} not responding"
)

# ares.h, as pycares gives it: 3 "server failure", 11 "refused the connection", 12 "timed out".
_ARES_PASSING = frozenset({3, 11, 12})


def paramiko_text(exc: BaseException) -> Finding | None:
    """``SSHException``: some of its texts are about the line, not about keys or hosts."""
    match = _PARAMIKO_PASSING.match(message(exc))
    if match is None:
        return None
    return Finding(Verdict.TRANSIENT, "ssh.closed", f"message {match[0][:80]!r}")


def ssh_channel(exc: BaseException) -> Finding:
    """paramiko's and asyncssh's refused channels, by ``code``."""
    code = number(read(exc, "code"))
    return transient_if(code in _CHANNEL_PASSING, "ssh.channel", f"code={code}")


def ssh_disconnect(exc: BaseException) -> Finding:
    """asyncssh's ``DisconnectError``, by ``code``."""
    code = number(read(exc, "code"))
    return transient_if(code in _DISCONNECT_PASSING, "ssh.disconnect", f"code={code}")


def sftp_status(exc: BaseException) -> Finding:
    """asyncssh's ``SFTPError``, by ``code``."""
    code = number(read(exc, "code"))
    return transient_if(code in _SFTP_PASSING, "sftp.status", f"code={code}")


def ares_code(exc: BaseException) -> Finding | None:
    """aiodns and pycares: the number in ``args[0]``."""
    args = arguments(exc)
    code = args[0] if args else os_errno(exc)
    if type(code) is not int or not 0 < code < 100:
        return None
    return transient_if(code in _ARES_PASSING, "dns.lookup", f"c-ares code={code}")

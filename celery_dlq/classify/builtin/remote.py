"""Other machines: SSH and SFTP, names, directories, terminals."""

from __future__ import annotations

import re

from celery_dlq.classify.evidence import arguments, message, number, os_errno, read
from celery_dlq.classify.table import (
    Finding,
    Row,
    network,
    probed,
    terminal,
    transient,
    within,
    wrapper,
)
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
    return Finding(_transient_if(code in _CHANNEL_PASSING), "ssh.channel", f"code={code}")


def ssh_disconnect(exc: BaseException) -> Finding:
    """asyncssh's ``DisconnectError``, by ``code``."""
    code = number(read(exc, "code"))
    return Finding(_transient_if(code in _DISCONNECT_PASSING), "ssh.disconnect", f"code={code}")


def sftp_status(exc: BaseException) -> Finding:
    """asyncssh's ``SFTPError``, by ``code``."""
    code = number(read(exc, "code"))
    return Finding(_transient_if(code in _SFTP_PASSING), "sftp.status", f"code={code}")


def ares_code(exc: BaseException) -> Finding | None:
    """aiodns and pycares: the number in ``args[0]``."""
    args = arguments(exc)
    code = args[0] if args else os_errno(exc)
    if type(code) is not int or not 0 < code < 100:
        return None
    return Finding(_transient_if(code in _ARES_PASSING), "dns.lookup", f"c-ares code={code}")


def _transient_if(condition: bool) -> Verdict:
    return Verdict.TRANSIENT if condition else Verdict.TERMINAL


# paramiko/ssh_exception.py and others.
_PARAMIKO = (
    # Refused or unreachable at every address: nothing else is collected there.
    transient("ssh.connect", "paramiko.ssh_exception.NoValidConnectionsError"),
    transient("ssh.closed", "paramiko.buffered_pipe.PipeTimeout"),
    probed("ssh.channel", ssh_channel, "code", "paramiko.ssh_exception.ChannelException"),
    Row(
        "ssh.auth",
        ("paramiko.ssh_exception.AuthenticationException",),
        verdict=Verdict.TERMINAL,
        probe=paramiko_text,
        depends_on="the text of a timeout; else terminal",
    ),
    terminal(
        "ssh.host",
        *within("paramiko.ssh_exception", "BadHostKeyException IncompatiblePeer MessageOrderError"),
        "paramiko.hostkeys.InvalidHostKey",
    ),
    terminal(
        "ssh.usage",
        *within("paramiko.ssh_exception", "ConfigParseError CouldNotCanonicalize"),
        "paramiko.pkey.UnknownKeyType",
        "paramiko.ber.BERException",
    ),
    probed(
        "ssh.closed",
        paramiko_text,
        "the texts of a lost or slow connection",
        "paramiko.ssh_exception.SSHException",
    ),
    terminal("sftp.status", "paramiko.sftp.SFTPError"),
    # pysftp/exceptions.py: raised while the real one is handled.
    wrapper("ssh.wrapped", "its cause", "pysftp.exceptions.ConnectionException"),
    terminal("ssh.usage", *within("pysftp.exceptions", "CredentialException HostKeysException")),
)

# asyncssh/misc.py, sftp.py, process.py.
_ASYNCSSH = (
    transient("ssh.closed", "asyncssh.misc.ConnectionLost", "asyncssh.process.TimeoutError"),
    probed("ssh.channel", ssh_channel, "code", "asyncssh.misc.ChannelOpenError"),
    probed("ssh.disconnect", ssh_disconnect, "code", "asyncssh.misc.DisconnectError"),
    probed("sftp.status", sftp_status, "code", "asyncssh.sftp.SFTPError"),
    terminal("ssh.usage", *within("asyncssh.misc", "ChannelListenError PasswordChangeRequired")),
    terminal("ssh.command", "asyncssh.process.ProcessError"),
)

# dns/exception.py, resolver.py. An answer that says "no such name" is terminal, as with getaddrinfo.
_DNS = (
    transient("dns.timeout", "dns.exception.Timeout"),
    # "All nameservers failed to answer the query": SERVFAIL or silence.
    transient("dns.servers", "dns.resolver.NoNameservers"),
    terminal("dns.lookup", *within("dns.resolver", "NXDOMAIN YXDOMAIN NoAnswer EmptyHostAnswers")),
    terminal("dns.error", "dns.exception.DNSException"),
    probed(
        "dns.lookup",
        ares_code,
        "the c-ares code in args[0]",
        "aiodns.error.DNSError",
        "pycares.AresError",
    ),
)

# RFC 4511, 4.1.9 and appendix A, one class for each result code; ldap3/core/exceptions.py, python-ldap.
_LDAP = (
    network(
        "ldap.network",
        *within(
            "ldap3.core.exceptions",
            "LDAPSocketOpenError LDAPSocketReceiveError LDAPSocketSendError LDAPSocketCloseError "
            "LDAPSessionTerminatedByServerError LDAPResponseTimeoutError LDAPMaximumRetriesError "
            "LDAPServerPoolExhaustedError",
        ),
        *within("ldap", "SERVER_DOWN CONNECT_ERROR TIMEOUT"),
    ),
    transient(
        "ldap.busy",
        *within(
            "ldap3.core.exceptions",
            "LDAPBusyResult LDAPUnavailableResult LDAPTimeLimitExceededResult "
            "LDAPLCUPResourcesExhaustedResult",
        ),
        *within("ldap", "BUSY UNAVAILABLE TIMELIMIT_EXCEEDED"),
    ),
    terminal("ldap.error", "ldap3.core.exceptions.LDAPException", "ldap.LDAPError"),
)

# pexpect/exceptions.py, invoke/exceptions.py, fabric, sh.py.
_TERMINALS = (
    transient(
        "subprocess.timeout",
        "pexpect.exceptions.TIMEOUT",
        "invoke.exceptions.CommandTimedOut",
        "sh.TimeoutException",
        "psutil.TimeoutExpired",
    ),
    terminal(
        "subprocess.failed",
        "pexpect.exceptions.ExceptionPexpect",
        "invoke.exceptions.Failure",
        "sh.ErrorReturnCode",
        "sh.CommandNotFound",
        "psutil.Error",
    ),
)

ROWS = (*_PARAMIKO, *_ASYNCSSH, *_DNS, *_LDAP, *_TERMINALS)

"""What the probed types of mail, SSH and the like carry, and what is made of it."""

from types import SimpleNamespace

from support.errors.synthetic import pretend

T, X = "transient", "terminal"


def cases():
    """(name, instance, verdict, rule) for each probed type: at least one of either verdict."""
    yield from _mail()
    yield from _ssh()
    yield from _others()


def _mail():
    for name, attribute in (
        ("smtplib.SMTPResponseException", "smtp_code"),
        ("aiosmtplib.errors.SMTPResponseException", "code"),
        ("aiosmtplib.errors.SMTPConnectResponseError", "code"),
    ):
        yield name, pretend(name, **{attribute: 421}), T, "smtp.reply"
        yield name, pretend(name, **{attribute: 503}), X, "smtp.reply"
        yield name, pretend(name, **{attribute: 250}), X, "default"
    name = "smtplib.SMTPRecipientsRefused"
    yield name, pretend(name, recipients={"a": (450, b""), "b": (421, b"")}), T, "smtp.reply"
    yield name, pretend(name, recipients={"a": (450, b""), "b": (550, b"")}), X, "smtp.reply"
    yield name, pretend(name, recipients={}), X, "smtp.reply"
    yield name, pretend(name, recipients="a"), X, "default"
    name = "aiosmtplib.errors.SMTPRecipientsRefused"
    refused = [SimpleNamespace(code=code) for code in (450, 550)]
    yield name, pretend(name, recipients=refused[:1]), T, "smtp.reply"
    yield name, pretend(name, recipients=refused), X, "smtp.reply"
    name = "poplib.error_proto"
    for reply in (b"-ERR [IN-USE] busy", "-ERR EOF", b"-ERR [SYS/TEMP] later"):
        yield name, pretend(name, reply), T, "pop.reply"
    for reply in (b"-ERR [AUTH] no", b"-ERR [SYS/PERM] no", b"-ERR EOF or not", 7):
        yield name, pretend(name, reply), X, "pop.reply"
    name = "imaplib.IMAP4.error"
    yield name, pretend(name, "b'[UNAVAILABLE] later'"), T, "imap.error"
    yield name, pretend(name, "LOGIN => [AUTHENTICATIONFAILED] no"), X, "imap.error"
    name = "nntplib.NNTPTemporaryError"
    yield name, pretend(name, response="400 going down"), T, "nntp.reply"
    yield name, pretend(name, response="430 no such article"), X, "nntp.reply"
    name = "aioftp.errors.StatusCodeError"
    yield name, pretend(name, received_codes=("450",)), T, "ftp.reply"
    yield name, pretend(name, received_codes=("550",)), X, "ftp.reply"
    yield name, pretend(name, received_codes=()), X, "default"


def _ssh():
    name = "paramiko.ssh_exception.SSHException"
    yield name, pretend(name, "Error reading SSH protocol banner"), T, "ssh.closed"
    yield name, pretend(name, "Timeout opening channel."), T, "ssh.closed"
    yield name, pretend(name, "not a valid RSA private key file"), X, "default"
    name = "paramiko.ssh_exception.AuthenticationException"
    yield name, pretend(name, "Authentication timeout."), T, "ssh.closed"
    yield name, pretend(name, "Authentication failed."), X, "ssh.auth"
    for name in ("paramiko.ssh_exception.ChannelException", "asyncssh.misc.ChannelOpenError"):
        yield name, pretend(name, code=4), T, "ssh.channel"
        yield name, pretend(name, code=1), X, "ssh.channel"
    name = "asyncssh.misc.DisconnectError"
    yield name, pretend(name, code=12), T, "ssh.disconnect"
    yield name, pretend(name, code=14), X, "ssh.disconnect"
    name = "asyncssh.sftp.SFTPError"
    yield name, pretend(name, code=7), T, "sftp.status"
    yield name, pretend(name, code=2), X, "sftp.status"


def _others():
    for name in ("aiodns.error.DNSError", "pycares.AresError"):
        yield name, pretend(name, 12, "Timeout while contacting DNS servers"), T, "dns.lookup"
        yield name, pretend(name, 4, "Domain name not found"), X, "dns.lookup"
        yield name, pretend(name, "text only"), X, "default"
    name = "ratelimit.exception.RateLimitException"
    yield name, pretend(name, period_remaining=3), T, "limit.calls"
    name = "celery.utils.serialization.UnpickleableExceptionWrapper"
    lost, bad = ("requests.exceptions", "ConnectionError"), ("builtins", "ValueError")
    unclear = ("requests.exceptions", "HTTPError")
    for (module, kind), verdict, rule in (
        (lost, T, "http.network"), (bad, X, "python.error"), (unclear, X, "default"),
    ):  # fmt: skip
        yield name, pretend(name, exc_module=module, exc_cls_name=kind), verdict, rule
    yield name, pretend(name, exc_module=None, exc_cls_name=7), X, "default"
    name = "ssl.SSLError"
    yield name, pretend(name, reason="UNEXPECTED_EOF_WHILE_READING"), T, "tls.closed"
    yield name, pretend(name, reason="WRONG_VERSION_NUMBER"), X, "tls.protocol"

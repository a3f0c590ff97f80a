"""AMQP: py-amqp, pika, aiormq and aio-pika."""

from __future__ import annotations

from celery_dlq.classify.evidence import arguments, number, read
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# AMQP 0-9-1, "Reply codes": an operator closed the connection; a resource is locked; the server
# lacks resources.
_TRANSIENT_REPLIES = frozenset({320, 405, 506})

# amqp/exceptions.py says from which of its errors a new connection or channel recovers. The class decides,
# never the reply code: 503 means "command invalid" here.
_PY_AMQP = (
    transient(
        "amqp.recoverable",
        *within(
            "amqp.exceptions", "RecoverableConnectionError RecoverableChannelError MessageNacked"
        ),
    ),
    terminal("amqp.irrecoverable", "amqp.exceptions.AMQPError"),
)


def reply_code(exc: BaseException) -> Finding | None:
    """The code with which the broker closed the connection or the channel."""
    code = number(read(exc, "reply_code"))
    if code is None:
        code = number(next(iter(arguments(exc)), None))
    if code is None:
        return None
    verdict = Verdict.TRANSIENT if code in _TRANSIENT_REPLIES else Verdict.TERMINAL
    return Finding(verdict, "amqp.reply", f"reply_code={code}")


_PIKA = (
    # pika/exceptions.py. The two "Probable" errors derive from AMQPConnectionError, which is transient.
    terminal(
        "amqp.auth",
        *within(
            "pika.exceptions",
            "ProbableAuthenticationError ProbableAccessDeniedError AuthenticationError",
        ),
    ),
    terminal(
        "amqp.usage",
        *within(
            "pika.exceptions",
            "IncompatibleProtocolError ConnectionClosedByClient ChannelClosedByClient",
        ),
    ),
    probed(
        "amqp.reply",
        reply_code,
        "reply_code",
        *within("pika.exceptions", "ConnectionClosed ChannelClosed"),
    ),
    network("amqp.network", "pika.exceptions.AMQPConnectionError"),
    transient(
        "amqp.recoverable",
        *within("pika.exceptions", "NackError ConsumerCancelled ChannelWrongStateError"),
    ),
    terminal("amqp.error", *within("pika.exceptions", "AMQPError ChannelError ReentrancyError")),
    network("amqp.network", "pika.adapters.utils.connection_workflow.AMQPConnectorException"),
)

_AIORMQ = (
    # aiormq/exceptions.py. AMQPConnectionError also derives from Python's ConnectionError.
    terminal(
        "amqp.auth", *within("aiormq.exceptions", "AuthenticationError ProbableAuthenticationError")
    ),
    terminal("amqp.usage", "aiormq.exceptions.IncompatibleProtocolError"),
    network("amqp.network", "aiormq.exceptions.AMQPConnectionError"),
    network("amqp.network", "aiormq.exceptions.ConnectionClosed", probe=reply_code),
    terminal(
        "amqp.error",
        *within(
            "aiormq.exceptions",
            "ConnectionChannelError ConnectionCommandInvalid ConnectionFrameError "
            "ConnectionInternalError ConnectionNotAllowed ConnectionNotImplemented "
            "ConnectionSyntaxError ConnectionUnexpectedFrame PublishError AMQPError",
        ),
    ),
    transient(
        "amqp.recoverable",
        *within(
            "aiormq.exceptions",
            "ConnectionResourceError ChannelLockedResource DeliveryError ChannelInvalidStateError",
        ),
    ),
    probed("amqp.reply", reply_code, "the code in args[0]", "aiormq.exceptions.ChannelClosed"),
)

ROWS: tuple[Row, ...] = (*_PY_AMQP, *_PIKA, *_AIORMQ)

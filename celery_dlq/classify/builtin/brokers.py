"""Redis, AMQP, kombu, Celery and billiard: the errors of the message path itself."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.evidence import message, read, text_of
from celery_dlq.classify.table import Finding, network, probed, terminal, transient, within
from celery_dlq.states import Verdict

# Prefixes that redis-py leaves as a plain ResponseError, OOM before its version 5: a script is
# running, replicas are away, memory is short (redis src/server.c, createSharedObjects()).
_REDIS_WILL_PASS = frozenset({"BUSY", "NOREPLICAS", "OOM"})


def redis_reply(exc: BaseException) -> Finding:
    """The prefix of an error reply: ``status_code`` since redis-py 8, else the first word."""
    text = text_of(read(exc, "status_code")) or message(exc)
    prefix = text.partition(" ")[0]
    verdict = Verdict.TRANSIENT if prefix in _REDIS_WILL_PASS else Verdict.TERMINAL
    return Finding(verdict, "redis.reply", f"prefix={prefix[:40]}")


def redis_lock(exc: BaseException) -> Finding:
    """redis/lock.py: not getting a lock will pass; misusing one will not."""
    waited = message(exc).startswith("Unable to acquire lock")
    verdict = Verdict.TRANSIENT if waited else Verdict.TERMINAL
    return Finding(verdict, "redis.lock", "not acquired in time" if waited else "lock misused")


_REDIS = (
    # redis/exceptions.py. The two authentication errors are ConnectionErrors by class.
    terminal(
        "redis.auth",
        *within(
            "redis.exceptions",
            "AuthenticationError AuthorizationError AuthenticationWrongNumberOfArgsError "
            "NoPermissionError",
        ),
    ),
    network("redis.network", "redis.exceptions.ConnectionError"),
    transient(
        "redis.busy",
        *within(
            "redis.exceptions",
            "TimeoutError BusyLoadingError MaxConnectionsError WatchError OutOfMemoryError",
        ),
    ),
    # Failover and resharding: the next attempt finds the new primary. MovedError is an AskError.
    transient(
        "redis.failover",
        *within(
            "redis.exceptions",
            "ReadOnlyError ClusterError ClusterDownError MasterDownError TryAgainError AskError "
            "SlotNotCoveredError",
        ),
    ),
    probed(
        "redis.lock",
        redis_lock,
        "whether it was not acquired in time",
        "redis.exceptions.LockError",
    ),
    terminal("redis.lock", "redis.exceptions.LockNotOwnedError"),
    probed(
        "redis.reply",
        redis_reply,
        "the prefix of the reply",
        "redis.exceptions.ResponseError",
    ),
    terminal("redis.usage", *within("redis.exceptions", "DataError PubSubError InvalidResponse")),
)

# amqp/exceptions.py says which of its errors a new connection or channel heals. The class decides,
# never the number: 503 is "command invalid" here.
_AMQP = (
    transient(
        "amqp.recoverable",
        *within(
            "amqp.exceptions", "RecoverableConnectionError RecoverableChannelError MessageNacked"
        ),
    ),
    terminal("amqp.irrecoverable", "amqp.exceptions.AMQPError"),
)

# kombu/exceptions.py. OperationalError wraps what the transport raised, authentication included.
# BatchPublishError leaves open what was sent, so that a second attempt may double it.
_KOMBU = (
    network("kombu.operational", "kombu.exceptions.OperationalError"),
    transient("kombu.limit", "kombu.exceptions.LimitExceeded"),
    terminal(
        "kombu.message",
        *within(
            "kombu.exceptions",
            "SerializationError SerializerNotInstalled NotBoundError MessageStateError "
            "VersionMismatch BatchPublishError",
        ),
    ),
    probed(
        "http.status", http_status(("code",)), "the status in code", "kombu.exceptions.HttpError"
    ),
)

# celery/exceptions.py, billiard/exceptions.py. A time limit or a lost worker is most likely met
# again by the same input.
_CELERY = (
    transient("celery.backend", *within("celery.exceptions", "TimeoutError BackendError")),
    terminal(
        "celery.task",
        *within(
            "celery.exceptions",
            "MaxRetriesExceededError NotRegistered AlreadyRegistered QueueNotFound ChordError "
            "TaskRevokedError InvalidTaskError ImproperlyConfigured SecurityError",
        ),
    ),
    terminal(
        "celery.limit",
        *within(
            "billiard.exceptions",
            "SoftTimeLimitExceeded TimeLimitExceeded WorkerLostError Terminated",
        ),
    ),
)

ROWS = (*_REDIS, *_AMQP, *_KOMBU, *_CELERY)

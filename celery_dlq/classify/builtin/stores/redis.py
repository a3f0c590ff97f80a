"""Redis and Valkey: redis-py, valkey-py, coredis, pottery, and kombu's lock in Redis."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import refusal, unless_lasting
from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.evidence import message, read, text_of
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

# Prefixes that the client may leave as a plain ResponseError (redis src/server.c,
# createSharedObjects(); src/sentinel.c, src/cluster.c): a script is running, replicas are away, memory
# is short, the data set is loading, slots move, a failover is under way.
_WILL_PASS = frozenset(
    {
        "BUSY", "NOREPLICAS", "OOM", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY",
        "MOVED", "ASK", "UNBLOCKED", "INPROG", "NOGOODSLAVE", "NOGOODREPLICA", "NOQUORUM",
    }
)  # fmt: skip

# redis/client.py, Pipeline.annotate_exception().
_IN_PIPELINE = re.compile(r"Command # [0-9]+ \(.*\) of pipeline caused error: ", re.DOTALL)

# redis/cluster.py: no node of the cluster could be reached, or its redirections do not settle.
_CLUSTER_UNREACHABLE = ("Redis Cluster cannot be connected", "Valkey Cluster cannot be connected")
_CLUSTER_UNSETTLED = ("TTL exhausted", "Too many Cluster redirections", "ERROR sending 'cluster")


_REFUSALS = frozenset(
    f"{module}.{name}"
    for module in ("redis.exceptions", "valkey.exceptions")
    for name in ("AuthenticationError", "AuthorizationError", "NoPermissionError")
)


def redis_reply(exc: BaseException) -> Finding:
    """The prefix of an error reply: ``status_code`` since redis-py 8, else the first word."""
    text = text_of(read(exc, "status_code")) or _IN_PIPELINE.sub("", message(exc), count=1)
    prefix = text.partition(" ")[0]
    verdict = Verdict.TRANSIENT if prefix in _WILL_PASS else Verdict.TERMINAL
    return Finding(verdict, "redis.reply", f"prefix={prefix[:40]}")


def redis_lock(exc: BaseException) -> Finding:
    """redis/lock.py: not getting a lock will pass; misusing one will not."""
    waited = message(exc).startswith("Unable to acquire lock")
    verdict = Verdict.TRANSIENT if waited else Verdict.TERMINAL
    return Finding(verdict, "redis.lock", "not acquired in time" if waited else "lock misused")


def cluster(exc: BaseException) -> Finding:
    """Whether the nodes were out of reach, the slots moved on, or the cluster was misused."""
    text = message(exc)
    evidence = f"message {text[:40]!r}"
    if text.startswith(_CLUSTER_UNREACHABLE) and "Cluster mode is not enabled" not in text:
        refused = refusal(exc, "redis.auth", _REFUSALS)
        return refused or unless_lasting(exc, "redis.cluster", evidence)
    passes = text.startswith(_CLUSTER_UNSETTLED)
    verdict = Verdict.TRANSIENT if passes else Verdict.TERMINAL
    return Finding(verdict, "redis.cluster", evidence)


def _rows(module: str, cluster_error: str) -> tuple[Row, ...]:
    """redis/exceptions.py, and its copy in Valkey's client."""
    return (
        # The two authentication errors are ConnectionErrors by class.
        terminal(
            "redis.auth",
            *within(
                module,
                "AuthenticationError AuthorizationError AuthenticationWrongNumberOfArgsError "
                "NoPermissionError",
            ),
        ),
        network("redis.network", f"{module}.ConnectionError"),
        transient(
            "redis.busy",
            *within(
                module,
                "TimeoutError BusyLoadingError MaxConnectionsError WatchError OutOfMemoryError",
            ),
        ),
        # Failover and resharding: the next attempt finds the new primary. MovedError is an AskError.
        transient(
            "redis.failover",
            *within(
                module,
                "ReadOnlyError ClusterError ClusterDownError MasterDownError TryAgainError AskError "
                "SlotNotCoveredError",
            ),
        ),
        probed(
            "redis.lock", redis_lock, "whether it was not acquired in time", f"{module}.LockError"
        ),
        terminal("redis.lock", f"{module}.LockNotOwnedError"),
        probed("redis.reply", redis_reply, "the prefix of the reply", f"{module}.ResponseError"),
        probed(
            "redis.cluster",
            cluster,
            "the message, and the errors behind it",
            f"{module}.{cluster_error}",
        ),
        terminal(
            "redis.usage",
            *within(module, "DataError PubSubError InvalidResponse ChildDeadlockedError"),
        ),
    )


_REDIS_ONLY = (
    terminal(
        "redis.usage",
        *within(
            "redis.exceptions", "CrossSlotTransactionError InvalidPipelineStack IncorrectPolicyType"
        ),
    ),
    # redis/multidb/exception.py: no database of several is healthy now.
    transient(
        "redis.failover",
        *within(
            "redis.multidb.exception",
            "NoValidDatabaseException TemporaryUnavailableException UnhealthyDatabaseException "
            "InitialHealthCheckFailedError",
        ),
    ),
    probed(
        "http.status", http_status(("status",)), "the status", "redis.http.http_client.HttpError"
    ),
    # redis/auth/err.py: over what the identity provider raised.
    wrapper(
        "redis.token",
        "its cause",
        *within("redis.auth.err", "RequestTokenErr TokenRenewalErr"),
    ),
    terminal("redis.auth", "redis.auth.err.InvalidTokenSchemaErr"),
)

# coredis/exceptions.py. Here authentication is a reply, not a connection error.
_COREDIS = (
    network("redis.network", "coredis.exceptions.ConnectionError"),
    terminal("redis.auth", *within("coredis.exceptions", "AuthenticationError AuthorizationError")),
    transient(
        "redis.busy",
        *within("coredis.exceptions", "BusyLoadingError WatchError LockAcquisitionError"),
    ),
    transient(
        "redis.failover",
        *within(
            "coredis.exceptions",
            "ReadOnlyError ClusterDownError ClusterError TryAgainError AskError UnblockedError "
            "SentinelError",
        ),
    ),
    probed(
        "redis.reply", redis_reply, "the prefix of the reply", "coredis.exceptions.ResponseError"
    ),
    terminal("redis.usage", "coredis.typing.RedisError"),
)

_LOCKS = (
    # pottery/exceptions.py.
    transient("redis.lock", "pottery.exceptions.QuorumNotAchieved"),
    terminal("redis.lock", *within("pottery.exceptions", "PrimitiveError PotteryError")),
    # kombu/transport/redis.py Mutex().
    transient("redis.lock", "kombu.transport.redis.MutexHeld"),
)

ROWS: tuple[Row, ...] = (
    *_rows("redis.exceptions", "RedisClusterException"),
    *_rows("valkey.exceptions", "ValkeyClusterException"),
    *_REDIS_ONLY,
    *_COREDIS,
    *_LOCKS,
)

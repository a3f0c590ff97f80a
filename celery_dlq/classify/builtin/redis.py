"""Probes of Redis and Valkey: redis-py, valkey-py and coredis."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import refusal, unless_lasting
from celery_dlq.classify.evidence import message, read, text_of
from celery_dlq.classify.table import Finding, transient_if

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
    return transient_if(prefix in _WILL_PASS, "redis.reply", f"prefix={prefix[:40]}")


def redis_lock(exc: BaseException) -> Finding:
    """redis/lock.py: not getting a lock will pass; misusing one will not."""
    waited = message(exc).startswith("Unable to acquire lock")
    return transient_if(waited, "redis.lock", "not acquired in time" if waited else "lock misused")


def cluster(exc: BaseException) -> Finding:
    """Whether the nodes were out of reach, the slots moved on, or the cluster was misused."""
    text = message(exc)
    evidence = f"message {text[:40]!r}"
    if text.startswith(_CLUSTER_UNREACHABLE) and "Cluster mode is not enabled" not in text:
        refused = refusal(exc, "redis.auth", _REFUSALS)
        return refused or unless_lasting(exc, "redis.cluster", evidence)
    return transient_if(text.startswith(_CLUSTER_UNSETTLED), "redis.cluster", evidence)

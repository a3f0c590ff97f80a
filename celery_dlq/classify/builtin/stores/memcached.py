"""Memcached: pymemcache, pylibmc and python-memcached."""

from __future__ import annotations

import re

from celery_dlq.classify.evidence import message
from celery_dlq.classify.table import Finding, Row, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# pymemcache/exceptions.py, client/hash.py; memcached's memory shortage and its limit of one item.
_MEMCACHED_WILL_PASS = re.compile(
    r"All servers (?:seem|appear) to be down|out of memory|temporary failure|\bbusy\b"
)
# libmemcached/strerror.cc.
_LIBMEMCACHED_WILL_PASS = re.compile(
    r"SERVER HAS FAILED|SERVER IS MARKED DEAD|TIMEOUT OCCURRED|CONNECTION FAILURE|READ FAILURE"
    r"|WRITE FAILURE|SERVER HAS TEMPORARILY|SYSTEM ERROR"
)


def memcached(exc: BaseException) -> Finding:
    """Servers that are down or short of memory pass; what a server or the client refuses does not."""
    found = _MEMCACHED_WILL_PASS.search(message(exc))
    if found is None:
        return Finding(Verdict.TERMINAL, "memcached.error", "refused")
    return Finding(Verdict.TRANSIENT, "memcached.error", f"message has {found[0]!r}")


def libmemcached(exc: BaseException) -> Finding:
    """pylibmc has classes for few of libmemcached's errors; the rest have a text only."""
    found = _LIBMEMCACHED_WILL_PASS.search(message(exc))
    if found is None:
        return Finding(Verdict.TERMINAL, "memcached.error", "refused")
    return Finding(Verdict.TRANSIENT, "memcached.error", f"message has {found[0]!r}")


ROWS: tuple[Row, ...] = (
    transient("memcached.closed", "pymemcache.exceptions.MemcacheUnexpectedCloseError"),
    probed(
        "memcached.error",
        memcached,
        "whether servers are down or short of memory",
        "pymemcache.exceptions.MemcacheError",
    ),
    terminal(
        "memcached.usage",
        *within("pymemcache.exceptions", "MemcacheClientError MemcacheUnknownError"),
    ),
    transient(
        "memcached.closed",
        *within(
            "pylibmc",
            "ConnectionError ServerDead ServerDown ReadError WriteError UnknownReadFailure",
        ),
    ),
    terminal("memcached.usage", "pylibmc.HostLookupError"),
    probed("memcached.error", libmemcached, "libmemcached's text", "pylibmc.Error"),
    transient("memcached.closed", "memcache._ConnectionDeadError"),
    terminal(
        "memcached.usage",
        *within("memcache", "Client.MemcachedKeyError Client.MemcachedStringEncodingError"),
    ),
)

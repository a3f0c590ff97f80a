"""Archives of letters: lines, a store's account of segments, places that fail, and an S3 server."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import subprocess
import sys
import urllib.request
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from support.servers.ports import free_port
from support.workers.processes import with_parent

from celery_dlq.archive.archiving import Archive, Archiver
from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.segment import letter_key
from celery_dlq.errors import ArchiveError, ArchiveFileMissing, StoreError
from celery_dlq.store.base import Lease, OngoingAct, Restored, Segment, SegmentState

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
LEASE = Lease(name="archive", token=1)
ACT = OngoingAct(who="ada", act="archive", detail={}, at=NOW)


def a_line(number=1, *, task_id=None, task="shop.charge", failed_at=None, fields=None, **content):
    """The line of one closed letter; ``fields`` and ``content`` override those of its row and its message."""
    failed_at = failed_at or NOW - timedelta(days=400) + timedelta(minutes=number)
    return {
        "format": 1,
        "schema": "0015",
        "letter": {
            "task_id": task_id or f"id-{number:06}",
            "task": task,
            "state": "resolved",
            "reason": "exhausted",
            "exception_type": "ConnectionError",
            "fingerprint": "739baab2",
            "queue": "celery",
            "route": "",
            "first_failed_at": failed_at.isoformat(),
            "last_failed_at": failed_at.isoformat(),
            "closed_at": (failed_at + timedelta(hours=1)).isoformat(),
            "release": "1.0",
            "worker": "w1@host",
            "redrive_count": 1,
            "attempt_count": 5,
            "closed_by": "",
            "closed_reason": "",
            "message": "refused",
            "verdict": "transient",
            "rule": "os.network",
            "root_id": task_id or f"id-{number:06}",
            "tags": "[]",
            **(fields or {}),
        },
        "content": {
            "headers": "{}", "properties": "{}", "body": "W10=", "args": "[]", "kwargs": "{}",
            "traceback": "Traceback", **content,
        },
        "attempts": [], "redrives": [], "changes": [], "handlings": [], "audit": [],
    }  # fmt: skip


def lines(count, start=1):
    return [a_line(number) for number in range(start, start + count)]


def ids_of(some):
    return [line["letter"]["task_id"] for line in some]


def keys_of(some):
    return [*map(letter_key, some)]


def segment_id(number, made=None):
    """The id of the segment that a fake store makes at the place ``number``."""
    return f"20261101T120000{number:06}-{made or number:08x}"


class FakeStore:
    """The letters and the segments of a store, in memory."""

    def opened(self, line):
        return line

    def __init__(self, some=()):
        self.letters = {line["letter"]["task_id"]: line for line in some}
        self.open = set()
        self.rows = {}
        self.numbers = itertools.count(1)
        self.lease_is_lost = False
        self.audit = []
        #: The letters that each act has deleted, by the id of its row.
        self.acts = {}

    def segments(self):
        return [self.rows[one] for one in sorted(self.rows)]

    def newest(self):
        return max((one.id for one in self.segments() if one.counts), default="")

    def begin(self, facts, lease, place=None):
        self._assert(lease)
        number = next(self.numbers)
        at = NOW + timedelta(microseconds=number) if place is None else place.archived_at
        made = Segment(
            **vars(facts), id=segment_id(at.microsecond, number), state=SegmentState.LEFTOVER,
            archived_at=at,
        )  # fmt: skip
        self.rows[made.id] = made
        return made

    def commit(self, made, keys, lease, act):
        self._assert(lease)
        self._set(made, SegmentState.OWN)
        here = [
            key.task_id
            for key in keys
            if key.task_id in self.letters
            and key.task_id not in self.open
            and letter_key(self.letters[key.task_id]) == key
        ]
        for one in here:
            del self.letters[one]
        row = act.row or len(self.acts) + 1
        self.acts[row] = self.acts.get(row, 0) + len(here)
        return len(here), replace(act, row=row)

    def replace(self, before, after, lease):
        self._assert(lease)
        self._set(before, SegmentState.LEFTOVER)
        if after is not None:
            self._set(after, before.state)

    def adopt(self, segment_id, facts, at):
        assert segment_id not in self.rows
        self.rows[segment_id] = Segment(
            **vars(facts), id=segment_id, state=SegmentState.ADOPTED, archived_at=at
        )

    def leftovers(self, lease):
        self._assert(lease)
        return [one.id for one in self.segments() if not one.counts]

    def drop(self, segment_id):
        if segment_id in self.rows and not self.rows[segment_id].counts:
            del self.rows[segment_id]

    def read(self, task_ids):
        return [
            copy.deepcopy(self.letters[one])
            for one in task_ids
            if one in self.letters and one not in self.open
        ]

    def restore(self, lines, *, who, reopen, origin, now):
        restored, living = [], []
        for line in lines:
            one = line["letter"]["task_id"]
            (living if one in self.letters else restored).append(one)
            self.letters.setdefault(one, line)
        self.open |= set(restored) if reopen else set()
        self.audit.append((who, origin, tuple(restored)))
        return Restored(restored=tuple(restored), living=tuple(living))

    def states(self):
        return [one.state.value for one in self.segments()]

    def _set(self, one, state):
        assert self.rows[one.id].state is one.state
        self.rows[one.id] = replace(one, state=state)

    def _assert(self, lease):
        if self.lease_is_lost:
            raise StoreError("the lease was lost")


class MemoryBucket:
    """A place that keeps files in memory and does what it is told."""

    def __init__(self, files=()):
        self.files = dict(files)

    def put(self, key, data):
        assert self.files.get(key, data) == data, "a key is written twice with different content"
        self.files[key] = data

    def read(self, key):
        if key not in self.files:
            raise ArchiveFileMissing
        return self.files[key]

    def has(self, key):
        return key in self.files

    def list(self, folder):
        return sorted(key for key in self.files if key.startswith(f"{folder}/"))

    def delete(self, key):
        self.files.pop(key, None)


class KilledError(BaseException):
    """The process was killed."""


class Steps:
    """Calls of a bucket and a store, noted; ``error`` is raised before or after one of them."""

    def __init__(self, kill_at=None, *, after=False, error=KilledError):
        self.kill_at, self.after, self.error = kill_at, after, error
        #: The kind of each call.
        self.kinds = []

    def watch(self, part, names):
        for name in names:
            setattr(part, name, self._noted(part, name, getattr(part, name)))
        return part

    def _noted(self, part, name, call):
        def noted(*args, **kwargs):
            folder = str(args[0]).partition("/")[0] if isinstance(part, MemoryBucket) else "store"
            self.kinds.append(f"{name} {folder}")
            is_last = len(self.kinds) == self.kill_at
            if is_last and not self.after:
                raise self.error
            result = call(*args, **kwargs)
            if is_last:
                raise self.error
            return result

        return noted


STORE_STEPS = (
    "begin", "read", "commit", "replace", "adopt", "leftovers", "drop", "segments", "newest", "restore",
)  # fmt: skip
BUCKET_STEPS = ("put", "read", "has", "list", "delete")


def watched(bucket, store, kill_at=None, *, after=False, error=KilledError):
    """Copies that share their content with ``bucket`` and ``store``, and note their calls."""
    steps = Steps(kill_at, after=after, error=error)
    return (
        steps.watch(copy.copy(bucket), BUCKET_STEPS),
        steps.watch(copy.copy(store), STORE_STEPS),
        steps,
    )


def kills(act, bucket, store):
    """Parameters of a test: the steps of ``act`` at which it is killed, by their kind. Only the first step of
    each kind, unless ``CELERY_DLQ_TEST_ALL=1``."""
    *parts, steps = watched(bucket, store)
    act(*parts)
    by_kind = defaultdict(list)
    for number, kind in enumerate(steps.kinds, 1):
        by_kind[kind].append(number)
    most = None if os.environ.get("CELERY_DLQ_TEST_ALL") == "1" else 1
    return [pytest.param(numbers[:most], id=kind) for kind, numbers in by_kind.items()]


def each_kill(numbers):
    """Each of these steps, before and after it; a failed test shows which one it was."""
    for number, after in itertools.product(numbers, (False, True)):
        print("after" if after else "before", "step", number)
        yield number, after


def archiver(bucket, store):
    return Archiver(bucket, store, LEASE, ACT)


def archive_all(bucket, store, *, together=None):
    """Archive all letters of ``store``, in segments of ``together`` letters; returns the segments."""
    keys = keys_of(store.letters.values())
    size = together or len(keys) or 1
    for first in range(0, len(keys), size):
        list(archiver(bucket, store).archive(keys[first : first + size]))
    return store.segments()


def archive_of(bucket, store):
    """The archive of a fake store."""
    reports = SimpleNamespace(note_check=lambda **_counts: None)
    whole = SimpleNamespace(archiving=store, now=lambda: NOW, reports=reports)
    return Archive(bucket, lambda: whole)


def search(bucket, store, **wanted):
    """The letters of the archive of ``store``."""
    if "ids" in wanted:
        wanted["ids"] = frozenset(wanted["ids"])
    return archive_of(bucket, store).find(Wanted(**wanted))


def archived_ids(bucket, store):
    """The ids of all letters of the archive, which can be read."""
    found = search(bucket, store)
    ids = sorted(one.task_id for one in found)
    assert found.findings == []
    return ids


def verified(bucket, store):
    """The result of a check."""
    return archive_of(bucket, store).verify(who="ada")


def failing(*_args, **_kwargs):
    raise ArchiveError("The archive is away.")


@contextlib.contextmanager
def s3_server():
    """The address of an S3 server of this process's own, which begins empty."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        with_parent(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _await(address, process)
        yield address
    finally:
        process.kill()
        process.wait()


def s3_environment(address):
    """The environment variables that point a client at the server."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": os.environ.get("NO_PROXY", "") + ",127.0.0.1",
    }


def _await(address, process):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None:
        with contextlib.suppress(OSError):
            direct.open(f"{address}/moto-api/", timeout=1).close()
            return
    raise AssertionError(f"moto.server ended with {process.returncode}")

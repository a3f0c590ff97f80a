"""The checks of the doctor on retention and the archive."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from celery_dlq.archive.archiving import check_place
from celery_dlq.cli.doctor.finding import Finding, Findings, Level
from celery_dlq.cli.session import Session
from celery_dlq.errors import ArchiveDamaged
from celery_dlq.store.base import Expiry
from celery_dlq.upkeep.expiring import STEP
from celery_dlq.view.text import byte_size, counted

#: The time after which an expired letter should be gone: two rounds of all workers, and one that was slow.
_OVERDUE = timedelta(hours=3)

#: Steps of the search for such a letter.
_STEPS = 20


def check_retention(session: Session) -> Findings:
    """One finding, if letters expire: whether any that expired long ago is still there."""
    retention = session.queue.retention.retention
    if not retention.expires:
        return
    overdue = _overdue(session, retention.expiries(session.store.now() - _OVERDUE))
    if overdue:
        run = session.command("retention", "run")
        yield Finding(
            Level.WARNING,
            f"letters that expired more than {_OVERDUE.total_seconds() / 3_600:g} hours ago are still there; "
            f"look for errors of retention in the logs of the workers, or run: {run}",
        )
        return
    plan = session.command("retention", "plan")
    entries = counted(len(retention.letters), "entry", "entries")
    yield Finding(Level.OK, f"{entries}; see how long each keeps letters: {plan}")


def _overdue(session: Session, expiries: Sequence[Expiry]) -> bool:
    after: str | None = None
    for _ in range(_STEPS):
        found = session.store.expiring.find(expiries, after, STEP)
        if found.keys:
            return True
        after = found.next
        if after is None:
            return False
    return False


def check_archive(session: Session) -> Findings:
    """Whether the archive can be written, read and cleaned."""
    url = session.queue.settings.archive_url
    if url is None:
        return
    yield from _in_spool(session, url)
    bucket = session.queue.archive.bucket
    key, content = f"doctor-{secrets.token_hex(4)}", secrets.token_bytes(64)
    bucket.put(key, content)
    try:
        if bucket.read(key) != content:
            raise ArchiveDamaged(f"The archive {url} returns other bytes than were written to it.")
    finally:
        bucket.delete(key)
    check_place(bucket, max(session.store.archiving.committed(), default=""))
    totals = session.store.archiving.totals()
    yield Finding(
        Level.OK,
        f"{url} answers, {counted(totals.segments, 'segment')} with "
        f"{counted(totals.letters, 'letter')} ({byte_size(totals.size)})",
    )


def _in_spool(session: Session, url: str) -> Findings:
    spool = Path(session.queue.settings.spool_dir).resolve()
    place = Path(urlsplit(url).path).resolve() if url.startswith("file:") else None
    if place is not None and (place == spool or spool in place.parents or place in spool.parents):
        yield Finding(
            Level.ERROR,
            f"{url} and dlq_spool_dir, {spool}, share a directory; give the archive one of its own",
        )

"""The checks of the doctor on retention and the archive."""

from __future__ import annotations

import secrets
from pathlib import Path
from urllib.parse import urlsplit

from celery_dlq.cli.doctor.finding import Finding, Findings, Level
from celery_dlq.cli.session import Session
from celery_dlq.errors import ArchiveDamaged
from celery_dlq.upkeep.retention.thread import TURN
from celery_dlq.view.text import byte_size, counted


def check_retention(session: Session) -> Findings:
    """One finding, if letters or history expire."""
    retention = session.queue.retention.retention
    if not retention.expires:
        return
    if session.store.leases.to_do(TURN).lease_free_in_s <= 0:
        yield Finding(
            Level.WARNING,
            "no worker has looked for expired letters within the last hour; start a worker with the module "
            "that sets dlq_retention, and wait ten minutes",
        )
        return
    entries = counted(len(retention.letters), "entry", "entries")
    plan = session.command("retention", "plan")
    yield Finding(Level.OK, f"{entries}; what they keep: {plan}")


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

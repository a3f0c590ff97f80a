"""The checks of the doctor on the places where letters are kept: the store and its servers, the spool, and
the archive."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from celery_dlq.archive.archiving import check_place
from celery_dlq.cli.doctor import (
    Findings,
    failure,
    judged,
    ok,
    warning,
    why_not_writable,
)
from celery_dlq.cli.exits import one_line
from celery_dlq.cli.session import Session
from celery_dlq.errors import ArchiveDamaged, StoreError
from celery_dlq.settings import STORE_URL_VARIABLE
from celery_dlq.spool.directory import Spool
from celery_dlq.spool.look import FileState, exposed_files, is_exposed, is_shared, look
from celery_dlq.store.base import Expiry, Filter
from celery_dlq.upkeep.expiring import STEP
from celery_dlq.view.text import byte_size, counted

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Connection

    from celery_dlq.store.database.dialects.dialect import Server

T = TypeVar("T")

_SPOOL_STEPS = {
    FileState.WAITING: "a worker started here drains them once the store answers; to drain them now, run: "
    "celery -A <app> dlq recover",
    FileState.TORN: "incomplete lines, set aside; read the files, keep a copy elsewhere, and remove them",
    FileState.REFUSED: "letters that the store refuses; fix the cause, run "
    "celery -A <app> dlq recover FILE, and remove the files",
}

#: The time after which an expired letter should be gone: two rounds of all workers, and one that was slow.
_OVERDUE = timedelta(hours=3)

#: Steps of the search for such a letter.
_SEARCH_STEPS = 20


def check_store_url(session: Session) -> Findings:
    """Whether the URL names a store, and shows a password."""
    from celery_dlq.store.database.dialects import parse_url

    session.queue.check_store_url()
    url = parse_url(session.queue.settings.store_url)
    if url.password and not os.environ.get(STORE_URL_VARIABLE):
        # Celery hides settings by words in their names, and the URLs of the broker and the result backend.
        yield warning(
            "celery report, celery inspect conf and Flower's worker page show the password in dlq_store_url; "
            f"set the URL in the environment variable {STORE_URL_VARIABLE} instead"
        )


def check_store(session: Session) -> Findings:
    from celery_dlq.store.database.dialects import dialect_for, parse_url
    from celery_dlq.store.database.schema import HEAD

    url = parse_url(session.queue.settings.store_url)
    if why := _answer(session, url, lambda server, connection: server.why_too_old(connection)):
        yield failure(f"{session.queue.check_store_url()} {why}")
        return
    depth = counted(session.store.counts.letters(Filter()), "open letter")
    # This operation does not exist, so the write changes nothing, but it fails on a read-only database.
    session.store.claims.release("doctor", "doctor", [""])
    yield ok(f"{session.queue.check_store_url()} answers, schema {HEAD}, {depth}")
    if dialect_for(url).is_file:
        yield from _store_file(url.database or "")


def _store_file(path: str) -> Findings:
    if is_exposed(Path(path)):
        yield warning(
            f"other users can read {path}, which holds whole messages; run: chmod go= {path}*"
        )
    if not path.startswith(("/", "file:")):
        yield warning(
            f"{path} is relative to the working directory, {Path.cwd()}, so a worker started elsewhere "
            "uses another store; set dlq_store_url to an absolute path"
        )


def check_keys(session: Session) -> Findings:
    """Whether all letters are encrypted, and can be read here. Nothing, if there are neither keys nor
    encrypted letters."""
    ring, counts = session.queue.keyring, session.queue.store.keys.counts()
    letters = Counter({label: number for label, (number, _keys) in counts.items()})
    clear = letters[""]
    if ring is None:
        if sealed := letters.total() - clear:
            yield warning(
                f"{counted(sealed, 'encrypted letter')}, but dlq_encryption_keys is not set here, so their "
                "contents cannot be read; set it"
            )
        return
    for label in sorted(counts.keys() - {*ring.labels, "@", ""}):
        of_letters, of_persons = counts[label]
        yield failure(
            f"the key {label} is not in dlq_encryption_keys, so the contents of "
            f"{counted(of_letters, 'letter')} and {counted(of_persons, 'key')} of "
            "persons cannot be read; add it again"
        )
    if clear:
        rotate = session.command("keys", "rotate")
        yield warning(f"{counted(clear, 'letter')} not encrypted; to encrypt them, run: {rotate}")
    by_key = [f"{letters[label]:,} with {label}" for label in ring.labels]
    yield ok(f"letters: {', '.join(by_key)}, {letters['@']:,} with keys of persons")


def check_clock(session: Session) -> Findings:
    yield judged(session.store.why_clock_wrong(), "this machine and the database agree")


def check_servers(session: Session) -> Findings:
    """Whether each server of ``dlq_store_url`` could take over, and which one is used."""
    from celery_dlq.store.database.dialects import parse_url
    from celery_dlq.store.database.servers import alone, hosts_of

    url = parse_url(session.queue.settings.store_url)
    in_use = ""
    for host in hosts_of(url):
        try:
            why = _answer(
                session, alone(url, host), lambda server, there: server.why_read_only(there)
            )
        except StoreError as error:
            yield warning(f"{host} could not take over: {one_line(str(error))}")
            continue
        if why:
            yield ok(f"{host} {why}")
        elif in_use:
            yield ok(f"{host} accepts writes, too")
        else:
            in_use = host
            yield ok(f"{host} accepts writes, and is used")


def _answer(session: Session, url: URL, ask: Callable[[Server, Connection], T]) -> T | None:
    """What the server of ``url`` answers; None if it is a file.

    :raises StoreError: the server does not answer.
    """
    from celery_dlq.store.database.dialects.dialect import Server
    from celery_dlq.store.database.engine import Database

    database = Database(
        url.render_as_string(hide_password=False),
        timeout=session.queue.settings.store_timeout,
        client=session.queue.client,
    )
    try:
        dialect = database.dialect
        return database.ask_raw(partial(ask, dialect)) if isinstance(dialect, Server) else None
    finally:
        database.close()


def check_spool(session: Session) -> Findings:
    spool = session.queue.spool
    directory = spool.directory.absolute()
    unusable = _why_unusable(spool)
    if unusable:
        yield failure(
            f"{unusable}: while the store is down, letters would go to the log only; make the directory "
            "writable for the worker's user, or set another dlq_spool_dir"
        )
        return
    yield from _exposed(directory)
    found = list(look(directory))
    states = Counter(file.state for file in found)
    waiting = sum(file.records for file in found if file.state is FileState.IN_USE)
    steps = [(state, step) for state, step in _SPOOL_STEPS.items() if states[state]]
    for state, step in steps:
        files = counted(states[state], f"{state.value} file")
        yield warning(f"{files} in {directory}: {step}")
    if not steps:
        held = "and empty"
        if waiting:
            held = (
                f"and has {counted(waiting, 'record')} that workers keep until the store takes them"
            )
        yield ok(f"{directory} is writable {held}")


def _exposed(directory: Path) -> Findings:
    """A warning if other users can read the spool, which holds whole messages."""
    files = len(exposed_files(directory))
    if is_exposed(directory) and (files or not is_shared(directory)):
        read = f" and read {counted(files, 'file')} with whole messages" if files else ""
        yield warning(f"other users can list {directory}{read}; run: chmod -R go= {directory}")


def _why_unusable(spool: Spool) -> str:
    """Why a letter could not be spooled; empty if it could."""
    directory = spool.directory.absolute()
    if directory.is_dir():
        try:
            spool.check()
        except OSError as error:
            return str(error)
        return ""
    return why_not_writable(directory)


def check_retention(session: Session) -> Findings:
    """One finding, if letters expire: whether any that expired long ago is still there."""
    retention = session.queue.retention.retention
    if not retention.expires:
        return
    overdue = _overdue(session, retention.expiries(session.store.now() - _OVERDUE))
    if overdue:
        run = session.command("retention", "run")
        yield warning(
            f"letters that expired more than {_OVERDUE.total_seconds() / 3_600:g} hours ago are still there; "
            f"look for errors of retention in the logs of the workers, or run: {run}"
        )
        return
    plan = session.command("retention", "plan")
    entries = counted(len(retention.letters), "entry", "entries")
    yield ok(f"{entries}; see how long each keeps letters: {plan}")


def _overdue(session: Session, expiries: Sequence[Expiry]) -> bool:
    after: str | None = None
    for _ in range(_SEARCH_STEPS):
        found = session.store.expiring.find(expiries, after, STEP)
        if found.rows:
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
    check_place(bucket, session.store.archiving.newest())
    totals = session.store.archiving.totals()
    yield ok(
        f"{url} answers, {counted(totals.segments, 'segment')} with "
        f"{counted(totals.letters, 'letter')} ({byte_size(totals.size)})"
    )


def _in_spool(session: Session, url: str) -> Findings:
    spool = Path(session.queue.settings.spool_dir).resolve()
    place = Path(urlsplit(url).path).resolve() if url.startswith("file:") else None
    if place is not None and (place == spool or spool in place.parents or place in spool.parents):
        yield failure(
            f"{url} and dlq_spool_dir, {spool}, share a directory; give the archive one of its own"
        )

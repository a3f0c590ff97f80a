"""The doctor's look at the read replica."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from celery_dlq.cli.doctor.finding import Finding, Findings, Level, password_shown
from celery_dlq.cli.exits import one_line
from celery_dlq.cli.session import Session
from celery_dlq.errors import StoreError
from celery_dlq.model.states import State
from celery_dlq.settings import READ_URL_VARIABLE
from celery_dlq.store.base import Filter
from celery_dlq.view.stats.replica import replica_text
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: A replica that is further behind shows screens that mislead.
_FAR_BEHIND = timedelta(minutes=1)

#: A replica must have letters that are older than this.
_LONG_AGO = timedelta(hours=1)


def check_replica(session: Session) -> Findings:
    """Whether the server of ``dlq_store_read_url`` answers, has the store's letters, and keeps up."""
    from celery_dlq.store.database.dialects.supported import parse_url
    from celery_dlq.store.sql import SQLStore

    settings = session.queue.settings
    if not settings.store_read_url:
        return
    session.queue.check_store_url()
    if parse_url(settings.store_read_url).password and not os.environ.get(READ_URL_VARIABLE):
        yield password_shown("dlq_store_read_url", READ_URL_VARIABLE)
    # Not the queue's, which reads from the primary after this process has written.
    replica = SQLStore(
        settings.store_read_url, timeout=settings.store_timeout, client=session.queue.client
    )
    try:
        replica.check_schema()
        missing = _missing_letter(session.queue.store, replica)
    except StoreError as error:
        text = f"screens read from the primary, because the replica fails: {one_line(str(error))}"
        yield Finding(Level.WARNING, text)
        return
    finally:
        replica.close()
    if missing:
        yield Finding(Level.WARNING, missing)
    else:
        yield _lag(session.queue.read_store)


def _missing_letter(store: Store, replica: Store) -> str:
    """The text about a letter that only the store has; empty if the replica has it, or the store has none.

    :raises StoreError: one of them fails.
    """
    old = Filter(states=frozenset(State), until=store.now() - _LONG_AGO)
    for letter in store.letters.find(old, limit=1).letters:
        if replica.letters.get(letter.task_id) is None:
            return (
                f"it does not have the letter {letter.task_id}, which failed more than "
                f"{duration(_LONG_AGO.total_seconds())} ago; check that dlq_store_read_url names a replica "
                "of the server of dlq_store_url, and that replication runs"
            )
    return ""


def _lag(read_store: Store) -> Finding:
    found = read_store.following()
    is_far = found is not None and found.lag is not None and found.lag > _FAR_BEHIND
    more = ", so screens show what was true then; check its replication" if is_far else ""
    return Finding(Level.WARNING if is_far else Level.OK, replica_text(found).rstrip(".") + more)

"""Saves a batch of records in the store; if that fails, in the spool; if that fails, too, in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import State
from celery_dlq.spool import Record, Spool, encode, log_whole

if TYPE_CHECKING:
    from celery_dlq.store import Store


logger = logging.getLogger(__name__)


def save(store: Store, records: Sequence[Record]) -> None:
    """Save letters before outcomes, so that a letter and its success in one batch end resolved."""
    letters = [record for record in records if isinstance(record, DeadLetter)]
    outcomes = [record for record in records if isinstance(record, Outcome)]
    parked = [letter for letter in letters if letter.state is State.PARKED]
    dead = [letter for letter in letters if letter.state is not State.PARKED]
    if parked:
        store.parked.park(parked, now=datetime.now(timezone.utc))
    if dead:
        store.letters.save(dead)
    if outcomes:
        store.letters.record_outcomes(outcomes)


def keep_in_spool(spool: Spool, records: Sequence[Record]) -> None:
    """Append ``records`` to ``spool``, or to the log; never raises."""
    try:
        spool.append(records)
    except Exception as error:  # noqa: BLE001 - whatever the disk does, the letter must survive
        if len(records) == 1:
            _keep_in_log(records[0], error)
            return
        # The remaining space may be enough for some of them.
        for record in records:
            keep_in_spool(spool, [record])


def _keep_in_log(record: Record, error: Exception) -> None:
    try:
        log_whole(encode(record), error)
    except Exception:
        # An error here would end the writer's thread, and no further message would be finished.
        logger.critical(
            "dead letter neither stored nor spooled, and it cannot be encoded: %r",
            record,
            exc_info=True,
        )

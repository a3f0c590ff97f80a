"""Reports to the store what a worker cannot recover, and what it cannot copy. So screens on other machines
know of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from celery_dlq import process
from celery_dlq.recorder import Taken, Uncovered
from celery_dlq.recorder.owner import owner_in
from celery_dlq.store.lost import RecorderReport, ReportKind

if TYPE_CHECKING:
    from celery_dlq.store import Store


def stuck(directory: Path, why: str) -> RecorderReport:
    """The report about ``directory``, which cannot be recovered."""
    owner = owner_in(directory)
    return RecorderReport(
        kind=ReportKind.STUCK,
        about=directory.name,
        worker=owner.worker if owner else "",
        host=owner.host if owner else "",
        messages=0,
        since=_written_at(directory),
        why=why,
    )


def waiting(found: Taken, accepted_at: Sequence[datetime]) -> RecorderReport:
    """The report about messages in ``found`` that the broker may deliver again.

    :param accepted_at: when each of them was accepted; at least one.
    """
    return RecorderReport(
        kind=ReportKind.WAITING,
        about=found.directory.name,
        worker=found.worker,
        host=found.host,
        messages=len(accepted_at),
        since=min(accepted_at),
        why="the broker may deliver them again",
    )


def uncovered(worker: str, found: Sequence[Uncovered]) -> RecorderReport:
    """The report about this process, whose ``worker`` runs messages without a copy.

    :param found: the trouble of each of its recorders that has some; at least one.
    """
    host, first = socket.gethostname(), min(found, key=lambda one: one.since)
    return RecorderReport(
        kind=ReportKind.UNCOVERED,
        about=process.identity() or f"{host} {os.getpid()}",
        worker=worker,
        host=host,
        messages=sum(one.messages for one in found),
        since=first.since,
        why=first.why,
    )


class Reporter:
    """Keeps the store's reports of one worker true. Without anything to report, it asks the store nothing.

    :param store: opens the store.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._reported: dict[tuple[ReportKind, str], RecorderReport] = {}

    def report(self, reports: Sequence[RecorderReport]) -> None:
        """Write ``reports``, and delete the earlier ones that are not among them.

        :raises StoreError: the store failed; it is tried again the next time.
        """
        true = {(one.kind, one.about): one for one in reports}
        over = [one for key, one in self._reported.items() if key not in true]
        self._reported |= true
        if over:
            self._store().recorder_reports.withdraw(over)
        if true:
            self._store().recorder_reports.note([*true.values()])
        self._reported = true

    def end(self) -> None:
        """Delete the reports about this worker, which ends. Those about killed workers stay true.

        :raises StoreError: the store failed; the reports fade.
        """
        about_others = [
            one for one in self._reported.values() if one.kind is not ReportKind.UNCOVERED
        ]
        if len(about_others) < len(self._reported):
            self.report(about_others)


def _written_at(directory: Path) -> datetime:
    try:
        seconds = directory.stat().st_mtime
    except OSError:  # it cannot even be looked at
        return datetime.now(timezone.utc)
    return datetime.fromtimestamp(seconds, timezone.utc)

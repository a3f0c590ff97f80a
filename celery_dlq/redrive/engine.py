"""The loop of a redrive: claim, check, reopen chords, pace, publish, confirm."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.letter import DeadLetter
from celery_dlq.redrive.canvas import reopen_chords
from celery_dlq.redrive.checks import why_not
from celery_dlq.redrive.pace import Pace
from celery_dlq.redrive.plan import Progress, Report, Skipped, redrivable
from celery_dlq.redrive.publish import Publisher, Sent, open_publisher
from celery_dlq.settings import Settings
from celery_dlq.states import State
from celery_dlq.store.base import Filter, Store

logger = get_logger(__name__)

#: Called after every step with where the redrive stands.
OnProgress = Callable[[Progress], object]


@dataclass
class _Run:
    """One redrive under way."""

    wanted: Filter
    planned: int
    pace: Pace
    #: The letters still to be claimed, by id, where a filter would find those that were sent again.
    named: list[str] | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    sent: int = 0
    overtaken: int = 0
    uncertain: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    #: Claimed but not sent. Released at the end, so that no later claim of this run finds them.
    held: set[str] = field(default_factory=set)
    error: str | None = None

    @property
    def left(self) -> int:
        return self.planned - self.sent - self.uncertain - len(self.skipped)

    def skip(self, letter: DeadLetter, why: str) -> None:
        self.held.add(letter.task_id)
        self.skipped.append(Skipped(task_id=letter.task_id, task=letter.task, why=why))

    def progress(self) -> Progress:
        return Progress(
            total=self.planned, sent=self.sent,
            skipped=len(self.skipped), overtaken=self.overtaken,
        )  # fmt: skip

    def report(self, *, interrupted: bool) -> Report:
        return Report(
            planned=self.planned,
            sent=self.sent,
            skipped=tuple(self.skipped),
            unsent=max(0, self.left),
            uncertain=self.uncertain,
            interrupted=interrupted and self.left > 0,
            error=self.error,
        )


class Redrive:
    """Sends letters back. Killed between any two steps, it loses nothing: a letter is claimed under
    a lease before it is published, and marked only after the broker confirmed it."""

    def __init__(
        self,
        app: Any,
        store: Store,
        settings: Settings,
        *,
        sleep: Callable[[float], object] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._app, self._store, self._settings = app, store, settings
        self._sleep, self._now = sleep, now

    def run(
        self,
        wanted: Filter,
        *,
        who: str,
        limit: int | None = None,
        rate: float | None = None,
        on_progress: OnProgress | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Report:
        """Send what ``wanted`` finds now; letters that die later are not swept in.

        :raises RedriveError: the broker does not answer; nothing was sent.
        """
        self._store.rescue(self._now())
        wanted = self._cut_off(redrivable(wanted))
        count = self._store.count(wanted)
        planned = count if limit is None else min(count, limit)
        pace = Pace(rate, monotonic=time.monotonic, sleep=self._sleep)
        run = _Run(wanted, planned, pace, self._names(wanted, planned))
        if planned:
            self._send_all(run, who, on_progress or (lambda _progress: None), should_stop)
        return run.report(interrupted=should_stop())

    def _cut_off(self, wanted: Filter) -> Filter:
        now = self._now()
        return replace(wanted, until=min(wanted.until, now) if wanted.until else now)

    def _send_all(
        self, run: _Run, who: str, on_progress: OnProgress, should_stop: Callable[[], bool]
    ) -> None:
        try:
            with open_publisher(self._app) as publisher:
                self._store.record_act(
                    who=who, act="redrive", detail={"planned": run.planned}, now=self._now()
                )
                while run.left > 0 and not run.error:
                    size = run.pace.batch_size(min(self._settings.batch_size, run.left))
                    # Waits before it claims, so that nothing is held meanwhile.
                    run.pace.wait_before(size, should_stop)
                    letters = () if should_stop() else self._claim(run, size)
                    if not letters:
                        return
                    self._send(publisher, self._check(letters, run), run)
                    on_progress(run.progress())
        finally:
            self._store.release(run.token, sorted(run.held))

    def _names(self, wanted: Filter, planned: int) -> list[str] | None:
        """The oldest ``planned`` letters, listed beforehand when redriven ones are wanted: a letter
        that was sent is redriven once more, and the next claim would take it again."""
        if State.REDRIVEN not in wanted.states:
            return None
        newest_first, after = list[str](), None
        while True:
            page = self._store.find(wanted, limit=500, after=after)
            newest_first += [letter.task_id for letter in page.letters]
            after = page.next
            if after is None:
                return newest_first[::-1][:planned]

    def _claim(self, run: _Run, size: int) -> Sequence[DeadLetter]:
        if run.named is None:
            return self._take(run, run.wanted, size)
        while run.named:
            chunk, run.named = run.named[:size], run.named[size:]
            letters = self._take(run, replace(run.wanted, ids=tuple(chunk)), size)
            if letters:
                return letters
        return ()

    def _take(self, run: _Run, wanted: Filter, size: int) -> Sequence[DeadLetter]:
        now = self._now()
        return self._store.claim(
            wanted,
            token=run.token,
            lease_until=now + timedelta(seconds=self._settings.claim_lease),
            limit=size,
            now=now,
        ).letters

    def _check(self, letters: Sequence[DeadLetter], run: _Run) -> list[DeadLetter]:
        sendable = []
        for letter in letters:
            if letter.task_id in run.held:
                continue  # its lease ended in a long run, and it was claimed once more
            why = why_not(self._app, letter)
            if why is None:
                sendable.append(letter)
            else:
                run.skip(letter, why)
        return sendable

    def _send(self, publisher: Publisher, letters: Sequence[DeadLetter], run: _Run) -> None:
        if not letters:
            return
        try:
            reopen_chords(self._app, letters)
        except Exception as error:
            logger.exception("result backend failed while chords were reopened")
            run.held.update(letter.task_id for letter in letters)
            run.error = f"the result backend does not answer ({type(error).__name__}: {error})"
            return
        self._settle(publisher.send(letters), letters, run)

    def _settle(self, sent: Sent, letters: Sequence[DeadLetter], run: _Run) -> None:
        marked = self._store.confirm(run.token, sent.confirmed)
        run.sent += len(sent.confirmed)
        run.overtaken += len(sent.confirmed) - marked
        run.uncertain += len(sent.uncertain)
        if sent.uncertain or sent.error:
            run.error = sent.error or "the broker did not confirm in time"
        run.held.update(sent.unsent)
        for letter in letters:
            if letter.task_id in sent.refused:
                run.skip(letter, sent.refused[letter.task_id])

"""Chooses the letters of one run of an automatic redrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from celery_dlq.model.automation import AutoMode, Candidate
from celery_dlq.model.states import Reason
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.letter.checks import why_no_task
from celery_dlq.redrive.pacing import times
from celery_dlq.upkeep.automation.conditions import open_circuits, why_not_again
from celery_dlq.upkeep.automation.definition import AutoRedrive

#: Letters that are read together.
PAGE = 500


@dataclass(kw_only=True)
class Choice:
    """The letters of a run."""

    #: In the order of the failures.
    letters: list[Candidate] = field(default_factory=list)
    #: Letters to hold, each with the reason.
    held: dict[str, str] = field(default_factory=dict)
    #: How many letters match and wait, by reason.
    waiting: Counter[str] = field(default_factory=Counter)


def why_hold(auto: AutoRedrive, one: Candidate) -> str:
    """Why no automatic redrive takes ``one`` again: only a person redrives it. Empty if one may."""
    tries = [item for item in one.tries if item.counts]
    if any(item.fingerprint != one.fingerprint for item in tries):
        return "it failed differently after an automatic redrive"
    if len(tries) >= auto.limits.per_letter:
        return f"it was redriven by itself {times(len(tries))} and failed again"
    most = auto.orders.checking.max_redrives
    if most is not None and one.redrive_count >= most:
        return f"it was redriven {times(one.redrive_count)} and failed again"
    return ""


def why_wait(auto: AutoRedrive, one: Candidate, now: datetime, *, release: str) -> str:
    """Why ``auto`` does not take ``one`` at ``now``, whatever the other letters are. Empty if it does.

    :param release: the value of ``dlq_release``.
    """
    if any(item.mode is AutoMode.ON and not item.is_over for item in one.tries):
        return "it is in an operation that has not ended"
    if not auto.is_on and any(
        item.mode is AutoMode.SHADOW and item.at >= one.failed_at for item in one.tries
    ):
        return "a shadow run has chosen it since it failed"
    tries = [item.at for item in one.tries if item.counts]
    if now - max([one.failed_at, *tries]) < timedelta(seconds=auto.pause_s(len(tries))):
        return "it failed, or was tried, too recently"
    if auto.require.new_release and one.release == release:
        return f"it failed in the release that runs ({release})"
    return ""


class Chooser:
    """Chooses letters for one automatic redrive.

    :param earlier: the automatic redrives that come before it, and take the letters that they match.
    """

    def __init__(
        self, context: RedriveContext, auto: AutoRedrive, *, earlier: Sequence[AutoRedrive]
    ) -> None:
        self._context, self._store, self._auto = context, context.store, auto
        # An automatic redrive that sends nothing must not keep letters from one that sends.
        self._earlier = [one.scope for one in earlier if one.is_on or not auto.is_on]

    def choose(self, now: datetime, size: int) -> Choice:
        """Up to ``size`` letters for a run at ``now``, oldest failure first.

        :raises StoreError: the store failed.
        """
        choice = Choice()
        for page in self._pages(now):
            self._add(choice, page, now, size)
            if len(choice.letters) >= size:
                break
        return choice

    def _pages(self, now: datetime) -> Iterator[list[Candidate]]:
        after: Candidate | None = None
        failed_by = now - timedelta(seconds=self._auto.after_s)
        while True:
            page = self._store.automations.candidates(
                self._auto.scope, self._earlier, failed_by=failed_by, limit=PAGE, after=after
            )
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1]

    def _add(self, choice: Choice, page: Sequence[Candidate], now: datetime, size: int) -> None:
        blocked, release = self._blocked({one.task for one in page}), self._context.settings.release
        for one in page:
            if len(choice.letters) >= size:
                return
            if why := why_hold(self._auto, one):
                choice.held[one.task_id] = why
            elif why := why_wait(self._auto, one, now, release=release) or blocked.get(
                one.task, ""
            ):
                choice.waiting[why] += 1
            else:
                choice.letters.append(one)

    def _blocked(self, tasks: Collection[str]) -> Mapping[str, str]:
        """The tasks whose letters may not be sent now, each with the reason."""
        auto, app = self._auto, self._context.app
        blocked = dict(open_circuits(self._store)) if auto.require.closed_circuit else {}
        for task in tasks:
            target = auto.orders.repair.to_task or task
            why = why_no_task(app, target)
            if why is None and not self._context.reports(target):
                why = f"{target} is not on DLQTask, so that its outcome would not be known"
            if why is None and auto.where.reason is Reason.LOST:
                why = why_not_again(app, target)
            if why:
                blocked[task] = why
        return blocked

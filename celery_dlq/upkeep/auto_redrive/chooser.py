"""Chooses the letters of one run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from celery_dlq.model.auto_redrive import AutoMode, AutoTry, Candidate
from celery_dlq.model.states import Reason
from celery_dlq.redrive.checks import why_no_task
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.upkeep.auto_redrive.conditions import open_circuits, why_not_again
from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive

#: Letters that are read together.
PAGE = 500


class Fate(str, Enum):
    """Whether an automatic redrive takes a letter now."""

    TAKE = "take"
    #: Later, perhaps.
    WAIT = "wait"
    #: Never again: only a person redrives it.
    HOLD = "hold"


@dataclass(frozen=True)
class Judgement:
    """The fate of a letter in one run, and the reason for people."""

    fate: Fate
    why: str = ""


@dataclass(kw_only=True)
class Choice:
    """The letters of a run."""

    #: Task ids in the order of the failures, each with its fingerprint.
    letters: dict[str, str] = field(default_factory=dict)
    #: Letters to hold, each with the reason.
    held: dict[str, str] = field(default_factory=dict)
    #: How many letters match and wait, by reason.
    waiting: Counter[str] = field(default_factory=Counter)


def judge(auto: AutoRedrive, one: Candidate, now: datetime, *, release: str) -> Judgement:
    """The fate of ``one`` at ``now``, whatever the other letters are.

    :param release: the value of ``dlq_release``.
    """
    tries = [item for item in one.tries if item.counts]
    why = _why_hold(auto, one, tries)
    if why:
        return Judgement(Fate.HOLD, why)
    if any(item.mode is AutoMode.ON and not item.is_over for item in one.tries):
        return Judgement(Fate.WAIT, "it is in an operation that has not ended")
    if not auto.is_on and any(
        item.mode is AutoMode.SHADOW and item.at >= one.failed_at for item in one.tries
    ):
        return Judgement(Fate.WAIT, "a shadow run has chosen it since it failed")
    since = max([one.failed_at, *(item.at for item in tries)])
    if now - since < timedelta(seconds=auto.pause_s(len(tries))):
        return Judgement(Fate.WAIT, "it failed, or was tried, too recently")
    if auto.require.new_release and one.release == release:
        return Judgement(Fate.WAIT, f"it failed in the release that runs ({release})")
    return Judgement(Fate.TAKE)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _why_hold(auto: AutoRedrive, one: Candidate, tries: Sequence[AutoTry]) -> str:
    if any(item.fingerprint != one.fingerprint for item in tries):
        return "it failed differently after an automatic redrive"
    if len(tries) >= auto.limits.per_letter:
        return f"it was redriven by itself {_times(len(tries))} and failed again"
    most = auto.orders.checking.max_redrives
    if most is not None and one.redrive_count >= most:
        return f"it was redriven {_times(one.redrive_count)} and failed again"
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
        self._earlier = [one for one in earlier if one.is_on or not auto.is_on]
        self._room: dict[str, int] = {}

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
            page = self._store.auto_redrives.candidates(
                self._auto.letters, failed_by=failed_by, limit=PAGE, after=after
            )
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1]

    def _add(self, choice: Choice, page: Sequence[Candidate], now: datetime, size: int) -> None:
        others = self._taken_by_others([one.task_id for one in page])
        mine = [one for one in page if one.task_id not in others]
        if others:
            choice.waiting["an earlier automatic redrive matches it"] += len(others)
        blocked = self._blocked({one.task for one in mine})
        self._make_room(mine)
        for one in mine:
            if len(choice.letters) >= size:
                return
            judgement = judge(self._auto, one, now, release=self._context.settings.release)
            if judgement.fate is Fate.HOLD:
                choice.held[one.task_id] = judgement.why
            elif judgement.fate is Fate.WAIT:
                choice.waiting[judgement.why] += 1
            elif one.task in blocked:
                choice.waiting[blocked[one.task]] += 1
            elif not self._room[one.fingerprint]:
                choice.waiting["its group has no more room in this run"] += 1
            else:
                self._room[one.fingerprint] -= 1
                choice.letters[one.task_id] = one.fingerprint

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

    def _taken_by_others(self, task_ids: Sequence[str]) -> frozenset[str]:
        taken: frozenset[str] = frozenset()
        for other in self._earlier:
            taken |= self._store.auto_redrives.matching(other.letters, task_ids)
        return taken

    def _make_room(self, page: Sequence[Candidate]) -> None:
        new = {one.fingerprint for one in page} - set(self._room)
        share = self._auto.limits.share_of_group
        if share >= 1.0:
            self._room.update(dict.fromkeys(new, self._auto.limits.per_run))
        elif new:
            sizes = self._store.auto_redrives.open_in_groups(new)
            self._room.update(
                {name: max(1, math.floor(share * sizes.get(name, 0))) for name in new}
            )

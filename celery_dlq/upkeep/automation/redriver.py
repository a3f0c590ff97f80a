"""The turn of an automatic redrive: it looks for letters when its time has come, chooses some, and begins an
operation."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from celery.utils.log import get_logger

from celery_dlq.model.automation import AutoMode, AutoState, AutoStatus, Candidate, actor_of
from celery_dlq.model.states import Reason, State
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.gate import why_held
from celery_dlq.redrive.letter.checks import why_no_task
from celery_dlq.redrive.letter.repair import described
from celery_dlq.redrive.operation import Operations
from celery_dlq.redrive.pacing import times
from celery_dlq.store.base import Filter, Lease, Operation, Scope
from celery_dlq.store.tenure import TRY_S
from celery_dlq.upkeep.automation import conditions
from celery_dlq.upkeep.automation.definition import AutoRedrive

logger: logging.Logger = get_logger(__name__)

#: Letters that are read together.
PAGE = 500

#: The upper bound of a filter is the first moment that it leaves out.
_TICK = timedelta(microseconds=1)


@dataclass(kw_only=True)
class Look:
    """The result of one look of an automatic redrive for letters."""

    name: str
    mode: AutoMode
    #: Why it would not begin an operation; empty if it would.
    why_not: str = ""
    #: The letters of the run, in the order of their failures.
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


class Redriver:
    """Gives automatic redrives their turns.

    :param autos: all of the app, by name, in the order in which they come first.
    """

    def __init__(
        self, context: RedriveContext, operations: Operations, autos: Mapping[str, AutoRedrive]
    ) -> None:
        self._context, self._store, self._operations = context, context.store, operations
        self._autos = autos

    def turn(self, auto: AutoRedrive, status: AutoStatus, lease: Lease) -> float:
        """Look for letters if that is due; returns the seconds until the next turn.

        :raises StoreError: the store failed.
        """
        now = self._context.clock.now()
        due_at = auto.when.next_start(status.looked_at, now)
        if due_at > now:
            return min(TRY_S, (due_at - now).total_seconds())
        if auto.when.why_closed(now) or not self._store.automations.looked(lease, auto.name, now):
            return TRY_S
        why = conditions.why_suspend(self._store, auto, status)
        if why:
            self._suspend(auto, why, now)
        else:
            self._begin(auto, lease, now)
        return min(TRY_S, (auto.when.next_start(now, now) - now).total_seconds())

    def look(self, auto: AutoRedrive, now: datetime) -> Look:
        """The letters that it would choose at ``now``. Nothing is sent or changed.

        :raises StoreError: the store failed.
        """
        look = Look(name=auto.name, mode=AutoMode(auto.mode))
        size, look.why_not = self._room(auto, look.mode, now)
        if size:
            for page in self._pages(auto, now):
                self._add(look, auto, page, now, size)
                if len(look.letters) >= size:
                    break
            look.why_not = "" if look.letters else "no letter is due"
        return look

    def _pages(self, auto: AutoRedrive, now: datetime) -> Iterator[list[Candidate]]:
        """The letters that match, oldest failure first."""
        after: Candidate | None = None
        failed_by, earlier = now - timedelta(seconds=auto.after_s), self._earlier(auto)
        while True:
            page = self._store.automations.candidates(
                auto.scope, earlier, failed_by=failed_by, limit=PAGE, after=after
            )
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1]

    def _earlier(self, auto: AutoRedrive) -> list[Scope]:
        """The automatic redrives that come before ``auto``, and take the letters that they match. One that
        sends nothing must not keep letters from one that sends."""
        names = list(self._autos)
        before = (self._autos[name] for name in names[: names.index(auto.name)])
        return [one.scope for one in before if one.is_on or not auto.is_on]

    def _add(
        self, look: Look, auto: AutoRedrive, page: list[Candidate], now: datetime, size: int
    ) -> None:
        release = self._context.settings.release
        blocked = self._blocked(auto, {one.task for one in page})
        for one in page:
            if len(look.letters) >= size:
                return
            if why := why_hold(auto, one):
                look.held[one.task_id] = why
            elif why := why_wait(auto, one, now, release=release) or blocked.get(one.task, ""):
                look.waiting[why] += 1
            else:
                look.letters.append(one)

    def _blocked(self, auto: AutoRedrive, tasks: Collection[str]) -> Mapping[str, str]:
        """The tasks whose letters may not be sent now, each with the reason."""
        app = self._context.app
        blocked = dict(conditions.open_circuits(self._store)) if auto.require.closed_circuit else {}
        for task in tasks:
            target = auto.orders.repair.to_task or task
            why = why_no_task(app, target) or why_held(app, "never", task, target)
            why = why or why_held(app, "approve", task, target)
            if why is None and not self._context.reports(target):
                why = f"{target} is not on DLQTask, so that its outcome would not be known"
            if why is None and auto.where.reason is Reason.LOST:
                why = conditions.why_not_again(app, target)
            if why:
                blocked[task] = why
        return blocked

    def _begin(self, auto: AutoRedrive, lease: Lease, now: datetime) -> None:
        look = self.look(auto, now)
        if auto.is_on and look.held:
            self._store.automations.hold(lease, auto.name, look.held, now)
        if look.why_not:
            logger.debug("automatic redrive %s: %s", auto.name, look.why_not)
            return
        planned = self._operation(auto, look, now)
        begun = self._store.automations.begin(
            lease, auto.name, look.letters, planned, mode=look.mode,
            repair=described(planned.orders.repair, self._context.redactor),
        )  # fmt: skip
        if begun:
            logger.info(
                "automatic redrive %s %s %d letters: operation %s", auto.name,
                "sends" if auto.is_on else "would send", len(look.letters), planned.id,
            )  # fmt: skip

    def _operation(self, auto: AutoRedrive, look: Look, now: datetime) -> Operation:
        # A letter that has failed since it was chosen failed later than this, and is not taken.
        failed_by = now - timedelta(seconds=auto.after_s)
        wanted = Filter(
            ids=tuple(one.task_id for one in look.letters), states=frozenset({State.DEAD}),
            until=failed_by + _TICK,
        )  # fmt: skip
        orders = auto.orders_for(len(look.letters))
        return self._operations.draft(wanted, orders, who=actor_of(auto.name), detached=True)

    def _room(self, auto: AutoRedrive, mode: AutoMode, now: datetime) -> tuple[int, str]:
        """How many letters a run may take now; if none, the reason."""
        if self._store.automations.unfinished(auto.name):
            return 0, "its last operation has not ended"
        sends = self._store.automations.sends(auto.name, mode, now)
        day = auto.limits.per_day - sends.day
        hour = self._context.settings.auto_redrive_budget - sends.hour_of_all
        if day <= 0:
            return 0, f"it has sent {sends.day} letters within a day (limits.per_day)"
        if hour <= 0:
            return (
                0,
                f"all have sent {sends.hour_of_all} letters within an hour (dlq_auto_redrive_budget)",
            )
        return min(auto.limits.per_run, day, hour), ""

    def _suspend(self, auto: AutoRedrive, why: str, now: datetime) -> None:
        who = actor_of(auto.name)
        changed = self._store.automations.set_state(
            auto.name, AutoState.SUSPENDED, who=who, why=why, now=now
        )
        if changed:
            logger.error(
                "automatic redrive %s has suspended itself: %s. After a fix: "
                "celery -A <app> dlq auto resume %s", auto.name, why, auto.name,
            )  # fmt: skip

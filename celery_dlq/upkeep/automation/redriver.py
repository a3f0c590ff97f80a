"""The turn of an automatic redrive: it looks for letters when its time has come, and begins an operation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery.utils.log import get_logger

from celery_dlq.model.automation import AutoMode, AutoState, AutoStatus, actor_of
from celery_dlq.model.states import State
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.letter.repair import described
from celery_dlq.redrive.operation import Operations
from celery_dlq.store.base import Filter, Lease, Operation
from celery_dlq.store.tenure import TRY_S
from celery_dlq.upkeep.automation import conditions
from celery_dlq.upkeep.automation.chooser import Choice, Chooser
from celery_dlq.upkeep.automation.definition import AutoRedrive

logger: logging.Logger = get_logger(__name__)

#: The upper bound of a filter is the first moment that it leaves out.
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class Look:
    """The result of one look of an automatic redrive for letters."""

    name: str
    mode: AutoMode
    #: Why it would not begin an operation; empty if it would.
    why_not: str = ""
    choice: Choice


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
        mode = AutoMode(auto.mode)
        size, why = self._room(auto, mode, now)
        if not size:
            return Look(name=auto.name, mode=mode, why_not=why, choice=Choice())
        names = list(self._autos)
        earlier = [self._autos[name] for name in names[: names.index(auto.name)]]
        choice = Chooser(self._context, auto, earlier=earlier).choose(now, size)
        why = "" if choice.letters else "no letter is due"
        return Look(name=auto.name, mode=mode, why_not=why, choice=choice)

    def _begin(self, auto: AutoRedrive, lease: Lease, now: datetime) -> None:
        look = self.look(auto, now)
        if auto.is_on and look.choice.held:
            self._store.automations.hold(lease, auto.name, look.choice.held, now)
        if look.why_not:
            logger.debug("automatic redrive %s: %s", auto.name, look.why_not)
            return
        planned = self._operation(auto, look.choice, now)
        begun = self._store.automations.begin(
            lease, auto.name, look.choice.letters, planned, mode=look.mode,
            repair=described(planned.orders.repair, self._context.redactor),
        )  # fmt: skip
        if begun:
            logger.info(
                "automatic redrive %s %s %d letters: operation %s", auto.name,
                "sends" if auto.is_on else "would send", len(look.choice.letters), planned.id,
            )  # fmt: skip

    def _operation(self, auto: AutoRedrive, choice: Choice, now: datetime) -> Operation:
        # A letter that has failed since it was chosen failed later than this, and is not taken.
        failed_by = now - timedelta(seconds=auto.after_s)
        wanted = Filter(
            ids=tuple(one.task_id for one in choice.letters), states=frozenset({State.DEAD}),
            until=failed_by + _TICK,
        )  # fmt: skip
        orders = auto.orders_for(len(choice.letters))
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

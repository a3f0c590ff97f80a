"""Runs the automatic redrives of an app: looks for letters, begins runs, and stops them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.errors import OperationError
from celery_dlq.model.auto_redrive import (
    AutoMode,
    AutoRun,
    AutoState,
    AutoStatus,
    actor_of,
    auto_of,
)
from celery_dlq.model.operation import ENDED, OperationState
from celery_dlq.model.states import State
from celery_dlq.redrive.context import RedriveContext, app_and_broker_of
from celery_dlq.redrive.lifecycle import Operations
from celery_dlq.redrive.repair import described
from celery_dlq.retry.policy import Uniform, uniform
from celery_dlq.store.base import Filter, Lease, Operation
from celery_dlq.store.tenure import TRY_S, Tenure
from celery_dlq.upkeep.auto_redrive import conditions
from celery_dlq.upkeep.auto_redrive.chooser import Choice, Chooser
from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive
from celery_dlq.upkeep.periodic import Leased

logger: logging.Logger = get_logger(__name__)

#: Seconds between two looks by the worker with the lease, at least.
LOOK_S = 0.5

#: The upper bound of a filter is the first moment that it leaves out.
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class Look:
    """The result of one look of an automatic redrive for letters."""

    name: str
    mode: AutoMode
    #: Why it did not look, or did not begin a run; empty if it began one.
    why_not: str = ""
    choice: Choice
    #: The run that it began.
    run: AutoRun | None = None


class AutoRedriveEngine:
    """The automatic redrives of an app.

    The settings name them in the order in which they come first. All must be loaded: the tasks of the app
    that they name are looked up.

    :raises SettingsError: a definition does not fit the app.
    """

    def __init__(self, context: RedriveContext, operations: Operations) -> None:
        self._context, self._operations = context, operations
        self._store, self._settings = context.store, context.settings
        self._now = context.clock.now
        self.autos: dict[Any, Any] = {auto.name: auto for auto in context.settings.auto_redrive}
        conditions.check_definitions(context.app, context.settings)

    def run(self, lease: Lease) -> float:
        """Give each automatic redrive its turn; returns the seconds until the next round.

        :raises StoreError: the store failed.
        """
        now, statuses = self._now(), self._store.auto_redrives.statuses()
        self._stop_unfinished()
        due_in_s = [self._turn(auto, statuses, lease, now) for auto in self.autos.values()]
        return min(due_in_s, default=TRY_S)

    def look(self, name: str, now: datetime) -> Look:
        """The look that ``name`` would have if it were its turn at ``now``. Nothing is sent or changed;
        the probe is not run.

        :raises StoreError: the store failed.
        """
        return self._look(self.autos[name], now)

    def must_stop(self, operation: Operation) -> bool:
        """Whether a running operation may send nothing more because it belongs to an automatic redrive whose
        conditions no longer hold. If so, it is cancelled: letters that were not sent stay dead, and are
        chosen again.

        :raises StoreError: the store failed.
        """
        name = auto_of(operation.who)
        if not name:
            return False
        why = conditions.why_stopped(self._store.auto_redrives.statuses(), name)
        # The worker that began it may have other settings.
        auto = self.autos.get(name)
        if auto is not None and not why:
            why = conditions.why_not_now(self._store, auto, operation, self._now())
        if why:
            # It may just have ended in another way.
            with contextlib.suppress(OperationError):
                self._store.operations.move(
                    operation.id, OperationState.CANCELLED,
                    who=actor_of(name), cause=why, now=self._now(),
                )  # fmt: skip
        return bool(why)

    def _stop_unfinished(self) -> None:
        """Cancel operations that may send nothing more, also those that no worker runs."""
        for operation_id in self._store.auto_redrives.unfinished():
            operation = self._store.operations.get(operation_id)
            if operation is not None and operation.state not in ENDED:
                self.must_stop(operation)

    def _turn(
        self, auto: AutoRedrive, statuses: dict[str, AutoStatus], lease: Lease, now: datetime
    ) -> float:
        """Let ``auto`` look for letters if that is due; returns the seconds until the next round."""
        status = statuses.get(auto.name, AutoStatus(name=auto.name))
        due_at = auto.when.next_start(status.looked_at, now)
        if due_at > now:
            return min(TRY_S, (due_at - now).total_seconds())
        if conditions.why_stopped(statuses, auto.name) or auto.when.why_closed(now):
            return TRY_S
        store = self._store
        if not store.auto_redrives.looked(lease, auto.name, now):
            return TRY_S
        why = conditions.why_suspend(store, auto, status)
        if why:
            self._suspend(auto, why, now)
        else:
            self._begin(auto, lease, now)
        next_s = (auto.when.next_start(now, now) - now).total_seconds()
        return min(TRY_S, next_s)

    def _begin(self, auto: AutoRedrive, lease: Lease, now: datetime) -> None:
        look = self._look(auto, now)
        if auto.is_on and look.choice.held:
            self._store.auto_redrives.hold(lease, auto.name, look.choice.held, now)
        if look.why_not:
            logger.debug("automatic redrive %s: %s", auto.name, look.why_not)
            return
        fingerprints = set(look.choice.letters.values())
        why = conditions.why_too_many(self._store, auto, fingerprints, now)
        if why:
            self._suspend(auto, why, now)
            return
        why = conditions.why_probe_failed(self._context.app, auto.require) if auto.is_on else ""
        if why:
            logger.warning("automatic redrive %s does not run: %s", auto.name, why)
            return
        self._write(auto, look.choice, lease, now)

    def _write(self, auto: AutoRedrive, choice: Choice, lease: Lease, now: datetime) -> None:
        planned = self._operation(auto, choice, now)
        run = AutoRun(
            id=planned.id,
            name=auto.name,
            mode=AutoMode(auto.mode),
            at=now,
            letters=len(choice.letters),
        )
        begun = self._store.auto_redrives.begin(
            lease, run, choice.letters, planned if auto.is_on else None,
            repair=described(planned.orders.repair, self._context.redactor),
        )  # fmt: skip
        if not begun:
            return
        logger.info(
            "automatic redrive %s %s %d letters: %s %s", auto.name,
            "sends" if auto.is_on else "would send", run.letters,
            "operation" if auto.is_on else "shadow run", run.id,
        )  # fmt: skip

    def _operation(self, auto: AutoRedrive, choice: Choice, now: datetime) -> Operation:
        # A letter that has failed since it was chosen failed later than this, and is not taken.
        failed_by = now - timedelta(seconds=auto.after_s)
        wanted = Filter(
            ids=tuple(choice.letters), states=frozenset({State.DEAD}), until=failed_by + _TICK
        )
        orders = auto.orders_for(len(choice.letters))
        return self._operations.draft(wanted, orders, who=actor_of(auto.name), detached=True)

    def _look(self, auto: AutoRedrive, now: datetime) -> Look:
        mode = AutoMode(auto.mode)
        size, why = self._room(auto, mode, now)
        if not size:
            return Look(name=auto.name, mode=mode, why_not=why, choice=Choice())
        names = list(self.autos)
        earlier = [self.autos[name] for name in names[: names.index(auto.name)]]
        choice = Chooser(self._context, auto, earlier=earlier).choose(now, size)
        why = "" if choice.letters else "no letter is due"
        return Look(name=auto.name, mode=mode, why_not=why, choice=choice)

    def _room(self, auto: AutoRedrive, mode: AutoMode, now: datetime) -> tuple[int, str]:
        """How many letters a run may take now; if none, the reason."""
        store = self._store
        if store.auto_redrives.unfinished(auto.name):
            return 0, "its last operation has not ended"
        sends = store.auto_redrives.sends(auto.name, mode, now)
        day = auto.limits.per_day - sends.day
        hour = self._settings.auto_redrive_budget - sends.hour_of_all
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
        changed = self._store.auto_redrives.set_state(
            auto.name, AutoState.SUSPENDED, who=who, why=why, now=now
        )
        if changed:
            logger.error(
                "automatic redrive %s has suspended itself: %s. After a fix: "
                "celery -A <app> dlq auto resume %s", auto.name, why, auto.name,
            )  # fmt: skip


class AutoRedriveThread(Leased):
    """Runs the automatic redrives of an app while it has the lease.

    :param wake: called when an operation was begun.
    """

    does = "automatic redrives"
    stopped = "automatic redrives do not run"
    again = "automatic redrives run again"

    def __init__(
        self, dlq: Any, holder: str, *, wake: Callable[[], object], draw: Uniform = uniform
    ) -> None:
        tenure = Tenure(lambda: dlq.store, lease_of(dlq.app), holder)
        super().__init__(dlq.store_health, tenure, draw=draw)
        self._dlq, self._wake = dlq, wake

    def work(self, lease: Lease) -> float:
        """Begin the runs that are due, and end those that are over."""
        wait_s = float(self._dlq.auto_redrives.run(lease))
        self._wake()
        return max(LOOK_S, wait_s)


def lease_of(app: Any) -> str:
    """The name of the lease of the automatic redrives of ``app``. Apps that share a store have their own
    settings, and so their own leases."""
    here = app_and_broker_of(app)
    digest = hashlib.blake2b(f"{here.app}\0{here.broker}".encode(), digest_size=8)
    return f"auto.{digest.hexdigest()}"

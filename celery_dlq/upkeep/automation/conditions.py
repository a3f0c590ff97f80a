"""The conditions under which an automation works: before a run, and while its letters are sent."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.base.known import unknown_name
from celery_dlq.errors import SettingsError, page
from celery_dlq.model.automation import EVERY, AutoState, AutoStatus
from celery_dlq.model.operation import SendingState
from celery_dlq.model.worker import Circuits
from celery_dlq.redrive.letter.functions import functions_of
from celery_dlq.store.base import Operation
from celery_dlq.upkeep.automation.definition import AutoRedrive
from celery_dlq.upkeep.parked import is_overdue

if TYPE_CHECKING:
    from celery_dlq.settings import Settings
    from celery_dlq.store import Store


_DOCS = page("auto-redrive")


def check_definitions(app: Any, settings: Settings, handlers: Container[str] = ()) -> None:
    """Check all automatic redrives against the repairs, the handlers and the settings of ``app``. It does not
    need the store.

    :param handlers: the names of the handlers.
    :raises SettingsError: the requirements of one of them can never hold, it names an unknown repair, or a
        handler has its name.
    """
    repairs = functions_of(app).repairs
    for auto in settings.auto_redrive:
        problems = []
        if auto.require.new_release and not settings.release:
            problems.append("require.new_release needs dlq_release, which is not set.")
        named = auto.orders.repair.function
        if named and named not in repairs:
            problems.append(f"orders: {unknown_name('a repair of this app', named, repairs)}")
        if auto.name in handlers:
            problems.append("A handler has the same name.")
        if problems:
            raise SettingsError(
                f"dlq_auto_redrive: {auto.name!r} can never run. {' '.join(problems)} See {_DOCS}."
            )


def why_not_again(app: Any, task: str) -> str | None:
    """Why messages of ``task`` that were running when their worker was killed may not be sent back; None if
    they may."""
    if getattr(app.tasks[task], "dlq_idempotent", False):
        return None
    return f"{task} may have done its work already; if it may run twice, set dlq_idempotent = True"


def open_circuits(store: Store) -> Mapping[str, str]:
    """The tasks whose circuit is not closed, each with the reason for people. A circuit of one key counts for
    its task, because the key of a letter is known only to the code of the task.

    :raises StoreError: the store failed.
    """
    seen: Circuits = store.circuits.read_open()
    return {
        circuit.task: f"the circuit of {circuit.task} is {circuit.state.value.replace('_', ' ')}"
        for circuit in seen.circuits
        if not is_overdue(circuit, seen.now)
    }


def why_stopped(statuses: dict[str, AutoStatus], name: str) -> str:
    """Why the automation ``name`` may not run: it, or all of them, were stopped. Empty if it may."""
    for key, subject in ((EVERY, "all automations are"), (name, "it is")):
        status = statuses.get(key)
        if status is not None and status.state is not AutoState.ACTIVE:
            why = f": {status.why}" if status.why else ""
            return f"{subject} {status.state.value} by {status.who}{why}"
    return ""


def why_not_now(store: Store, auto: AutoRedrive, operation: Operation, now: datetime) -> str:
    """Why ``auto`` may not send more of its running operation; empty if it may.

    :raises StoreError: the store failed.
    """
    closed = auto.when.why_closed(now)
    if closed or not auto.require.closed_circuit:
        return closed
    circuits = open_circuits(store)
    tasks = store.counts.by_task(operation.wanted) if circuits else ()
    return next((circuits[task] for task in tasks if task in circuits), "")


def why_suspend(store: Store, auto: AutoRedrive, status: AutoStatus) -> str:
    """Why ``auto`` has to stop because of its own redrives; empty if it may continue. Outcomes from before
    the state was last set do not count.

    :raises StoreError: the store failed.
    """
    aborted = store.automations.aborted(auto.name, since=status.at)
    if aborted is not None:
        operation_id, cause = aborted
        return f"operation {operation_id} was aborted: {cause}"
    outcomes = store.automations.outcomes(auto.name, since=status.at, limit=auto.suspend.of_last)
    succeeded = sum(outcome is SendingState.SUCCEEDED for outcome in outcomes)
    least = auto.suspend.success_below * len(outcomes)
    if len(outcomes) >= auto.suspend.of_last and succeeded < least:
        return (
            f"{succeeded} of its last {len(outcomes)} redrives succeeded, fewer than "
            f"{auto.suspend.success_below:.0%}"
        )
    return ""

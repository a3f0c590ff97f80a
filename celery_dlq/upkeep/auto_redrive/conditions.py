"""The conditions under which an automatic redrive sends: before a run, and while it sends."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery.backends.base import DisabledBackend
from celery.exceptions import TimeoutError as ResultTimeout

from celery_dlq.errors import SettingsError, page
from celery_dlq.known import unknown_name
from celery_dlq.model.auto_redrive import EVERY, AutoState, AutoStatus
from celery_dlq.model.operation import SendingState
from celery_dlq.model.worker import Circuits
from celery_dlq.redrive.functions import functions_of
from celery_dlq.store.base import Operation
from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive, Requirements
from celery_dlq.upkeep.parked import is_overdue

if TYPE_CHECKING:
    from celery_dlq.settings import Settings
    from celery_dlq.store import Store


_DOCS = page("auto-redrive")
#: Seconds after which a probe that no worker has started is dropped, in addition to its time.
_START_S = 60.0
#: Arrivals are counted by the hour of the clock. Two of them include the last hour.
_HOURS = 2


def check_definitions(app: Any, settings: Settings) -> None:
    """Check all automatic redrives against the tasks, the repairs and the settings of ``app``. It does not
    need the store.

    :raises SettingsError: the requirements of one of them can never hold, or it names an unknown repair.
    """
    repairs = functions_of(app).repairs
    for auto in settings.auto_redrive:
        problems = list(_problems(auto.require, app, settings.release))
        named = auto.orders.repair.function
        if named and named not in repairs:
            problems.append(f"orders: {unknown_name('a repair of this app', named, repairs)}")
        if problems:
            raise SettingsError(
                f"dlq_auto_redrive: {auto.name!r} can never run. {' '.join(problems)} See {_DOCS}."
            )


def _problems(require: Requirements, app: Any, release: str) -> Iterator[str]:
    if require.new_release and not release:
        yield "require.new_release needs dlq_release, which is not set."
    if not require.probe:
        return
    if require.probe not in app.tasks:
        yield f"require.probe names {require.probe!r}, which is not a task of this app."
    if isinstance(app.backend, DisabledBackend):
        yield "require.probe needs a result backend; set result_backend."


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


def why_probe_failed(app: Any, require: Requirements) -> str:
    """Run the probe and wait for it; returns why it failed, or an empty text."""
    if not require.probe:
        return ""
    try:
        sent = app.tasks[require.probe].apply_async(
            expires=require.probe_timeout_s + _START_S, ignore_result=False, retry=False
        )
    except Exception as error:  # noqa: BLE001 - a broker's client may raise anything
        return f"the probe {require.probe} could not be sent ({type(error).__name__}: {error})"
    try:
        sent.get(timeout=require.probe_timeout_s, disable_sync_subtasks=False)
    except ResultTimeout:
        return f"the probe {require.probe} did not end in {require.probe_timeout_s:g} s"
    except Exception as error:  # noqa: BLE001 - whatever the task raises
        return f"the probe {require.probe} failed ({type(error).__name__}: {error})"
    finally:
        _forget(sent)
    return ""


def _forget(sent: Any) -> None:
    try:
        sent.forget()
    except Exception:  # noqa: BLE001 - some backends cannot, and the result expires
        return


def why_stopped(statuses: dict[str, AutoStatus], name: str) -> str:
    """Why the automatic redrive ``name`` may not run: it, or all of them, were stopped. Empty if it may."""
    for key, subject in ((EVERY, "all automatic redrives are"), (name, "it is")):
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
    aborted = store.auto_redrives.aborted(auto.name, since=status.at)
    if aborted is not None:
        operation_id, cause = aborted
        return f"operation {operation_id} was aborted: {cause}"
    outcomes = store.auto_redrives.outcomes(auto.name, since=status.at, limit=auto.suspend.of_last)
    succeeded = sum(outcome is SendingState.SUCCEEDED for outcome in outcomes)
    least = auto.suspend.success_below * len(outcomes)
    if len(outcomes) >= auto.suspend.of_last and succeeded < least:
        return (
            f"{succeeded} of its last {len(outcomes)} redrives succeeded, fewer than "
            f"{auto.suspend.success_below:.0%}"
        )
    return ""


def why_too_many(
    store: Store, auto: AutoRedrive, fingerprints: Collection[str], now: datetime
) -> str:
    """Why ``auto`` has to stop because its letters arrive faster than allowed; empty if they do not.

    :raises StoreError: the store failed.
    """
    most = auto.suspend.arrivals_above
    if most is None or not fingerprints:
        return ""
    trends = store.groups.trends(sorted(fingerprints), now=now, hours=_HOURS)
    for fingerprint, hours in trends.items():
        if max(hours) > most:
            return f"{max(hours)} letters of group {fingerprint} arrived within an hour, more than {most}"
    return ""

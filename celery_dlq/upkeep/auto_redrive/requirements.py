"""The conditions that must hold before an automatic redrive sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from celery.backends.base import DisabledBackend
from celery.exceptions import TimeoutError as ResultTimeout

from celery_dlq.errors import SettingsError, page
from celery_dlq.model.circuit import Circuits
from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive, Requirements
from celery_dlq.upkeep.parked import is_overdue

if TYPE_CHECKING:
    from celery_dlq.store import Store

_DOCS = page("auto-redrive")
#: Seconds after which a probe that no worker has started is dropped, in addition to its time.
_START_S = 60.0


def check_for_app(auto: AutoRedrive, app: Any, release: str) -> None:
    """Check the requirements of ``auto`` against the tasks and settings of ``app``.

    :param release: the value of ``dlq_release``.
    :raises SettingsError: they can never hold.
    """
    problems = list(_problems(auto.require, app, release))
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

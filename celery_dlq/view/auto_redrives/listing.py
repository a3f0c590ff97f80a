"""Automatic redrives as screens show them: definition, state, next look and last run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.model.auto_redrive import EVERY, AutoMode, AutoRun, AutoState, AutoStatus
from celery_dlq.model.group import Group
from celery_dlq.store.base import Operation
from celery_dlq.upkeep.auto_redrive.conditions import why_stopped
from celery_dlq.upkeep.auto_redrive.definition import NAME_LIMIT
from celery_dlq.view.text import counted
from celery_dlq.view.times import iso

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive
    from celery_dlq.upkeep.auto_redrive.runner import Look
    from celery_dlq.upkeep.auto_redrive.suggesting import Suggestion


@dataclass(frozen=True, kw_only=True)
class SeenAuto:
    """An automatic redrive, and what the store knows of it."""

    auto: AutoRedrive
    status: AutoStatus
    #: Why it may not run; empty if it may.
    stopped: str
    #: Its own state, or that of all together if that stops it.
    state: AutoState
    #: When a worker looks for its letters next; None while it is stopped.
    next_look: datetime | None
    last_run: AutoRun | None
    #: How many open letters it holds.
    held: int


@dataclass(frozen=True, kw_only=True)
class SeenRun:
    """A run of an automatic redrive, and its operation."""

    run: AutoRun
    #: None for a shadow run, and after the operation was removed.
    operation: Operation | None


@dataclass(frozen=True, kw_only=True)
class SeenSuggestion:
    """A suggestion, and its group."""

    suggestion: Suggestion
    #: None if the group has no letters any more.
    group: Group | None

    @property
    def exception_type(self) -> str:
        """The exception of the group; empty if it has no letters any more."""
        return "" if self.group is None else self.group.exception_type

    @property
    def open_count(self) -> int:
        """How many letters of the group are open."""
        return 0 if self.group is None else self.group.open_count


def seen_autos(store: Store, autos: Sequence[AutoRedrive], now: datetime) -> list[SeenAuto]:
    """``autos`` as they stand at ``now``.

    :raises StoreError: the store failed.
    """
    statuses, held = store.auto_redrives.statuses(), store.auto_redrives.count_held()
    return [_seen(store, auto, statuses, held.get(auto.name, 0), now) for auto in autos]


def seen_auto(store: Store, auto: AutoRedrive, now: datetime) -> SeenAuto:
    """``auto`` as it stands at ``now``.

    :raises StoreError: the store failed.
    """
    [seen] = seen_autos(store, [auto], now)
    return seen


def seen_runs(store: Store, name: str | None, *, limit: int) -> list[SeenRun]:
    """The latest runs with their operations, the newest first.

    :param name: only those of this automatic redrive.
    :raises StoreError: the store failed.
    """
    return [seen_run(store, run) for run in store.auto_redrives.runs(name, limit=limit)]


def seen_run(store: Store, run: AutoRun) -> SeenRun:
    """A run with its operation.

    :raises StoreError: the store failed.
    """
    return SeenRun(run=run, operation=store.operations.get(run.id))


def run_summary(run: AutoRun) -> str:
    """What a run did, in a sentence."""
    letters = counted(run.letters, "letter")
    if run.mode is AutoMode.SHADOW:
        return f"It would have sent {letters}. Nothing was sent or changed."
    return f"It chose {letters} to send."


def subject(name: str | None) -> str:
    """The subject of a sentence about one automatic redrive, or about all of them."""
    return "All automatic redrives are" if name in (None, EVERY) else f"Automatic redrive {name} is"


def in_the_way(seen: SeenAuto, now: datetime) -> list[str]:
    """Why a worker would not let it look for letters at ``now``; empty if it would."""
    return [why for why in (seen.stopped, seen.auto.when.why_closed(now)) if why]


def auto_record(seen: SeenAuto) -> dict[str, Any]:
    """An automatic redrive in a list."""
    status, last = seen.status, seen.last_run
    return {
        "name": seen.auto.name,
        "mode": AutoMode(seen.auto.mode).value,
        "state": seen.state.value,
        "stopped": seen.stopped or None,
        "state_at": _maybe_iso(status.at),
        "state_by": status.who,
        "state_why": status.why,
        "owner": seen.auto.owner,
        "last_look_at": _maybe_iso(status.looked_at),
        "next_look_at": _maybe_iso(seen.next_look),
        "last_run_at": None if last is None else iso(last.at),
        "last_run_letters": None if last is None else last.letters,
        "held": seen.held,
    }


def whole_auto_record(seen: SeenAuto, runs: Sequence[SeenRun]) -> dict[str, Any]:
    """An automatic redrive with its definition and its latest runs."""
    auto = seen.auto
    return {
        **auto_record(seen),
        "where": auto.where.to_dict(),
        "all": auto.all,
        "after_s": auto.after_s,
        "when": asdict(auto.when),
        "require": asdict(auto.require),
        "orders": auto.orders.to_dict(),
        "limits": asdict(auto.limits),
        "suspend": asdict(auto.suspend),
        "runs": [run_record(run) for run in runs],
    }


def run_record(seen: SeenRun) -> dict[str, Any]:
    """A run of an automatic redrive, and the outcome of its operation."""
    run, operation = seen.run, seen.operation
    return {
        "id": run.id,
        "name": run.name,
        "mode": run.mode.value,
        "at": iso(run.at),
        "letters": run.letters,
        "state": None if operation is None else operation.state.value,
        "cause": None if operation is None else operation.cause,
        "counts": None if operation is None else operation.counts.to_dict(),
    }


def look_record(look: Look, in_the_way: Sequence[str]) -> dict[str, Any]:
    """What an automatic redrive would do.

    :param in_the_way: why a worker would not do it now.
    """
    choice = look.choice
    return {
        "name": look.name,
        "mode": look.mode.value,
        "not_now": list(in_the_way),
        "why_not": look.why_not or None,
        "letters": list(choice.letters),
        "waiting": dict(choice.waiting),
        "held": dict(choice.held),
    }


def seen_suggestions(
    store: Store, suggestions: Sequence[Suggestion], now: datetime
) -> list[SeenSuggestion]:
    """``suggestions`` with their groups.

    :raises StoreError: the store failed.
    """
    return [
        SeenSuggestion(suggestion=one, group=store.groups.get(one.fingerprint, now=now))
        for one in suggestions
    ]


def suggestion_record(seen: SeenSuggestion) -> dict[str, Any]:
    """A suggestion, with an automatic redrive that follows it."""
    suggestion = seen.suggestion
    return {
        "fingerprint": suggestion.fingerprint,
        "task": suggestion.task,
        "exception_type": seen.exception_type,
        "open_count": seen.open_count,
        "after_s": suggestion.after_s,
        "redrives": suggestion.older.redrives,
        "succeeded": suggestion.older.succeeded,
        "younger_redrives": suggestion.younger.redrives,
        "younger_succeeded": suggestion.younger.succeeded,
        "definition": definition_text(seen),
    }


def definition_text(seen: SeenSuggestion) -> str:
    """The Python code of an automatic redrive that follows a suggestion; in shadow mode."""
    suggestion = seen.suggestion
    parts = (suggestion.task, seen.exception_type)
    words = [part.rpartition(".")[2].lower() for part in parts if part]
    name = "-".join([*words, suggestion.fingerprint[:4]])[-NAME_LIMIT:].lstrip("-")
    return (
        f'AutoRedrive("{name}", where=Filter(group="{suggestion.fingerprint}"), '
        f'after_s={suggestion.after_s}, mode="shadow")'
    )


def _seen(
    store: Store, auto: AutoRedrive, statuses: Mapping[str, AutoStatus], held: int, now: datetime
) -> SeenAuto:
    status = statuses.get(auto.name, AutoStatus(name=auto.name))
    every = statuses.get(EVERY, AutoStatus(name=EVERY))
    stopped = why_stopped(dict(statuses), auto.name)
    # A look that is overdue is due now.
    due = None if stopped else max(now, auto.when.next_start(status.looked_at, now))
    return SeenAuto(
        auto=auto,
        status=status,
        stopped=stopped,
        state=every.state if status.state is AutoState.ACTIVE else status.state,
        next_look=due,
        last_run=next(iter(store.auto_redrives.runs(auto.name, limit=1)), None),
        held=held,
    )


def _maybe_iso(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)

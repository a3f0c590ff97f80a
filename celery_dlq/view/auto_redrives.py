"""Automatic redrives as screens show them, as records and in words: the definition, the state, the next look
and the last run of each. Screens leave out facts without a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.model.auto_redrive import (
    EVERY,
    AutoMode,
    AutoRun,
    AutoState,
    AutoStatus,
    HeldLetter,
)
from celery_dlq.store.base import Operation
from celery_dlq.upkeep.auto_redrive.conditions import why_stopped
from celery_dlq.view.operations import named_values
from celery_dlq.view.records import as_record
from celery_dlq.view.text import Fact as Fact
from celery_dlq.view.text import counted
from celery_dlq.view.text import given as given
from celery_dlq.view.times import duration, iso, maybe_iso

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive, Requirements, Suspension
    from celery_dlq.upkeep.auto_redrive.runner import Look

#: The title of the facts about a letter that is held.
HELD = "Held: only a person redrives it"

#: The sentences for lists that are empty.
NO_AUTO_REDRIVES = "This app has no automatic redrives. Next: set dlq_auto_redrive"
NO_RUN = "It has chosen no letters yet."
NO_RUNS = "No automatic redrive has chosen letters yet."


@dataclass(frozen=True, kw_only=True)
class SeenAuto:
    """An automatic redrive with its state in the store."""

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

    @property
    def word(self) -> str:
        """Its state for people: one in shadow mode sends nothing, so it is not active."""
        is_shadow = self.state is AutoState.ACTIVE and self.auto.mode == AutoMode.SHADOW
        return AutoMode.SHADOW.value if is_shadow else self.state.value


@dataclass(frozen=True, kw_only=True)
class SeenRun:
    """A run of an automatic redrive, and its operation."""

    run: AutoRun
    #: None for a shadow run, and after the operation was removed.
    operation: Operation | None


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
    """The result of a run, in a sentence."""
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
        "state_at": maybe_iso(status.at),
        "state_by": status.who,
        "state_why": status.why,
        "owner": seen.auto.owner,
        "last_look_at": maybe_iso(status.looked_at),
        "next_look_at": maybe_iso(seen.next_look),
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
        **as_record(run),
        "state": None if operation is None else operation.state.value,
        "cause": None if operation is None else operation.cause,
        "counts": None if operation is None else operation.counts.to_dict(),
    }


def look_record(look: Look, in_the_way: Sequence[str]) -> dict[str, Any]:
    """The result of a dry run of an automatic redrive.

    :param in_the_way: why a worker would not do it now.
    """
    return {
        **as_record(look, ("name", "mode")),
        "not_now": list(in_the_way),
        "why_not": look.why_not or None,
        "letters": list(look.choice.letters),
        **as_record(look.choice, ("waiting", "held")),
    }


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


def definition(auto: AutoRedrive) -> list[Fact]:
    """Which letters it takes, when, and how many."""
    limits, when = auto.limits, auto.when
    return [
        ("Name", auto.name),
        ("Mode", AutoMode(auto.mode).value),
        ("Owner", auto.owner),
        ("Letters", named_values(auto.where.to_dict()) or "every dead letter"),
        ("First redrive", f"{duration(auto.after_s)} after the failure" if auto.after_s else "at once"),
        ("Per letter", f"{counted(limits.per_letter, 'time')}, each wait {limits.growth:g} times longer"),
        ("Per run", counted(limits.per_run, "letter")),
        ("Per day", counted(limits.per_day, "letter")),
        ("Share of a group", None if limits.share_of_group >= 1 else f"{limits.share_of_group:.0%}"),
        ("Looks", f"at {when.cron}" if when.cron else f"every {duration(when.every_s)}"),
        ("Hours", when.hours),
        ("Quiet", ", ".join(when.quiet)),
        ("Time zone", when.timezone),
    ]  # fmt: skip


def conditions(auto: AutoRedrive) -> list[Fact]:
    """The conditions under which it sends, and when it stops by itself."""
    return [
        ("Requires", ", ".join(_required(auto.require))),
        ("Suspends itself", " or ".join(_suspending(auto.suspend))),
    ]


def state(seen: SeenAuto) -> list[Fact]:
    """Its state, who set it, and its next look."""
    status = seen.status
    return [
        ("State", seen.word),
        ("Stopped", seen.stopped),
        ("Set by", status.who),
        ("Because", status.why),
        ("Since", status.at),
        ("Last look", status.looked_at),
        ("Next look", seen.next_look),
        ("Held", counted(seen.held, "open letter")),
    ]


def holding(held: HeldLetter) -> list[Fact]:
    """Which automatic redrive holds a letter, why, and since when."""
    return [("By automatic redrive", held.name), ("Because", held.why), ("Since", held.at)]


def waiting(look: Look) -> list[tuple[int, str]]:
    """How many letters match and wait, by reason, the most first."""
    return sorted(((n, why) for why, n in look.choice.waiting.items()), key=lambda row: -row[0])


def look_summary(look: Look) -> str:
    """The result of a look in a dry run, in a sentence."""
    if look.why_not and not look.choice.letters:
        return f"It would send nothing: {look.why_not}. Nothing was sent or changed."
    verb = "send" if look.mode is AutoMode.ON else "record, and not send,"
    letters = counted(len(look.choice.letters), "letter")
    return f"It would {verb} {letters}. Nothing was sent or changed."


def _suspending(suspend: Suspension) -> Iterator[str]:
    yield f"below {suspend.success_below:.0%} successes of its last {suspend.of_last:,} redrives"
    if suspend.arrivals_above is not None:
        yield f"above {suspend.arrivals_above:,} new letters of a group within an hour"


def _required(require: Requirements) -> Iterator[str]:
    if require.closed_circuit:
        yield "closed circuits"
    if require.new_release:
        yield "another release than that of the failure"
    if require.probe:
        yield f"a success of {require.probe} within {duration(require.probe_timeout_s)}"

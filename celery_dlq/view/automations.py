"""Automations as screens show them, as records and in words: the definition, the state, the next look, and
the letters that each has had. Screens leave out facts without a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from celery_dlq.model.automation import EVERY, AutoMode, AutoState, AutoStatus, HeldLetter
from celery_dlq.model.handling import Handling, HandlingState
from celery_dlq.upkeep.automation.conditions import why_stopped
from celery_dlq.upkeep.automation.definition import AutoRedrive
from celery_dlq.view.fields import Field, as_record, facts_in, record_of
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import Fact as Fact
from celery_dlq.view.text import counted
from celery_dlq.view.text import given as given
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.upkeep.automation.definition import Handler, Requirements
    from celery_dlq.upkeep.automation.redriver import Look

#: The title of the facts about a letter that is held.
HELD = "Held: only a person redrives it"

#: The part of an automation's screen that is in this list of facts.
STATE = "state"

#: The facts about an automation in a list.
AUTOMATION: Sequence[Field] = (
    Field("name", read=attrgetter("auto.name")),
    Field("kind"),
    Field("mode", read=lambda seen: seen.redrive and AutoMode(seen.redrive.mode)),
    Field("state", "State", STATE, said=attrgetter("word")),
    Field("stopped", "Stopped", STATE, lambda seen: seen.stopped or None),
    Field("state_at", "Since", STATE, attrgetter("status.at")),
    Field("state_by", "Set by", STATE, attrgetter("status.who")),
    Field("state_why", "Because", STATE, attrgetter("status.why")),
    Field("owner", read=lambda seen: seen.redrive.owner if seen.redrive else ""),
    Field("last_look_at", "Last look", STATE, attrgetter("status.looked_at")),
    Field("next_look_at", "Next look", STATE, attrgetter("next_look")),
    Field("letters", read=lambda seen: {one.value: seen.counts.get(one, 0) for one in HandlingState}),
    Field("", "Letters", STATE, attrgetter("letters")),
    Field("held", "Held", STATE, said=lambda seen: seen.redrive and counted(seen.held, "open letter")),
)  # fmt: skip

#: The sentences for lists that are empty.
NO_AUTOMATIONS = (
    "This app has no automatic redrives and no handlers. Next: set dlq_auto_redrive, or use "
    "@dlq.handler"
)
NO_LETTERS = "It has had no letters yet."

#: The fields of a definition in its record.
_OF_HANDLER = "version", "timeout", "per_hour", "once_per_group", "queue"

Automation: TypeAlias = "AutoRedrive | Handler"


@dataclass(frozen=True, kw_only=True)
class AutoWithStatus:
    """An automatic redrive or a handler with its state in the store."""

    auto: Automation
    status: AutoStatus
    #: Why it may not run; empty if it may.
    stopped: str
    #: Its own state, or that of all together if that stops it.
    state: AutoState
    #: When a worker looks for the letters of an automatic redrive next; None while it is stopped.
    next_look: datetime | None
    #: How many letters it has had, by state.
    counts: Mapping[HandlingState, int]
    #: How many open letters it holds.
    held: int

    @property
    def redrive(self) -> AutoRedrive | None:
        """The automatic redrive; None for a handler."""
        return self.auto if isinstance(self.auto, AutoRedrive) else None

    @property
    def kind(self) -> str:
        """Whether it redrives, or calls a function."""
        return "handler" if self.redrive is None else "redrive"

    @property
    def word(self) -> str:
        """Its state for people: one in shadow mode sends nothing, so it is not active."""
        is_shadow = self.redrive is not None and self.redrive.mode == AutoMode.SHADOW
        is_only_shadow = is_shadow and self.state is AutoState.ACTIVE
        return AutoMode.SHADOW.value if is_only_shadow else self.state.value

    @property
    def letters(self) -> str:
        """How many letters it has had, by state."""
        states = [(self.counts.get(state, 0), state.value) for state in HandlingState]
        return ", ".join(f"{number:,} {state}" for number, state in states if number)


def autos_with_status(
    store: Store, autos: Sequence[Automation], now: datetime
) -> list[AutoWithStatus]:
    """``autos`` as they stand at ``now``.

    :raises StoreError: the store failed.
    """
    if not autos:
        return []
    statuses, held = store.automations.statuses(), store.automations.count_held()
    counts = store.automations.count([auto.name for auto in autos])
    every, found = statuses.get(EVERY, AutoStatus(name=EVERY)), list[AutoWithStatus]()
    for auto in autos:
        status = statuses.get(auto.name, AutoStatus(name=auto.name))
        stopped, next_look = why_stopped(statuses, auto.name), None
        if isinstance(auto, AutoRedrive) and not stopped:
            # A look that is overdue is due now.
            next_look = max(now, auto.when.next_start(status.looked_at, now))
        state = every.state if status.state is AutoState.ACTIVE else status.state
        found.append(
            AutoWithStatus(
                auto=auto, status=status, stopped=stopped, state=state, next_look=next_look,
                counts=counts[auto.name], held=held.get(auto.name, 0),
            )
        )  # fmt: skip
    return found


def auto_with_status(store: Store, auto: Automation, now: datetime) -> AutoWithStatus:
    """``auto`` as it stands at ``now``.

    :raises StoreError: the store failed.
    """
    [seen] = autos_with_status(store, [auto], now)
    return seen


def subject(name: str | None) -> str:
    """The subject of a sentence about one automation, or about all of them."""
    return "All automations are" if name in (None, EVERY) else f"{name} is"


def in_the_way(seen: AutoWithStatus, now: datetime) -> list[str]:
    """Why a worker would not let it look for letters at ``now``; empty if it would."""
    closed = "" if seen.redrive is None else seen.redrive.when.why_closed(now)
    return [why for why in (seen.stopped, closed) if why]


def auto_record(seen: AutoWithStatus) -> dict[str, Any]:
    """An automation in a list."""
    return record_of(AUTOMATION, seen)


def whole_auto_record(seen: AutoWithStatus, latest: Sequence[Handling]) -> dict[str, Any]:
    """An automation with its definition and the latest letters that it had."""
    auto, redrive = seen.auto, seen.redrive
    if redrive is None:
        own = as_record(auto, _OF_HANDLER)
    else:
        own = {
            "after_s": redrive.after_s,
            "when": asdict(redrive.when),
            "require": asdict(redrive.require),
            "orders": redrive.orders.to_dict(),
            "limits": asdict(redrive.limits),
            "suspend": asdict(redrive.suspend),
        }
    return {
        **auto_record(seen),
        "where": auto.where.to_dict(),
        "all": auto.all,
        **own,
        "latest": [*map(as_record, latest)],
    }


def look_record(look: Look, in_the_way: Sequence[str]) -> dict[str, Any]:
    """The result of a trial of an automatic redrive.

    :param in_the_way: why a worker would not do it now.
    """
    return {
        **as_record(look, ("name", "mode")),
        "not_now": list(in_the_way),
        "why_not": look.why_not or None,
        "letters": [one.task_id for one in look.letters],
        **as_record(look, ("waiting", "held")),
    }


def definition(auto: Automation) -> list[Fact]:
    """Which letters it takes, when, and how many."""
    where = named_values(auto.where.to_dict()) or "every dead letter"
    if not isinstance(auto, AutoRedrive):
        return [
            ("Name", auto.name),
            ("Version", auto.version),
            ("Letters", where),
            ("Groups", "one letter of each" if auto.once_per_group else None),
            ("Timeout", duration(auto.timeout)),
            ("Per hour", counted(auto.per_hour, "call")),
            ("Queue", auto.queue),
        ]
    limits, when = auto.limits, auto.when
    return [
        ("Name", auto.name),
        ("Mode", AutoMode(auto.mode).value),
        ("Owner", auto.owner),
        ("Letters", where),
        ("First redrive", f"{duration(auto.after_s)} after the failure" if auto.after_s else "at once"),
        ("Per letter", f"{counted(limits.per_letter, 'time')}, each wait {limits.growth:g} times longer"),
        ("Per run", counted(limits.per_run, "letter")),
        ("Per day", counted(limits.per_day, "letter")),
        ("Looks", f"at {when.cron}" if when.cron else f"every {duration(when.every_s)}"),
        ("Hours", when.hours),
        ("Quiet", ", ".join(when.quiet)),
        ("Time zone", when.timezone),
    ]  # fmt: skip


def conditions(auto: AutoRedrive) -> list[Fact]:
    """The conditions under which it sends, and when it stops by itself."""
    suspend = auto.suspend
    return [
        ("Requires", ", ".join(_required(auto.require))),
        (
            "Suspends itself",
            f"below {suspend.success_below:.0%} successes of its last {suspend.of_last:,} redrives",
        ),
    ]


def state(seen: AutoWithStatus) -> list[Fact]:
    """Its state, who set it, its next look, and the letters that it had."""
    return facts_in(AUTOMATION, seen, (STATE,))


def holding(held: HeldLetter) -> list[Fact]:
    """Which automatic redrive holds a letter, why, and since when."""
    return [("By automatic redrive", held.name), ("Because", held.why), ("Since", held.at)]


def waiting(look: Look) -> list[tuple[int, str]]:
    """How many letters match and wait, by reason, the most first."""
    return sorted(((n, why) for why, n in look.waiting.items()), key=lambda row: -row[0])


def look_summary(look: Look) -> str:
    """The result of a look in a dry run, in a sentence."""
    if look.why_not and not look.letters:
        return f"It would send nothing: {look.why_not}. Nothing was sent or changed."
    verb = "send" if look.mode is AutoMode.ON else "record, and not send,"
    letters = counted(len(look.letters), "letter")
    return f"It would {verb} {letters}. Nothing was sent or changed."


def _required(require: Requirements) -> Iterator[str]:
    if require.closed_circuit:
        yield "closed circuits"
    if require.new_release:
        yield "another release than that of the failure"

"""Automatic redrives in words: their definitions, their states, and what they would do. Facts without a value
are left out by the screens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.model.auto_redrive import AutoMode, HeldLetter
from celery_dlq.view.auto_redrives.listing import SeenAuto
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import counted
from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive, Requirements, Suspension
    from celery_dlq.upkeep.auto_redrive.runner import Look

#: A name and its value. A value of None or '' is not shown.
Fact = tuple[str, str | int | datetime | None]

#: What it means that a letter is held.
HELD = "Held: only a person redrives it"

#: The sentences for what is missing.
NO_AUTO_REDRIVES = "This app has no automatic redrives. Next: set dlq_auto_redrive"
NO_RUN = "It has chosen no letters yet."
NO_RUNS = "No automatic redrive has chosen letters yet."


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
    """What must hold before it sends, and when it stops by itself."""
    return [
        ("Requires", ", ".join(_required(auto.require))),
        ("Suspends itself", " or ".join(_suspending(auto.suspend))),
    ]


def state(seen: SeenAuto) -> list[Fact]:
    """Its state, who set it, and its next look."""
    status = seen.status
    return [
        ("State", seen.state.value),
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


def given(facts: Iterable[Fact]) -> list[Fact]:
    """The facts that have a value."""
    return [(name, value) for name, value in facts if value not in (None, "")]


def waiting(look: Look) -> list[tuple[int, str]]:
    """How many letters match and wait, by reason, the most first."""
    return sorted(((n, why) for why, n in look.choice.waiting.items()), key=lambda row: -row[0])


def look_summary(look: Look) -> str:
    """What a look would do, in a sentence."""
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

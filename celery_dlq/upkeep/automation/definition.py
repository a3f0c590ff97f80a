"""The definition of an automatic redrive, as users write it in ``dlq_auto_redrive``, with its timetable; and
that of a handler, whose checks are nearly the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, time, timedelta, timezone
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from celery_dlq.base.known import names_its_fields
from celery_dlq.errors import OrdersError, SettingsError
from celery_dlq.hooks.event import find_hook
from celery_dlq.model.automation import AutoMode
from celery_dlq.model.handling import HandlerLetter, HandlerVerdict
from celery_dlq.model.operation import Orders
from celery_dlq.model.states import State
from celery_dlq.redrive.orders import check_orders
from celery_dlq.settings.validation import BOOLEAN, TEXT, Allowed, is_number, number, refuse, whole
from celery_dlq.store.base import Filter, Scope

#: The longest pause between two runs, and between two automatic redrives of a letter, in seconds: a year.
_LONGEST_S = 31_536_000.0
_EVERY_S = number(1.0, _LONGEST_S)


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Timetable:
    """The times at which an automatic redrive runs. Times of day are those of ``timezone``.

    :raises SettingsError: a value that is not allowed. The error names it.
    """

    #: Seconds from one run to the next.
    every_s: float = 300.0
    #: A cron expression, instead of ``every_s``. A time that was missed, because no worker ran, is made up
    #: for once.
    cron: str = ""
    #: The hours in which it may send, such as ``"22:00-06:00"``; empty for all.
    hours: str = ""
    #: Hours in which it does not send, although ``hours`` allows it.
    quiet: tuple[str, ...] = ()
    #: The name of a time zone of the IANA database.
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        subject = "The timetable of an automatic redrive"
        refuse(subject, _timetable_problems(self), "auto-redrive")

    def next_start(self, last: datetime | None, now: datetime) -> datetime:
        """The first time after the run at ``last`` at which the next one may start; ``now`` if it has not
        run yet. The hours are not looked at."""
        if last is None or last > now:
            # The clock was set back. Waiting for the old time might take long.
            return now
        if not self.cron:
            return last + timedelta(seconds=self.every_s)
        local = last.astimezone(self._zone)
        return next(CronSim(self.cron, local)).astimezone(timezone.utc)

    def why_closed(self, now: datetime) -> str:
        """Why nothing may be sent at ``now``; empty if it may."""
        local = now.astimezone(self._zone)
        if self.hours and not _read_hours(self.hours).include(local.time()):
            return f"it is outside its hours ({self.hours} {self.timezone})"
        for window in self.quiet:
            if _read_hours(window).include(local.time()):
                return f"it is a quiet time ({window} {self.timezone})"
        return ""

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


@dataclass(frozen=True)
class _Hours:
    """Hours of a day; they may include midnight. The start is included, the end is not."""

    start: time
    end: time

    def include(self, moment: time) -> bool:
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


def _read_hours(text: str) -> _Hours:
    start, end = (time.fromisoformat(part.strip()) for part in text.split("-"))
    if start == end:
        raise ValueError("the two times are the same")
    return _Hours(start, end)


def _timetable_problems(when: Timetable) -> Iterator[str]:
    if not _EVERY_S.accepts(when.every_s):
        yield f"every_s must be {_EVERY_S.words}, not {when.every_s!r}."
    if not _is_zone(when.timezone):
        yield (
            f"timezone must be the name of a time zone, such as 'Europe/Berlin', not {when.timezone!r}."
        )
    if when.cron:
        yield from _cron_problems(when.cron)
    if when.hours:
        yield from _window_problems("hours", when.hours)
    if isinstance(when.quiet, str):
        yield f"quiet must be a list of hours, not {when.quiet!r}."
        return
    for window in when.quiet:
        yield from _window_problems("quiet", window)


def _is_zone(name: Any) -> bool:
    try:
        return bool(ZoneInfo(name))
    except Exception:  # noqa: BLE001 - it raises many kinds for names that are not zones
        return False


def _cron_problems(text: Any) -> Iterator[str]:
    try:
        next(CronSim(text, datetime(2026, 1, 1, tzinfo=timezone.utc)))
    except StopIteration:
        yield f"cron = {text!r} names a time that never comes."
    except (CronSimError, AttributeError) as error:
        yield (
            f"cron = {text!r} is not a cron expression ({error}); use minute, hour, day, month and "
            "weekday, such as '*/10 22-23 * * 1-5'."
        )


def _window_problems(name: str, text: Any) -> Iterator[str]:
    try:
        _read_hours(text)
    except (ValueError, AttributeError, TypeError) as error:
        yield f"{name} must be hours like '22:00-06:00', not {text!r} ({error})."


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much an automatic redrive may send."""

    #: Automatic redrives of one letter; after them, the letter is held for a person.
    per_letter: int = 3
    #: How many times longer a letter waits after each automatic redrive.
    growth: float = 2.0
    #: Letters of one run.
    per_run: int = 500
    #: Letters within 24 hours.
    per_day: int = 10_000


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Suspension:
    """When an automatic redrive stops by itself, until a person resumes it. It also stops when the guard or
    the canary of one of its operations has aborted that operation."""

    #: Stop when less than this share of its last outcomes are successes ...
    success_below: float = 0.5
    #: ... which are this many.
    of_last: int = 20


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Conditions that must hold before a run, and while it sends."""

    #: The circuits of the letters' tasks are closed. A task without a breaker has none.
    closed_circuit: bool = False
    #: The letter failed in another release than ``dlq_release``.
    new_release: bool = False


@names_its_fields(SettingsError)
@dataclass(frozen=True)
class AutoRedrive:
    """Letters that are redriven by themselves, and under which conditions.

    :raises SettingsError: a value that is not allowed. The error names it.
    """

    #: Names it in commands, in the audit and in metrics.
    name: str
    _: KW_ONLY
    #: The letters; the same filter as that of ``dlq list``.
    where: Filter
    #: Seconds from the last failure of a letter to its first automatic redrive.
    after_s: float = 900.0
    when: Timetable = field(default_factory=Timetable)
    require: Requirements = field(default_factory=Requirements)
    #: How it sends: rate, canary, guard, checks, repairs; as for ``dlq redrive``.
    orders: Orders = field(default_factory=Orders)
    limits: Limits = field(default_factory=Limits)
    suspend: Suspension = field(default_factory=Suspension)
    #: ``"on"``, or ``"shadow"`` to record the letters that it would send.
    mode: AutoMode | str = AutoMode.ON
    #: Who looks after it.
    owner: str = ""
    #: Whether a filter that restricts nothing is meant.
    all: bool = False

    def __post_init__(self) -> None:
        refuse(f"dlq_auto_redrive: {self.name!r}", _problems(self), "auto-redrive")
        object.__setattr__(self, "mode", AutoMode(self.mode))

    @property
    def scope(self) -> Scope:
        """The letters that it may take, as the store chooses them."""
        # A process that only sends messages imports this module, and not the rest of the redrive.
        from celery_dlq.redrive.plan import redrivable

        return Scope(name=self.name, where=redrivable(self.where).only(State.DEAD))

    @property
    def is_on(self) -> bool:
        """Whether it sends."""
        return self.mode is AutoMode.ON

    def pause_s(self, tries: int) -> float:
        """Seconds that a letter waits after its failure, and after its last try."""
        growing = self.after_s * self.limits.growth ** min(tries, self.limits.per_letter)
        return min(growing, _LONGEST_S)

    def orders_for(self, count: int) -> Orders:
        """The orders of an operation over ``count`` letters. A canary is smaller than that."""
        pacing = self.orders.pacing
        canary = min(pacing.canary, count)
        return replace(
            self.orders,
            pacing=replace(pacing, canary=canary),
            why=self.orders.why or f"automatic redrive {self.name}",
        )


class Automation(Protocol):
    """The choice of letters that automatic redrives and handlers have in common."""

    @property
    def name(self) -> str:
        """Names it in commands, in the audit and in metrics."""

    @property
    def where(self) -> Filter:
        """The letters that it gets, as far as they are dead."""

    @property
    def all(self) -> bool:
        """Whether a filter that restricts nothing is meant."""


def problems_of(one: Automation, allowed: Mapping[str, Allowed]) -> Iterator[str]:
    """The problems of a definition, as sentences.

    :param allowed: the allowed values of its own fields, by their place in the definition.
    """
    for place, values in {**_COMMON, **allowed}.items():
        try:
            value = attrgetter(place)(one)
        except AttributeError:  # its parent has the wrong type, which is a problem of its own
            continue
        if not values.accepts(value):
            yield f"{place} must be {values.words}, not {value!r}."
    if not isinstance(one.where, Filter):
        return
    if not one.where.restricts and not one.all:
        yield "where matches every letter; restrict it, or give all=True."
    if one.where.restricts and one.all:
        yield "all=True and where contradict each other; leave one of them out."
    others = ", ".join(sorted(state.value for state in one.where.states - {State.DEAD}))
    if others:
        yield f"where.states has {others}; only dead letters are chosen, so leave it out."


def _problems(auto: AutoRedrive) -> Iterator[str]:
    yield from problems_of(auto, _ALLOWED)
    if isinstance(auto.orders, Orders):
        yield from _order_problems(auto.orders)


def _order_problems(orders: Orders) -> Iterator[str]:
    try:
        check_orders(orders)
    except OrdersError as error:
        yield str(error)
    if orders.pacing.limit is not None:
        yield "orders.pacing.limit cannot be set; use limits.per_run."
    if not orders.guard.enabled:
        yield "orders.guard cannot be switched off."


def _of_type(kind: type) -> Allowed:
    return Allowed(f"a {kind.__name__}", lambda value: isinstance(value, kind))


#: A share that is not empty.
_SHARE = Allowed(
    "a number above 0 and at most 1", lambda value: is_number(value) and 0 < value <= 1
)

#: The name must fit into its columns, and needs no quotes on a command line.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COMMON: Mapping[str, Allowed] = {
    "name": Allowed(
        "a name of 1 to 64 letters, digits, dots, - and _",
        lambda value: isinstance(value, str) and bool(_NAME.fullmatch(value)),
    ),
    "where": Allowed("a celery_dlq.Filter", lambda value: isinstance(value, Filter)),
    "all": BOOLEAN,
}

_ALLOWED: Mapping[str, Allowed] = {
    "when": _of_type(Timetable),
    "require": _of_type(Requirements),
    "orders": _of_type(Orders),
    "limits": _of_type(Limits),
    "suspend": _of_type(Suspension),
    "owner": _of_type(str),
    "after_s": number(0.0, _LONGEST_S),
    "mode": Allowed("'on' or 'shadow'", lambda value: value in tuple(AutoMode)),
    "limits.per_letter": whole(1, 20),
    "limits.per_run": whole(1, 5_000),
    "limits.per_day": whole(1, 10_000_000),
    "limits.growth": number(1.0, 100.0),
    "suspend.success_below": _SHARE,
    "suspend.of_last": whole(1, 10_000),
}


HandlerFunction = Callable[[HandlerLetter], HandlerVerdict]

_HANDLER_ALLOWED: Mapping[str, Allowed] = {
    "timeout": number(1, 3_600, "seconds"),
    "version": Allowed(
        "a string of 1 to 64 characters",
        lambda value: isinstance(value, str) and bool(value.strip()) and len(value) <= 64,
    ),
    "per_hour": whole(1, 1_000_000),
    "once_per_group": BOOLEAN,
    "queue": Allowed(
        "a non-empty string, or None", lambda value: value is None or TEXT.accepts(value)
    ),
}


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A function of the user, and which dead letters it gets.

    :raises SettingsError: a value is not allowed, or the values contradict each other. The error has all
        problems.
    """

    name: str
    function: HandlerFunction
    where: Filter
    #: Whether it gets every dead letter; ``where`` is empty then.
    all: bool
    #: Seconds that a call may take.
    timeout: float
    #: It is called once for each failure of a letter and each version.
    version: str
    #: How often it is called within an hour.
    per_hour: int
    #: Whether it gets one letter of each group. Only such a handler may return a ticket or an escalation.
    once_per_group: bool
    #: The queue of its messages; None means ``dlq_handler_queue``.
    queue: str | None = None

    def __post_init__(self) -> None:
        shown = self.name if isinstance(self.name, str) else repr(self.name)
        problems = (*problems_of(self, _HANDLER_ALLOWED), *self._missing())
        refuse(f"Handler {shown}", problems, "repair-and-escalate")
        find_hook(self.function)

    @property
    def scope(self) -> Scope:
        """The letters that it gets, as the store chooses them."""
        return Scope(
            name=self.name, version=self.version, where=self.where,
            once_per_group=self.once_per_group,
        )  # fmt: skip

    def _missing(self) -> Iterator[str]:
        # Without this check it would open its tickets first, and its verdicts would be refused afterwards.
        if getattr(self.function, "opens_tickets", False) is True and not self.once_per_group:
            kind = type(self.function).__name__
            yield f"{kind} opens one ticket for each group; give once_per_group=True."

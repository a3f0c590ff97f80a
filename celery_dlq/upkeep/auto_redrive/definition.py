"""The definition of an automatic redrive, as users write it in ``dlq_auto_redrive``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from operator import attrgetter

from celery_dlq.errors import OrdersError, SettingsError, page
from celery_dlq.known import names_its_fields
from celery_dlq.model.auto_redrive import EVERY, AutoMode
from celery_dlq.model.operation import Orders
from celery_dlq.model.states import State
from celery_dlq.redrive.orders import check_orders
from celery_dlq.settings.validation import Allowed, is_number, number, whole
from celery_dlq.store.filter import Filter
from celery_dlq.upkeep.auto_redrive.timetable import Timetable

_DOCS = page("auto-redrive")
#: Characters of a name: with the prefix of its lease it must fit into a column of 64.
NAME_LIMIT = 40
#: The longest pause between two automatic redrives of a letter, in seconds: a year.
_LONGEST_S = 31_536_000.0


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
    #: Share of a group's open letters that one run may take, but at least one letter.
    share_of_group: float = 1.0


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Suspension:
    """When an automatic redrive stops by itself, until a person resumes it. It also stops when the guard or
    the canary of one of its operations has aborted that operation."""

    #: Stop when less than this share of its last outcomes are successes ...
    success_below: float = 0.5
    #: ... which are this many.
    of_last: int = 20
    #: Stop when more letters than this arrived in a group within an hour; None for any number.
    arrivals_above: int | None = None


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Conditions that must hold before a run, and while it sends."""

    #: The circuits of the letters' tasks are closed. A task without a breaker has none.
    closed_circuit: bool = False
    #: The letter failed in another release than ``dlq_release``.
    new_release: bool = False
    #: The name of a task that is run before each run of the automatic redrive, and has to succeed.
    probe: str = ""
    #: Seconds that the probe may take.
    probe_timeout_s: float = 10.0


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
        problems = list(_problems(self))
        if problems:
            raise SettingsError(
                f"dlq_auto_redrive: {self.name!r} is not valid. {' '.join(problems)} See {_DOCS}."
            )
        object.__setattr__(self, "mode", AutoMode(self.mode))

    @property
    def letters(self) -> Filter:
        """The letters that it may take."""
        # A process that only sends messages imports this module, and not the rest of the redrive.
        from celery_dlq.redrive.plan import redrivable

        return redrivable(self.where).only(State.DEAD)

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


def _problems(auto: AutoRedrive) -> Iterator[str]:
    name = auto.name
    if not isinstance(name, str) or not name.strip() or name == EVERY or len(name) > NAME_LIMIT:
        yield f"The name must be a text of 1 to {NAME_LIMIT} characters other than {EVERY!r}."
    for place, allowed in _ALLOWED.items():
        try:
            value = attrgetter(place)(auto)
        except AttributeError:  # its parent has the wrong type, which is a problem of its own
            continue
        if not allowed.accepts(value):
            yield f"{place} must be {allowed.words}, not {value!r}."
    if isinstance(auto.where, Filter):
        yield from _filter_problems(auto)
    if isinstance(auto.orders, Orders):
        yield from _order_problems(auto.orders)


def _filter_problems(auto: AutoRedrive) -> Iterator[str]:
    if not auto.where.restricts and not auto.all:
        yield "where matches every letter; restrict it, or add all=True."
    if auto.where.states - {State.DEAD}:
        named = ", ".join(sorted(state.value for state in auto.where.states))
        yield f"where names the states {named}; only dead letters are redriven by themselves."


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
_ARRIVALS = whole(1, 1_000_000_000)

#: The allowed values, by their place in the definition.
_ALLOWED: Mapping[str, Allowed] = {
    "where": _of_type(Filter),
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
    "limits.share_of_group": _SHARE,
    "suspend.success_below": _SHARE,
    "suspend.of_last": whole(1, 10_000),
    "suspend.arrivals_above": Allowed(
        _ARRIVALS.words, lambda value: value is None or _ARRIVALS.accepts(value)
    ),
    # A probe must end before the lease does.
    "require.probe_timeout_s": number(0.1, 15.0),
    "require.probe": Allowed("the name of a task", lambda value: isinstance(value, str)),
}

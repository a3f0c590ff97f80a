"""A filter chooses letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from celery_dlq.base.codec import read_record, record_of
from celery_dlq.base.known import names_its_fields, unknown_name
from celery_dlq.base.redact import LONGEST, REDACTED
from celery_dlq.errors import FilterError
from celery_dlq.model.states import OPEN_STATES, WAITING_REASONS, Reason, State, Verdict

_Word = TypeVar("_Word", bound=Enum)

#: The fields that have one word, or several, and the words that they may have.
_WORD: Mapping[str, type[Enum]] = {"reason": Reason, "verdict": Verdict}
_WORDS: Mapping[str, type[Enum]] = {"without_reasons": Reason, "states": State}

#: The fields that no index covers.
_UNINDEXED = ("worker", "release", "tag", "verdict", "rule", "search")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a task, by which letters are chosen."""

    #: The name of a keyword argument or the position of a positional one; then the keys inside of it, after
    #: dots. Places in a list are left out: ``order.items.sku``.
    path: str
    value: str
    #: The tasks that have a parameter of this name (the first part of the path), and its position in each:
    #: they may be called with the argument in that position instead.
    positions: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> Argument:
        """The argument of ``path=value``.

        :raises FilterError: it is not of this form.
        """
        path, sign, value = text.partition("=")
        if not (sign and path.strip() and value.strip()):
            raise FilterError(
                f"{text[:80]!r} is not an argument; write its name, =, and its value, as in order_id=4711."
            )
        return cls(path=path.strip(), value=value.strip())

    def __str__(self) -> str:
        return f"{self.path}={self.value}"

    @property
    def name(self) -> str:
        """The first part of the path."""
        return self.path.partition(".")[0]

    @property
    def is_by_position(self) -> bool:
        """Whether it is named by its position in the call."""
        return self.name.isdecimal()

    def path_at(self, position: int) -> str:
        """The path in a call with the argument in this position."""
        return f"{position}{self.path.removeprefix(self.name)}"


@names_its_fields(FilterError)
@dataclass(frozen=True, kw_only=True)
class Filter:
    """A choice of letters. Empty fields do not restrict it; a letter has to match all others.

    ``task`` and ``exception`` take a full dotted name or its last part. ``group``, ``worker`` and
    ``rule`` take a whole value or its beginning, so that ``http.`` stands for ``http.status`` and
    ``http.network``. The other texts take a whole value. A reason, a verdict or a state may be given by
    its value, such as ``"timeout"``.

    :raises FilterError: a reason, a verdict or a state is unknown, or ``since`` is not before ``until``.
    """

    ids: tuple[str, ...] = ()
    task: str | None = None
    exception: str | None = None
    reason: Reason | None = None
    #: Reasons left out.
    without_reasons: frozenset[Reason] = frozenset()
    queue: str | None = None
    #: Empty means the open states; with a reason of messages that wait in the store, also ``PARKED``.
    states: frozenset[State] = frozenset()
    group: str | None = None
    #: The name of a route that the last failure is on.
    route: str | None = None
    #: The id of an operation that the letters were in.
    operation: str | None = None
    #: Bounds of the last failure: since inclusive, until exclusive.
    since: datetime | None = None
    until: datetime | None = None
    worker: str | None = None
    #: The release whose code failed last.
    release: str | None = None
    #: One of the letter's tags.
    tag: str | None = None
    #: The id of the first task of a canvas. All letters of the canvas match, also that of the first task.
    root: str | None = None
    #: The verdict on the last failure, and the rule that decided.
    verdict: Verdict | None = None
    rule: str | None = None
    #: Only letters that no automatic redrive touches again.
    held: bool = False
    #: The namespace of the app in which it failed, if this process sees several.
    namespace: str | None = None
    #: Arguments that a letter has.
    args: tuple[Argument, ...] = ()
    #: Values that a letter has, in its arguments or in its message.
    values: tuple[str, ...] = ()
    #: Text in message, exception type, task, or displayed arguments; case does not count (SQLite
    #: knows the case of ASCII letters only).
    search: str | None = None

    def __post_init__(self) -> None:
        for name, kind in _WORD.items():
            value = getattr(self, name)
            object.__setattr__(self, name, _member(kind, value) if value else None)
        for name, kind in _WORDS.items():
            words = frozenset(_member(kind, value) for value in getattr(self, name))
            object.__setattr__(self, name, words)
        self._check_values()
        if self.since and self.until and self.since >= self.until:
            raise FilterError(
                f"--since {self.since.isoformat()} is not before --until {self.until.isoformat()}; "
                "swap them or give only one."
            )

    def _check_values(self) -> None:
        for value in (*self.values, *(argument.value for argument in self.args)):
            if not 0 < len(value.strip()) <= LONGEST:
                raise FilterError(
                    f"A value has 1 to {LONGEST} characters, not {len(value.strip()):,}; search for a part "
                    "of a longer text."
                )

    def before(self, moment: datetime) -> Filter:
        """This filter, without letters that failed at ``moment`` or later."""
        return replace(self, until=min(self.until or moment, moment))

    @property
    def wanted_states(self) -> frozenset[State]:
        """The named states; otherwise those that an empty choice means."""
        waiting = {State.PARKED} if self.reason in WAITING_REASONS else frozenset[State]()
        return self.states or OPEN_STATES | waiting

    @property
    def restricts(self) -> bool:
        """Whether any field restricts the letters."""
        return bool(self.given)

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that restrict."""
        return frozenset(item.name for item in fields(self) if getattr(self, item.name))

    def chooses_group(self, fingerprint: str) -> bool:
        """Whether it names this group, by its fingerprint or a prefix of it."""
        return bool(self.group) and fingerprint.startswith(self.group or "")

    @property
    def asks_for_values(self) -> bool:
        """Whether it asks for values that letters have."""
        return bool(self.args or self.values)

    @property
    def indexed(self) -> Filter:
        """This filter without the fields that no index covers. A search for such a field checks the letters
        one after the other. Values are such fields, too, unless few letters have them."""
        nothing: dict[str, Any] = dict.fromkeys(_UNINDEXED)
        return replace(self, args=(), values=(), **nothing)

    def only(self, state: State) -> Filter:
        """This filter, for letters in ``state`` only."""
        return replace(self, states=frozenset({state}))

    @property
    def noted(self) -> Filter:
        """This filter without the values of arguments by position, which have no name that would say
        whether they are secrets."""
        args = (replace(one, value=REDACTED) if one.is_by_position else one for one in self.args)
        return replace(self, args=tuple(args))

    def to_dict(self) -> dict[str, Any]:
        """The fields that restrict, in JSON-able form."""
        return {name: value for name, value in record_of(self).items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Filter:
        """The inverse of :meth:`to_dict`."""
        return read_record(cls, data)


def _member(kind: type[_Word], value: Any) -> _Word:
    try:
        return kind(value)
    except ValueError:
        known = (item.value for item in kind)
        said = unknown_name(f"a {kind.__name__.lower()}", str(value), known)
        raise FilterError(said) from None

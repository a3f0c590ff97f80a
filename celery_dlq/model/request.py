"""Acts that need a second person: the rule which acts do, the request that such an act becomes, and who may
approve it."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from celery_dlq.base.known import names_its_fields
from celery_dlq.errors import SettingsError
from celery_dlq.model.route import names_task
from celery_dlq.model.states import State
from celery_dlq.settings.validation import NAMES, is_number, refuse

#: The acts that may need a second person.
ACTS = ("redrive", "delete", "forget", "edit")

#: The longest time for which a request waits, in seconds: a year.
_LONGEST_S = 31_536_000

#: The end of a name that basic authentication in Flower has proved.
FROM_FLOWER = " (flower)"


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Approval:
    """Which acts of people need the approval of a second person.

    :raises SettingsError: a value that is not allowed. The error names it.
    """

    #: Acts of these kinds.
    acts: Collection[str] = ACTS
    #: Only if they are about more letters than this.
    above: int = 0
    #: Only if a letter of one of these tasks is among them: full names, or their last parts. Empty for all.
    tasks: Collection[str] = ()
    #: Seconds after which a request that waits expires.
    expires_after_s: float = 86_400

    def __post_init__(self) -> None:
        refuse("dlq_approval", _problems(self), "second-person")
        object.__setattr__(self, "acts", frozenset(self.acts))
        object.__setattr__(self, "tasks", frozenset(self.tasks))

    def wants(self, act: str, count: int, tasks: Collection[str]) -> bool:
        """Whether an act on ``count`` letters of ``tasks`` needs a second person."""
        is_meant = not self.tasks or any(
            names_task(one, task) for one in self.tasks for task in tasks
        )
        return act in self.acts and count > self.above and is_meant


def _problems(rule: Approval) -> Iterator[str]:
    for name in ("acts", "tasks"):
        given = getattr(rule, name)
        is_set = isinstance(given, (set, frozenset, list, tuple))
        if not is_set or not NAMES.accepts(tuple(given)):
            yield f"{name} must be a set of names, not {given!r}."
        elif name == "acts" and not set() < {*given} <= {*ACTS}:
            yield f"acts must name some of {', '.join(ACTS)}, not {given!r}."
    if type(rule.above) is not int or rule.above < 0:
        yield f"above must be a whole number from 0, not {rule.above!r}."
    if not is_number(rule.expires_after_s) or not 1 <= rule.expires_after_s <= _LONGEST_S:
        yield f"expires_after_s must be from 1 to {_LONGEST_S} seconds, not {rule.expires_after_s!r}."


class Login(str):
    """The name of a person, which a login has proved. Any other text is a name that anyone may give."""

    __slots__ = ()


def is_same_person(one: str, other: str) -> bool:
    """Whether two names may be those of one person: case and the ending of Flower's do not count."""
    return _bare(one) == _bare(other)


def _bare(name: str) -> str:
    bare = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    while bare.endswith(FROM_FLOWER):
        bare = bare.removesuffix(FROM_FLOWER)
    return bare


class RequestState(str, Enum):
    """The state of a request."""

    #: It waits for approval.
    OPEN = "open"
    REFUSED = "refused"
    EXPIRED = "expired"
    #: It was approved, and its act was carried out, or begun: by an operation, or an erasure.
    DONE = "done"
    #: It was approved, and nothing could be done; the result says why.
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a person to a request."""

    who: str
    at: datetime
    approves: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """An act that waits for a second person, or that waited for one. Its plan is frozen."""

    #: 12 hexadecimal digits. The operation of an approved redrive has the same id.
    id: str
    #: One of :data:`ACTS`.
    act: str
    state: RequestState
    #: The person who asked for it, and whether a login proved the name.
    who: str
    proven: bool
    #: The machine from which it was asked for.
    host: str
    why: str
    at: datetime
    expires_at: datetime
    #: The letters by task id, each with its version at that time.
    letters: Mapping[str, str]
    #: The states of letters that the act takes.
    states: tuple[State, ...]
    #: The orders of a redrive, the new parts of a message, or the conditions of an erasure; and what people
    #: may see of it. Empty after it has ended.
    changes: Mapping[str, Any]
    shown: Mapping[str, Any]
    answers: tuple[Answer, ...] = ()
    #: The operation, the number of letters, and ``left_out``: letters that had changed, each with the reason.
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many letters it is about."""
        return len(self.letters)

    @property
    def needed(self) -> int:
        """How many different logins have to approve it. The first one may be that of the requester, if
        no login has proved the requester's name."""
        return 1 if self.proven else 2

    @property
    def approvers(self) -> list[str]:
        """The names of the people who have approved it."""
        return [one.who for one in self.answers if one.approves]

    def shown_at(self, now: datetime) -> Request:
        """The request as it is at ``now``: one that waited too long has expired."""
        is_over = self.state is RequestState.OPEN and self.expires_at <= now
        return replace(self, state=RequestState.EXPIRED) if is_over else self

    def why_not_approved(self, who: str) -> str:
        """Why ``who`` may not approve it; empty if ``who`` may."""
        if self.why_ended:
            return self.why_ended
        if not isinstance(who, Login):
            return (
                f"No login proves the name {who}. Approve it in Flower after you have logged in, under Dead "
                "letters and Requests"
            )
        if is_same_person(who, self.who):
            return f"{who} asked for it; another person has to approve it"
        if any(is_same_person(who, other) for other in self.approvers):
            return f"{who} has approved it already; another login has to approve it, too"
        return ""

    @property
    def why_ended(self) -> str:
        """Why it cannot be answered any more; empty if it waits for an answer."""
        if self.state is RequestState.OPEN:
            return ""
        if self.state is RequestState.EXPIRED:
            return "It has expired; ask for the act again"
        if self.state is RequestState.FAILED:
            return f"Nothing was done: {self.result['why']}; ask for the act again"
        word = "refused" if self.state is RequestState.REFUSED else "approved"
        by = " and ".join(one.who for one in self.answers if one.approves is (word == "approved"))
        return (
            f"It was already {word}{f' by {by}' * bool(by)}; ask for the act again if it is needed"
        )

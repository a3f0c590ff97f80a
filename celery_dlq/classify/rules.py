"""The classifier: is an exception worth another attempt, and which rule says so.

One exception is asked about in this order: the user's rules; for types that no library's row knows, an
SQLSTATE, a flag or an HTTP status that it carries; the built-in rows for its classes, the most specific
first. Where all of them are silent the exception is a wrapper, and what it wraps or was caused by is
asked next. When nothing decides, the verdict is terminal.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from celery_dlq.classify.builtin import CAREFUL_PROBES, CARRIED, GENERIC_PROBES, ROOT_CAUSES, TABLE
from celery_dlq.classify.chain import (
    ROOT_CAUSE_LIMIT,
    Budget,
    Link,
    causes,
    members,
    reachable,
    walk,
)
from celery_dlq.classify.custom import Rule, rules_for
from celery_dlq.classify.evidence import may_have, shown_name
from celery_dlq.classify.foreign import begin
from celery_dlq.classify.raised import said, subject
from celery_dlq.classify.schedule import Schedule
from celery_dlq.classify.table import Entry, Finding
from celery_dlq.classify.wait import retry_after, seconds_until
from celery_dlq.errors import SettingsError
from celery_dlq.letter import Explanation
from celery_dlq.redact import clip, safe_text
from celery_dlq.settings import Settings
from celery_dlq.states import Verdict

logger = logging.getLogger(__name__)

#: The rule that decides when no other does.
DEFAULT_RULE = "default"

_TEXT_LIMIT = 500


@dataclass(frozen=True)
class Decision:
    """What the classifier says of an exception, and why."""

    verdict: Verdict
    #: Stable id of the built-in rule that decided, or the name of a user's rule.
    rule: str
    #: One line naming what was read, such as ``status=503 from response.status_code``.
    evidence: str = ""
    #: Type names from the raised exception to the one that decided, joined by ``<-``.
    path: str = ""
    #: Seconds to wait before the next attempt at least; None when nobody says.
    retry_after: float | None = None
    #: Whether the other side asked for that wait, which then uses up no attempt.
    throttled: bool = False
    #: The attempts and waits of the rule that decided, before those of the task.
    schedule: Schedule | None = None

    def explanation(self) -> Explanation:
        """The form that is stored with a letter: bounded, and free of what databases refuse."""
        return Explanation(
            verdict=self.verdict,
            rule=_storable(self.rule),
            evidence=_storable(self.evidence),
            path=_storable(self.path),
        )


class _Ruling(NamedTuple):
    """A finding, and the exception it is about."""

    finding: Finding
    link: Link


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Classifier:
    """Decides about exceptions. Immutable; :meth:`with_rules` makes another one.

    :param rules: the user's rules, asked in this order before the built-in ones.
    :param now: the clock that a date in ``Retry-After`` is compared with.
    """

    rules: tuple[Rule, ...] = ()
    now: Callable[[], datetime] = field(default=_utc_now, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))

    @classmethod
    def from_settings(cls, settings: Settings) -> Classifier:
        """``dlq_terminal``, then ``dlq_transient``, then ``dlq_rules``, then the built-in rules.

        :raises SettingsError: one of the settings names no exception, or holds something else.
        """
        for rule in settings.rules:
            if not isinstance(rule, Rule):
                raise SettingsError(f"dlq_rules holds {rule!r}; give celery_dlq.Rule objects only.")
        return cls(
            (
                *rules_for(settings.terminal, Verdict.TERMINAL, "dlq_terminal"),
                *rules_for(settings.transient, Verdict.TRANSIENT, "dlq_transient"),
                *settings.rules,
            )
        )

    def with_rules(self, *rules: Rule) -> Classifier:
        """A classifier that asks ``rules`` before the rules of this one."""
        return Classifier((*rules, *self.rules), now=self.now)

    def decide(self, exc: BaseException) -> Decision:
        """The verdict on ``exc``. Never raises, imports nothing, does no I/O.

        It comes within a second or so, whatever the properties of the exception do.
        """
        try:
            begin()
            start = Link(exc)
            ruling = self._judge(start, TABLE.look_up(type(exc)))
            return self._decision(ruling) if ruling is not None else self._combine(start)
        except BaseException as error:
            # Raising here would hide the task's own error.
            logger.warning("Classification failed; please report it.", exc_info=True)
            evidence = f"classification failed with {shown_name(type(error))}"
            return Decision(Verdict.TERMINAL, DEFAULT_RULE, evidence)

    def _combine(self, start: Link) -> Decision:
        """Transient if there is a line and every one is; the longest wait counts."""
        rulings: list[_Ruling] = []
        for ruling in self._lines(start):
            if ruling.finding.verdict is Verdict.TERMINAL:
                return self._decision(ruling)
            rulings.append(ruling)
        if not rulings:
            return self._decision(_undecided(start))
        decisions = [self._decision(ruling) for ruling in rulings]
        return max(decisions, key=lambda decision: decision.retry_after or 0.0)

    def _lines(self, start: Link) -> Iterator[_Ruling]:
        """The ruling on the chain of ``start``; where it ends in a group, on that of each member.

        A list of open lines instead of recursion, since groups nest hundreds deep.
        """
        budget, opened, waiting = Budget(), set[int](), deque([start])
        while waiting:
            line = waiting.popleft()
            end = self._follow(line, budget, asked=line is start)
            if isinstance(end, _Ruling):
                yield end
            elif id(end.exc) not in opened:
                opened.add(id(end.exc))
                inner = [Link(member, end) for member in members(end.exc)]
                waiting.extendleft(reversed(inner))

    def _follow(self, line: Link, budget: Budget, *, asked: bool) -> _Ruling | Link:
        """Down a chain to what decides it, or to a group of further chains.

        :param asked: the first of the chain was asked already, and said nothing.
        """
        for link in walk(line, causes, budget):
            entry = TABLE.look_up(type(link.exc))
            ruling = None if asked and link is line else self._judge(link, entry)
            if ruling is not None:
                return ruling
            if entry.is_group and members(link.exc):
                return link
        return _undecided(line)

    def _judge(self, link: Link, entry: Entry) -> _Ruling | None:
        """What is known of one exception by itself; None when it is a wrapper or a group."""
        finding = said(link.exc) or (self._by_user(link.exc) if self.rules else None)
        if finding is None and entry.is_open:
            finding = _by_carried(link.exc, entry)
        if finding is not None:
            return _Ruling(finding, link)
        for match in entry.matches:
            row = match.row
            finding = row.probe(link.exc) if row.probe is not None else None
            if finding is not None:
                return _Ruling(finding, link)
            if match.finding is not None:
                behind = self._root_cause(link) if row.network else None
                return behind or _Ruling(match.finding, link)
            if row.group or row.wraps:
                return None
        return None

    def _by_user(self, exc: BaseException) -> Finding | None:
        for rule in self.rules:
            finding = rule.ask(exc)
            if finding is not None:
                return finding
        return None

    def _root_cause(self, link: Link) -> _Ruling | None:
        """What makes a network error terminal: a cause that the next attempt will meet again.

        Hidden contexts and arguments are searched too: httpcore raises ``from None`` and keeps the
        certificate error only among its arguments.
        """
        for inner in walk(link, reachable, Budget(ROOT_CAUSE_LIMIT)):
            finding = _row_finding(inner.exc)
            if finding is None or finding.rule not in ROOT_CAUSES:
                continue
            finding = (self._by_user(inner.exc) if self.rules else None) or finding
            if finding.verdict is Verdict.TERMINAL:
                return _Ruling(finding, inner)
        return None

    def _decision(self, ruling: _Ruling) -> Decision:
        finding, path = ruling.finding, ruling.link.path()
        if finding.verdict is Verdict.TERMINAL:
            return Decision(finding.verdict, finding.rule, finding.evidence, path)
        asked = self._asked(ruling.link.exc)
        wait = finding.retry_after if asked is None else asked
        return Decision(
            finding.verdict,
            finding.rule,
            finding.evidence,
            path,
            wait,
            # "At once" is no wait: free of charge, it could go on until the window's end.
            throttled=bool(wait) and (asked is not None or finding.throttled),
            schedule=finding.schedule,
        )

    def _asked(self, exc: BaseException) -> float | None:
        wait, about = retry_after(exc), subject(exc)
        if wait is None and about is not exc:
            wait = retry_after(about)
        return None if wait is None else seconds_until(wait, self.now())


def _row_finding(exc: BaseException) -> Finding | None:
    """What the rows say of an exception; "the network failed" is no answer here."""
    for match in TABLE.look_up(type(exc)).matches:
        row = match.row
        finding = row.probe(exc) if row.probe is not None else None
        if finding is None and not row.network:
            finding = match.finding
        if finding is not None:
            return finding
    return None


def _by_carried(exc: BaseException, entry: Entry) -> Finding | None:
    if not may_have(exc, CARRIED):
        return None
    for probe in CAREFUL_PROBES if entry.matches else GENERIC_PROBES:
        finding = probe(exc)
        if finding is not None:
            return finding
    return None


def _undecided(line: Link) -> _Ruling:
    evidence = f"no rule for {shown_name(type(line.exc))}, nor for what it came from"
    return _Ruling(Finding(Verdict.TERMINAL, DEFAULT_RULE, evidence), line)


def _storable(text: str) -> str:
    return clip(safe_text(text), _TEXT_LIMIT)


_BUILTIN_ONLY = Classifier()


def decide(exc: BaseException) -> Decision:
    """The verdict of the built-in rules on ``exc``. Never raises, imports nothing, does no I/O."""
    return _BUILTIN_ONLY.decide(exc)


__all__ = ["DEFAULT_RULE", "Classifier", "Decision", "Rule", "decide", "rules_for"]

"""The classifier: decides whether an exception is worth another attempt, and by which rule.

For one exception it asks in this order: the user's rules; for types that no library's row knows, an
SQLSTATE, a flag or an HTTP status that it carries; the built-in rows for its classes, the most specific
first. If none of these decides, the exception is a wrapper, and the exception that it wraps or was caused by
comes next. If nothing decides, the general reading of what they carry, and of their names, comes last; and
without that, the verdict is terminal.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import NamedTuple

from celery_dlq.base.redact import clip, safe_text
from celery_dlq.classify.builtin import known
from celery_dlq.classify.chain import Budget, Link, causes, linked, members, walk
from celery_dlq.classify.evidence import shown_name
from celery_dlq.classify.general import NAME_RULE, General, Reading
from celery_dlq.classify.guarded import begin
from celery_dlq.classify.table import Entry, Finding, Schedule
from celery_dlq.classify.user_rules import Rule, rules_for, said, subject
from celery_dlq.classify.wait import retry_after, seconds_until
from celery_dlq.errors import SettingsError
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.settings import Settings

logger: logging.Logger = logging.getLogger(__name__)

#: The rule that decides when no other does.
DEFAULT_RULE = "default"

#: The rules that decide when no other rule knows the exception.
WITHOUT_A_RULE = (DEFAULT_RULE, NAME_RULE)

_TEXT_LIMIT = 500
#: How many exceptions of one chain are read in general.
_READ_LIMIT = 10


@dataclass(frozen=True)
class Decision:
    """The classifier's verdict on an exception, and its grounds."""

    verdict: Verdict
    #: Stable id of the built-in rule that decided, or the name of a user's rule.
    rule: str
    #: One line naming what was read, such as ``status=503 from response.status_code``.
    evidence: str = ""
    #: Type names from the raised exception to the one that decided, joined by ``<-``.
    path: str = ""
    #: The least wait before the next attempt, in seconds; None if there is none.
    retry_after: float | None = None
    #: Whether the other side asked for that wait; then it does not use up an attempt.
    throttled: bool = False
    #: The attempts and waits of the rule that decided; they override the task's own.
    schedule: Schedule | None = None

    def explanation(self) -> Explanation:
        """The form that is stored with a letter: bounded, without characters that databases refuse."""
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


@dataclass(frozen=True)
class Classifier:
    """Decides about exceptions. Immutable; :meth:`with_rules` makes another one.

    :param rules: the user's rules, asked in this order before the built-in ones.
    :param now: the clock for dates in ``Retry-After``.
    :param general: reads the exceptions about which no rule decides.
    """

    rules: tuple[Rule, ...] = ()
    now: Callable[[], datetime] = field(
        default=lambda: datetime.now(timezone.utc), kw_only=True, repr=False
    )
    general: General = field(default=General(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))

    @classmethod
    def from_settings(cls, settings: Settings) -> Classifier:
        """``dlq_terminal``, then ``dlq_transient``, then ``dlq_rules``, then the built-in rules.

        :raises SettingsError: one of the settings contains something that is not an exception or a
            rule.
        """
        for rule in settings.rules:
            if not isinstance(rule, Rule):
                raise SettingsError(
                    f"dlq_rules contains {rule!r}; give only celery_dlq.Rule objects."
                )
        return cls(
            (
                *rules_for(settings.terminal, Verdict.TERMINAL, "dlq_terminal"),
                *rules_for(settings.transient, Verdict.TRANSIENT, "dlq_transient"),
                *settings.rules,
            ),
            general=General(by_own_names=settings.judge_by_name),
        )

    def with_rules(self, *rules: Rule) -> Classifier:
        """A classifier that asks ``rules`` before the rules of this one."""
        return replace(self, rules=(*rules, *self.rules))

    def of_package(self, name: str) -> Classifier:
        """A classifier for tasks of the top-level package ``name``, whose exceptions are the user's own."""
        return replace(self, general=replace(self.general, own_package=name))

    def decide(self, exc: BaseException) -> Decision:
        """The verdict on ``exc``. Never raises, imports nothing, does no I/O.

        It takes about one second at most, whatever the properties of the exception do.
        """
        try:
            begin()
            start = Link(exc)
            ruling = self._judge(start, known.TABLE.look_up(type(exc)))
            return self._decision(ruling) if ruling is not None else self._combine(start)
        except BaseException as error:
            # Raising here would hide the task's own error.
            logger.warning("Classification failed; please report it.", exc_info=True)
            evidence = f"classification failed with {shown_name(type(error))}"
            return Decision(Verdict.TERMINAL, DEFAULT_RULE, evidence)

    def _combine(self, start: Link) -> Decision:
        """Transient if there is at least one line and all of them are transient; the longest wait
        counts."""
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
        """The ruling on the chain of ``start``; if it ends in a group, on the chain of each member.

        It uses a list of open lines instead of recursion, because groups may nest hundreds of levels deep.
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
        """Walk down a chain to the exception that decides it, or to a group of further chains.

        :param asked: the first exception of the chain was already asked, and did not decide.
        """
        undecided = []
        for link in walk(line, causes, budget):
            undecided.append(link)
            entry = known.TABLE.look_up(type(link.exc))
            ruling = None if asked and link is line else self._judge(link, entry)
            if ruling is not None:
                return ruling
            if entry.is_group and members(link.exc):
                return link
        return self._in_general(line, undecided)

    def _in_general(self, line: Link, links: list[Link]) -> _Ruling:
        """What exceptions that no rule decides carry, the nearest first; else what their names say."""
        unknown = [link for link in links if known.TABLE.look_up(type(link.exc)).is_open]
        read = [(Reading(link.exc, self.general), link) for link in unknown[:_READ_LIMIT]]
        for ask in (Reading.carried, Reading.named):
            for reading, link in read:
                finding = ask(reading)
                if finding is not None:
                    return _Ruling(finding, link)
        return _undecided(line, [reading.shown() for reading, _ in read])

    def _judge(self, link: Link, entry: Entry) -> _Ruling | None:
        """The finding about one exception by itself; None if it is a wrapper or a group."""
        finding = said(link.exc) or (self._by_user(link.exc) if self.rules else None)
        if finding is None and entry.is_open:
            finding = known.carried(link.exc)
        if finding is not None:
            return _Ruling(finding, link)
        for match in entry.matches:
            row = match.row
            finding = row.probe(link.exc) if row.probe is not None else None
            if finding is not None:
                return _Ruling(finding, link)
            if match.finding is not None:
                if entry.is_open and entry.is_derived:
                    finding = Reading(link.exc, self.general).answered()
                behind = self._root_cause(link) if row.network and finding is None else None
                return behind or _Ruling(finding or match.finding, link)
            if row.group or row.wraps:
                return None
        return None

    def _by_user(self, exc: BaseException) -> Finding | None:
        found = (rule.ask(exc) for rule in self.rules)
        return next((finding for finding in found if finding is not None), None)

    def _root_cause(self, link: Link) -> _Ruling | None:
        """The finding that makes a network error terminal: a cause that the next attempt will meet again.

        Hidden contexts and arguments are searched, too: httpcore raises ``from None`` and keeps the
        certificate error only among its arguments.
        """
        for inner in linked(link):
            finding = _row_finding(inner.exc)
            if finding is None or finding.rule not in known.ROOT_CAUSES:
                continue
            finding = (self._by_user(inner.exc) if self.rules else None) or finding
            if finding.verdict is Verdict.TERMINAL:
                return _Ruling(finding, inner)
        return None

    def _decision(self, ruling: _Ruling) -> Decision:
        finding = ruling.finding
        judged = finding.verdict, finding.rule, finding.evidence, ruling.link.path()
        if finding.verdict is Verdict.TERMINAL:
            return Decision(*judged)
        asked = self._asked(ruling.link.exc)
        wait = finding.retry_after if asked is None else asked
        # A wait of 0 uses up an attempt: otherwise it could repeat at once until the window's end.
        throttled = bool(wait) and (asked is not None or finding.throttled)
        return Decision(*judged, wait, throttled=throttled, schedule=finding.schedule)

    def _asked(self, exc: BaseException) -> float | None:
        wait, about = retry_after(exc), subject(exc)
        if wait is None and about is not exc:
            wait = retry_after(about)
        return None if wait is None else seconds_until(wait, self.now())


def _row_finding(exc: BaseException) -> Finding | None:
    """The finding of the rows about an exception; "the network failed" does not count here."""
    for match in known.TABLE.look_up(type(exc)).matches:
        row = match.row
        finding = row.probe(exc) if row.probe is not None else None
        if finding is None and not row.network:
            finding = match.finding
        if finding is not None:
            return finding
    return None


def _undecided(line: Link, carried: Iterable[str] = ()) -> _Ruling:
    """The ruling without a rule. Its evidence is for the person who writes one."""
    no_rule = f"no rule for {shown_name(type(line.exc))}, nor for its causes"
    evidence = "; ".join((no_rule, *filter(None, carried)))
    return _Ruling(Finding(Verdict.TERMINAL, DEFAULT_RULE, evidence), line)


def _storable(text: str) -> str:
    return clip(safe_text(text), _TEXT_LIMIT)


_BUILTIN_ONLY = Classifier()
_BUILTIN_RULES = frozenset([DEFAULT_RULE, *(row.rule for row in known.TABLE.rows)])


def is_built_in(rule: str) -> bool:
    """Whether the built-in rules have one with this id."""
    return rule in _BUILTIN_RULES


def decide(exc: BaseException) -> Decision:
    """The verdict of the built-in rules on ``exc``. Never raises, imports nothing, does no I/O."""
    return _BUILTIN_ONLY.decide(exc)

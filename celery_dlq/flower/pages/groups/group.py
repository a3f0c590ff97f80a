"""The page of one group: why its letters died, what they share, its trend, its redrives, and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.flower.filters import Given
from celery_dlq.flower.html import charts
from celery_dlq.flower.html.traceback import Piece, pieces
from celery_dlq.flower.html.words import lines
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import asked, first, sent
from celery_dlq.flower.pages.arrivals import Arrivals, KnownArrivals, arrivals_of
from celery_dlq.flower.pages.groups.story import EVENTS, Event, KnownStory, story_of
from celery_dlq.flower.pages.letters.listing import Row, rows_of
from celery_dlq.flower.ranges import Range, read_range
from celery_dlq.flower.triage import ACTS, what_was_done
from celery_dlq.model.group import Group, GroupStatus
from celery_dlq.model.handling import GroupTicket
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.terms import leaves
from celery_dlq.redact import clip
from celery_dlq.store.base import AuditRow, Filter
from celery_dlq.view import lookup, times
from celery_dlq.view.groups import (
    Grouping,
    Sample,
    Share,
    ends_of,
    grouping_of,
    sample_of,
    standing,
)
from celery_dlq.view.letters import own_traceback
from celery_dlq.view.text import percent

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters on the page.
_LETTERS = 10

#: The range of the chart unless another one is asked for.
_USUAL_RANGE = "7d"

#: Letters side by side, and arguments of each.
_COMPARED, _ARGUMENTS = 3, 30

#: Characters of a traceback.
_TRACEBACK = 16_384


@dataclass(frozen=True, kw_only=True)
class Known:
    """The store's data about a group."""

    group: Group
    arrivals: KnownArrivals
    letters: Sequence[DeadLetter]
    #: Its ticket and its escalation.
    tickets: Sequence[GroupTicket]
    #: Its newest open letters; closed ones if none is open.
    sample: Sample
    grouping: Grouping
    #: The newest acts on it, and on redrives of it.
    acts: Sequence[AuditRow]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """An argument of several letters."""

    path: str
    #: Its value in each letter; None if the letter does not have it.
    values: Sequence[str | None]

    @property
    def differs(self) -> bool:
        """Whether the letters have different values."""
        return len(set(self.values)) > 1


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """The values of the page."""

    known: Known
    now: datetime
    marks: Mapping[str, str]
    arrivals: Arrivals
    done: str = ""
    #: The owner of its route.
    route_owner: str = ""

    @property
    def group(self) -> Group:
        """The group."""
        return self.known.group

    @property
    def standing(self) -> str:
        """Its status or mark."""
        return standing(self.group, self.now) or self.group.status.value

    @property
    def ends(self) -> str:
        """When it stops being ignored."""
        return ends_of(self.group)

    @property
    def reopens(self) -> bool:
        """Whether there is a decision or a mark that Reopen would clear."""
        return self.group.status is not GroupStatus.OPEN or self.group.regressed_at is not None

    @property
    def traceback(self) -> list[Piece]:
        """The traceback of the newest letter, with lines in place of the frames of libraries."""
        newest = self.known.sample.newest
        text = own_traceback(newest.traceback) if newest else ""
        return pieces(lines(text, _TRACEBACK)) if text else []

    @property
    def examples(self) -> Sequence[Row]:
        """The newest letters whose arguments are known."""
        return rows_of(self.known.sample.with_arguments[:_COMPARED])

    @property
    def compared(self) -> list[Compared]:
        """The arguments of :attr:`examples`, side by side."""
        tables = [_arguments(row.letter) for row in self.examples]
        paths = dict.fromkeys(path for table in tables for path in table)
        return [Compared(path=path, values=[table.get(path) for table in tables]) for path in paths]

    @property
    def shares(self) -> list[tuple[Share, str, tuple[str, str] | None]]:
        """What the newest letters have in common, each with its chart, and the filter that finds letters with
        it; None for an argument without a name."""
        sample = self.known.sample
        named = [
            (share, None if share.name.isdigit() else ("arg", f"{share.name}={share.value}"))
            for share in sample.shared
        ]
        # The page says the task already.
        others = [share for share in sample.found_in if share.value != self.group.task]
        found_in = [(share, (share.name, share.value)) for share in others]
        return [(share, self._bar(share), wanted) for share, wanted in (*named, *found_in)]

    def _bar(self, share: Share) -> str:
        whole = len(self.known.sample.letters)
        return charts.bar(share.letters, whole, f"{share.letters:,} of {whole:,}")

    def percent(self, share: Share) -> str:
        """The part of the newest letters."""
        return percent(share.letters / len(self.known.sample.letters))

    @property
    def success_rate(self) -> str:
        """The part of the redrives that succeeded; empty if none has ended."""
        rate = self.known.sample.redrives.success_rate
        return "" if rate is None else percent(rate)

    @property
    def story(self) -> Sequence[Event]:
        """What happened to the group, the newest first."""
        known = self.known
        story = KnownStory(
            group=known.group, acts=known.acts, tickets=known.tickets,
            operations=known.sample.concerned,
        )  # fmt: skip
        return story_of(story, self.arrivals.links)

    @property
    def rows(self) -> list[Row]:
        """The newest open letters."""
        return rows_of(self.known.letters)


class GroupPage(Page):
    """``/dead-letters/groups/<fingerprint>``"""

    tab = "groups"

    async def get(self, prefix: str) -> None:
        """Show the group; a prefix of its fingerprint redirects to the full one."""
        now, given = times.utc_now(), asked(self.request)
        wanted = read_range(given, _USUAL_RANGE)
        known = await self.site.ask(lambda store: look_up(store, prefix, wanted, now))
        fingerprint = known.group.fingerprint
        if fingerprint != prefix:
            query = f"?range={wanted.name}" if "range" in given else ""
            self.redirect(f"{self.links.group(fingerprint)}{query}")
            return
        marks = {act: self.mark(f"{act} {fingerprint}") for act in ACTS}
        view = GroupView(
            known=known, now=now, marks=marks, arrivals=self._arrivals(known, wanted),
            done=what_was_done(given), route_owner=self.site.owner_of(known.group.route),
        )  # fmt: skip
        self.page("group", view)

    def _arrivals(self, known: Known, wanted: Range) -> Arrivals:
        group = known.group.fingerprint
        return Arrivals(
            known=known.arrivals, range=wanted, links=self.links, group=group,
            address=self.links.group(group), kept=self.site.kept_arrivals,
        )  # fmt: skip


class GroupActPage(Page):
    """``POST /dead-letters/groups/<fingerprint>/<act>``"""

    tab = "groups"

    async def post(self, fingerprint: str, act: str) -> None:
        """Run the act, once per form."""
        if act not in ACTS:
            raise Refused(404, f"{clip(act, 40)} is not an act on groups.")
        given, now, who = sent(self.request), times.utc_now(), self.actor
        meant = ACTS[act].read(given, now)
        self.take_mark(given, f"{act} {fingerprint}")
        # By the store's clock, as the times of decisions are.
        made_at = now - timedelta(seconds=self.site.forms.age_s(first(given, "mark")))

        def carry_out(queue: DeadLetterQueue) -> None:
            _check_undecided(queue.store, fingerprint, who, made_at, now)
            queue.store.groups.triage(fingerprint, meant, who=who, now=now)
            queue.move_letters(meant)

        await self.site.act(carry_out)
        self.see(self._back(given, fingerprint, act))

    def _back(self, given: Given, fingerprint: str, act: str) -> str:
        """The address of the page with the form: that of the group, or a list with the group's row."""
        done, back = ("done", act), first(given, "back")
        if back == "overview":
            return self.links.page(query=[done])
        if back == "groups":
            return self.links.page("groups", query=[*parse_qsl(first(given, "query")), done])
        return f"{self.links.group(fingerprint)}?done={act}"


def _check_undecided(
    store: Store, fingerprint: str, who: str, since: datetime, now: datetime
) -> None:
    """Check that no other person has decided about the group since a form was made.

    :raises Refused: someone has.
    """
    group = store.groups.get(fingerprint, now=now)
    if group is None or group.status_at is None or group.status_by == who:
        return
    # The age of a form is up to a second too much.
    if group.status_at >= since + timedelta(seconds=1):
        ago = times.age(group.status_at, now)
        raise Refused(
            409,
            f"{clip(group.status_by, 60)} decided about this group {ago}: it is {group.status.value} now. "
            "Nothing was changed; look at it again.",
        )


def look_up(store: Store, prefix: str, wanted: Range, now: datetime) -> Known:
    """The store's data about a group.

    :param wanted: the range of its arrivals.
    :raises UnknownGroup: no fingerprint matches.
    :raises AmbiguousId: several fingerprints match.
    """
    group = lookup.group(store, prefix, now)
    name = group.fingerprint
    sample = sample_of(store, name)
    return Known(
        group=group,
        arrivals=arrivals_of(store, name, wanted, now, sample.concerned),
        letters=store.letters.find(Filter(group=name), limit=_LETTERS).letters,
        tickets=store.tickets.of_groups([name]).get(name, ()),
        sample=sample,
        grouping=grouping_of(store, name),
        acts=store.audit.find(group=name, limit=EVENTS).rows,
    )


def _arguments(letter: DeadLetter) -> dict[str, str]:
    """The arguments by path; the items of a list are joined."""
    found: dict[str, list[str]] = {}
    for path, value in islice(leaves(letter.args, letter.kwargs), _ARGUMENTS):
        found.setdefault(path, []).append(value)
    return {path: ", ".join(values) for path, values in found.items()}

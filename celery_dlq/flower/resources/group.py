"""One group: why its letters died, what they share, its trend, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from celery_dlq.base.redact import clip
from celery_dlq.errors import AmbiguousId, TriageError, UnknownGroup
from celery_dlq.flower import charts, words
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.problems import Refused, problem_of
from celery_dlq.flower.http.request import Given, asked, first, sent
from celery_dlq.flower.http.site import Links, Site
from celery_dlq.flower.resources.arrivals import (
    OF_GROUPS,
    Arrivals,
    Range,
    arrivals_of,
    read_range,
)
from celery_dlq.flower.resources.groups import (
    ACTS,
    IGNORING,
    FieldError,
    group_records,
    what_was_done,
)
from celery_dlq.flower.resources.letters import Row, rows_of
from celery_dlq.flower.words import lines
from celery_dlq.model.group import Group, GroupStatus
from celery_dlq.model.handling import GroupTicket, TicketKind
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Counts
from celery_dlq.store.base import AuditRow, Filter, Operation
from celery_dlq.view import lookup, times
from celery_dlq.view.acts import sentence
from celery_dlq.view.compare import Compared, arguments_of, side_by_side
from celery_dlq.view.groups import Grouping, Sample, Share, grouping_of, sample_of, standing
from celery_dlq.view.letters import named
from celery_dlq.view.operations import outcome_text
from celery_dlq.view.text import counted, percent
from celery_dlq.view.traceback import Piece, own_traceback, pieces

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store
    from celery_dlq.store.letters.counting import ReleaseCount

#: Events of a group that are shown, and acts that are read for them.
EVENTS = 30


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a group."""

    at: datetime
    #: The end of its CSS class: failure, decision, note, ticket or redrive.
    kind: str
    #: Empty if no person or program did it.
    who: str = ""
    what: str
    #: The text of a note.
    text: str = ""
    why: str = ""
    #: The name and the address of the redrive, the letter or the ticket.
    name: str = ""
    address: str = ""


def story_of(
    group: Group,
    acts: Sequence[AuditRow],
    tickets: Sequence[GroupTicket],
    operations: Sequence[Operation],
    links: Links,
) -> list[Event]:
    """The newest events of a group, the newest first.

    :param acts: the newest acts on the group and on its redrives.
    :param operations: the redrives that concern it.
    """
    found = [
        *_failures(group),
        *map(_ticket, tickets),
        *_acts(acts, operations, links),
        *_redrives(operations, links),
    ]
    return sorted(found, key=lambda event: event.at, reverse=True)[:EVENTS]


def _failures(group: Group) -> Iterator[Event]:
    yield Event(at=group.first_seen_at, kind="failure", what="The first letter failed.")
    if group.regressed_at is not None:
        yield Event(
            at=group.regressed_at, kind="failure",
            what="A letter failed again after the decision, so the group was opened.",
        )  # fmt: skip


def _acts(
    acts: Iterable[AuditRow], operations: Iterable[Operation], links: Links
) -> Iterator[Event]:
    told = {one.id for one in operations}
    for act in acts:
        if act.act == "redrive" and act.detail.get("operation") in told:
            continue
        yield _act(act, links)


def _act(act: AuditRow, links: Links) -> Event:
    operation = str(act.detail.get("operation") or "")
    is_note = act.act == "note"
    return Event(
        at=act.at, kind="note" if is_note else "redrive" if operation else "decision",
        who=words.line(act.who, 60), what=words.line(sentence(act, words.moment), 200),
        why=words.line(act.why, 300), name=operation,
        text=words.lines(str(act.detail.get("note", "")), 4_000) if is_note else "",
        address=links.operation(operation) if operation else "",
    )  # fmt: skip


def _ticket(ticket: GroupTicket) -> Event:
    to = f"escalated the group to {words.line(ticket.to, 60)}"
    return Event(
        at=ticket.at, kind="ticket", who=words.actor_of(ticket.handler),
        what=to if ticket.kind is TicketKind.ESCALATION else "opened the ticket",
        why=words.line(ticket.why, 300), name=words.line(ticket.url, 120),
        address=words.address(ticket.url),
    )  # fmt: skip


def _redrives(operations: Iterable[Operation], links: Links) -> Iterator[Event]:
    for one in operations:
        yield Event(
            at=one.created_at, kind="redrive", who=words.line(one.who, 60),
            what=f"began a redrive ({_progress(one.counts)})", why=words.line(one.orders.why, 300),
            name=one.id, address=links.operation(one.id),
        )  # fmt: skip


def _progress(counts: Counts) -> str:
    sent = f"{counts.out:,} of {counted(counts.planned, 'letter')} sent"
    return ", ".join(filter(None, (sent, outcome_text(counts))))


#: Letters on the page.
_LETTERS = 10

#: The range of the chart unless another one is asked for.
_USUAL_RANGE = "7d"

#: Letters whose arguments are side by side.
_EXAMPLES = 3

#: Characters of a traceback.
_TRACEBACK = 16_384


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """The values of the page."""

    group: Group
    now: datetime
    arrivals: Arrivals
    letters: Sequence[DeadLetter]
    #: Its ticket and its escalation.
    tickets: Sequence[GroupTicket]
    #: Its newest open letters; closed ones if none is open.
    sample: Sample
    grouping: Grouping
    #: Its open letters by release, the newest release first; None if they are too many to be counted.
    releases: Sequence[ReleaseCount] | None
    #: What happened to it, the newest first.
    story: Sequence[Event]
    #: The owner of its route.
    route_owner: str
    #: The names of the task's positional parameters; empty if they are unknown.
    parameters: Sequence[str] = ()
    #: What an act has done.
    done: str = ""
    #: The form that was not accepted: its act, its values, and the problem of a field or of the act.
    act: str = ""
    given: Given = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    #: The choices of the buttons that ignore the group: value and label.
    ignoring: Sequence[tuple[str, str]] = IGNORING

    def typed(self, act: str, name: str, default: str = "") -> str:
        """The value of a field in the form of ``act``."""
        return first(self.given, name, default) if act == self.act else default

    @property
    def standing(self) -> str:
        """Its status or mark."""
        return standing(self.group, self.now) or self.group.status.value

    @property
    def reopens(self) -> bool:
        """Whether there is a decision or a mark that Reopen would clear."""
        return self.group.status is not GroupStatus.OPEN or self.group.regressed_at is not None

    @property
    def traceback(self) -> list[Piece]:
        """The traceback of the newest letter, with lines in place of the frames of libraries."""
        newest = self.sample.newest
        text = own_traceback(newest.traceback) if newest else ""
        return pieces(lines(text, _TRACEBACK)) if text else []

    @property
    def examples(self) -> Sequence[Row]:
        """The newest letters whose arguments are known."""
        return rows_of(self.sample.with_arguments[:_EXAMPLES])

    @property
    def compared(self) -> list[Compared]:
        """The arguments of :attr:`examples`, side by side."""
        tables = [arguments_of(row.letter, self._parameters) for row in self.examples]
        return side_by_side(tables)

    @property
    def _parameters(self) -> Sequence[str]:
        # Merged groups may have letters of several tasks.
        tasks = {one.task for one in self.sample.letters}
        return self.parameters if tasks == {self.group.task} else ()

    @property
    def shares(self) -> list[tuple[Share, str, tuple[str, str] | None]]:
        """The values that the newest letters share, each with its chart, and the filter that finds such
        letters; None for an argument without a name."""
        sample = self.sample
        named_shares = [
            replace(share, name=named(share.name, self._parameters)) for share in sample.shared
        ]
        arguments = [
            (share, None if share.name.isdigit() else ("arg", f"{share.name}={share.value}"))
            for share in named_shares
        ]
        # The page says the task already.
        others = [share for share in sample.found_in if share.value != self.group.task]
        found_in = [(share, (share.name, share.value)) for share in others]
        return [(share, self._bar(share), wanted) for share, wanted in (*arguments, *found_in)]

    def _bar(self, share: Share) -> str:
        whole = len(self.sample.letters)
        return charts.bar(share.letters, whole, f"{share.letters:,} of {whole:,}")

    def percent(self, share: Share) -> str:
        """The part of the newest letters."""
        return percent(share.letters / len(self.sample.letters))

    @property
    def success_rate(self) -> str:
        """The part of the redrives that succeeded; empty if none has ended."""
        rate = self.sample.redrives.success_rate
        return "" if rate is None else percent(rate)

    @property
    def rows(self) -> list[Row]:
        """The newest open letters."""
        return rows_of(self.letters)


class GroupPage(Page):
    """``/dead-letters/groups/<fingerprint>``"""

    tab = "groups"

    async def get(self, prefix: str) -> None:
        """Show the group; a prefix of its fingerprint redirects to the full one."""
        now, given = times.utc_now(), asked(self.request)
        wanted = read_range(given, _USUAL_RANGE, OF_GROUPS)
        view = await self.site.ask(lambda store: look_up(store, self.site, prefix, wanted, now))
        fingerprint = view.group.fingerprint
        if fingerprint != prefix:
            query = f"?range={wanted.name}" if "range" in given else ""
            self.redirect(f"{self.links.group(fingerprint)}{query}")
            return
        self.page("group", replace(view, done=what_was_done(given)))


class DecisionPage(Page):
    """``POST /dead-letters/groups/<fingerprint>/<act>``"""

    tab = "groups"

    async def get(self, fingerprint: str, _act: str) -> None:
        """Lead to the group, for a reload of a form that was not accepted."""
        self.redirect(self.links.group(fingerprint))

    async def post(self, fingerprint: str, act: str) -> None:
        """Run the act, once per form."""
        if act not in ACTS:
            raise Refused(404, f"{clip(act, 40)} is not an act on groups.")
        given, now = sent(self.request), times.utc_now()
        try:
            await self._decide(fingerprint, act, given, now)
        except (TriageError, UnknownGroup, AmbiguousId) as error:
            # The form keeps what was typed.
            name = error.name if isinstance(error, FieldError) else act
            wanted, problem = read_range({}, _USUAL_RANGE), problem_of(error, 400)
            view = await self.site.ask(
                lambda store: look_up(store, self.site, fingerprint, wanted, now)
            )
            typed = replace(view, act=act, given=given, problems={name: problem.text})
            self.page("group", typed, problem.status)
        else:
            self.see(self._back(given, fingerprint, act))

    async def _decide(self, fingerprint: str, act: str, given: Given, now: datetime) -> None:
        meant, who = ACTS[act].read(given, now), self.actor
        self.take_mark(given, f"{act} {fingerprint}")
        # By the store's clock, as the times of decisions are.
        made_at = now - timedelta(seconds=self.site.forms.age_s(first(given, "mark")))

        def carry_out(queue: DeadLetterQueue) -> None:
            _check_undecided(queue.store, fingerprint, who, made_at, now)
            queue.groups.decide(fingerprint, meant, who=who, now=now)

        await self.site.act(carry_out)

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


class OneGroup(Api):
    """``GET /api/dead-letters/groups/{fingerprint}``"""

    async def get(self, prefix: str) -> None:
        """One group, with the decisions about it."""
        self.asked()
        now = times.utc_now()

        def look(store: Store) -> dict[str, Any]:
            group = lookup.group(store, prefix, now)
            [found] = group_records(self.site, store, [group], now)
            return {**found, **grouping_of(store, group.fingerprint).record()}

        self.reply(await self.site.ask(look))


def look_up(store: Store, site: Site, prefix: str, wanted: Range, now: datetime) -> GroupView:
    """A group, and what the store knows of it.

    :param wanted: the range of its arrivals.
    :raises UnknownGroup: no fingerprint matches.
    :raises AmbiguousId: several fingerprints match.
    """
    group = lookup.group(store, prefix, now)
    name = group.fingerprint
    sample = sample_of(store, name)
    tickets = store.tickets.of_groups([name]).get(name, ())
    acts = store.audit.find(group=name, limit=EVENTS).rows
    return GroupView(
        group=group,
        now=now,
        arrivals=arrivals_of(store, site, wanted, now, group=name),
        letters=store.letters.find(Filter(group=name), limit=_LETTERS).letters,
        tickets=tickets,
        sample=sample,
        grouping=grouping_of(store, name),
        releases=store.over_time.releases(name),
        story=story_of(group, acts, tickets, sample.concerned, site.links),
        route_owner=site.owner_of(group.route),
        parameters=site.parameters(group.task),
    )

"""One group: why its letters died, what they share, its trend, and what happened to it; and decisions about
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from celery_dlq.base.redact import clip
from celery_dlq.errors import AmbiguousId, TriageError, UnknownGroup
from celery_dlq.flower.http.handler import Handler, Refused, problem_of
from celery_dlq.flower.http.request import Given, first_value
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.resources import groups
from celery_dlq.flower.resources.arrivals import OF_GROUPS, Arrivals, Range, arrivals_of, read_range
from celery_dlq.flower.resources.letter import Event, of_act
from celery_dlq.model.automation import actor_of
from celery_dlq.model.group import Group, GroupAct
from celery_dlq.model.handling import GroupTicket, TicketKind
from celery_dlq.model.letter import DeadLetter
from celery_dlq.store.base import AuditRow, Filter, Operation
from celery_dlq.view import lookup, times
from celery_dlq.view.groups import Grouping, Sample, Share, grouping_of, sample_of
from celery_dlq.view.letters import argument_values, named
from celery_dlq.view.lookup import redacting
from celery_dlq.view.operations import outcome_text
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store
    from celery_dlq.store.letters.counting import ReleaseCount

#: Events of a group that are shown, and acts that are read for them.
EVENTS = 30

#: Letters on the page.
_LETTERS = 10

#: The range of the chart unless another one is asked for.
_USUAL_RANGE = "7d"

#: Letters whose arguments are side by side, and arguments of each.
_EXAMPLES, _ARGUMENTS = 3, 50


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """A group, and what the store knows of it."""

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
    #: The newest acts on it and on its redrives.
    acts: Sequence[AuditRow]
    #: The names of the task's positional parameters; empty if they are unknown.
    parameters: Sequence[str]

    @property
    def examples(self) -> Sequence[DeadLetter]:
        """The newest letters whose arguments are known."""
        return self.sample.with_arguments[:_EXAMPLES]

    @property
    def compared(self) -> Mapping[str, Sequence[str | None]]:
        """The arguments of :attr:`examples` by path, side by side; None if a letter does not have it."""
        tables = [_arguments_of(letter, self._parameters) for letter in self.examples]
        paths = dict.fromkeys(path for table in tables for path in table)
        return {path: [table.get(path) for table in tables] for path in paths}

    @property
    def _parameters(self) -> Sequence[str]:
        # Merged groups may have letters of several tasks.
        tasks = {one.task for one in self.sample.letters}
        return self.parameters if tasks == {self.group.task} else ()

    @property
    def shares(self) -> list[tuple[Share, tuple[str, str] | None]]:
        """The values that the newest letters share, each with the filter that finds such letters; None for an
        argument without a name."""
        shared = (
            replace(share, name=named(share.name, self._parameters)) for share in self.sample.shared
        )
        # The page says the task already.
        others = (share for share in self.sample.found_in if share.value != self.group.task)
        return [
            *(
                (one, None if one.name.isdigit() else ("arg", f"{one.name}={one.value}"))
                for one in shared
            ),
            *((one, (one.name, one.value)) for one in others),
        ]

    @property
    def story(self) -> list[Event]:
        """What happened to it, the newest first."""
        group, redrives = self.group, self.sample.concerned
        known = {one.id for one in redrives}
        found = [
            Event(at=group.first_seen_at, kind="failure", title="The first letter failed."),
            *map(_of_ticket, self.tickets),
            *map(_of_redrive, redrives),
            *(
                of_act(act)
                for act in self.acts
                if act.act != "redrive" or act.detail.get("operation") not in known
            ),
        ]
        if group.regressed_at is not None:
            back = "A letter failed again after the decision, so the group was opened."
            found.append(Event(at=group.regressed_at, kind="failure", title=back))
        return sorted(found, key=lambda event: event.at or self.now, reverse=True)[:EVENTS]


def _arguments_of(letter: DeadLetter, parameters: Sequence[str]) -> dict[str, str]:
    """The arguments by path, with the names of ``parameters``; the items of a list are joined."""
    found: dict[str, list[str]] = {}
    for path, value in argument_values(letter, parameters, _ARGUMENTS):
        found.setdefault(path, []).append(value)
    return {path: ", ".join(values) for path, values in found.items()}


def _of_ticket(ticket: GroupTicket) -> Event:
    is_escalation = ticket.kind is TicketKind.ESCALATION
    title = f"escalated the group to {ticket.to}" if is_escalation else "opened the ticket"
    who = actor_of(ticket.handler)
    return Event(at=ticket.at, kind="ticket", who=who, title=title, why=ticket.why, url=ticket.url)


def _of_redrive(one: Operation) -> Event:
    sent = f"{one.counts.out:,} of {counted(one.counts.planned, 'letter')} sent"
    progress = ", ".join(filter(None, (sent, outcome_text(one.counts))))
    return Event(
        at=one.created_at, kind="redrive", who=one.who, title=f"began a redrive ({progress})",
        why=one.orders.why, operation=one.id,
    )  # fmt: skip


class OneGroup(Handler):
    """``/dead-letters/groups/<fingerprint>``, and the same in the REST API."""

    tab = "groups"

    async def get(self, prefix: str) -> None:
        """One group, with the decisions about it. On a page, a prefix of its fingerprint redirects to the
        full one."""
        now = times.utc_now()
        if self.is_api:
            self.known_values()
            self.reply(await self.site.ask(lambda store: self._record(store, prefix, now)))
            return
        given = self.values()
        wanted = read_range(given, _USUAL_RANGE, OF_GROUPS)
        view = await self.site.ask(lambda store: look_up(store, self.site, prefix, wanted, now))
        fingerprint = view.group.fingerprint
        if fingerprint != prefix:
            query = f"?range={wanted.name}" if "range" in given else ""
            self.redirect(f"{self.links.group(fingerprint)}{query}")
            return
        done = groups.what_was_done(given)
        self.page("group", view, act="", given={}, problems={}, done=done)

    def _record(self, store: Store, prefix: str, now: datetime) -> dict[str, Any]:
        group = lookup.group(store, prefix, now)
        [found] = groups.group_records(self.site, store, [group], now)
        return {**found, **grouping_of(store, group.fingerprint).record()}


class Decision(Handler):
    """``POST /dead-letters/groups/<fingerprint>/<act>`` with a form, and the same in the REST API with a JSON
    object of the act's fields."""

    tab = "groups"
    of_page = ("GET",)

    def get(self, fingerprint: str) -> None:
        """Lead to the group, for a reload of a form that was not accepted."""
        self.redirect(self.links.group(fingerprint))

    async def post(self, prefix: str) -> None:
        """Run the act, once per form."""
        given, now, act = self.values(), times.utc_now(), self.act
        if self.is_api:
            groups.check_fields(act, given)
            self.reply(await self._decide(prefix, groups.read_act(act, given, now), now))
            return
        try:
            meant = groups.read_act(act, given, now)
            self.take_mark(given, f"{act} {prefix}")
            # By the store's clock, as the times of decisions are.
            age = timedelta(seconds=self.site.forms.age_s(first_value(given, "mark")))
            await self._decide(prefix, meant, now, made_at=now - age)
        except (TriageError, UnknownGroup, AmbiguousId) as error:
            # The form keeps what was typed.
            name = error.name if isinstance(error, groups.FieldError) else act
            wanted, problem = read_range({}, _USUAL_RANGE), problem_of(error, 400)
            view = await self.site.ask(lambda store: look_up(store, self.site, prefix, wanted, now))
            problems = {name: problem.text}
            self.page("group", view, problem.status, act=act, given=given, problems=problems)
        else:
            self.see(self._back(given, prefix, act))

    async def _decide(
        self, prefix: str, meant: GroupAct, now: datetime, made_at: datetime | None = None
    ) -> dict[str, Any]:
        """Decide about the group, unless another person has done so since ``made_at``. Returns its record."""
        who = self.actor

        def carry_out(queue: DeadLetterQueue) -> list[dict[str, Any]]:
            store = redacting(queue.store, queue.redactor)
            group = lookup.group(store, prefix, now)
            if made_at is not None:
                _check_undecided(group, who, made_at, now)
            queue.groups.decide(group.fingerprint, meant, who=who, now=now)
            changed = lookup.group(store, group.fingerprint, now)
            return groups.group_records(self.site, store, [changed], now)

        [record] = await self.site.act(carry_out)
        return record

    def _back(self, given: Given, fingerprint: str, act: str) -> str:
        """The address of the page with the form: that of the group, or a list with the group's row."""
        done, back = ("done", act), first_value(given, "back")
        if back == "overview":
            return self.links.page(query=[done])
        if back == "groups":
            return self.links.page("groups", query=[*parse_qsl(first_value(given, "query")), done])
        return f"{self.links.group(fingerprint)}?done={act}"


def _check_undecided(group: Group, who: str, since: datetime, now: datetime) -> None:
    """Check that no other person has decided about the group since a form was made.

    :raises Refused: someone has.
    """
    if group.status_at is None or group.status_by == who:
        return
    # The age of a form is up to a second too much.
    if group.status_at >= since + timedelta(seconds=1):
        ago = times.age(group.status_at, now)
        raise Refused(
            409,
            f"{clip(group.status_by, 60)} decided about this group {ago}: it is {group.status.value} now. "
            "Nothing was changed; look at it again.",
        )


def look_up(store: Store, site: Site, prefix: str, wanted: Range, now: datetime) -> GroupView:
    """A group, and what the store knows of it.

    :param wanted: the range of its arrivals.
    :raises UnknownGroup: no fingerprint matches.
    :raises AmbiguousId: several fingerprints match.
    """
    group = lookup.group(store, prefix, now)
    name = group.fingerprint
    return GroupView(
        group=group,
        now=now,
        arrivals=arrivals_of(store, site, wanted, now, group=name),
        letters=store.letters.find(Filter(group=name), limit=_LETTERS).letters,
        tickets=store.tickets.of_groups([name]).get(name, ()),
        sample=sample_of(store, name),
        grouping=grouping_of(store, name),
        releases=store.over_time.releases(name),
        acts=store.audit.find(group=name, limit=EVENTS).rows,
        parameters=site.parameters(group.task),
    )

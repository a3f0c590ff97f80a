"""Groups, by REST."""

from __future__ import annotations

from datetime import datetime

from celery_dlq.errors import FilterError
from celery_dlq.flower.api.paging import limit_of
from celery_dlq.flower.filters import Given, check_names, read_filter, words_of
from celery_dlq.flower.handler import Api
from celery_dlq.flower.request import asked, first, sent_json
from celery_dlq.flower.triage import ACTS, Form, whole_group
from celery_dlq.group import NOT_IGNORED, Group, GroupAct, GroupFilter, GroupStatus, Mark
from celery_dlq.queue import DeadLetterQueue
from celery_dlq.store.group_mark import GroupMark
from celery_dlq.view import records, times

#: Filters that groups have.
_OF_GROUPS = ("task", "exception", "group", "since", "until")
_OF_TRIAGE = ("status", "mark", "owner")


class Groups(Api):
    """``GET /api/dead-letters/groups``"""

    async def get(self) -> None:
        """A page of groups, most open letters first."""
        given, now = asked(self.request), times.utc_now()
        wanted = read_filter(given, now, beside=("limit", "after", *_OF_TRIAGE), names=_OF_GROUPS)
        which, limit, after = _which(given), limit_of(given), first(given, "after") or None
        found = await self.site.ask(
            lambda store: store.groups(wanted, now=now, limit=limit + 1, after=after, which=which)
        )
        shown = [records.group_record(group, now) for group in found[:limit]]
        following = GroupMark.of(found[limit - 1]).cursor if len(found) > limit else None
        self.reply({"groups": shown, "next": following})


def _which(given: Given) -> GroupFilter:
    """As on the command line: ignored groups are there for those who ask for them."""
    statuses = words_of(GroupStatus, "status", given)
    return GroupFilter(
        statuses=statuses or NOT_IGNORED.statuses,
        emptied=bool(statuses),
        marks=words_of(Mark, "mark", given),
        owner=first(given, "owner"),
    )


class OneGroup(Api):
    """``GET /api/dead-letters/groups/{fingerprint}``"""

    async def get(self, beginning: str) -> None:
        """One group, with what was decided about it."""
        check_names(asked(self.request), ())
        now = times.utc_now()
        found = await self.site.ask(lambda store: whole_group(store, beginning, now))
        self.reply(records.group_record(found, now))


class Triage(Api):
    """``POST /api/dead-letters/groups/{fingerprint}/<act>`` with a JSON object of what the act needs."""

    act = ""

    async def post(self, beginning: str) -> None:
        """Carry it out."""
        given, now, who = sent_json(self.request), times.utc_now(), self.actor
        meant = _read(ACTS[self.act], given, now)

        def carry_out(queue: DeadLetterQueue) -> Group:
            name = whole_group(queue.store, beginning, now).fingerprint
            return queue.store.triage(name, meant, who=who, now=now)

        self.reply(records.group_record(await self.site.act(carry_out), now))


def _read(form: Form, given: Given, now: datetime) -> GroupAct:
    check_names(given, form.names)
    for name in form.names:
        values = given.get(name, ())
        if len(values) > 1 or (form.needed and not values):
            raise FilterError(
                f"{name} must be there, once." if form.needed else f"One {name} only."
            )
    return form.read(given, now)


class IgnoreGroup(Triage):
    """Leave it out of lists."""

    act = "ignore"


class ResolveGroup(Triage):
    """Its cause is gone."""

    act = "resolve"


class ReopenGroup(Triage):
    """Take either back."""

    act = "reopen"


class NoteGroup(Triage):
    """What people are to know about it."""

    act = "note"


class AssignGroup(Triage):
    """Who looks after it."""

    act = "assign"

"""REST: groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError
from celery_dlq.flower.api.paging import limit_of
from celery_dlq.flower.filters import Given, check_names, read_filter, words_of
from celery_dlq.flower.http.handler import Api
from celery_dlq.flower.http.request import asked, first, sent_json
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.triage import ACTS, Form
from celery_dlq.model.group import Group, GroupAct, GroupFilter, GroupStatus, Mark
from celery_dlq.store.rows.group_mark import GroupMark
from celery_dlq.view import lookup, records, times
from celery_dlq.view.discreet import discreet
from celery_dlq.view.groups import GROUP_FILTERS, grouping_of, groups_with

if TYPE_CHECKING:
    from celery_dlq.store import Store

_OF_TRIAGE = ("status", "mark", "owner")


class Groups(Api):
    """``GET /api/dead-letters/groups``"""

    async def get(self) -> None:
        """A page of groups, most open letters first."""
        given, now = asked(self.request), times.utc_now()
        wanted = read_filter(
            given, now, others=("limit", "after", *_OF_TRIAGE), names=GROUP_FILTERS
        )
        which, limit, after = _which(given), limit_of(given), first(given, "after") or None

        def look(store: Store) -> tuple[list[Group], list[dict[str, Any]]]:
            found = store.groups.find(wanted, now=now, limit=limit + 1, after=after, which=which)
            return found, _records(self.site, store, found[:limit], now)

        found, shown = await self.site.ask(look)
        following = GroupMark.of(found[limit - 1]).cursor if len(found) > limit else None
        self.reply({"groups": shown, "next": following})


def _which(given: Given) -> GroupFilter:
    """As on the command line, ignored groups are listed only on request."""
    statuses, marks = words_of(GroupStatus, "status", given), words_of(Mark, "mark", given)
    return groups_with(statuses, marks, first(given, "owner"))


class OneGroup(Api):
    """``GET /api/dead-letters/groups/{fingerprint}``"""

    async def get(self, prefix: str) -> None:
        """One group, with the decisions about it."""
        check_names(asked(self.request), ())
        now = times.utc_now()

        def look(store: Store) -> dict[str, Any]:
            group = lookup.group(store, prefix, now)
            [found] = _records(self.site, store, [group], now)
            return {**found, **grouping_of(store, group.fingerprint).record()}

        self.reply(await self.site.ask(look))


class Triage(Api):
    """``POST /api/dead-letters/groups/{fingerprint}/<act>`` with a JSON object of the act's fields."""

    async def post(self, prefix: str) -> None:
        """Run the act."""
        given, now, who = sent_json(self.request), times.utc_now(), self.actor
        meant = _read(ACTS[self.act], given, now)

        def carry_out(queue: DeadLetterQueue) -> list[dict[str, Any]]:
            store = discreet(queue.store, queue.redactor)
            name = lookup.group(store, prefix, now).fingerprint
            store.groups.triage(name, meant, who=who, now=now)
            queue.move_letters(meant)
            return _records(self.site, store, [lookup.group(store, name, now)], now)

        [changed] = await self.site.act(carry_out)
        self.reply(changed)


def _records(
    site: Site, store: Store, found: Sequence[Group], now: datetime
) -> list[dict[str, Any]]:
    tickets = store.tickets.of_groups([group.fingerprint for group in found])
    return [
        records.ticketed_group_record(
            group, tickets.get(group.fingerprint, ()), now, route_owner=site.owner_of(group.route)
        )
        for group in found
    ]


def _read(form: Form, given: Given, now: datetime) -> GroupAct:
    check_names(given, form.names)
    for name in form.names:
        values = given.get(name, ())
        if len(values) > 1 or (form.needed and not values):
            raise FilterError(
                f"{name} must be given once."
                if form.needed
                else f"{name} is given more than once; give it once."
            )
    return form.read(given, now)

"""Decisions about a group: read from forms and JSON, and made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError, TriageError
from celery_dlq.flower.http.handler import Api, Page
from celery_dlq.flower.http.problems import Refused
from celery_dlq.flower.http.request import Given, check_names, first, sent, sent_json
from celery_dlq.flower.http.site import Site
from celery_dlq.model.group import (
    Annotate,
    Assign,
    Group,
    GroupAct,
    Ignore,
    Merge,
    Reopen,
    Resolve,
    Split,
)
from celery_dlq.redact import clip
from celery_dlq.view import lookup, records, times
from celery_dlq.view.lookup import discreet

if TYPE_CHECKING:
    from celery_dlq.store import Store


@dataclass(frozen=True)
class Form:
    """One act: the names of its fields, and the function that reads them."""

    names: tuple[str, ...]
    read: Callable[[Given, datetime], GroupAct]
    #: What to say when it is done.
    done: str
    #: Whether the fields are required; a missing note or owner would otherwise remove the stored one.
    needed: bool = False


def _ignore(given: Given, now: datetime) -> Ignore:
    until, rate = first(given, "until").strip(), first(given, "rate").strip()
    try:
        return Ignore(
            until=times.parse_ahead(until, now) if until else None,
            rate=times.parse_hourly(rate) if rate else None,
            count=_number(first(given, "count").strip()),
        )
    except ValueError as error:
        raise TriageError(str(error)) from error


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise TriageError(f"count must be a whole number above zero, not {text[:40]!r}.")
    return int(text)


#: The forms by the name of the act.
ACTS: Mapping[str, Form] = {
    "ignore": Form(
        ("until", "rate", "count"),
        _ignore,
        "The group is ignored: the list leaves it out, and its letters are unchanged.",
    ),
    "resolve": Form(
        ("release",),
        lambda given, _now: Resolve(release=first(given, "release").strip()),
        "The group is resolved. Its letters are still open; redrive or discard them.",
    ),
    "reopen": Form((), lambda _given, _now: Reopen(), "The group is open."),
    "note": Form(
        ("note",),
        lambda given, _now: Annotate(note=first(given, "note").strip()),
        "The note was saved.",
        needed=True,
    ),
    "merge": Form(
        ("into",),
        lambda given, _now: Merge(into=first(given, "into").strip()),
        "The groups are merged. Letters of both are counted here.",
        needed=True,
    ),
    "split": Form(
        ("member",),
        lambda given, _now: Split(member=first(given, "member").strip()),
        "The merge was undone.",
    ),
    "assign": Form(
        ("owner",),
        lambda given, _now: Assign(owner=first(given, "owner").strip()),
        "The owner was saved.",
        needed=True,
    ),
}


def what_was_done(given: Given) -> str:
    """The sentence for a page that an act has led to; empty for any other page."""
    form = ACTS.get(first(given, "done"))
    return form.done if form else ""


class DecisionPage(Page):
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


class Decision(Api):
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
            return group_records(self.site, store, [lookup.group(store, name, now)], now)

        [changed] = await self.site.act(carry_out)
        self.reply(changed)


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


def group_records(
    site: Site, store: Store, found: Sequence[Group], now: datetime
) -> list[dict[str, Any]]:
    """Groups as the REST API has them, with their tickets.

    :raises StoreError: the store failed.
    """
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

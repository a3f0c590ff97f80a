"""Decisions about a group from the forms of pages. A form that is not accepted comes back with its values."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from celery_dlq.errors import AmbiguousId, TriageError, UnknownGroup
from celery_dlq.flower.http.handler import Page
from celery_dlq.flower.http.problems import Refused, problem_of
from celery_dlq.flower.http.request import Given, first, sent
from celery_dlq.flower.resources.arrivals import read_range
from celery_dlq.flower.resources.group import USUAL_RANGE, look_up
from celery_dlq.flower.resources.groups import ACTS, FieldError
from celery_dlq.redact import clip
from celery_dlq.view import times

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.store import Store


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
            wanted, problem = read_range({}, USUAL_RANGE), problem_of(error, 400)
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
            queue.store.groups.triage(fingerprint, meant, who=who, now=now)
            queue.move_letters(meant)

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

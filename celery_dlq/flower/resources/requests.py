"""Acts that wait for a second person: the list; one with its frozen plan; and its two buttons."""

from __future__ import annotations

from collections.abc import Mapping

from celery_dlq.flower.http.calls import NotYet
from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.request import limit_of, reason_in
from celery_dlq.model.request import Request, RequestState, is_same_person
from celery_dlq.view.fields import facts_in
from celery_dlq.view.requests import REQUEST, request_record

#: The acts, each with the message after it.
ACTS: Mapping[str, str] = {
    "approve": "Your approval was recorded.",
    "refuse": "The request was refused.",
}

#: Letters that a page names.
_NAMED = 50


class Requests(Handler):
    """``/dead-letters/requests``, and the same in the REST API."""

    tab = "requests"

    async def get(self) -> None:
        """All requests that wait, and the newest others."""
        limit = limit_of(self.known_values(*(("limit",) if self.is_api else ())))
        found = await self.site.ask(lambda store: store.requests.find(limit=limit))
        if self.is_api:
            self.reply({"requests": [*map(request_record, found)]})
        else:
            self.page("requests", found)


class OneRequest(Handler):
    """``/dead-letters/requests/<id>``, and the same in the REST API."""

    tab = "requests"

    async def get(self, request_id: str) -> None:
        """One request with its letters."""
        given = self.known_values(*(() if self.is_api else ("done",)))
        one = await self.site.ask(lambda store: store.requests.get(request_id))
        if self.is_api:
            self.reply(request_record(one, is_whole=True))
            return
        is_open = one.state is RequestState.OPEN
        self.page(
            "request", one, facts=[fact for fact in facts_in(REQUEST, one, ()) if fact[1]],
            why_not=one.why_not_approved(self.actor) if is_open else "", is_open=is_open,
            is_own=is_same_person(self.actor, one.who), named=[*one.letters][:_NAMED],
            done=ACTS.get("".join(given.get("done", ())), ""),
        )  # fmt: skip


class Decide(Handler):
    """``POST /dead-letters/requests/<id>/<act>``, and the same in the REST API: approve or refuse."""

    tab = "requests"

    async def post(self, request_id: str) -> None:
        """Run the act, once per form."""
        act, who = self.act, self.actor
        why = reason_in(self.act_values(f"request {request_id}", "why"))
        try:
            decided: Request = await self.site.act(
                lambda queue: getattr(queue.requests, act)(request_id, who=who, why=why)
            )
        except NotYet:  # it goes on, as an erasure of many letters does
            decided = await self.site.ask(lambda store: store.requests.get(request_id))
        if self.is_api:
            self.reply(request_record(decided, is_whole=True))
        else:
            self.see(f"{self.links.page('requests', decided.id)}?done={act}")

"""Tickets in a system of your own, by a webhook."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from celery_dlq.errors import SettingsError
from celery_dlq.hooks.http import origin_of
from celery_dlq.hooks.services import key_of, signed
from celery_dlq.hooks.words import letter_data
from celery_dlq.model.handling import HandlerLetter
from celery_dlq.settings.validation import Allowed
from celery_dlq.tickets.handler import TicketHandler, field_of
from celery_dlq.tickets.service import ADDRESS, Service
from celery_dlq.tickets.text import TicketText


@dataclass(frozen=True, repr=False)
class TicketWebhook(TicketHandler):
    """Posts JSON to a service of yours, which opens the ticket and answers with ``{"url": "https://…"}``.

    The header ``Idempotency-Key`` is the same for each request about a group. The service must open one
    ticket for a key, and answer with the same ``url`` if the key comes again.

    :param url: the address to post to.
    :param secret: ``whsec_`` and 24 to 64 bytes in base64. With it, requests are signed as those of
        :class:`celery_dlq.hooks.Webhook`.
    :param app: the name after ``celery -A``. It is also in the key: give each of several apps its own if
        their groups must not share tickets.
    :raises SettingsError: a value is not allowed.
    """

    allowed: ClassVar[Mapping[str, Allowed]] = {
        **TicketHandler.allowed,
        "url": ADDRESS,
        "secret": Allowed("a string", lambda value: isinstance(value, str)),
        "clock": Allowed("a function", callable),
    }

    #: The address may contain a secret, as the addresses of Slack's webhooks do.
    url: str = field(repr=False)
    _: KW_ONLY
    secret: str = field(default="", repr=False)
    #: Seconds since 1970, for signatures.
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<TicketWebhook {origin_of(self.url)}>"

    def contradictions(self) -> Iterator[str]:
        """A secret of the wrong form."""
        if self.secret and isinstance(self.secret, str):
            try:
                key_of(self.secret)
            except SettingsError as error:
                yield str(error)

    def service(self) -> Service:
        """The service at the address."""
        return Service(
            name="The ticket webhook", base=self.url, headers={"Accept": "application/json"},
            secrets=tuple(filter(None, (self.secret, self.url))), meanings=_MEANINGS,
            timeout_s=self.timeout,
        )  # fmt: skip

    def find(self, service: Service, mark: str) -> None:
        """Returns None: the service itself finds the ticket of a key."""

    def open(self, service: Service, mark: str, text: TicketText, letter: HandlerLetter) -> str:
        """Post; returns the address that the service answers with."""
        key = f"{self.app}/{mark}" if self.app else mark
        body = json.dumps({"type": "ticket", "data": _data(text, letter)}).encode()
        headers = {"Idempotency-Key": key}
        if self.secret:
            # The signature divides its parts by full stops, so its id must have none.
            message_id = f"dlq_{hashlib.sha256(key.encode()).hexdigest()[:32]}"
            headers |= signed(key_of(self.secret), message_id, self.clock(), body)
        url = field_of(service, service.post_bytes("", body, headers), "url")
        if not url.startswith(("https://", "http://")):
            raise service.wrong('its url is not an address. It must answer {"url": "https://…"}.')
        return url


def _data(text: TicketText, letter: HandlerLetter) -> dict[str, Any]:
    more = {"commands": list(text.commands), "traceback": text.failure, "title": text.title}
    return {**letter_data(letter.shown), **more}


_MEANINGS: Mapping[int, str] = {
    401: "It does not accept the request. Check secret on both sides.",
    403: "It does not accept the request. Check secret on both sides.",
    404: "It has no such address. Check url.",
    422: "It does not accept the request. Its log may say why.",
}

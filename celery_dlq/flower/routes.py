"""Which address leads to which handler. A page is one file in ``pages/``, and one line here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tornado.routing import URLSpec
from tornado.web import StaticFileHandler

from celery_dlq.flower.api.acts import Discard, Redrive
from celery_dlq.flower.api.groups import (
    AssignGroup,
    Groups,
    IgnoreGroup,
    NoteGroup,
    OneGroup,
    ReopenGroup,
    ResolveGroup,
)
from celery_dlq.flower.api.letters import Letter, Letters, Statistics
from celery_dlq.flower.api.operations import Cancel, Operation, Operations, Pause, Resume
from celery_dlq.flower.handler import Handler
from celery_dlq.flower.links import STATIC
from celery_dlq.flower.pages.act import (
    DiscardLetter,
    RedriveLetter,
    ReleaseLetter,
    UndiscardLetter,
)
from celery_dlq.flower.pages.bulk import DiscardMany, RedriveMany
from celery_dlq.flower.pages.edit import EditPage
from celery_dlq.flower.pages.group import GroupActPage, GroupPage
from celery_dlq.flower.pages.groups import GroupsPage
from celery_dlq.flower.pages.letter import LetterPage
from celery_dlq.flower.pages.letters import LettersPage
from celery_dlq.flower.pages.of_task import OfTask
from celery_dlq.flower.pages.operations import OperationAct, OperationPage, OperationsPage
from celery_dlq.flower.pages.overview import OverviewPage
from celery_dlq.flower.site import Site

#: One part of a path; what it stands for may hold a slash, as %2F.
_PART = r"([^/]+)"


@dataclass(frozen=True)
class Route:
    """An address, as OpenAPI writes it: ``/dead-letters/letters/{id}``."""

    path: str
    handler: type[Handler]
    #: For Flower's ``reverse_url``.
    name: str | None = None

    @property
    def pattern(self) -> str:
        """The address as a regular expression."""
        literal, *others = re.split(r"\{\w+\}", self.path)
        return re.escape(literal) + "".join(_PART + re.escape(text) for text in others)


PAGES = (
    Route("/dead-letters", OverviewPage, "dlq"),
    Route("/dead-letters/groups", GroupsPage),
    Route("/dead-letters/groups/{fingerprint}", GroupPage),
    Route("/dead-letters/groups/{fingerprint}/{act}", GroupActPage),
    Route("/dead-letters/letters", LettersPage),
    Route("/dead-letters/letters/{id}", LetterPage),
    Route("/dead-letters/letters/{id}/redrive", RedriveLetter),
    Route("/dead-letters/letters/{id}/discard", DiscardLetter),
    Route("/dead-letters/letters/{id}/undiscard", UndiscardLetter),
    Route("/dead-letters/letters/{id}/release", ReleaseLetter),
    Route("/dead-letters/letters/{id}/edit", EditPage),
    Route("/dead-letters/of-task/{id}", OfTask),
    Route("/dead-letters/redrive", RedriveMany),
    Route("/dead-letters/discard", DiscardMany),
    Route("/dead-letters/operations", OperationsPage),
    Route("/dead-letters/operations/{id}", OperationPage),
    Route("/dead-letters/operations/{id}/{act}", OperationAct),
)

API = (
    Route("/api/dead-letters", Letters),
    Route("/api/dead-letters/letters/{id}", Letter),
    Route("/api/dead-letters/groups", Groups),
    Route("/api/dead-letters/groups/{fingerprint}", OneGroup),
    Route("/api/dead-letters/groups/{fingerprint}/ignore", IgnoreGroup),
    Route("/api/dead-letters/groups/{fingerprint}/resolve", ResolveGroup),
    Route("/api/dead-letters/groups/{fingerprint}/reopen", ReopenGroup),
    Route("/api/dead-letters/groups/{fingerprint}/note", NoteGroup),
    Route("/api/dead-letters/groups/{fingerprint}/assign", AssignGroup),
    Route("/api/dead-letters/stats", Statistics),
    Route("/api/dead-letters/redrive", Redrive),
    Route("/api/dead-letters/discard", Discard),
    Route("/api/dead-letters/operations", Operations),
    Route("/api/dead-letters/operations/{id}", Operation),
    Route("/api/dead-letters/operations/{id}/pause", Pause),
    Route("/api/dead-letters/operations/{id}/resume", Resume),
    Route("/api/dead-letters/operations/{id}/cancel", Cancel),
)


def url_specs(site: Site) -> list[URLSpec]:
    """All our addresses, for Tornado."""
    root = re.escape(site.links.root)
    given: dict[str, Any] = {"site": site}
    return [
        URLSpec(root + r"/dead-letters/static/(.*)", StaticFileHandler, {"path": str(STATIC)}),
        *(
            URLSpec(root + route.pattern, route.handler, given, route.name)
            for route in (*PAGES, *API)
        ),
    ]

"""The handler of each address. A page is one file in ``pages/`` and one line here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tornado.routing import URLSpec
from tornado.web import StaticFileHandler

from celery_dlq.flower.api.acts import Delete, Discard, Redrive
from celery_dlq.flower.api.auto_redrives import (
    AutoRedrives,
    AutoRun,
    AutoRuns,
    AutoTrial,
    MoveAuto,
    OneAutoRedrive,
)
from celery_dlq.flower.api.groups import Groups, OneGroup, Triage
from celery_dlq.flower.api.letters import Letter, Letters
from celery_dlq.flower.api.operations import Move, Operation, Operations
from celery_dlq.flower.api.stats import Recorder, Retention, Statistics
from celery_dlq.flower.html.links import STATIC
from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.pages.audit import AuditPage
from celery_dlq.flower.pages.auto_redrives.auto_redrive import AutoAct, AutoPage
from celery_dlq.flower.pages.auto_redrives.auto_redrive import AutoTrial as AutoTrialPage
from celery_dlq.flower.pages.auto_redrives.auto_run import AutoRunPage
from celery_dlq.flower.pages.auto_redrives.listing import AutosPage
from celery_dlq.flower.pages.export import ExportPage
from celery_dlq.flower.pages.groups.group import GroupActPage, GroupPage
from celery_dlq.flower.pages.groups.listing import GroupsPage
from celery_dlq.flower.pages.letters.act import LetterAct
from celery_dlq.flower.pages.letters.bulk import DeleteMany, DiscardMany, RedriveMany
from celery_dlq.flower.pages.letters.edit import EditPage
from celery_dlq.flower.pages.letters.letter import LetterPage, OfTask
from celery_dlq.flower.pages.letters.listing import LettersPage
from celery_dlq.flower.pages.letters.saved_filters import RemoveFilter, SaveFilter
from celery_dlq.flower.pages.operations.listing import OperationsPage
from celery_dlq.flower.pages.operations.operation import OperationAct, OperationPage
from celery_dlq.flower.pages.overview import OverviewPage

#: One part of a path; a slash in a value is sent as %2F.
_PART = r"([^/]+)"


@dataclass(frozen=True)
class Route:
    """An address in the notation of OpenAPI: ``/dead-letters/letters/{id}``."""

    path: str
    handler: type[Handler]
    #: For Flower's ``reverse_url``.
    name: str | None = None
    #: For a handler that runs several acts.
    act: str = ""

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
    Route("/dead-letters/letters/{id}/redrive", LetterAct, act="redrive"),
    Route("/dead-letters/letters/{id}/discard", LetterAct, act="discard"),
    Route("/dead-letters/letters/{id}/undiscard", LetterAct, act="undiscard"),
    Route("/dead-letters/letters/{id}/release", LetterAct, act="release"),
    Route("/dead-letters/letters/{id}/edit", EditPage),
    Route("/dead-letters/of-task/{id}", OfTask),
    Route("/dead-letters/saved-filters", SaveFilter),
    Route("/dead-letters/saved-filters/remove", RemoveFilter),
    Route("/dead-letters/redrive", RedriveMany),
    Route("/dead-letters/discard", DiscardMany),
    Route("/dead-letters/delete", DeleteMany),
    Route("/dead-letters/operations", OperationsPage),
    Route("/dead-letters/operations/{id}", OperationPage),
    Route("/dead-letters/operations/{id}/{act}", OperationAct),
    Route("/dead-letters/audit", AuditPage),
    Route("/dead-letters/export/{name}", ExportPage),
    Route("/dead-letters/auto-redrives", AutosPage),
    Route("/dead-letters/auto-redrives/{name}", AutoPage),
    Route("/dead-letters/auto-redrives/{name}/dry-run", AutoTrialPage),
    Route("/dead-letters/auto-redrives/{name}/pause", AutoAct, act="pause"),
    Route("/dead-letters/auto-redrives/{name}/resume", AutoAct, act="resume"),
    Route("/dead-letters/auto-redrives/{name}/run", AutoAct, act="run"),
    Route("/dead-letters/auto-redrive-runs/{id}", AutoRunPage),
)

API = (
    Route("/api/dead-letters", Letters),
    Route("/api/dead-letters/letters/{id}", Letter),
    Route("/api/dead-letters/groups", Groups),
    Route("/api/dead-letters/groups/{fingerprint}", OneGroup),
    Route("/api/dead-letters/groups/{fingerprint}/ignore", Triage, act="ignore"),
    Route("/api/dead-letters/groups/{fingerprint}/resolve", Triage, act="resolve"),
    Route("/api/dead-letters/groups/{fingerprint}/reopen", Triage, act="reopen"),
    Route("/api/dead-letters/groups/{fingerprint}/note", Triage, act="note"),
    Route("/api/dead-letters/groups/{fingerprint}/assign", Triage, act="assign"),
    Route("/api/dead-letters/groups/{fingerprint}/merge", Triage, act="merge"),
    Route("/api/dead-letters/groups/{fingerprint}/split", Triage, act="split"),
    Route("/api/dead-letters/stats", Statistics),
    Route("/api/dead-letters/retention", Retention),
    Route("/api/dead-letters/recorder", Recorder),
    Route("/api/dead-letters/redrive", Redrive),
    Route("/api/dead-letters/discard", Discard),
    Route("/api/dead-letters/delete", Delete),
    Route("/api/dead-letters/operations", Operations),
    Route("/api/dead-letters/operations/{id}", Operation),
    Route("/api/dead-letters/operations/{id}/pause", Move, act="pause"),
    Route("/api/dead-letters/operations/{id}/resume", Move, act="resume"),
    Route("/api/dead-letters/operations/{id}/cancel", Move, act="cancel"),
    Route("/api/dead-letters/auto-redrives", AutoRedrives),
    Route("/api/dead-letters/auto-redrives/{name}", OneAutoRedrive),
    Route("/api/dead-letters/auto-redrives/{name}/dry-run", AutoTrial),
    Route("/api/dead-letters/auto-redrives/{name}/pause", MoveAuto, act="pause"),
    Route("/api/dead-letters/auto-redrives/{name}/resume", MoveAuto, act="resume"),
    Route("/api/dead-letters/auto-redrives/{name}/run", MoveAuto, act="run"),
    Route("/api/dead-letters/auto-redrive-runs", AutoRuns),
    Route("/api/dead-letters/auto-redrive-runs/{id}", AutoRun),
)


def url_specs(site: Site) -> list[URLSpec]:
    """All our routes, for Tornado."""
    root = re.escape(site.links.root)
    return [
        URLSpec(root + r"/dead-letters/static/(.*)", StaticFileHandler, {"path": str(STATIC)}),
        *(
            URLSpec(
                root + route.pattern, route.handler, {"site": site, "act": route.act}, route.name
            )
            for route in (*PAGES, *API)
        ),
    ]

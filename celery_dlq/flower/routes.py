"""The handler of each address. A resource is one module in ``resources/``, and one line here for each
address."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tornado.routing import URLSpec
from tornado.web import StaticFileHandler

from celery_dlq.flower.html.links import STATIC
from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.site import Site
from celery_dlq.flower.resources import (
    audit,
    auto_redrives,
    auto_runs,
    bulk,
    editor,
    export,
    group,
    group_decisions,
    groups,
    letter,
    letter_acts,
    letters,
    operations,
    overview,
    search,
)

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


def _acts(path: str, handler: type[Handler], *acts: str) -> list[Route]:
    """The addresses of acts: their names follow ``path``."""
    return [Route(f"{path}/{act}", handler, act=act) for act in acts]


PAGES = (
    Route("/dead-letters", overview.OverviewPage, "dlq"),
    Route("/dead-letters/groups", groups.GroupsPage),
    Route("/dead-letters/groups/{fingerprint}", group.GroupPage),
    Route("/dead-letters/groups/{fingerprint}/{act}", group_decisions.DecisionPage),
    Route("/dead-letters/letters", letters.LettersPage),
    Route("/dead-letters/letters/{id}", letter.LetterPage),
    *_acts(
        "/dead-letters/letters/{id}",
        letter_acts.LetterAct,
        "redrive",
        "discard",
        "undiscard",
        "release",
    ),
    Route("/dead-letters/letters/{id}/edit", editor.EditPage),
    Route("/dead-letters/of-task/{id}", letter.OfTask),
    Route("/dead-letters/saved-filters", search.SaveFilter),
    Route("/dead-letters/saved-filters/remove", search.RemoveFilter),
    *_acts("/dead-letters", bulk.ManyLettersPage, *letter_acts.ACTS),
    Route("/dead-letters/operations", operations.OperationsPage),
    Route("/dead-letters/operations/{id}", operations.OperationPage),
    Route("/dead-letters/operations/{id}/{act}", operations.OperationAct),
    Route("/dead-letters/audit", audit.AuditPage),
    Route("/dead-letters/export/{name}", export.ExportPage),
    Route("/dead-letters/auto-redrives", auto_redrives.AutosPage),
    Route("/dead-letters/auto-redrives/{name}", auto_redrives.AutoPage),
    Route("/dead-letters/auto-redrives/{name}/dry-run", auto_redrives.TrialPage),
    *_acts("/dead-letters/auto-redrives/{name}", auto_redrives.AutoAct, *auto_redrives.ACTS),
    Route("/dead-letters/auto-redrive-runs/{id}", auto_runs.AutoRunPage),
)

API = (
    Route("/api/dead-letters", letters.Letters),
    Route("/api/dead-letters/letters/{id}", letter.OneLetter),
    Route("/api/dead-letters/groups", groups.Groups),
    Route("/api/dead-letters/groups/{fingerprint}", group.OneGroup),
    *_acts(
        "/api/dead-letters/groups/{fingerprint}", group_decisions.Decision, *group_decisions.ACTS
    ),
    Route("/api/dead-letters/stats", overview.Statistics),
    Route("/api/dead-letters/retention", overview.Retention),
    Route("/api/dead-letters/recorder", overview.Recorder),
    *_acts("/api/dead-letters", bulk.ManyLetters, *letter_acts.ACTS),
    Route("/api/dead-letters/operations", operations.Operations),
    Route("/api/dead-letters/operations/{id}", operations.OneOperation),
    *_acts("/api/dead-letters/operations/{id}", operations.Move, *operations.ACTS),
    Route("/api/dead-letters/auto-redrives", auto_redrives.AutoRedrives),
    Route("/api/dead-letters/auto-redrives/{name}", auto_redrives.OneAutoRedrive),
    Route("/api/dead-letters/auto-redrives/{name}/dry-run", auto_redrives.AutoTrial),
    *_acts("/api/dead-letters/auto-redrives/{name}", auto_redrives.MoveAuto, *auto_redrives.ACTS),
    Route("/api/dead-letters/auto-redrive-runs", auto_runs.AutoRuns),
    Route("/api/dead-letters/auto-redrive-runs/{id}", auto_runs.OneAutoRun),
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

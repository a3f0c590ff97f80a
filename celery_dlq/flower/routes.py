"""Our parts of Flower: a tab in its navigation, templates, and a handler for each address. A resource is
one module in ``resources/``, and one line here for each address."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornado.routing import URLSpec
from tornado.template import Loader, Template
from tornado.web import HTTPError, RequestHandler, StaticFileHandler

from celery_dlq.flower.http.handler import Handler
from celery_dlq.flower.http.site import STATIC, Site
from celery_dlq.flower.resources import (
    audit,
    automations,
    bulk,
    editor,
    group,
    groups,
    letter,
    letter_acts,
    letters,
    operations,
    overview,
    requests,
)

logger: logging.Logger = logging.getLogger(__name__)

OWN = Path(__file__).with_name("templates")

#: The prefix of our templates' names.
PREFIX = "dlq_"

#: The last navigation entry that every version of Flower has.
_BROKER = re.compile(r"<li\b(?:(?!<li\b).)*?reverse_url\('broker'\).*?</li>", re.DOTALL)

#: Another Flower in this process may use the same templates without having the tab.
_IF_ATTACHED = "{%% if 'celery_dlq' in handler.application.settings %%}%s{%% end %%}"

_SCRIPT = (
    "{% set dlq_site = handler.application.settings['celery_dlq'] %}"
    "<script defer src=\"{{ dlq_site.links.static('flower_pages.js') }}\""
    ' data-dead-state="{{ dlq_site.dead_state }}"></script>'
)


def use_templates(flower_app: Any) -> None:
    """Make a Flower find our templates and show the tab on all its pages."""
    path = flower_app.settings["template_path"]
    flower_app.settings["template_loader"] = TabLoader(path)
    # Tornado caches loaders by path; drop the old one.
    RequestHandler._template_loaders.pop(path, None)


class TabLoader(Loader):
    """Flower's templates and ours, under flat names, so that ours can extend Flower's."""

    def _create_template(self, name: str) -> Template:
        if name.startswith(PREFIX):
            return Template((OWN / name).read_bytes(), name=name, loader=self)
        if name == "navbar.html":
            source = (Path(self.root) / name).read_text(encoding="utf-8")
            return Template(with_tab(source), name=name, loader=self)
        return super()._create_template(name)


def with_tab(navbar: str) -> str:
    """Flower's navigation with our tab: a copy of its last entry, with our name and address."""
    found = _BROKER.search(navbar)
    if found is None:
        logger.warning(
            "The tab for dead letters is missing, because this version of Flower has another navigation; "
            "the page is at /dead-letters."
        )
        return navbar
    entry = found[0].replace("reverse_url('broker')", "reverse_url('dlq')")
    entry = entry.replace("'broker'", "'dlq'").replace(">Broker<", ">Dead letters<")
    tab = _IF_ATTACHED % (entry + _SCRIPT)
    return f"{navbar[: found.end()]}{tab}{navbar[found.end() :]}"


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

    def spec(self, site: Site) -> URLSpec:
        """The route for Tornado."""
        given = {"site": site, "act": self.act, "is_api": self.path.startswith("/api/")}
        return URLSpec(re.escape(site.links.root) + self.pattern, self.handler, given, self.name)


class Nothing(Handler):
    """Answers for an address that has nothing."""

    def prepare(self) -> None:
        """Say so, to users who are logged in."""
        super().prepare()
        raise HTTPError(404)


def _acts(path: str, handler: type[Handler], acts: Iterable[str]) -> list[Route]:
    """The addresses of acts: their names follow ``path``."""
    return [Route(f"{path}/{act}", handler, act=act) for act in acts]


def _shared(root: str) -> list[Route]:
    """The addresses below ``root`` that have a page as well as a place in the REST API."""
    return [
        Route(f"{root}/groups", groups.Groups),
        Route(f"{root}/groups/{{fingerprint}}", group.OneGroup),
        *_acts(f"{root}/groups/{{fingerprint}}", group.Decision, groups.ACTS),
        Route(f"{root}/letters/{{id}}", letter.OneLetter),
        *_acts(root, bulk.ManyLetters, letter_acts.ACTS),
        Route(f"{root}/operations", operations.Operations),
        Route(f"{root}/operations/{{id}}", operations.OneOperation),
        *_acts(f"{root}/operations/{{id}}", operations.Move, operations.ACTS),
        Route(f"{root}/requests", requests.Requests),
        Route(f"{root}/requests/{{id}}", requests.OneRequest),
        *_acts(f"{root}/requests/{{id}}", requests.Decide, requests.ACTS),
        Route(f"{root}/automations", automations.Automations),
        Route(f"{root}/automations/{{name}}", automations.OneAutomation),
        Route(f"{root}/automations/{{name}}/dry-run", automations.Trial),
        *_acts(f"{root}/automations/{{name}}", automations.Move, automations.ACTS),
    ]


PAGES = (
    Route("/dead-letters", overview.OverviewPage, "dlq"),
    Route("/dead-letters/letters", letters.Letters),
    *_acts("/dead-letters/letters/{id}", letter.LetterAct, letter.ACTS),
    Route("/dead-letters/letters/{id}/edit", editor.EditPage, act="edit"),
    Route("/dead-letters/of-task/{id}", letter.OfTask),
    Route("/dead-letters/audit", audit.Audit),
    Route("/dead-letters/unknown-exceptions", overview.UnknownPage),
    *_shared("/dead-letters"),
)

API = (
    Route("/api/dead-letters", letters.Letters),
    *_acts("/api/dead-letters", overview.Numbers, overview.NUMBERS),
    *_shared("/api/dead-letters"),
)


def url_specs(site: Site) -> list[URLSpec]:
    """All our routes, for Tornado."""
    root = re.escape(site.links.root)
    return [
        URLSpec(root + r"/dead-letters/static/(.*)", StaticFileHandler, {"path": str(STATIC)}),
        *(route.spec(site) for route in (*PAGES, *API)),
        URLSpec(root + r"/dead-letters/.*", Nothing, {"site": site}),
        URLSpec(root + r"/api/dead-letters/.*", Nothing, {"site": site, "is_api": True}),
    ]

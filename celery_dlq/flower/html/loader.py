"""Load our templates in addition to Flower's, and add the tab to Flower's navigation."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from tornado.template import Loader, Template
from tornado.web import RequestHandler

logger = logging.getLogger(__name__)

OWN = Path(__file__).parents[1] / "templates"

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

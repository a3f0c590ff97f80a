"""The documentation as a site, by Sphinx: ``make docs``. The pages are also read without it."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "celery_dlq"
author = "The celery_dlq authors"
# Read, not imported: the build of the site needs none of the package's dependencies.
[version] = re.findall(
    r'^__version__ = "(.+)"', (ROOT / "celery_dlq/__init__.py").read_text(), re.MULTILINE
)
release = version

extensions = ["myst_parser", "sphinxcontrib.mermaid"]
myst_fence_as_directive = ["mermaid"]
# The source is the whole checkout, because pages link to files outside of docs/.
include_patterns = ["docs/*.md", "docs/*/*.md", "*.md", "example_project/*.md", "benchmarks/*.md"]
exclude_patterns = [".*", "build", "dist"]
root_doc = "docs/index"
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"celery_dlq {version}"
html_copy_source = False

_SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w/.-]+)\.md")


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Give the index a navigation: a part for each of its sections, with the pages to which it links."""
    if name != root_doc:
        return
    for title, text in _SECTION.findall(source[0]):
        pages = "\n".join(dict.fromkeys(_PAGE.findall(text)))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)

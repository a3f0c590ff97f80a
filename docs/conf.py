"""The documentation as a site, by Sphinx: ``make docs``. The pages are also read without it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.addnodes import index
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "celery_dlq"
author = "The celery_dlq authors"
# Read, not imported: the build of the site needs none of the package's dependencies.
[version] = re.findall(
    r'^__version__ = "(.+)"', (ROOT / "celery_dlq/__init__.py").read_text(), re.MULTILINE
)
release = version

extensions = ["myst_parser", "sphinxcontrib.mermaid", "sphinx_copybutton", "notfound.extension"]
myst_fence_as_directive = ["mermaid"]
# The source is the whole checkout, because pages link to files outside of docs/.
include_patterns = ["docs/*.md", "docs/*/*.md", "*.md", "example_project/*.md", "benchmarks/*.md"]
exclude_patterns = [".*", "build", "dist"]
root_doc = "docs/index"
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"celery_dlq {version}"
html_copy_source = False
# It would list the questions and names that only the search needs.
html_use_index = False
# The name of the package leads to the start page, not to the list of all pages.
html_context = {"master_doc": "index"}
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("sidebar.js", {"defer": ""})]
html_search_scorer = str(ROOT / "docs/search.js")

# A block with prompts is copied without them, and without the output.
copybutton_prompt_text = "$ "
# The links of the page for a wrong address begin at the root of the host, except on Read the Docs.
if "READTHEDOCS" not in os.environ:
    notfound_urls_prefix = "/"
notfound_template = "404.html"

_SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\| (?!---)(?!you want to)(.+?) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([\w/.-]+)\.md(?:#([\w-]+))?\)")
#: The name of a setting, an option or a metric. A word such as ``state`` would be found for many questions.
_NAME = re.compile(r"\w+_\w+")


class Answer(NamedTuple):
    """A link in the index, with the question that the page answers."""

    question: str
    words: str
    page: str
    anchor: str


def read_index() -> dict[str, list[Answer]]:
    """The answers in each section of the index."""
    return {
        title: [
            Answer(question, words, os.path.normpath(f"docs/{page}"), anchor)
            for question, links in _ROW.findall(text)
            for words, page, anchor in _LINK.findall(links)
        ]
        for title, text in _SECTION.findall((ROOT / f"{root_doc}.md").read_text("utf-8"))
    }


INDEX = read_index()


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Give the index a navigation: a part for each of its sections, with the pages to which it links."""
    if name != root_doc:
        return
    source[0] += "\n```{toctree}\n:hidden:\n\nAll pages, by question <self>\n```\n"
    for title, answers in INDEX.items():
        pages = "\n".join(dict.fromkeys(f"/{answer.page}" for answer in answers))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def add_to_search(app: Sphinx, page: nodes.document) -> None:
    """Let the search find a page by the questions that it answers, and a row of the reference by its name."""
    name = app.env.current_document.docname
    found = [
        (answer.question, answer.anchor)
        for answers in INDEX.values()
        for answer in answers
        if answer.page == name
    ]
    if name.startswith("docs/reference/"):
        found += name_rows(page)
    entries = [("single", text, anchor, "main", None) for text, anchor in found]
    page += index(entries=entries)


def name_rows(page: nodes.document) -> Iterator[tuple[str, str]]:
    """The names that begin rows of tables; each row gets an anchor."""
    for row in page.findall(nodes.row):
        for literal in row[0].findall(nodes.literal):
            name = literal.astext()
            if _NAME.fullmatch(name) and (anchor := nodes.make_id(name)) not in page.ids:
                page.ids[anchor] = row
                row["ids"].append(anchor)
                yield name, anchor


def start_page(_app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page at the root of the site."""
    yield "index", {"title": "Start", "parts": INDEX, "version": version}, "start.html"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", add_to_search)
    app.connect("html-collect-pages", start_page)

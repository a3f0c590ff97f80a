"""``dlq help``: shows the documentation, which is part of the wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

import celery_dlq
from celery_dlq.base.known import unknown_name
from celery_dlq.cli.screens.parts import Column, Table
from celery_dlq.cli.screens.render import Screen
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.errors import CeleryDLQError

#: The pages in a wheel, and in a checkout.
_PACKAGE = Path(celery_dlq.__file__).parent
_PLACES = (_PACKAGE / "docs", _PACKAGE.parent / "docs")

#: Folders of pages, in the order of the topics.
_FOLDERS = (".", "howto", "reference")

#: Pages for contributors to this package and for those who decide about it, and the index, which the list of
#: topics replaces.
_LEFT_OUT = frozenset({"architecture", "index", "kill_test", "measured", "redis_gap", "why"})

#: The page about a command whose name is not that of a page.
_ABOUT = {
    "groups": "triage", "explain": "choose-what-is-retried", "reclassify": "choose-what-is-retried",
    "redrive": "redrive-safely", "operations": "redrive-safely", "edit": "repair-letters",
    "unpark": "long-waits", "auto": "auto-redrive", "discard": "triage",
    "delete": "retention", "forget": "answer-an-erasure-request", "archive": "retention",
    "recover": "when-the-store-is-away", "check": "monitor", "exporter": "monitor", "db": "databases",
    "keys": "encryption",
    **dict.fromkeys(("list", "show", "stats", "watch", "audit", "doctor"), "cli"),
    "where": "troubleshoot", "drill": "drill", "requests": "second-person",
}  # fmt: skip

_FENCE = re.compile(r"^(```.*?^```[^\n]*)$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n*")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


@click.command("help")
@click.argument("topic", metavar="[TOPIC]", required=False)
@pass_session
def help_command(session: Session, topic: str | None) -> None:
    """Show a page of the documentation.

    TOPIC may also be a command. Without it, lists the topics.
    """
    pages = find_pages()
    screen = session.screen
    topic = topic if topic in pages else _ABOUT.get(topic or "", topic)
    if topic is None:
        rows = [(name, title_of(read_page(path))) for name, path in pages.items()]
        screen.show(Table((Column("TOPIC", rigid=True), Column("ABOUT", fold=True)), rows))
    elif topic not in pages:
        said = unknown_name("a topic of the documentation", topic, pages)
        raise click.BadParameter(said, param_hint="'TOPIC'")
    else:
        _show(screen, as_text(read_page(pages[topic]), pages))


def find_pages() -> Mapping[str, Path]:
    """The pages of the documentation, by topic.

    :raises CeleryDLQError: the installed package has no pages.
    """
    for place in _PLACES:
        pages = {topic_of(path): path for path in _pages_in(place)}
        if pages:
            return pages
    raise CeleryDLQError(
        "The documentation is missing from this installation; run: pip install --force-reinstall celery-dlq"
    )


def topic_of(path: Path) -> str:
    """The topic of the page in ``path``."""
    return path.stem.replace("_", "-")


def read_page(path: Path) -> str:
    """The Markdown text of a page."""
    return path.read_text(encoding="utf-8")


def title_of(page: str) -> str:
    """The title of a page, without Markdown."""
    return page.partition("\n")[0].lstrip("# ").replace("`", "")


def as_text(page: str, topics: Mapping[str, Path]) -> str:
    """``page`` for reading without a browser: a link to another page names its topic."""
    parts = _FENCE.split(page)
    # The odd parts are code blocks.
    parts[::2] = (_without_links(text, topics) for text in parts[::2])
    return "".join(parts).strip()


def _without_links(text: str, topics: Mapping[str, Path]) -> str:
    def written(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if "://" in target:
            return words if words == target else f"{words} ({target})"
        topic = topic_of(Path(target.partition("#")[0]))
        return f"{words} (`celery dlq help {topic}`)" if topic in topics else words

    return _LINK.sub(written, _IMAGE.sub("", _COMMENT.sub("", text)))


def _pages_in(place: Path) -> Iterator[Path]:
    for folder in _FOLDERS:
        for path in sorted((place / folder).glob("*.md")):
            if path.stem not in _LEFT_OUT:
                yield path


def _show(screen: Screen, text: str) -> None:
    if screen.drawn:
        from rich.markdown import Markdown

        page = screen.draw_page(Markdown(text, hyperlinks=False))
        click.echo_via_pager(page, color=not screen.cli.no_color)
    else:
        screen.write(text)

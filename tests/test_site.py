"""The documentation as a site: its pages, its search, and how both look in a browser."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from support.chromium import PATIENCE_MS, running_chromium

ROOT = Path(__file__).parents[1]

#: What people ask, in their words, and the page that the search has to show among the first three. If it does
#: not, put these words into the page's question in docs/index.md, or into its title or first sentence.
QUESTIONS = {
    "why was my task not retried": "docs/howto/choose-what-is-retried",
    "broker settings": "docs/reference/brokers",
    "database down": "docs/howto/when-the-store-is-away",
    "gdpr": "docs/howto/answer-an-erasure-request",
    "dlq_transient": "docs/reference/settings",
    "dlq_stall_after": "docs/reference/settings",
    "worker out of memory": "docs/howto/killed-workers",
    "how do I run failed tasks again": "docs/howto/redrive-safely",
    "kubernetes": "docs/howto/containers",
    "hide passwords in arguments": "docs/howto/keep-secrets-out",
    "prometheus alerts": "docs/howto/monitor",
    "delete old failed tasks": "docs/howto/retention",
    "uninstall": "docs/howto/upgrade",
    "fastapi": "docs/howto/web-frameworks",
    "http 500": "docs/howto/adopt-in-an-existing-project",
    "my task ran twice": "docs/howto/make-tasks-idempotent",
    "slack notification": "docs/howto/hooks",
    "worker stuck": "docs/howto/stalled-workers",
    "use postgres": "docs/howto/install-on-postgresql-or-mysql",
    "unregistered task": "docs/howto/foreign-messages",
    "exponential backoff": "docs/reference/task_options",
    "pytest": "docs/howto/test-your-tasks",
    "stop all workers from calling a broken api": "docs/howto/break-the-circuit",
    "change arguments before retrying": "docs/howto/repair-letters",
}

#: Colours, and the size of the window.
LOOKS = {
    "light": ("light", {"width": 1280, "height": 800}),
    "dark": ("dark", {"width": 1280, "height": 800}),
    "phone": ("light", {"width": 390, "height": 844}),
}


class Links(HTMLParser):
    """The title, anchors and links of a page, and which of the links are in its sidebar."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.title = ""
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._in_title = tag == "title" and not self.title
        if found.get("id"):
            self.anchors.add(found["id"] or "")
        if tag == "a" and found.get("href"):
            self.links.add(found["href"] or "")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
            self._in_title = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    place = tmp_path_factory.mktemp("site")
    words = ["-m", "sphinx", "--fail-on-warning", "--nitpicky", "--quiet", "-c", "docs", "."]
    built = subprocess.run(
        [sys.executable, *words, str(place / "site"), "-d", str(place / "cache")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (built.returncode, built.stderr) == (0, "")
    return place / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Links]:
    """Every page of the site, by its address."""
    return {
        path.relative_to(site).as_posix(): Links(path.read_text("utf-8"))
        for path in site.rglob("*.html")
    }


class SiteHandler(SimpleHTTPRequestHandler):
    """A host of static sites: it shows 404.html for an address without a page."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address at which the site is served."""
    handler = functools.partial(SiteHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser of this module."""
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """A page of the site. An error of a script fails the test."""
    context = chromium.new_context(
        base_url=address, reduced_motion="reduce", permissions=["clipboard-read", "clipboard-write"]
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    yield page
    context.close()
    assert troubles == []


def search_for(page: Page, query: str) -> None:
    """Ask the search, and wait for its results."""
    page.goto(f"/search.html?q={quote(query)}")
    expect(page.locator("#search-results .search-summary")).to_contain_text("Search finished")


class TestPages:
    def test_the_index_has_the_navigation_of_the_site(self, site: Path) -> None:
        text = (site / "docs/index.html").read_text("utf-8")
        for title in ("Set up", "Work on dead letters", "About the package"):
            assert text.count(f">{title}<") >= 1
        assert 'href="howto/triage.html"' in text

    def test_every_title_is_of_one_page(self, pages: dict[str, Links]) -> None:
        titles = Counter(page.title for page in pages.values())
        assert [title for title, count in titles.items() if count > 1 or not title.strip()] == []

    @pytest.mark.parametrize("start", ["index.html", "docs/index.html", "docs/howto/triage.html"])
    def test_every_page_is_a_link_away(self, site: Path, start: str) -> None:
        text = (site / start).read_text("utf-8")
        sidebar = re.search(r'<div class="sidebar-tree">(.*?)</aside>', text, re.DOTALL)
        assert sidebar
        linked = {resolve(start, link) for link in Links(sidebar[1]).links}
        all_pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
        others = {"index.html", "search.html", "404.html", start}
        assert all_pages - linked - others == set()

    def test_every_link_leads_to_a_place(self, site: Path, pages: dict[str, Links]) -> None:
        broken = []
        for name, page in pages.items():
            for link in page.links:
                target = resolve(name, link)
                if target is None:
                    continue
                anchor = unquote(urlsplit(link).fragment)
                there = pages.get(target)
                is_there = (
                    not anchor or anchor in there.anchors if there else (site / target).is_file()
                )
                if not is_there:
                    broken.append((name, link))
        assert broken == []
        assert len(pages) > 60


def resolve(page: str, link: str) -> str | None:
    """The file to which a link of ``page`` leads; none for a link to another site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    if not parts.path:
        return page
    path = Path("/", page).parent / unquote(parts.path)
    return Path(*[part for part in _without_dots(path.parts) if part != "/"]).as_posix()


def _without_dots(parts: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == "..":
            kept.pop()
        else:
            kept.append(part)
    return kept


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestInBrowser:
    def test_the_root_is_a_start_page_with_a_search(self, page: Page) -> None:
        page.goto("/")
        expect(page.locator("h1")).to_have_text("celery_dlq")
        box = page.get_by_role("textbox", name="Search the documentation")
        box.fill("gdpr")
        box.press("Enter")
        first = page.locator("#search-results li a").first
        expect(first).to_contain_text("erasure request")
        first.click()
        expect(page.locator("h1")).to_contain_text("Answer an erasure request")

    def test_a_wrong_address_offers_a_search_and_all_pages(self, page: Page) -> None:
        answer = page.goto("/docs/howto/of-old/no-such-page.html")
        assert answer
        assert answer.status == 404
        expect(page.locator("h1")).to_have_text("Page not found")
        page.locator("article").get_by_role("link", name="all pages, by question").click()
        expect(page.locator("h1")).to_contain_text("Documentation")

    def test_questions_find_their_page_among_the_first_three(self, page: Page) -> None:
        search_for(page, "nothing")
        # What the page itself calls. It shows the last result first.
        ask = "query => Search._performSearch(...Search._parseQuery(query)).slice(-3).map(([name]) => name)"
        found = {query: page.evaluate(ask, query) for query in QUESTIONS}
        assert {q: found[q] for q, wanted in QUESTIONS.items() if wanted not in found[q]} == {}

    def test_a_setting_is_found_at_its_row(self, page: Page) -> None:
        search_for(page, "dlq_stall_after")
        page.locator("#search-results li a").first.click()
        assert urlsplit(page.url).path == "/docs/reference/settings.html"
        row = page.locator("tr:target")
        expect(row).to_contain_text("How long a worker may receive nothing")
        expect(row).to_be_in_viewport()

    def test_the_summary_is_the_text_at_the_match(self, page: Page) -> None:
        search_for(page, "jitter")
        results = page.locator("#search-results li")
        for summary in results.locator("p.context").all():
            expect(summary).to_contain_text(re.compile("jitter", re.IGNORECASE))
        assert results.locator("p.context").count() > 3

    def test_a_copied_block_has_no_prompt_and_no_output(self, page: Page) -> None:
        page.goto("/docs/howto/triage.html")
        page.locator(".highlight").first.hover()
        page.locator("button.copybtn").first.click()
        expect(page.locator("button.copybtn").first).to_have_attribute("data-tooltip", "Copied!")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == "celery -A shop dlq groups"

    def test_the_sidebar_opens_at_the_page(self, page: Page) -> None:
        page.set_viewport_size({"width": 1280, "height": 600})
        page.goto("/docs/architecture.html")
        expect(page.locator(".sidebar-tree .current-page")).to_be_in_viewport()
        assert page.evaluate("window.scrollY") == 0

    @pytest.mark.parametrize("look", LOOKS)
    @pytest.mark.parametrize(
        "path",
        ["index.html", "404.html", "search.html?q=broker+settings", "docs/howto/triage.html"],
    )
    def test_it_can_be_read(self, page: Page, look: str, path: str) -> None:
        read_at(page, look, path)

    @pytest.mark.nightly
    @pytest.mark.parametrize("look", LOOKS)
    def test_every_page_can_be_read(self, page: Page, pages: dict[str, Links], look: str) -> None:
        for path in sorted(pages):
            read_at(page, look, path)


def read_at(page: Page, look: str, path: str) -> None:
    """A page fits into the window, and its texts have the contrast that WCAG's AA asks for."""
    colours, size = LOOKS[look]
    page.emulate_media(color_scheme=colours)
    page.set_viewport_size(size)
    page.goto(f"/{path}")
    if "search" in path:
        expect(page.locator("#search-results p.context").last).to_be_visible()
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= size["width"], f"{path} is {width} pixels wide on {look}"
    only = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    answer = Axe().run(page, options=only).response
    weak = [node["html"][:120] for rule in answer["violations"] for node in rule["nodes"]]
    assert weak == [], f"{path}, {look}"

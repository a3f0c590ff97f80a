"""Screenshots of pages, and checks of every page."""

from __future__ import annotations

from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from project import wait_for

#: Where screenshots go.
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"

#: A zone that is never UTC, and has the same name all year.
ZONE, NAMED = "Asia/Tokyo", "GMT+9"

#: How a page is looked at: colours, and the size of the window.
LOOKS = {
    "light": ("light", {"width": 1280, "height": 800}),
    "dark": ("dark", {"width": 1280, "height": 800}),
    "phone": ("light", {"width": 390, "height": 844}),
}


def look_at(page: Page, name: str) -> None:
    """Take screenshots of a page: light, dark and on a phone. No page may be wider than the window, or have
    parts that some people cannot use."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for look, (colours, size) in LOOKS.items():
        page.emulate_media(color_scheme=colours, reduced_motion="reduce")
        page.set_viewport_size(size)
        expect(page.locator("html")).to_have_attribute("data-bs-theme", colours)
        page.screenshot(path=SCREENSHOTS / f"{name}-{look}.png", full_page=True)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"], (
            f"{name} is {width} pixels wide in a window of {size['width']}"
        )
        found = unusable(page)
        assert not found, f"{name}, {look}: {found}"
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(LOOKS["light"][1])


def unusable(page: Page) -> list[str]:
    """The parts of our page that some people cannot use, by axe: for each, the rule and the elements."""
    if not page.locator(".dlq").count():  # a page of Flower's own
        return []
    found = Axe().run(page, context={"include": [[".dlq"]]})
    return [
        f"{rule['id']}: {node['html'][:200]} ({node['failureSummary']})"
        for rule in found.response["violations"]
        for node in rule["nodes"][:3]
    ]


def reload_until(page: Page, found: Locator, count: int = 1) -> None:
    """Reload a page until it shows this many, because Flower caches its data for a moment.

    After a click, wait for the page that it leads to before calling this: a browser cannot reload a page
    that it is leaving."""

    def is_so() -> bool:
        page.reload()
        return found.count() == count

    wait_for(f"{count} of {found} on {page.url}", is_so)


def appears(page: Page, selector: str, text: str) -> None:
    """Reload a page until this text appears."""
    reload_until(page, page.locator(selector, has_text=text))


def is_locked(page: Page) -> bool:
    """Whether the page says that it makes no changes, and offers no buttons that make some."""
    expect(page.locator("#dlq-locked")).to_be_visible()
    buttons = ".dlq form[method=post], .dlq button[formaction]"
    return not page.locator(buttons).count()


def hover_over(page: Page, shape: str) -> None:
    """Move the pointer to the middle of a shape of the chart."""
    # The value goes when the page scrolls.
    page.locator(".dlq-chart-columns").scroll_into_view_if_needed()
    box = page.locator(shape).bounding_box()
    page.mouse.move(0, 0)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

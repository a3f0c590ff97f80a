"""Dead letters on Flower's own pages, in a real browser."""

import pytest
from looking import look_at, reload_until
from playwright.sync_api import Page, expect
from project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600)]


@pytest.fixture
def seen(shop, page):
    """A dead letter whose events Flower has received; it receives them only some time after it starts."""
    letters = []

    def is_seen():
        letters.append(shop.die("shop.charge", len(letters), currency="EUX"))
        return page.request.get(f"/task/{letters[-1]}").ok

    wait_for("Flower to know the task", is_seen)
    return letters[-1]


def badge(page: Page, task_id: str):
    return page.locator("#tasks-table tr", has_text=task_id).locator(".badge")


def test_tasks_are_shown_as_dead_lettered_and_can_be_filtered(shop, page, seen):
    page.goto("/tasks")
    reload_until(page, badge(page, seen).filter(has_text="DEAD-LETTERED"))
    look_at(page, "flower-tasks")
    page.get_by_role("button", name="Dead-lettered").click()
    expect(badge(page, seen)).to_have_text("DEAD-LETTERED")


def test_a_task_links_to_its_letter_and_back(shop, page, seen):
    page.goto(f"/task/{seen}")
    way = page.get_by_role("link", name="Dead letter (dead)")
    expect(way).to_be_visible()
    look_at(page, "flower-task")
    way.click()
    expect(page.locator("#dlq-id")).to_have_text(seen)
    page.get_by_role("link", name="Task in Flower").click()
    expect(page.locator("#taskid")).to_have_text(seen)

"""Dead letters on Flower's own pages, in a real browser."""

import pytest
from looking import look_at, reload_until
from playwright.sync_api import Page, expect

pytestmark = [
    pytest.mark.nightly, pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600),
]  # fmt: skip


def badge(page: Page, task_id: str):
    return page.locator("#tasks-table tr", has_text=task_id).locator(".badge")


def test_tasks_are_shown_as_dead_lettered_and_can_be_filtered(shop, page, seen):
    page.goto("/tasks")
    reload_until(page, badge(page, seen).filter(has_text="DEAD-LETTERED"))
    look_at(page, "flower-tasks")
    page.get_by_role("button", name="Dead-lettered").click()
    expect(badge(page, seen)).to_have_text("DEAD-LETTERED")

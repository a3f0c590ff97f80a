"""Automatic redrives in a real browser."""

import pytest
from looking import appears, look_at
from playwright.sync_api import expect

from celery_dlq.model.automation import EVERY, AutoState

pytestmark = [
    pytest.mark.nightly, pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600),
]  # fmt: skip


def test_all_are_paused_and_resumed(page, state_of):
    page.goto("/dead-letters/automations")
    page.locator("#dlq-pause-all").click()
    expect(page.locator("#dlq-all-stopped")).to_contain_text("paused by ann (flower)")
    assert state_of(EVERY) is AutoState.PAUSED
    page.locator("#dlq-resume-all").click()
    expect(page.locator("#dlq-pause-all")).to_be_visible()
    assert state_of(EVERY) is AutoState.ACTIVE


def test_a_shadow_run_is_a_report(shop, page):
    task_id = shop.die("shop.charge", 2, currency="EUX")
    page.goto("/dead-letters/automations/currencies")
    page.locator("#dlq-run").click()
    expect(page.locator("#dlq-done")).to_contain_text("A worker looks for its letters")
    appears(page, "#dlq-latest tbody tr", "shadow")
    look_at(page, "automation")
    expect(page.locator("#dlq-latest").get_by_role("link", name=task_id)).to_be_visible()
    assert shop.letter(task_id).state.value == "dead"

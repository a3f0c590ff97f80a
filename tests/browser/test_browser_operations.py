"""Running redrives and the overview, in a real browser."""

import re
from dataclasses import replace

import pytest
from looking import appears, is_locked, look_at, reload_until
from playwright.sync_api import expect
from project import wait_for
from support.stores.losses import lost_letter, trouble

from celery_dlq import Filter, State

pytestmark = [
    pytest.mark.nightly, pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600),
]  # fmt: skip

#: Letters of a redrive, and a rate at which it takes longer than the slowest machine needs to look at it.
LETTERS, RATE = 60, "20/m"


@pytest.fixture
def many(shop):
    """Letters that would succeed now."""
    shop.sent += [shop.app.send_task("shop.invoice", (n,)).id for n in range(LETTERS)]
    dead = Filter(task="invoice", states=frozenset({State.DEAD}))
    wait_for("the letters", lambda: shop.dlq.store.counts.letters(dead) == LETTERS)
    shop.fixed.touch()
    yield dead
    shop.fixed.unlink()


def test_a_redrive_is_paused_and_resumed(shop, page, many):
    page.goto("/dead-letters/letters?task=invoice")
    page.get_by_role("link", name="Redrive all that match").click()
    page.locator("input[name=rate]").fill(RATE)
    page.locator("#dlq-number").fill(str(LETTERS))
    page.locator("#dlq-confirm").click()
    progress, state = page.locator("#dlq-progress"), page.locator("#dlq-state")
    # The page follows by itself.
    expect(state).to_have_text("running")
    expect(progress).to_contain_text(re.compile(r"\b[1-9]\d* of 60 sent"))
    look_at(page, "operation-running")

    page.locator("#dlq-pause").click()
    expect(state).to_have_text("paused")
    expect(page.locator("#dlq-cause")).to_contain_text("paused by ann (flower)")
    address = page.url
    operation = page.locator("#dlq-id").inner_text()
    look_at(page, "operation-paused")
    page.goto("/dead-letters")
    appears(page, "#dlq-running", operation)
    look_at(page, "overview")

    page.goto(address)
    sent = shop.dlq.redrives.get(operation).counts.out
    page.locator("#dlq-resume").click()
    expect(state).to_have_text("running")
    wait_for("it to go on", lambda: shop.dlq.redrives.get(operation).counts.out > sent)

    page.locator("#dlq-cancel").click()
    expect(state).to_have_text("cancelled")
    page.get_by_role("link", name="Operations").click()
    expect(page.locator("#dlq-operations")).to_be_visible()
    reload_until(page, page.locator("#dlq-operations tbody tr", has_text="cancelled"))
    look_at(page, "operations")
    left = shop.dlq.redrives.get(operation).counts.left
    assert left > 0
    wait_for("the others to be given back", lambda: shop.dlq.store.counts.letters(many) == left)


def test_a_redrive_whose_letters_come_back_is_aborted_and_says_why(shop, page):
    for number in range(30):
        shop.sent.append(shop.app.send_task("shop.charge", (number, "XXX")).id)
    dead = Filter(task="charge", states=frozenset({State.DEAD}))
    wait_for("the letters", lambda: shop.dlq.store.counts.letters(dead) == 30)
    page.goto("/dead-letters/redrive?task=charge")
    page.locator("input[name=canary]").fill("3")
    page.locator("input[name=rate]").fill("")
    page.locator("#dlq-number").fill("30")
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-state")).to_have_text("aborted")
    expect(page.locator("#dlq-cause")).to_contain_text("the canary failed")
    # The list of its letters follows, too.
    expect(page.locator("#dlq-sendings tbody tr")).to_have_count(3)
    look_at(page, "operation-aborted")


def test_the_overview_shows_what_killed_workers_have_left(shop, page):
    now, hostile = shop.dlq.store.now(), "<b onclick=x>\u202e\x1b" + "w" * 300
    shop.dlq.store.letters.save([lost_letter("one-that-was-lost", now)])
    evil = [replace(one, about=one.kind.value) for one in trouble(now, hostile)]
    shop.dlq.store.recorder_reports.note([*trouble(now), *evil])
    page.goto("/dead-letters")
    appears(page, "#dlq-lost", "1 open letter, 1 in the last 24 h")
    lost = page.locator("#dlq-lost")
    expect(lost).to_contain_text("run without a copy: [Errno 28] No space left on device")
    expect(lost.locator("li")).to_have_count(6)
    expect(lost.locator("b")).to_have_count(0)
    look_at(page, "overview-lost")
    lost.get_by_role("link", name="lost letters").click()
    expect(page.locator("#dlq-letters")).to_contain_text("TaskLost")


def test_the_overview_shows_the_open_letters(shop, page):
    shop.die("shop.ship", 1)
    page.goto("/dead-letters")
    appears(page, "#dlq-depth .dlq-big", "1")
    appears(page, "#dlq-recent", "the warehouse does not answer")
    expect(page.locator("#dlq-failing")).to_contain_text("the warehouse does not answer")
    look_at(page, "overview-quiet")


def test_without_authentication_every_page_is_locked(shop, open_page):
    fingerprint = shop.letter(shop.die("shop.ship", 2)).fingerprint
    open_to_all = shop.start_flower()
    try:
        page = open_page(open_to_all.url)
        for address in ("", "/groups", f"/groups/{fingerprint}", "/operations"):
            page.goto(f"/dead-letters{address}")
            assert is_locked(page)
        look_at(page, "operations-locked")
    finally:
        open_to_all.stop()

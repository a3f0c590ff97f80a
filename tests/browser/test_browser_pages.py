"""One way through the pages that people use most, in a real browser. The gate runs this file; the other files
go through all pages and scripts, by night.

Each reader is in a zone that is never UTC, and has the same name all year.
"""

import re

import pytest
from looking import NAMED, ZONE, hover_over, look_at, reload_until
from playwright.sync_api import expect

from celery_dlq.model.automation import AutoState

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600)]


@pytest.fixture
def logged_in(logged_in):
    return {**logged_in, "timezone_id": ZONE}


def test_a_task_links_to_its_letter_and_back(shop, page, seen):
    page.goto(f"/task/{seen}")
    way = page.get_by_role("link", name="Dead letter (dead)")
    expect(way).to_be_visible()
    look_at(page, "flower-task")
    way.click()
    expect(page.locator("#dlq-id")).to_have_text(seen)
    page.get_by_role("link", name="Task in Flower").click()
    expect(page.locator("#taskid")).to_have_text(seen)


def test_values_local_time_and_ranges(shop, page):
    shop.die("shop.charge", 1, currency="EUX")
    page.goto("/dead-letters")
    reload_until(page, page.locator("#dlq-arrivals .dlq-column[data-said='1 letter']"))
    value = page.locator(".dlq-value")
    hover_over(page, ".dlq-column[data-said='1 letter'] .dlq-sense")
    expect(value).to_contain_text(f":00 {NAMED}: 1 letter")
    expect(value).to_contain_text("UTC")
    label = page.locator("#dlq-arrivals .dlq-axis time").first
    expect(label).to_contain_text(NAMED)
    assert label.get_attribute("title").endswith("UTC")
    page.mouse.move(0, 0)
    expect(value).to_be_hidden()

    page.get_by_text("As a table").click()
    [row] = page.locator(".dlq-values tbody tr").all()
    assert row.inner_text().split()[-1] == "1"
    assert NAMED in row.inner_text()

    page.get_by_role("link", name="1h", exact=True).click()
    assert page.url.endswith("?range=1h")
    expect(page.locator("#dlq-arrivals h2")).to_contain_text("at most 1 per minute")
    expect(page.get_by_role("link", name="1h", exact=True)).to_have_attribute(
        "aria-current", "true"
    )


def test_a_group_is_redriven(shop, page):
    ids = [shop.die("shop.charge", number, currency="GBX") for number in (9, 10)]
    fingerprint = shop.letter(ids[0]).fingerprint
    page.goto(f"/dead-letters/groups/{fingerprint}")
    page.locator("#dlq-redrive").click()
    count = shop.dlq.groups.get(fingerprint).open_count
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Redrive {count} letters")
    look_at(page, "redrive")
    page.locator("#dlq-number").fill(str(count))
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-state")).to_have_text("failed")
    expect(page.locator("#dlq-progress")).to_contain_text(f"failed again {count}")


def test_a_letter_is_found_edited_sent_back_and_succeeds(shop, page):
    bad = shop.die("shop.charge", 17, currency="EUX", card_number="4242-s3cret")
    shop.die("shop.ship", 18)
    page.goto("/dead-letters/letters")
    expect(page.get_by_role("link", name="Dead letters")).to_have_attribute("aria-current", "page")

    page.get_by_text("More filters").click()
    page.get_by_role("textbox", name="Task").fill("charge")
    page.get_by_role("textbox", name="Exception").fill("UnknownCurrency")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"/letters\?task=charge&exception=UnknownCurrency$"))
    rows = page.locator("#dlq-letters tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("17, currency=EUX")
    look_at(page, "letters")
    page.get_by_role("link", name="task: charge").click()
    expect(page).to_have_url(re.compile(r"/letters\?exception=UnknownCurrency$"))

    page.get_by_role("link", name=bad[:8]).click()
    expect(page.locator("#dlq-id")).to_have_text(bad)
    expect(page.locator("#dlq-why")).to_contain_text("order 17: no currency 'EUX'")
    assert "s3cret" not in page.content()
    look_at(page, "letter")

    page.get_by_role("link", name="Edit").click()
    text = page.locator("textarea[name=kwargs]")
    expect(page.locator("#dlq-signature")).to_contain_text("The arguments fit.")
    look_at(page, "edit")
    text.fill(text.input_value().replace("EUX", "EUR"))
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#dlq-history")).to_contain_text("ann (flower)")

    page.get_by_role("button", name="Redrive").click()
    expect(page.locator("#dlq-done")).to_be_visible()
    shop.wait_for_letter(bad, shop.RESOLVED)
    page.goto(f"/dead-letters/letters/{bad}")
    expect(page.locator("#dlq-state")).to_have_text("resolved")
    expect(page.locator("#dlq-history")).to_contain_text("succeeded")
    look_at(page, "letter-resolved")
    assert shop.letter(bad).closed_reason == "redrive 1 succeeded"


def test_a_hostile_letter_is_text(shop, page):
    shown = '<script>document.title = "caught"</script>\u202e\x1b[31m<img src=//evil.example/x>'
    task_id = shop.die("shop.charge", 19, currency=shown)
    for address in ("/dead-letters/letters", f"/dead-letters/letters/{task_id}"):
        page.goto(address)
        expect(page.locator(".dlq")).to_contain_text("<script>document.title")
        expect(page.locator(".dlq")).to_contain_text("\\u202e")
        expect(page).to_have_title("Dead letters · Flower")
    look_at(page, "letter-hostile")


def test_pages_work_without_scripts(shop, flower, open_page, logged_in):
    task_id = shop.die("shop.ship", 20)
    page = open_page(flower.url, java_script_enabled=False, **logged_in)
    page.goto("/dead-letters/letters?task=ship")
    page.get_by_role("link", name=task_id[:8]).click()
    expect(page.locator("#dlq-traceback")).to_contain_text("the warehouse does not answer")
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_role("alert")).to_contain_text("A discard needs a reason")
    page.get_by_label("Why").fill("a test order")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#dlq-state")).to_have_text("discarded")


def test_without_a_password_nothing_is_shown(flower, open_page):
    page = open_page(flower.url)
    for address in ("/dead-letters", "/dead-letters/letters", "/api/dead-letters"):
        assert page.request.get(address).status == 401


def test_one_is_paused_and_resumed(shop, page, state_of):
    shop.die("shop.charge", 1, currency="EUX")
    page.goto("/dead-letters")
    page.get_by_role("link", name="Automations").click()
    expect(page.locator("#dlq-autos")).to_contain_text("currencies")
    look_at(page, "automations")
    page.get_by_role("link", name="currencies").first.click()
    expect(page.locator("#dlq-state")).to_have_text("shadow")

    page.get_by_placeholder("Why (for the audit)").fill("deploying")
    page.locator("#dlq-pause").click()
    expect(page.locator("#dlq-state")).to_have_text("paused")
    expect(page.locator("#dlq-stopped")).to_contain_text("paused by ann (flower): deploying")
    look_at(page, "automation-paused")
    assert state_of("currencies") is AutoState.PAUSED
    assert shop.audited("pause").why == "deploying"

    page.locator("#dlq-resume").click()
    expect(page.locator("#dlq-state")).to_have_text("shadow")
    assert state_of("currencies") is AutoState.ACTIVE
    page.locator("#dlq-try").click()
    expect(page.locator("#dlq-summary")).to_contain_text("Nothing was sent or changed.")
    look_at(page, "automation-trial")

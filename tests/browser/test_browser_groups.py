"""Work with groups in a real browser."""

import pytest
from looking import ZONE, appears, look_at, reload_until
from playwright.sync_api import Page, expect

pytestmark = [
    pytest.mark.nightly, pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600),
]  # fmt: skip


def groups(page: Page, **attributes: str):
    return page.locator("#dlq-groups tbody tr").filter(**attributes)


def open_group(page: Page, task: str) -> str:
    """Go from the list to the group of ``task``; returns its fingerprint."""
    page.goto(f"/dead-letters/groups?task={task}")
    reload_until(page, groups(page))
    groups(page).get_by_role("link").first.click()
    return page.locator("#dlq-id").inner_text()


def expect_status(page: Page, status: str) -> None:
    expect(page.locator("#dlq-state")).to_have_text(status)


def test_an_ignored_group_comes_back(shop, page):
    for number in range(3):
        shop.die("shop.ship", number)
    shop.die("shop.charge", 3, currency="EUX")
    page.goto("/dead-letters/groups")
    reload_until(page, groups(page), 2)
    expect(groups(page, has_text="the warehouse does not answer")).to_contain_text("new")
    look_at(page, "groups")

    fingerprint = open_group(page, "ship")
    expect_status(page, "new")
    look_at(page, "group")
    page.get_by_text("Ignore…").click()
    look_at(page, "group-ignore")
    page.get_by_label("More failures").fill("2")
    page.locator("#dlq-ignore").click()
    expect_status(page, "ignored")
    page.goto("/dead-letters/groups")
    reload_until(page, groups(page))
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("ignored").check()
    page.get_by_role("button", name="Filter").click()
    expect(groups(page)).to_contain_text("the warehouse does not answer")

    shop.die("shop.ship", 4)
    page.goto(f"/dead-letters/groups/{fingerprint}")
    expect_status(page, "ignored")
    shop.die("shop.ship", 5)
    appears(page, "#dlq-state", "regressed")
    look_at(page, "group-regressed")
    assert shop.audited("ignore").who == "ann (flower)"


def test_a_group_is_ignored_from_the_overview_with_the_keyboard(shop, page):
    shop.die("shop.ship", 1)
    page.goto("/dead-letters")
    reload_until(page, groups(page))
    page.locator(".dlq-menu summary").focus()
    page.keyboard.press("Enter")
    look_at(page, "overview-ignore")
    page.get_by_role("button", name="for a week").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#dlq-done")).to_contain_text("The group is ignored")
    expect(page.locator("#dlq-failing")).to_contain_text("Nothing is failing")
    assert shop.audited("ignore").who == "ann (flower)"
    page.get_by_role("link", name="Audit").click()
    expect(page.locator("#dlq-audit")).to_contain_text("ignore")
    look_at(page, "audit")


#: The midnight of ``ZONE`` in UTC.
MIDNIGHT = "T15:00:00+00:00"


def test_a_group_is_ignored_until_monday_where_the_reader_is(shop, open_page, flower, logged_in):
    task_id = shop.die("shop.ship", 1)
    fingerprint = shop.letter(task_id).fingerprint
    page = open_page(flower.url, timezone_id=ZONE, **logged_in)
    page.goto(f"/dead-letters/groups/{fingerprint}")
    page.get_by_text("Ignore…").click()
    page.get_by_role("button", name="until Monday").click()
    expect_status(page, "ignored")
    until = shop.dlq.groups.get(fingerprint).ignored_until
    assert until.isoformat().endswith(MIDNIGHT)
    assert until.weekday() == 6  # in UTC it is Sunday
    expect(page.locator("#dlq-ends")).to_contain_text("00:00:00 GMT+9")
    page.goto("/dead-letters/audit")
    expect(page.locator("#dlq-audit")).to_contain_text("00:00:00 GMT+9")


def test_a_time_that_is_not_valid_stays_in_its_field(shop, open_page, flower, logged_in):
    fingerprint = shop.letter(shop.die("shop.ship", 1)).fingerprint
    page = open_page(flower.url, timezone_id=ZONE, **logged_in)
    page.goto(f"/dead-letters/groups/{fingerprint}")
    page.get_by_text("Ignore…").click()
    until, problem = page.get_by_label("Until", exact=True), page.locator("#dlq-problem-until")
    until.fill("yesterdayish")
    page.get_by_label("More failures").fill("7")
    page.locator("#dlq-ignore").click()
    expect(problem).to_contain_text("'yesterdayish' is not a time")
    expect(until).to_have_value("yesterdayish")
    expect(until).to_be_focused()
    expect(page.get_by_label("More failures")).to_have_value("7")
    look_at(page, "group-ignore-invalid")
    assert shop.dlq.groups.get(fingerprint).ignored_until is None

    until.fill("")
    page.locator("input[name=at]").fill("2099-12-01T09:30")
    page.locator("#dlq-ignore").click()
    expect_status(page, "ignored")
    ends = shop.dlq.groups.get(fingerprint).ignored_until
    assert ends.isoformat() == "2099-12-01T00:30:00+00:00"


def press_on(page, name: str) -> None:
    """Go on with the Tab key to the next element with this name, and press Enter on it."""
    tab_to(page, name)
    page.keyboard.press("Enter")


def tab_to(page, name: str) -> None:
    for _ in range(100):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => { const one = document.activeElement;
                return one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent; }"""
        )
        if focused.strip().startswith(name):
            return
    raise AssertionError(f"the Tab key does not lead to {name!r}")


def test_letters_are_changed_and_redriven_with_nothing_but_the_keyboard(shop, page):
    ids = [shop.die("shop.charge", number, currency="EUX") for number in range(2)]
    page.goto("/dead-letters")
    reload_until(page, groups(page))
    press_on(page, "UnknownCurrency in charge")
    expect(page.locator("#dlq-traceback")).to_be_visible()
    press_on(page, "Redrive its letters")
    expect(page.get_by_role("heading", name="Redrive 2 letters")).to_be_visible()
    tab_to(page, "Set arguments")
    page.keyboard.type("kwargs.currency=EUR")
    press_on(page, "Check which letters can be sent")
    expect(page.locator("#dlq-plan")).to_contain_text("Would be changed")
    tab_to(page, "Type the number of letters")
    page.keyboard.type("2")
    press_on(page, "Redrive 2 letters")
    expect(page.locator("#dlq-progress")).to_contain_text("2 of 2 sent")
    expect(page.locator("#dlq-progress")).to_contain_text("succeeded 2")
    for task_id in ids:
        shop.wait_for_letter(task_id, shop.RESOLVED)
    look_at(page, "operation-done")


def test_the_next_letter_reopens_a_resolved_group(shop, page):
    shop.die("shop.charge", 6, currency="EUX")
    fingerprint = open_group(page, "charge")
    page.locator("#dlq-resolve").click()
    expect_status(page, "resolved")
    page.goto(f"/dead-letters/groups/{fingerprint}")
    shop.die("shop.charge", 7, currency="EUX")
    appears(page, "#dlq-state", "regressed")


def test_a_group_has_an_owner_and_a_note(shop, page):
    shop.die("shop.invoice", 8)
    fingerprint = open_group(page, "invoice")
    page.get_by_text("Owner and note").click()
    page.get_by_label("Owner", exact=True).fill("bob")
    page.locator("#dlq-assign").click()
    expect(page.locator("#dlq-owner")).to_have_text("bob")
    page.get_by_text("Owner and note").click()
    page.get_by_label("Note", exact=True).fill("see <b>ticket 17</b>")
    page.locator("#dlq-write").click()
    expect(page.locator("#dlq-note")).to_have_text("see <b>ticket 17</b>")
    look_at(page, "group-owned")
    page.goto("/dead-letters/groups?owner=bob")
    reload_until(page, groups(page))
    assert shop.dlq.groups.get(fingerprint).owner == "bob"

"""Work with letters in a real browser."""

import contextlib
import re
from collections.abc import Iterator

import pytest
from looking import is_locked, look_at
from playwright.sync_api import Page, expect
from sqlalchemy import Table, text
from support.factories import attempt, letter

from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.database.engine import Database

pytestmark = [
    pytest.mark.nightly, pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600),
]  # fmt: skip


def rows(page: Page):
    return page.locator("#dlq-letters tbody tr")


def test_a_message_is_checked_while_it_is_typed_then_saved_and_sent(shop, page):
    bad = shop.die("shop.charge", 17, currency="EUX")
    page.goto(f"/dead-letters/letters/{bad}/edit")
    args, kwargs = (
        page.get_by_label(name) for name in ("Positional arguments", "Keyword arguments")
    )
    kwargs.fill('{"currency": "EUR",\n  oops}')
    expect(page.locator("#dlq-problem-kwargs")).to_contain_text("line 2 column 3")
    expect(kwargs).to_have_attribute("aria-invalid", "true")
    look_at(page, "edit-not-json")

    kwargs.fill('{"curency": "EUR"}')
    expect(page.locator("#dlq-problem-kwargs")).to_be_hidden()
    expect(page.locator("#dlq-unfit")).to_contain_text("unexpected kwargs.curency.")
    look_at(page, "edit-misfit")

    kwargs.fill('{"currency": "EUR"}')
    args.fill("[18]")
    expect(page.locator("#dlq-unfit")).to_have_count(0)
    expect(page.locator(".dlq-diff-old").first).to_have_text("- args[0] = 17")
    expect(page.locator(".dlq-diff-new").last).to_have_text('+ kwargs.currency = "EUR"')
    look_at(page, "edit-diff")
    assert shop.letter(bad).args == [17]

    args.fill(f"[18, {' ' * 100_000}]")
    expect(page.locator("#dlq-unchecked")).to_contain_text("Choose Check.")
    args.fill("[18]")
    expect(page.locator("#dlq-unchecked")).to_have_count(0)

    page.get_by_label("Why").fill("a typo")
    page.get_by_role("button", name="Save and redrive").click()
    expect(page.locator("#dlq-done")).to_contain_text("The message was changed.")
    shop.wait_for_letter(bad, shop.RESOLVED)
    assert [shop.audited(act).why for act in ("edit", "redrive")] == ["a typo"] * 2


def test_a_store_that_fails_takes_no_text_away(shop, page):
    bad = shop.die("shop.charge", 17, currency="EUX")
    page.goto(f"/dead-letters/letters/{bad}/edit")
    args = page.get_by_label("Positional arguments")
    args.fill("[18]")
    with without(tables.change, shop.dlq.store.database):
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("unknown whether the message was saved")
        look_at(page, "edit-unchecked")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#dlq-edit-diff")).to_contain_text("+ args[0] = 18")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#dlq-done")).to_contain_text("The message was changed.")
    assert shop.letter(bad).args == [18]


@contextlib.contextmanager
def without(table: Table, database: Database) -> Iterator[None]:
    """A database in which the table is missing for a while."""
    away, back = f"{table.name} RENAME TO missing", f"missing RENAME TO {table.name}"
    database.write(lambda connection: connection.execute(text(f"ALTER TABLE {away}")))
    try:
        yield
    finally:
        database.write(lambda connection: connection.execute(text(f"ALTER TABLE {back}")))


def test_the_editor_works_without_scripts(shop, flower, open_page, logged_in):
    bad = shop.die("shop.charge", 17, currency="EUX")
    page = open_page(flower.url, java_script_enabled=False, **logged_in)
    page.goto(f"/dead-letters/letters/{bad}/edit")
    page.get_by_label("Positional arguments").fill("[18")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#dlq-problem-args")).to_contain_text("line 1 column 4")
    page.get_by_label("Positional arguments").fill("[18]")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#dlq-edit-diff")).to_contain_text("+ args[0] = 18")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#dlq-done")).to_contain_text("The message was changed.")
    assert shop.letter(bad).args == [18]


def test_one_argument_is_fixed_in_forty_letters(shop, page):
    ids = [shop.send("shop.charge", number, currency="EUX") for number in range(40)]
    for task_id in ids:
        shop.wait_for_letter(task_id)
    page.goto(f"/dead-letters/groups/{shop.letter(ids[0]).fingerprint}")
    page.get_by_role("link", name="Redrive its letters").click()
    page.get_by_label("Set arguments").fill("kwargs.curency=EUR")
    page.get_by_role("button", name="Check which letters can be sent").click()
    expect(page.locator("#dlq-plan")).to_contain_text("unexpected kwargs.curency")
    look_at(page, "redrive-wrong-change")

    page.get_by_label("Set arguments").fill("kwargs.currency=EUR")
    page.get_by_role("button", name="Check which letters can be sent").click()
    expect(page.locator(".dlq-diff")).to_have_count(5)
    expect(page.locator(".dlq-diff").first).to_contain_text('+ kwargs.currency = "EUR"')
    expect(page.locator("#dlq-plan")).to_contain_text("40 of 40")
    look_at(page, "redrive-change")

    page.locator("#dlq-number").fill("40")
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-orders")).to_contain_text('kwargs.currency="EUR"')
    for task_id in ids:
        shop.wait_for_letter(task_id, shop.RESOLVED)
    assert shop.audited("redrive").detail["repair"] == {"set": ['kwargs.currency="EUR"']}


def test_a_group_is_repaired_by_a_function_of_the_app(shop, page):
    ids = [shop.send("shop.charge", number, currency="eur") for number in range(7)]
    for task_id in ids:
        shop.wait_for_letter(task_id)
    page.goto(f"/dead-letters/groups/{shop.letter(ids[0]).fingerprint}")
    page.get_by_role("link", name="Redrive its letters").click()
    page.get_by_label("Repair").select_option("currency in capitals")
    page.get_by_role("button", name="Check which letters can be sent").click()
    expect(page.locator(".dlq-diff")).to_have_count(5)
    expect(page.locator(".dlq-diff").first).to_contain_text('+ kwargs.currency = "EUR"')
    expect(page.get_by_label("Repair")).to_have_value("currency in capitals")
    look_at(page, "redrive-repair")

    page.locator("#dlq-number").fill("7")
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-orders")).to_contain_text("currency in capitals")
    for task_id in ids:
        shop.wait_for_letter(task_id, shop.RESOLVED)
    assert shop.audited("redrive").detail["repair"] == {"function": "currency in capitals"}


def test_a_letter_is_discarded_with_a_reason(shop, page):
    task_id = shop.die("shop.invoice", 1)
    page.goto(f"/dead-letters/letters/{task_id}")
    expect(page.locator("#dlq-discard")).to_be_disabled()
    page.get_by_placeholder("Why (for the audit)").fill("a test order")
    page.locator("#dlq-discard").click()
    expect(page.locator("#dlq-state")).to_have_text("discarded")
    expect(page.locator("#dlq-history")).to_contain_text("ann (flower) discarded 1 letter")


def test_selected_letters_are_discarded_after_their_number_is_typed(shop, page):
    ids = [shop.die("shop.invoice", number) for number in range(3)]
    page.goto("/dead-letters/letters?task=invoice")
    for task_id in ids[:2]:
        page.get_by_label(f"Select {task_id[:8]}").check()
    page.get_by_role("button", name="Discard selected").click()
    expect(page.get_by_role("heading", name="Discard 2 letters")).to_be_visible()
    look_at(page, "discard")

    page.get_by_label("Why they are not needed").fill("test orders")
    page.locator("#dlq-number").fill("3")
    page.locator("#dlq-confirm").click()
    expect(page.get_by_role("alert")).to_contain_text("you typed 3. Nothing was changed")
    assert [shop.letter(task_id).state.value for task_id in ids] == ["dead"] * 3

    page.locator("#dlq-number").fill("2")
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-done")).to_have_text("2 letters discarded.")
    assert [shop.letter(task_id).state.value for task_id in ids] == [
        "discarded",
        "discarded",
        "dead",
    ]
    act = shop.audited("discard")
    assert (act.who, act.count, act.why) == ("ann (flower)", 2, "test orders")


def test_discarded_letters_are_deleted_for_ever(shop, page):
    ids = [shop.die("shop.invoice", number) for number in range(30, 33)]
    closed = Filter(ids=tuple(ids[:2]))
    shop.dlq.store.closing.discard(closed, who="bob", why="x", now=shop.dlq.store.now())
    page.goto("/dead-letters/letters?task=invoice&state=discarded&state=dead")
    look_at(page, "letters-closed")
    page.get_by_role("link", name="Delete all closed that match").click()
    expect(page.get_by_role("heading", name="Delete 2 letters")).to_be_visible()
    expect(page.locator("#dlq-for-ever")).to_contain_text("This cannot be undone.")
    expect(page.locator("#dlq-lose")).to_have_count(0)
    look_at(page, "delete")

    page.locator("#dlq-number").fill("3")
    page.locator("#dlq-confirm").click()
    expect(page.get_by_role("alert")).to_contain_text("you typed 3. Nothing was changed")
    assert [shop.letter(task_id).state.value for task_id in ids[:2]] == ["discarded"] * 2

    page.locator("#dlq-number").fill("2")
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-done")).to_have_text("2 letters deleted.")
    found = [shop.dlq.store.letters.get(task_id) for task_id in ids]
    assert [letter and letter.state.value for letter in found] == [None, None, "dead"]
    act = shop.audited("delete")
    assert (act.who, act.count) == ("ann (flower)", 2)


def test_an_open_letter_is_deleted_after_a_choice_and_with_a_reason(shop, page):
    task_id = shop.die("shop.ship", 33)
    page.goto(f"/dead-letters/letters/{task_id}")
    page.get_by_role("link", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete 1 letter")).to_be_visible()
    expect(page.locator("#dlq-for-ever")).to_contain_text("their messages are lost")
    look_at(page, "delete-open")

    expect(page.locator("#dlq-confirm")).to_be_disabled()
    page.get_by_label("Why").fill("asked by legal")
    expect(page.locator("#dlq-confirm")).to_be_disabled()
    page.get_by_label("delete open letters, and lose their messages").check()
    expect(page.locator("#dlq-confirm")).to_be_enabled()
    page.get_by_label("Why").fill("")
    expect(page.locator("#dlq-confirm")).to_be_disabled()
    page.get_by_label("Why").fill("asked by legal")
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-done")).to_have_text("1 letter deleted.")
    assert shop.dlq.store.letters.get(task_id) is None

    page.goto(f"/dead-letters/letters/{task_id}")
    expect(page.get_by_role("alert")).to_contain_text("was deleted by ann (flower) on ")
    expect(page.get_by_role("alert")).to_contain_text(": asked by legal.")
    look_at(page, "letter-deleted")


def test_selected_open_letters_are_deleted_apart_from_closed_ones(shop, page):
    closed, still_open = (shop.die("shop.invoice", number) for number in (34, 35))
    only = Filter(ids=(closed,))
    shop.dlq.store.closing.discard(only, who="bob", why="x", now=shop.dlq.store.now())
    page.goto("/dead-letters/letters?state=discarded&state=dead")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Delete selected").click()
    expect(page.get_by_role("heading", name="Delete 1 letter")).to_be_visible()
    expect(page.locator(".dlq")).to_contain_text(
        "This filter also matches 1 more letter. Letters in another state"
    )
    page.get_by_role("link", name="Delete the open letters instead").click()
    expect(page.locator("#dlq-for-ever")).to_contain_text("their messages are lost")
    page.get_by_label("delete open letters, and lose their messages").check()
    page.get_by_label("Why").fill("test data")
    page.locator("#dlq-confirm").click()
    expect(page.locator("#dlq-done")).to_have_text("1 letter deleted.")
    assert shop.dlq.store.letters.get(still_open) is None
    assert shop.letter(closed).state.value == "discarded"


def test_a_search_continues_until_it_finds_something(shop, open_page, logged_in):
    shop.dlq.store.letters.save(
        [
            letter(f"{n:02}", attempt(minutes=n), message="the needle" if n == 3 else "hay")
            for n in range(12)
        ]
    )
    flower = shop.start_flower("--basic_auth=ann:secret", PROJ_SEARCH_STEP="2")
    try:
        page = open_page(flower.url, **logged_in)
        page.goto("/dead-letters/letters?search=needle")
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("the needle")
        expect(page).to_have_url(re.compile(r"search=needle&after="))
        expect(page.locator("#dlq-searched")).to_contain_text("Searched back to 2026-11-21 12:02")
        page.get_by_label("Select all on this page").check()
        expect(page.get_by_label("Select 03")).to_be_checked()
        look_at(page, "letters-searched")
        page.get_by_role("link", name="Continue the search").click()
        expect(page.locator(".dlq-empty")).to_have_text("No more letters match.")
        expect(page.locator("#dlq-searched")).to_have_count(0)
    finally:
        flower.stop()


def test_invalid_filters_are_refused_with_suggestions(page):
    page.goto("/dead-letters/letters?since=nonsense")
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    look_at(page, "letters-nonsense")


def test_a_flower_without_authentication_makes_no_changes(shop, open_page):
    task_id = shop.die("shop.ship", 21)
    open_to_all = shop.start_flower()
    try:
        page = open_page(open_to_all.url)
        page.goto(f"/dead-letters/letters/{task_id}")
        assert is_locked(page)
        look_at(page, "letter-locked")
        page.goto("/dead-letters/letters")
        assert is_locked(page)
        answer = page.evaluate(
            "path => fetch(path, {method: 'POST', body: new URLSearchParams()}).then(r => r.status)",
            f"/dead-letters/letters/{task_id}/redrive",
        )
        assert answer == 403
    finally:
        open_to_all.stop()
    assert shop.letter(task_id).state.value == "dead"


@pytest.fixture
def many(shop):
    """Letters on three pages, the newest first."""
    ids = [f"{number:04}-many" for number in range(120)]
    shop.dlq.store.letters.save(
        [letter(name, attempt(minutes=-place)) for place, name in enumerate(ids)]
    )
    return ids


def test_a_selection_lasts_over_several_pages(many, page):
    page.goto("/dead-letters/letters?task=charge")
    for name in many[:2]:
        page.get_by_label(f"Select {name[:8]}").check()
    expect(page.locator("#dlq-selected")).to_be_hidden()
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("#dlq-selected")).to_contain_text("2 selected, 2 of them on other pages.")
    page.get_by_label(f"Select {many[50][:8]}").check()
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("#dlq-selected")).to_contain_text("3 selected, 3 of them on other pages.")
    look_at(page, "letters-selected")
    page.go_back()
    expect(page.get_by_label(f"Select {many[50][:8]}")).to_be_checked()
    page.get_by_role("button", name="Redrive selected").click()
    expect(page.get_by_role("heading", name="Redrive 3 letters")).to_be_visible()
    for name in (*many[:2], many[50]):
        expect(page.locator(f"input[name=id][value='{name}']")).to_have_count(1)


def test_a_selection_does_not_depend_on_the_order_of_the_address(many, page):
    page.goto("/dead-letters/letters?since=90d&task=charge")
    page.get_by_label(f"Select {many[0][:8]}").check()
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("#dlq-selected")).to_contain_text("1 selected, 1 of them on other pages.")


def test_keys_work_after_the_page_has_refreshed_itself(many, shop, page):
    page.goto("/dead-letters/letters?task=charge")
    page.get_by_role("link", name=many[1][:8]).click()
    page.locator("#dlq-redrive").click()
    expect(page.locator("#dlq-done")).to_contain_text("It was ")
    expect(page.get_by_role("link", name="Next →")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#dlq-id")).to_have_text(many[2])


def test_a_selection_can_be_cleared_and_belongs_to_its_filters(many, page):
    page.goto("/dead-letters/letters?task=charge")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("#dlq-selected")).to_contain_text("50 selected")
    page.goto("/dead-letters/letters?task=charge&state=dead")
    expect(page.locator("#dlq-letters tbody input:checked")).to_have_count(0)
    page.go_back()
    page.get_by_role("button", name="Clear the selection").click()
    expect(page.locator("#dlq-selected")).to_be_hidden()
    page.get_by_role("link", name="First page").click()
    expect(page.locator("#dlq-letters tbody input:checked")).to_have_count(0)


def test_no_more_can_be_selected_than_an_address_can_have(many, page):
    page.goto("/dead-letters/letters?task=charge")
    page.evaluate(
        """() => sessionStorage.setItem("dlq-selected", JSON.stringify({
            filters: "/dead-letters/letters?task=charge",
            ids: Array.from({length: 175}, (_, n) => ("other-" + n).padEnd(36, "x"))}))"""
    )
    page.reload()
    expect(page.locator("#dlq-selected")).to_contain_text("175 selected, 175 of them on other")
    one = page.get_by_label(f"Select {many[0][:8]}")
    one.click()
    expect(one).not_to_be_checked()
    expect(page.locator("#dlq-selected")).to_contain_text("No more letters can be selected")


def test_keys_lead_from_letter_to_letter_also_over_the_end_of_a_page(many, page):
    page.goto("/dead-letters/letters?task=charge")
    page.get_by_role("link", name=many[48][:8]).click()
    expect(page.locator("#dlq-id")).to_have_text(many[48])
    for name in many[49:52]:
        expect(page.get_by_role("link", name="Next →")).to_be_visible()
        page.keyboard.press("j")
        expect(page.locator("#dlq-id")).to_have_text(name)
    for name in (many[50], many[49], many[48]):
        expect(page.get_by_role("link", name="← Previous")).to_be_visible()
        page.keyboard.press("k")
        expect(page.locator("#dlq-id")).to_have_text(name)
    page.get_by_placeholder("Why (for the audit)").press("j")
    expect(page.locator("#dlq-id")).to_have_text(many[48])
    page.get_by_role("link", name="List", exact=True).click()
    expect(page).to_have_url(re.compile(r"task=charge"))

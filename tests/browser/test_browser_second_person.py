"""Acts that wait for a second person, roles, and letters that are encrypted, in a real browser."""

import base64
import contextlib
import json

import pytest
from looking import appears, look_at
from playwright.sync_api import expect
from support.factories import attempt, letter

from celery_dlq.base.sealing import Keyring
from celery_dlq.store.sql import SQLStore

pytestmark = [
    pytest.mark.nightly, pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600),
]  # fmt: skip

KEY = b"k" * 32

ANN, BEN = ({"http_credentials": {"username": name, "password": "x"}} for name in ("ann", "ben"))


@pytest.fixture
def start(shop):
    """Starts a Flower of two users."""
    with contextlib.ExitStack() as running:

        def start(**environ):
            flower = shop.start_flower("--basic_auth=ann:x,ben:x", **environ)
            running.callback(flower.stop)
            return flower

        yield start


def test_a_second_person_approves_what_the_first_one_asked_for(shop, start, open_page):
    ids = [shop.die("shop.ship", number) for number in range(3)]
    flower = start(PROJ_APPROVAL="yes")
    ann, ben = open_page(flower.url, **ANN), open_page(flower.url, **BEN)
    ann.goto("/dead-letters/requests")
    look_at(ann, "requests-none")

    ann.goto("/dead-letters/redrive?task=ship")
    ann.get_by_label("Why").fill("the warehouse answers")
    ann.locator("#dlq-number").fill("3")
    ann.locator("#dlq-confirm").click()
    expect(ann.get_by_role("heading", level=1)).to_have_text("ann (flower) asks: redrive 3 letters")
    expect(ann.locator("#dlq-why-not")).to_contain_text("another person has to approve it")
    look_at(ann, "request-own")

    ben.goto("/dead-letters/requests")
    look_at(ben, "requests")
    ben.locator("#dlq-requests a").click()
    expect(ben.locator("#dlq-plan li")).to_have_count(3)
    look_at(ben, "request")
    shop.fixed.touch()
    try:
        ben.locator("#dlq-approve").click()
        expect(ben.locator("#dlq-done")).to_have_text("Your approval was recorded.")
        look_at(ben, "request-done")
        for task_id in ids:
            shop.wait_for_letter(task_id, shop.RESOLVED)
    finally:
        shop.fixed.unlink()
    ben.goto("/dead-letters/audit")
    look_at(ben, "audit-requests")


def test_an_edit_and_a_deletion_are_refused(shop, start, open_page):
    task_id = shop.die("shop.charge", 1, currency="EUX", card_number="4111111111111111")
    flower = start(PROJ_APPROVAL="yes")
    ann, ben = open_page(flower.url, **ANN), open_page(flower.url, **BEN)
    ann.goto(f"/dead-letters/letters/{task_id}/edit")
    ann.locator("#dlq-kwargs").fill('{"currency": "EUR", "card_number": "4111111111111111"}')
    ann.locator("#dlq-save").click()
    expect(ann.get_by_role("heading", level=1)).to_have_text("ann (flower) asks: edit 1 letter")
    ben.goto(ann.url)
    look_at(ben, "request-edit")
    ben.get_by_label("Why").fill("the customer pays in dollars")
    ben.locator("#dlq-refuse").click()
    expect(ben.locator("#dlq-done")).to_have_text("The request was refused.")
    look_at(ben, "request-refused")
    ann.goto(f"/dead-letters/letters/{task_id}")
    look_at(ann, "letter-with-request")


def test_each_role_has_its_buttons(shop, start, open_page):
    task_id = shop.die("shop.ship", 4)
    roles = {"read": ["ben"], "triage": ["ann"]}
    flower = start(PROJ_SETTINGS=json.dumps({"dlq_roles": roles}))
    reader, triager = open_page(flower.url, **BEN), open_page(flower.url, **ANN)
    for page, name in ((reader, "read"), (triager, "triage")):
        for address in ("", "/letters", f"/letters/{task_id}", "/groups", "/requests"):
            page.goto(f"/dead-letters{address}")
            look_at(page, f"role-{name}{address.replace(task_id, 'one').replace('/', '-')}")
    triager.goto(f"/dead-letters/letters/{task_id}")
    expect(triager.locator("#dlq-discard")).to_be_visible()
    expect(triager.locator("#dlq-redrive")).to_have_count(0)
    reader.goto(f"/dead-letters/letters/{task_id}")
    expect(reader.locator("#dlq-discard")).to_have_count(0)
    reader.goto(f"/dead-letters/letters/{task_id}/edit")
    expect(reader.get_by_role("alert")).to_contain_text("the role act in dlq_roles")
    look_at(reader, "role-refused")


def test_encrypted_letters_without_and_with_the_keys(shop, page, start, open_page):
    with contextlib.closing(SQLStore(shop.store_url, ring=Keyring({"k": KEY}))) as sealed:
        now = sealed.now()
        sealed.letters.save([
            letter("sealed-letter", attempt(failed_at=now), log="a line"),
            letter("of-a-person", attempt(failed_at=now), subject="jo"),
        ])  # fmt: skip
    page.goto("/dead-letters/letters")
    appears(page, "#dlq-letters", "sealed-l")
    look_at(page, "letters-sealed")
    page.goto("/dead-letters/letters/sealed-letter")
    expect(page.locator("#dlq-unreadable")).to_contain_text("set dlq_encryption_keys here, too")
    look_at(page, "letter-sealed")
    page.locator("#dlq-edit").click()
    expect(page.get_by_role("alert")).to_contain_text("set dlq_encryption_keys here, too")

    keys = {"k": base64.b64encode(KEY).decode()}
    flower = start(PROJ_SETTINGS=json.dumps({"dlq_encryption_keys": keys}))
    ann = open_page(flower.url, **ANN)
    ann.goto("/dead-letters/letters?value=EUX")
    expect(ann.locator("#dlq-letters tbody tr")).to_have_count(2)
    ann.goto("/dead-letters/letters?q=currency")
    expect(ann.get_by_role("alert")).to_contain_text("Letters are encrypted")
    look_at(ann, "search-encrypted")
    ann.goto("/dead-letters/letters/of-a-person")
    expect(ann.locator("#dlq-why")).to_contain_text("bad currency")
    look_at(ann, "letter-encrypted")

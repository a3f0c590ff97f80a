"""The form of a redrive of many letters: suggestions, and the plan."""

import pytest
from support.factories import attempt, envelope, letter

REDRIVE = "/dead-letters/redrive"


def field(page, name):
    return dict(page.form(REDRIVE))[name]


@pytest.fixture
def many(store):
    """How many letters are there."""

    def many(count):
        store.letters.save([letter(f"{number}", fingerprint="ffff") for number in range(count)])

    return many


@pytest.mark.parametrize(
    ("count", "canary", "rate"),
    [(1, "", ""), (19, "", ""), (20, "5", "1/s"), (121, "5", "3/s"), (3_100, "5", "50/s")],
)
def test_many_letters_get_a_suggested_canary_and_rate(ann, many, count, canary, rate):
    many(count)
    page = ann.get(f"{REDRIVE}?group=ffff")
    assert (field(page, "canary"), field(page, "rate")) == (canary, rate)
    assert bool(page.find("p", id="dlq-suggested")) is bool(canary)


def test_suggestions_can_be_emptied(ann, store, many):
    many(20)
    form = dict(ann.get(f"{REDRIVE}?group=ffff").form(REDRIVE))
    sent = ann.post(REDRIVE, [*{**form, "canary": "", "rate": "", "number": "20"}.items()])
    assert sent.status == 303
    [made] = store.operations.find()
    assert (made.orders.pacing.canary, made.orders.pacing.rate) == (0, None)


def test_what_was_typed_is_kept_after_an_error(ann, many):
    many(20)
    form = dict(ann.get(f"{REDRIVE}?group=ffff").form(REDRIVE))
    again = ann.post(REDRIVE, [*{**form, "canary": "", "rate": "9/s", "number": "7"}.items()])
    assert again.status == 409
    assert (field(again, "canary"), field(again, "rate")) == ("", "9/s")


def test_the_plan_is_made_on_request(ann, store):
    page = ann.get(f"{REDRIVE}?task=charge")
    [(link, _)] = page.find("a", id="dlq-make-plan")
    planned = ann.get(link["href"])
    [(_, plan)] = planned.find("section", id="dlq-plan")
    assert "2 letters of 2 would be sent. Nothing has been sent yet." in " ".join(plan.split())
    assert planned.find("a", id="dlq-make-plan") == []
    assert store.operations.find() == []
    assert field(planned, "number") == ""


def test_the_plan_names_what_cannot_be_sent(ann, store):
    lost = envelope("lost", queue="", routing_key="")
    store.letters.save([letter("lost", attempt(), envelope=lost, fingerprint="ffff")])
    [(_, plan)] = ann.get(f"{REDRIVE}?group=ffff&plan=1").find("section", id="dlq-plan")
    assert "0 letters of 1 would be sent." in " ".join(plan.split())
    assert "Cannot be sent, for example" in plan


def test_other_acts_have_no_plan(ann):
    assert ann.get("/dead-letters/discard?task=charge").find("section", id="dlq-plan") == []
    assert ann.get("/dead-letters/discard?task=charge&plan=1").status == 400

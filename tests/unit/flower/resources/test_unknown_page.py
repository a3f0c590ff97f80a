"""Exceptions without a rule, in Flower."""

from support.factories import letter

from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict

UNKNOWN = "/dead-letters/unknown-exceptions"


def test_types_about_which_no_rule_decided(ann, store):
    decided = Explanation(verdict=Verdict.TERMINAL, rule="default", evidence="<it> carries code=17")
    store.letters.save([letter("0d4e", exception_type="bank.Busy", explanation=decided)])
    page = ann.get(UNKNOWN)
    assert page.find("a", href="/dead-letters/letters?exception=bank.Busy")[0][1] == "bank.Busy"
    assert page.find("a", href="/dead-letters/letters/0d4e")
    assert "<it> carries code=17" in page.text
    assert "None of their redrives has ended yet" in page.text
    assert ann.get("/dead-letters/groups").find("a", href=UNKNOWN)


def test_a_rule_decided_about_all(ann):
    assert "A rule decided about every stored letter." in ann.get(UNKNOWN).text


def test_a_wrong_name_in_the_address_is_refused(ann):
    assert ann.get(f"{UNKNOWN}?rule=default").status == 400

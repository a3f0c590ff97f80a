"""Which acts need a second person, and who may approve a request."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq import Approval
from celery_dlq.errors import SettingsError
from celery_dlq.model.request import Answer, Login, Request, RequestState, is_same_person

BOB = Login("bob (flower)")


def request(**changes):
    values = {
        "id": "0a1b2c3d4e5f", "act": "redrive", "state": RequestState.OPEN,
        "who": Login("ann (flower)"), "proven": True, "host": "desk", "why": "", "at": T0,
        "expires_at": T0 + timedelta(days=1), "letters": {"a": "dead"},
        "states": ("dead",), "changes": {}, "shown": {}, "result": {}, **changes,
    }  # fmt: skip
    return Request(**values)


class TestApproval:
    def test_by_default_every_act_on_any_letter_needs_a_second_person(self):
        rule = Approval()
        assert all(
            rule.wants(act, 1, ["charge"]) for act in ("redrive", "delete", "forget", "edit")
        )

    def test_other_acts_fewer_letters_and_other_tasks_need_none(self):
        rule = Approval(acts=["redrive"], above=100, tasks=["charge"])
        assert rule.wants("redrive", 101, ["mail", "shop.charge"])
        assert not rule.wants("redrive", 101, ["shop.recharge"])
        assert not rule.wants("delete", 101, ["charge"])
        assert not rule.wants("redrive", 100, ["charge"])
        assert not rule.wants("redrive", 101, ["mail"])

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (
                {"acts": {"redrive", "fly"}},
                "acts must name some of redrive, delete, forget, edit, not",
            ),
            ({"acts": "redrive"}, "acts must be a set of names"),
            ({"acts": ()}, "acts must name some of"),
            ({"above": -1}, "above must be a whole number from 0, not -1"),
            ({"above": True}, "above must be a whole number from 0, not True"),
            ({"tasks": "charge"}, "tasks must be a set of names"),
            ({"tasks": [1]}, "tasks must be a set of names"),
            ({"expires_after_s": 0}, "expires_after_s must be from 1"),
            ({"above_all": 1}, "above_all"),
        ],
    )
    def test_a_value_that_is_not_allowed_is_named(self, given, said):
        with pytest.raises(SettingsError, match=said):
            Approval(**given)


class TestNames:
    @pytest.mark.parametrize(
        "other",
        [
            "ANN",
            "ann (flower)",
            "Ann (Flower)",
            " ann  (flower) ",
            "ann (flower) (flower)",
            "\uff41nn",
        ],
    )
    def test_other_spellings_of_a_name_are_the_same_person(self, other):
        assert is_same_person("ann", other)

    @pytest.mark.parametrize("other", ["anna", "ann@example.com", "", "ann (web)"])
    def test_other_names_are_other_persons(self, other):
        assert not is_same_person("ann", other)


class TestWhoMayApprove:
    def test_another_person_who_has_logged_in_may(self):
        assert request().why_not_approved(BOB) == ""

    def test_a_name_without_a_login_may_not(self):
        assert "No login proves the name bob" in request().why_not_approved("bob (flower)")

    def test_the_requester_may_not_under_any_spelling(self):
        assert "another person" in request().why_not_approved(Login("ANN"))

    def test_without_a_proof_of_the_requester_two_logins_are_needed(self):
        asked = request(who="root", proven=False)
        once = request(who="root", proven=False, answers=[Answer(who=BOB, at=T0, approves=True)])
        assert (asked.needed, request().needed) == (2, 1)
        assert "another login" in once.why_not_approved(Login("BOB"))
        assert once.why_not_approved(Login("eve (flower)")) == ""

    def test_an_answered_request_says_by_whom(self):
        done = request(state=RequestState.DONE, answers=[Answer(who="bob", at=T0, approves=True)])
        refused = request(
            state=RequestState.REFUSED, answers=[Answer(who="eve", at=T0, approves=False)]
        )
        assert "already approved by bob" in done.why_not_approved(BOB)
        assert "already refused by eve" in refused.why_not_approved(BOB)

    def test_it_expires_at_its_time(self):
        waits = request()
        assert waits.shown_at(waits.expires_at - timedelta(seconds=1)).state is RequestState.OPEN
        over = waits.shown_at(waits.expires_at)
        assert over.state is RequestState.EXPIRED
        assert "expired" in over.why_not_approved(BOB)

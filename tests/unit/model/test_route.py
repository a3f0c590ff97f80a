"""Routes: what they take, which one comes first, and which definitions are refused."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import letter

from celery_dlq import Reason, Route, Settings
from celery_dlq.errors import SettingsError
from celery_dlq.model.route import NAME_LIMIT, owner_of, routed

CHARGE = "shop.payments.charge"


def takes(made=None, **conditions):
    return Route("payments", **conditions).takes(made or letter(task=CHARGE))


@pytest.mark.parametrize(
    ("given", "matches"),
    [
        (CHARGE, True),
        ("charge", True),
        ("payments.charge", True),
        ("harge", False),
        ("Charge", False),
        ("shop.payments", False),
        ("shop.payments.*", True),
        ("payments.*", True),
        ("shop.pay*", True),
        ("char*", True),
        ("*", True),
        ("hop.*", False),
        ("shop.payments.charge.*", False),
        (("mail", "charge"), True),
        (["mail", "charge"], True),
        (("mail", "post"), False),
    ],
)
def test_a_task_is_named_in_full_by_its_last_part_or_by_its_beginning(given, matches):
    assert takes(task=given) is matches


@pytest.mark.parametrize(
    ("given", "matches"),
    [("shop.errors.PaymentError", True), ("PaymentError", True), ("Error", False), ("", None)],
)
def test_an_exception_is_named_in_full_or_by_its_last_part(given, matches):
    made = letter(exception_type="shop.errors.PaymentError")
    if matches is None:
        with pytest.raises(SettingsError):
            takes(made, exception=given)
    else:
        assert takes(made, exception=given) is matches


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({"reason": "timeout"}, True),
        ({"reason": Reason.TIMEOUT}, True),
        ({"reason": ("poison", "timeout")}, True),
        ({"reason": "poison"}, False),
        ({"tag": "money"}, True),
        ({"tag": ("mail", "eu")}, True),
        ({"tag": "mon"}, False),
        ({"group": "9c1e"}, True),
        ({"group": ("aaaa", "9c1e0000deadbeef")}, True),
        ({"group": "c1e0"}, False),
        ({"reason": "timeout", "tag": "money", "group": "9c", "task": "charge"}, True),
        ({"reason": "timeout", "tag": "mail"}, False),
    ],
)
def test_all_conditions_have_to_hold(conditions, matches):
    made = letter(task=CHARGE, reason=Reason.TIMEOUT, tags=("money", "eu"))
    assert takes(made, **conditions) is matches


def test_a_letter_gets_the_name_and_the_tags_of_its_route():
    route = Route("payments", task="shop.*", tags=("money", "eu"))
    made = routed(letter(tags=("eu", "slow")), [route])
    assert (made.route, made.tags) == ("payments", ("eu", "slow", "money"))


def test_a_letter_that_no_route_takes_stays_as_it_is():
    made = letter()
    assert routed(made, [Route("mail", task="shop.mail")]) is made
    assert routed(made, ()) is made


_CONDITIONS = {
    "task": ["charge", "shop.*", "mail", "*"],
    "exception": ["ValueError", "KeyError"],
    "reason": [Reason.TERMINAL, Reason.TIMEOUT],
    "tag": ["money", "mail"],
    "group": ["9c1e", "aaaa"],
}


@st.composite
def definitions(draw):
    """Routes with names by their place."""
    conditions = [
        st.fixed_dictionaries({name: st.lists(st.sampled_from(texts), min_size=1, max_size=2)})
        for name, texts in _CONDITIONS.items()
    ]
    one = st.lists(st.one_of(conditions), min_size=1, max_size=3)
    drawn = draw(st.lists(one, max_size=6))
    return [
        Route(str(place), **{name: given for part in parts for name, given in part.items()})
        for place, parts in enumerate(drawn)
    ]


letters = st.builds(
    letter,
    st.just("a"),
    task=st.sampled_from(["shop.charge", "shop.mail", "bank.charge"]),
    exception_type=st.sampled_from(["ValueError", "shop.KeyError"]),
    reason=st.sampled_from([Reason.TERMINAL, Reason.TIMEOUT, Reason.POISON]),
    tags=st.sampled_from([(), ("money",), ("money", "mail")]),
    fingerprint=st.sampled_from(["9c1e0000deadbeef", "aaaa000000000000"]),
)


@given(definitions(), letters)
def test_the_first_route_that_takes_a_letter_gets_it(routes, made):
    name = routed(made, routes).route
    taking = [route.name for route in routes if route.takes(made)]
    assert name == (taking[0] if taking else "")
    # The routes after it do not count, and without it the next one gets the letter.
    if taking:
        assert routed(made, routes[: int(name) + 1]).route == name
        others = [route for route in routes if route.name != name]
        assert routed(made, others).route == (taking[1] if taking[1:] else "")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"task": ()}, "It has no condition, so it would take every letter."),
        ({"task": 5}, "task must be a text or a tuple of texts, not 5."),
        ({"exception": ValueError}, "exception must be a text or a tuple of texts, not <class"),
        ({"task": ("a", "")}, "task must be a text or a tuple of texts, not ('a', '')."),
        ({"task": "sh*p.charge"}, "task may have a * only at its end, not 'sh*p.charge'."),
        (
            {"exception": "Payment*"},
            "exception must be the name of a type without *, not 'Payment*'.",
        ),
        ({"reason": "undecodable"}, "'undecodable' is not a reason;"),
        ({"reason": "time_out"}, "'time_out' is not a reason; did you mean 'timeout'?"),
        ({"group": "Z"}, "group must be a fingerprint or its beginning, such as '9c1e', not 'Z'."),
        ({"owner": None}, "owner must be a text of at most 255 characters, not None."),
        ({"owner": "x" * 256}, "owner must be a text of at most 255 characters"),
        ({"tags": "money"}, "tags must be a tuple of texts, not 'money'."),
        ({"tags": ("money", 5)}, "tags must be a tuple of texts, not ('money', 5)."),
        ({"hooks": print}, "hooks must be a tuple of callables or their dotted names, not print."),
        ({"hooks": "shop.page"}, "hooks must be a tuple of callables or their dotted names"),
        ({"hooks": (17,)}, "A hook must be a callable or its dotted name, not 17."),
        ({"hooks": ("",)}, "A hook must be a callable or its dotted name, not ''."),
    ],
)
def test_an_invalid_definition_is_refused_with_what_is_allowed(changes, problem):
    with pytest.raises(SettingsError) as caught:
        Route("payments", **{"task": "charge", **changes})
    told = str(caught.value)
    assert told.startswith("dlq_routes: 'payments' is not valid. ")
    assert problem in told
    assert told.endswith("See `celery dlq help routes`.")


@pytest.mark.parametrize("name", ["", "x" * (NAME_LIMIT + 1), 5, None, " a", "a\n", "a\ud800"])
def test_an_invalid_name_is_refused(name):
    with pytest.raises(SettingsError, match=r"dlq_routes: .* is not valid\. The name must"):
        Route(name, task="charge")


def test_every_problem_is_told_at_once():
    with pytest.raises(SettingsError, match=r"reason; .*tags must"):
        Route("payments", reason="bad", tags=5)


def test_two_routes_with_one_name_are_refused_by_name():
    routes = [Route("payments", task="a"), Route("mail", task="b"), Route("payments", task="c")]
    with pytest.raises(SettingsError) as caught:
        Settings.from_values({"routes": routes})
    assert (
        "dlq_routes = [Route('payments'), Route('mail'), Route('payments')] is not a list of "
        "celery_dlq.Route objects with different names" in str(caught.value)
    )


def test_the_owner_is_that_of_the_settings():
    routes = [Route("payments", task="a", owner="team-payments"), Route("mail", task="b")]
    assert [owner_of(name, routes) for name in ("payments", "mail", "gone", "")] == [
        "team-payments", "", "", "",
    ]  # fmt: skip


def test_a_route_can_be_copied():
    route = Route("payments", task="a", owner="ann", hooks=("shop.page",))
    assert copy.deepcopy(route) == route == pickle.loads(pickle.dumps(route))


def test_a_secret_in_a_hook_is_not_shown():
    class Pager:
        def __repr__(self):
            return "s3cret"

    with pytest.raises(SettingsError) as caught:
        Route("payments", task="a", hooks=(Pager(),))
    assert "not Pager." in str(caught.value)

"""A definition that makes no sense is refused when it is made, with the value and what is allowed."""

import pytest
from support.auto_world import CHARGES, auto

from celery_dlq import (
    AutoRedrive,
    Filter,
    Limits,
    Orders,
    Pacing,
    Reason,
    Settings,
    State,
    Suspension,
)
from celery_dlq.errors import SettingsError
from celery_dlq.model.automation import AutoMode


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"where": Filter()}, "where matches every letter; restrict it, or give all=True."),
        ({"where": {}}, "where must be a celery_dlq.Filter, not {}."),
        (
            {"where": Filter(states=frozenset({State.REDRIVEN}))},
            "where.states has redriven; only dead letters are chosen, so leave it out.",
        ),
        ({"after_s": -1}, "after_s must be a number from 0 to 31536000, not -1."),
        ({"after_s": True}, "after_s must be a number from 0 to 31536000, not True."),
        ({"mode": "dry"}, "mode must be 'on' or 'shadow', not 'dry'."),
        ({"owner": None}, "owner must be a str, not None."),
        ({"when": "*/5 * * * *"}, "when must be a Timetable, not '*/5 * * * *'."),
        (
            {"limits": Limits(per_letter=None)},
            "limits.per_letter must be a whole number from 1 to 20, not None.",
        ),
        (
            {"limits": Limits(per_day=0)},
            "limits.per_day must be a whole number from 1 to 10000000, not 0.",
        ),
        (
            {"limits": Limits(growth=0.5)},
            "limits.growth must be a number from 1 to 100, not 0.5.",
        ),
        (
            {"suspend": Suspension(success_below=2)},
            "suspend.success_below must be a number above 0 and at most 1, not 2.",
        ),
        (
            {"orders": Orders(pacing=Pacing(limit=5))},
            "orders.pacing.limit cannot be set; use limits.per_run.",
        ),
        ({"orders": Orders(pacing=Pacing(rate=0.0))}, "The rate must be above zero, not 0.0."),
    ],
)
def test_a_value_that_is_not_allowed_is_named(changes, problem):
    with pytest.raises(SettingsError) as caught:
        auto(**changes)
    assert str(caught.value) == (
        f"dlq_auto_redrive: 'charges' is not valid. {problem} See `celery dlq help auto-redrive`."
    )


@pytest.mark.parametrize("name", ["", "  ", "*", "a b", 7, "x" * 65])
def test_a_name_must_be_a_short_text(name):
    with pytest.raises(SettingsError, match="name must be a name of 1 to 64 letters, digits"):
        auto(name)


def test_all_problems_are_named_at_once():
    with pytest.raises(SettingsError, match=r"after_s must be .* mode must be"):
        auto(after_s=-1, mode="dry")


def test_a_filter_that_matches_everything_may_be_meant():
    assert auto(where=Filter(), all=True).scope.where.states == {State.DEAD}


def test_letters_that_a_redrive_takes_only_by_name_are_left_out():
    assert Reason.UNSTORED in auto().scope.where.without_reasons
    assert not auto(where=Filter(reason=Reason.UNSTORED)).scope.where.without_reasons


def test_a_mode_may_be_written_as_text():
    assert auto(mode="shadow").mode is AutoMode.SHADOW
    assert auto(mode="on").is_on


def test_the_pause_grows_with_each_try_up_to_a_year():
    made = auto(after_s=100.0, limits=Limits(growth=3.0, per_letter=3))
    assert [made.pause_s(tries) for tries in range(3)] == [100.0, 300.0, 900.0]
    assert auto(after_s=1e7, limits=Limits(growth=100.0)).pause_s(3) == 31_536_000.0


def test_a_canary_is_not_larger_than_its_run():
    made = auto(orders=Orders(pacing=Pacing(canary=5)))
    assert made.orders_for(3).pacing.canary == 3
    assert made.orders_for(9).pacing.canary == 5
    assert made.orders_for(9).why == "automatic redrive charges"


@pytest.mark.parametrize("value", [[auto("a"), auto("a")], ["nightly"], auto("a"), [CHARGES], None])
def test_the_setting_is_a_list_of_them_with_different_names(value):
    with pytest.raises(SettingsError, match=r"a list of celery_dlq\.AutoRedrive objects with diff"):
        Settings.from_values({"auto_redrive": value})
    both = [auto("a"), AutoRedrive("b", where=CHARGES)]
    assert Settings.from_values({"auto_redrive": both}).auto_redrive == both

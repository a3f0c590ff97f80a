"""Suggestions from the ages and ends of past redrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.model.operation import PastRedrive
from celery_dlq.upkeep.auto_redrive.suggesting import Outcomes, suggest

MINUTE_S = 60.0


def past(age_s: float, has_succeeded: bool, cause: str = "9c1e") -> PastRedrive:
    return PastRedrive(cause, "shop.charge", age_s, has_succeeded)


def test_it_is_the_age_from_which_on_redrives_succeed():
    early = [past(minute * MINUTE_S, minute % 2 == 1) for minute in range(1, 11)]
    late = [past((11 + number % 40) * MINUTE_S, number != 7) for number in range(100)]
    [found] = suggest([*early, *late], least=20, share=0.99)
    assert (found.fingerprint, found.task, found.after_s) == ("9c1e", "shop.charge", 11 * 60)
    assert found.older == Outcomes(redrives=100, succeeded=99)
    assert found.younger == Outcomes(redrives=10, succeeded=5)


def test_a_group_with_few_redrives_gets_none():
    assert suggest([past(900.0, True)] * 19, least=20, share=0.9) == []
    assert suggest([past(900.0, True)] * 20, least=20, share=0.9)


def test_a_group_whose_redrives_fail_gets_none():
    ends = [past(900.0, number % 5 > 0) for number in range(100)]
    assert suggest(ends, least=20, share=0.81) == []
    assert suggest(ends, least=20, share=0.8)


def test_nothing_is_said_of_ages_that_were_never_tried():
    [found] = suggest([past(26 * 3_600.0, True)] * 30, least=20, share=0.9)
    assert found.after_s == 26 * 3_600
    assert found.younger == Outcomes(redrives=0, succeeded=0)


def test_the_group_with_the_most_redrives_comes_first():
    few, many = [past(60.0, True, "few")] * 20, [past(60.0, True, "many")] * 21
    found = suggest([*few, *many], least=20, share=0.9)
    assert [one.fingerprint for one in found] == ["many", "few"]


redrives = st.lists(
    st.builds(past, st.floats(0, 400_000), st.booleans(), st.sampled_from(["a", "b"])), max_size=60
)


@given(redrives, st.integers(1, 10), st.floats(0.01, 1))
def test_what_is_said_is_true_and_no_lower_age_would_do(redrives, least, share):
    found = {one.fingerprint: one for one in suggest(redrives, least=least, share=share)}
    for cause in {one.cause for one in redrives}:
        of_it = [one for one in redrives if one.cause == cause]

        def ends(after_s, of_it=of_it):
            older = [one.has_succeeded for one in of_it if one.age_s >= after_s]
            return Outcomes(redrives=len(older), succeeded=sum(older))

        def is_enough(outcomes):
            return outcomes.redrives >= least and outcomes.share >= share

        if cause not in found:
            assert not is_enough(ends(0))
            continue
        one = found[cause]
        assert one.older == ends(one.after_s)
        assert is_enough(one.older)
        assert one.older.redrives + one.younger.redrives == len(of_it)
        if one.younger.redrives:
            assert not is_enough(ends(0)), "the lowest age is tried first"

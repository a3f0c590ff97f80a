import sys

import pytest

from celery_dlq.redrive.turns import TURN_S, short_turns


@pytest.fixture(autouse=True)
def long_turns():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield
    sys.setswitchinterval(before)


def now():
    return round(sys.getswitchinterval(), 6)


def test_turns_are_short_until_the_last_one_that_wants_it_is_through():
    first, second = short_turns(), short_turns()
    first.__enter__()
    second.__enter__()
    assert now() == TURN_S
    first.__exit__(None, None, None)
    assert now() == TURN_S
    second.__exit__(None, None, None)
    assert now() == 0.004


def test_after_an_error_too():
    with pytest.raises(ZeroDivisionError), short_turns():
        raise ZeroDivisionError
    assert now() == 0.004


def test_turns_that_are_shorter_already_stay():
    sys.setswitchinterval(0.00025)
    with short_turns():
        assert now() == 0.00025

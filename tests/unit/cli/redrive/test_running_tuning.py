import gc
import sys

import pytest

from celery_dlq.cli.redrive.running import OBJECTS, TURN_S, redrive_tuning


@pytest.fixture(autouse=True)
def own_settings():
    turn_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(0.004)
    gc.set_threshold(900, 12, 13)
    yield
    sys.setswitchinterval(turn_s)
    gc.set_threshold(*thresholds)


def now():
    return round(sys.getswitchinterval(), 6), gc.get_threshold()


def test_turns_are_short_and_garbage_waits_until_the_end():
    with redrive_tuning():
        assert now() == (TURN_S, (OBJECTS, 12, 13))
    assert now() == (0.004, (900, 12, 13))


def test_after_an_error_too():
    with pytest.raises(ZeroDivisionError), redrive_tuning():
        raise ZeroDivisionError
    assert now() == (0.004, (900, 12, 13))


def test_turns_that_are_shorter_already_stay():
    sys.setswitchinterval(0.00025)
    with redrive_tuning():
        assert now()[0] == 0.00025


@pytest.mark.parametrize("own", [0, 2 * OBJECTS])
def test_garbage_that_waits_longer_already_or_without_end_does_so(own):
    gc.set_threshold(own, 12, 13)
    with redrive_tuning():
        assert now()[1] == (own, 12, 13)

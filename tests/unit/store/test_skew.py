"""What is said of a machine whose clock differs from the database's."""

from datetime import timedelta

import pytest

from celery_dlq.store.skew import TOLERATED_S, why_wrong


@pytest.mark.parametrize("seconds", [0.0, TOLERATED_S, -TOLERATED_S])
def test_a_few_seconds_are_no_matter(seconds):
    assert why_wrong(timedelta(seconds=seconds)) == ""


def test_more_is_told_with_its_figure_its_side_and_the_next_step():
    behind, ahead = why_wrong(timedelta(seconds=605.4)), why_wrong(timedelta(hours=-1))
    assert "the clock of this machine is 605 seconds behind the database's" in behind
    assert "the clock of this machine is 3,600 seconds ahead of the database's" in ahead
    assert behind.endswith("synchronise both machines with NTP and check with: timedatectl status")

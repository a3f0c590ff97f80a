"""Every way to die on Redis: each message comes to its one right end."""

import pytest
from matrix.cells import each_mode, each_play
from matrix.checks import check_end, check_whole

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(400)]


@each_mode("redis")
def test_each_message_comes_to_its_one_end(play, mode, theatre):
    check_end(theatre, play, mode)


@each_play("redis")
def test_nothing_is_left_over(play, theatre):
    check_whole(theatre, play)

import pytest

from celery_dlq.cli.speed import Speed


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def grown(clock, steps):
    """A speed after ``steps`` of (seconds since the start, count)."""
    speed = Speed(clock)
    for clock.now, count in steps:
        speed.note(count)
    return speed


@pytest.mark.parametrize("steps", [[], [(0, 0)], [(5, 3)], [(5, 3), (5, 9)]])
def test_it_takes_two_moments_to_tell(clock, steps):
    speed = grown(clock, steps)
    assert (speed.per_second, speed.left_s(10)) == (0.0, None)


def test_steady_growth(clock):
    speed = grown(clock, [(second, 50 * second) for second in range(100)])
    assert speed.per_second == pytest.approx(50)
    assert speed.left_s(500) == pytest.approx(10)


def test_what_was_done_before_does_not_count(clock):
    assert grown(clock, [(0, 900), (10, 1000)]).per_second == pytest.approx(10)


def test_a_change_shows_soon(clock):
    slow = [(second, second) for second in range(60)]
    fast = [(60 + second, 60 + 100 * second) for second in range(20)]
    assert grown(clock, slow + fast).per_second == pytest.approx(100)


def test_standing_still_has_no_end(clock):
    speed = grown(clock, [(0, 0), (1, 10), (30, 10), (60, 10)])
    assert (speed.per_second, speed.left_s(5)) == (0.0, None)

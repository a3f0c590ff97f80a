"""When an automatic redrive may run."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq import Timetable
from celery_dlq.errors import SettingsError

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)


def test_it_runs_at_once_and_then_after_each_interval():
    when = Timetable(every_s=300)
    assert when.next_start(None, NOW) == NOW
    assert when.next_start(NOW, NOW) == NOW + timedelta(seconds=300)


def test_a_cron_expression_is_read_in_its_time_zone():
    when = Timetable(cron="30 2 * * *", timezone="Europe/Berlin")
    assert when.next_start(utc(2026, 7, 1, 12), NOW) == utc(2026, 7, 2, 0, 30)
    assert when.next_start(utc(2026, 11, 1, 12), NOW) == utc(2026, 11, 2, 1, 30)


def test_a_time_that_the_clocks_leave_out_is_made_up_for_once():
    """On 29 March 2026, 2:30 does not exist in Berlin."""
    when = Timetable(cron="30 2 * * *", timezone="Europe/Berlin")
    first = when.next_start(utc(2026, 3, 28, 12), utc(2026, 3, 28, 12))
    second = when.next_start(first, first)
    assert first.astimezone(BERLIN).date().day == 29
    assert second.astimezone(BERLIN).strftime("%d %H:%M") == "30 02:30"


def test_a_time_in_the_future_is_that_of_a_clock_that_was_set_back():
    assert Timetable(cron="0 0 1 1 *").next_start(NOW + timedelta(days=1), NOW) == NOW


@pytest.mark.parametrize(
    ("hour", "is_open"), [(21, False), (22, True), (23, True), (0, True), (5, True), (6, False)]
)
def test_hours_may_include_midnight(hour, is_open):
    when = Timetable(hours="22:00-06:00")
    assert (when.why_closed(NOW.replace(hour=hour)) == "") == is_open


def test_hours_are_those_of_the_time_zone():
    when = Timetable(hours="08:00-09:00", timezone="Europe/Berlin")
    assert when.why_closed(utc(2026, 7, 1, 6, 30)) == ""
    assert when.why_closed(utc(2026, 12, 1, 6, 30)) == (
        "it is outside its hours (08:00-09:00 Europe/Berlin)"
    )


def test_nothing_is_sent_in_a_quiet_time():
    when = Timetable(quiet=("22:00-06:00", "13:00-14:00"), timezone="Europe/Berlin")
    assert when.why_closed(utc(2026, 12, 24, 11, 59)) == ""
    assert (
        when.why_closed(utc(2026, 12, 24, 21, 0))
        == "it is a quiet time (22:00-06:00 Europe/Berlin)"
    )
    assert when.why_closed(utc(2026, 12, 25, 5, 0)) == ""
    assert "13:00-14:00" in when.why_closed(utc(2026, 11, 23, 12, 30))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"every_s": 0}, "every_s must be a number from 1 to 31536000, not 0."),
        ({"cron": "* *"}, "cron = '* *' is not a cron expression (Wrong number of fields)"),
        ({"cron": "0 0 31 2 *"}, "cron = '0 0 31 2 *' is not a cron expression (Bad day-of-month)"),
        ({"cron": 5}, "cron = 5 is not a cron expression"),
        ({"hours": "25-3"}, "hours must be hours like '22:00-06:00', not '25-3'"),
        ({"hours": "06:00-06:00"}, "(the two times are the same)"),
        ({"quiet": "12:00-13:00"}, "quiet must be a list of hours, not '12:00-13:00'."),
        ({"quiet": ("noon",)}, "quiet must be hours like '22:00-06:00', not 'noon'"),
        ({"timezone": "Mars"}, "timezone must be the name of a time zone"),
    ],
)
def test_a_value_that_is_not_allowed_is_named(changes, problem):
    with pytest.raises(SettingsError) as caught:
        Timetable(**changes)
    assert problem in str(caught.value)
    assert str(caught.value).endswith("See `celery dlq help auto-redrive`.")


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 9-17 * * 1-5", "0 3 29 2 *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.integers(0, 20 * 365 * 86_400),
)
def test_the_next_start_is_always_later_than_the_last_one(cron, zone, seconds):
    when, last = Timetable(cron=cron, timezone=zone), utc(2020, 1, 1) + timedelta(seconds=seconds)
    assert when.next_start(last, last) > last

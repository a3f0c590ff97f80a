import contextlib
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.view import times

NOW = datetime(2026, 11, 21, 13, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90m", timedelta(minutes=90)),
        ("2h", timedelta(hours=2)),
        ("3d", timedelta(days=3)),
        ("1w", timedelta(weeks=1)),
        ("45s", timedelta(seconds=45)),
        ("1.5H", timedelta(minutes=90)),
        (" 2 h ", timedelta(hours=2)),
    ],
)
def test_a_span_means_a_time_ago(text, ago):
    assert times.parse_moment(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T08:00:00Z",
        "2026-11-21T08:00:00+00:00",
        "2026-11-21T09:00+01:00",
        "2026-11-21 08:00z",
    ],
)
def test_iso_with_an_offset(text):
    assert times.parse_moment(text, NOW) == datetime(2026, 11, 21, 8, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["2026-11-21", "2026-11-21T08:00:00"])
def test_iso_without_an_offset_is_local(text):
    expected = datetime.fromisoformat(text).astimezone()
    found = times.parse_moment(text, NOW)
    assert found == expected
    assert found.tzinfo is timezone.utc


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2",
        "h",
        "-2h",
        "2h3",
        "2026-13-01",
        "99999999999w",
        "0001-01-01T00:00+14:00",
    ],
)
def test_an_invalid_time_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"is not a time; write 90m, 2h, 3d or 1w .* ISO 8601"):
        times.parse_moment(text, NOW)


@given(st.text())
def test_any_text_is_a_utc_moment_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert times.parse_moment(text, NOW).tzinfo is timezone.utc


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50/s", 50), ("300/m", 5), ("50", 50), ("36/h", 0.01), ("0.5/S", 0.5), (" 10 / s ", 10)],
)
def test_rates(text, rate):
    assert times.parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("100/h", 100), ("5/m", 300), ("2", 7_200), ("0.1/h", 1), ("7/h", 7),
        ("1000000000/h", 1_000_000_000),
    ],
)  # fmt: skip
def test_a_rate_as_letters_per_hour_is_rounded_up(text, letters):
    assert times.parse_hourly(text) == letters


@pytest.mark.parametrize("text", ["1000000001/h", "1000000/s", "9" * 40])
def test_a_rate_that_is_too_high_to_be_counted(text):
    with pytest.raises(
        ValueError, match=r"is more than 1,000,000,000 letters per hour; write 100/h"
    ):
        times.parse_hourly(text)


@pytest.mark.parametrize("text", ["0/h", "many", "-1", ""])
def test_letters_per_hour_that_are_not_a_rate(text):
    with pytest.raises(ValueError, match="is not a rate"):
        times.parse_hourly(text)


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(50.0, "50/s"), (12_345.6, "12,346/s"), (2.345, "2.35/s"), (1.0, "1/s"), (1 / 3, "20/m"),
     (1 / 60, "1/m"), (0.001, "3.6/h"), (1e-5, "0.036/h"), (0.0, "0/s")],
)  # fmt: skip
def test_a_rate_is_shown_in_the_shortest_unit_with_at_least_one(per_second, text):
    assert times.rate(per_second) == text


@pytest.mark.parametrize(
    "text", ["0", "0/s", "-1", "fast", "", "50/d", "inf", "nan", "1e3", "9" * 400]
)
def test_an_invalid_rate(text):
    with pytest.raises(ValueError, match="is not a rate; write 50/s"):
        times.parse_rate(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0094, "0.009s"), (0.05, "0.05s"), (0.25, "0.25s"), (3, "3s"),
        (59.6, "60s"), (60, "1m"), (61, "61s"), (119, "119s"),
        (120, "2m"), (3600, "1h"), (7199, "119m"), (7200, "2h"), (86_400, "1d"), (604_800, "7d"),
    ],
)  # fmt: skip
def test_durations(seconds, text):
    assert times.duration(seconds) == text


def test_ages():
    assert times.age(NOW - timedelta(hours=3), NOW) == "3h ago"
    assert times.age(NOW - timedelta(seconds=5.4), NOW) == "5s ago"
    assert times.age(NOW + timedelta(minutes=5), NOW) == "in 5m"
    assert times.age(NOW + timedelta(seconds=0.4), NOW) == "now"


def test_a_moment_for_machines_is_in_utc():
    moment = datetime(2026, 11, 21, 14, 0, tzinfo=timezone(timedelta(hours=1)))
    assert times.iso(moment) == "2026-11-21T13:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("2m", 120), ("1.5h", 5_400), ("7d", 604_800), ("1w", 604_800), (" 90 ", 90)],
)
def test_durations_are_parsed(text, seconds):
    assert times.parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-1m", "soon", "m", "2m30s"])
def test_an_invalid_duration(text):
    with pytest.raises(ValueError, match="write 30s, 2m, 1h or 7d"):
        times.parse_span(text)


def test_a_point_in_time():
    expected = datetime(2026, 11, 21, 8, tzinfo=timezone.utc)
    assert times.parse_point("2026-11-21T09:00+01:00") == expected


@pytest.mark.parametrize("text", ["", "2h", "tomorrow", "0001-01-01T00:00:00+14:00"])
def test_an_invalid_point_in_time(text):
    with pytest.raises(ValueError, match="write ISO 8601"):
        times.parse_point(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW + timedelta(hours=2)),
        (" 3D ", NOW + timedelta(days=3)),
        ("2026-12-01T08:00:00Z", datetime(2026, 12, 1, 8, tzinfo=timezone.utc)),
    ],
)
def test_moments_ahead(text, expected):
    assert times.parse_ahead(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("tomorrow", "UTC", "2026-11-22T00:00:00+00:00"),
        (" Monday ", "UTC", "2026-11-23T00:00:00+00:00"),
        ("saturday", "UTC", "2026-11-28T00:00:00+00:00"),
        ("sunday", "UTC", "2026-11-22T00:00:00+00:00"),
        ("monday", "Europe/Berlin", "2026-11-22T23:00:00+00:00"),
        # In Auckland it is Sunday already.
        ("tomorrow", "Pacific/Auckland", "2026-11-22T11:00:00+00:00"),
        ("2026-12-01T09:30", "Asia/Tokyo", "2026-12-01T00:30:00+00:00"),
        ("2026-12-01T09:30Z", "Asia/Tokyo", "2026-12-01T09:30:00+00:00"),
        # The clocks go forward on the day before.
        ("2027-03-29", "Europe/Berlin", "2027-03-28T22:00:00+00:00"),
    ],
)
def test_days_and_times_ahead_in_a_zone(text, zone, expected):
    saturday = datetime(2026, 11, 21, 13, tzinfo=timezone.utc)
    assert times.parse_ahead(text, saturday, ZoneInfo(zone)).isoformat() == expected


@pytest.mark.parametrize("text", ["", "0h", "2020-01-01", "someday", "99999999999w"])
def test_an_invalid_moment_ahead(text):
    with pytest.raises(ValueError, match=r"write|in the past"):
        times.parse_ahead(text, NOW)


@pytest.mark.parametrize("text", ["", "yesterday", "2", "0001-01-01T00:00+14:00"])
def test_what_is_no_moment_ahead_is_refused_with_examples_of_times_ahead(text):
    with pytest.raises(
        ValueError,
        match=r"is not a time; write 2h, 3d or 1w for a time ahead, tomorrow, monday, or ISO",
    ):
        times.parse_ahead(text, NOW)


@pytest.mark.parametrize("text", ["36501d", "5300w", "9" * 30 + "w", "9" * 400])
def test_a_span_beyond_the_calendar_is_too_long(text):
    with pytest.raises(ValueError, match=r"is too long; write 36500d or less\."):
        times.parse_span(text)
    with pytest.raises(ValueError, match=r"is too long|is not a time"):
        times.parse_ahead(text, NOW)

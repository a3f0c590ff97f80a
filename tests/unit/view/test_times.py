import contextlib
from datetime import datetime, timedelta, timezone

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
def test_so_long_ago(text, ago):
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
def test_what_is_no_time_is_told_how_to_write_one(text):
    with pytest.raises(ValueError, match=r"is no time; write 90m, 2h, 3d or 1w .* ISO 8601"):
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
    ("per_second", "text"),
    [(50.0, "50/s"), (12_345.6, "12,346/s"), (2.345, "2.35/s"), (1.0, "1/s"), (1 / 3, "20/m"),
     (1 / 60, "1/m"), (0.001, "3.6/h"), (1e-5, "0.036/h"), (0.0, "0/s")],
)  # fmt: skip
def test_a_rate_is_shown_in_the_shortest_time_that_has_a_whole_one(per_second, text):
    assert times.rate(per_second) == text


@pytest.mark.parametrize(
    "text", ["0", "0/s", "-1", "fast", "", "50/d", "inf", "nan", "1e3", "9" * 400]
)
def test_what_is_no_rate(text):
    with pytest.raises(ValueError, match="is no rate; write 50/s"):
        times.parse_rate(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.05, "0.05s"), (0.25, "0.25s"), (3, "3s"), (59.6, "60s"), (60, "1m"), (61, "61s"), (119, "119s"),
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
def test_so_long(text, seconds):
    assert times.parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-1m", "soon", "m", "2m30s", "999999999999w"])
def test_no_length_of_time(text):
    with pytest.raises(ValueError, match="write 30s, 2m, 1h or 7d"):
        times.parse_span(text)


def test_a_point_in_time():
    expected = datetime(2026, 11, 21, 8, tzinfo=timezone.utc)
    assert times.parse_point("2026-11-21T09:00+01:00") == expected


@pytest.mark.parametrize("text", ["", "2h", "tomorrow", "0001-01-01T00:00:00+14:00"])
def test_no_point_in_time(text):
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


@pytest.mark.parametrize("text", ["", "0h", "2020-01-01", "tomorrow", "99999999999w"])
def test_no_moments_ahead(text):
    with pytest.raises(ValueError, match=r"write|over already"):
        times.parse_ahead(text, NOW)

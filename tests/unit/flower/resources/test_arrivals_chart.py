"""The chart of arrivals on the overview and on a group's page."""

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from support.factories import T0, attempt, letter

from celery_dlq import Retention
from celery_dlq.errors import FilterError
from celery_dlq.flower.resources.arrivals import RANGES, read_range

OVERVIEW = "/dead-letters"
CHARGE = "9c1e0000deadbeef"
GROUP = f"{OVERVIEW}/groups/{CHARGE}"
NOW = T0 + timedelta(hours=1)

#: Another moment, in the middle of a column of each range.
MORNING = datetime(2026, 11, 26, 9, 4, 30, tzinfo=timezone.utc)

PAGES = pytest.mark.parametrize(
    ("path", "place", "letters"), [(OVERVIEW, "dlq-arrivals", 3), (GROUP, "dlq-trend", 2)]
)


def said(page, place):
    """The text of the chart's section."""
    [(_, text)] = page.find("section", id=place)
    return " ".join(text.split())


def failed(name, minutes, **changes):
    return letter(name, attempt(minutes=minutes), **changes)


@PAGES
@pytest.mark.parametrize(
    ("name", "label", "unit", "span"),
    [
        ("1h", "hour", "minute", "21 Nov 12:20 to 12:21 UTC"),
        ("24h", "24 hours", "hour", "21 Nov 12:00 to 13:00 UTC"),
        ("7d", "7 days", "6 hours", "21 Nov 12:00 to 18:00 UTC"),
        ("30d", "30 days", "day", "21 Nov 00:00 to 22 Nov 00:00 UTC"),
    ],
)
def test_each_range_counts_the_letters(ann, path, place, letters, name, label, unit, span):
    if (path, name) == (GROUP, "1h"):
        pytest.skip("a group is counted by the hour")
    page = ann.get(f"{path}?range={name}")
    text = said(page, place)
    assert f"Arrivals, last {label} {letters} failures, at most" in text
    assert f"per {unit}" in text
    assert span in text
    [(shown, _)] = page.find("a", **{"aria-current": "true"})
    assert shown["href"] == f"{path}?range={name}"


@PAGES
def test_the_ranges_are_links(ann, path, place, letters):
    page = ann.get(path)
    links = [found["href"] for found, _ in page.find("a") if "range=" in found["href"]]
    names = ("24h", "7d", "30d") if path == GROUP else ("1h", "24h", "7d", "30d")
    assert links == [f"{path}?range={name}" for name in names]


@PAGES
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("range=2w", "24h, 7d, 30d, not '2w'."),
        ("range=1h&range=7d", "range is given more than once"),
    ],
)
def test_a_bad_range_names_the_choices(ann, path, place, letters, query, text):
    page = ann.get(f"{path}?{query}")
    assert page.status == 400
    assert text in page.text


@PAGES
def test_the_scale_and_the_values_are_text(ann, path, place, letters):
    page = ann.get(f"{path}?range=24h")
    [(_, scale)] = page.find("p", **{"class": "dlq-scale"})
    assert scale == {3: "420", 2: "210"}[letters]
    [(row, text)] = [item for item in page.find("time") if "data-until" in item[0]]
    assert text == "21 Nov 12:00 to 13:00 UTC"
    assert row["datetime"] == "2026-11-21T12:00:00+00:00"
    assert row["data-until"] == "2026-11-21T13:00:00+00:00"


def test_a_failure_of_a_clock_that_is_ahead_counts_in_the_last_column(ann, store):
    store.letters.save([failed("ahead", 300)])
    for path, names in ((OVERVIEW, ("1h", "24h")), (GROUP, ("24h",))):
        for name in names:
            page = ann.get(f"{path}?range={name}")
            assert any("1 letter" in text for _, text in page.find("title"))


class TestNotes:
    def test_counts_that_are_kept_for_a_shorter_time(self, ann, app):
        app.conf.dlq_retention = Retention(arrivals=timedelta(days=14))
        note = (
            "Counts of arrivals are kept for 14d (dlq_retention): earlier columns may lack letters."
        )
        for path in (OVERVIEW, GROUP):
            assert note in ann.get(f"{path}?range=30d").text
            assert note not in ann.get(f"{path}?range=7d").text

    def test_the_last_hour_is_on_the_overview_only(self, ann):
        page = ann.get(f"{GROUP}?range=1h")
        assert page.status == 400
        assert "range must be one of 24h, 7d, 30d, not '1h'." in page.text


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("1h", "2026-11-26T08:05", "2026-11-26T09:05"),
        ("24h", "2026-11-25T10:00", "2026-11-26T10:00"),
        ("7d", "2026-11-19T12:00", "2026-11-26T12:00"),
        ("30d", "2026-10-28T00:00", "2026-11-27T00:00"),
    ],
)
def test_columns_begin_at_whole_times_and_the_last_one_holds_now(name, first, last):
    edges = RANGES[name].edges(MORNING)
    assert [edges[0].isoformat()[:16], edges[-1].isoformat()[:16]] == [first, last]
    assert len(edges) == RANGES[name].columns + 1
    assert {later - edge for edge, later in pairwise(edges)} == {RANGES[name].step}


def test_now_at_the_beginning_of_a_column_is_in_the_last_one():
    edges = RANGES["24h"].edges(MORNING.replace(minute=0, second=0))
    assert edges[-1] - MORNING.replace(minute=0, second=0) == timedelta(hours=1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "7d"), ({"range": [""]}, "7d"), ({"range": ["1h"]}, "1h"), ({"done": ["note"]}, "7d")],
)
def test_a_range_is_read_from_the_address(given, expected):
    assert read_range(given, "7d").name == expected


@pytest.mark.parametrize("names", [["1H"], ["hour"], ["\0"], ["x" * 3_000], ["1h", "24h"]])
def test_a_bad_range_is_refused(names):
    with pytest.raises(
        FilterError, match=r"range (must be one of 1h, 24h, 7d, 30d|is given)"
    ) as error:
        read_range({"range": names}, "7d")
    assert len(str(error.value)) < 200

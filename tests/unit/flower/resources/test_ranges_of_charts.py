"""The ranges of charts: their columns, and their names in addresses."""

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from celery_dlq.errors import FilterError
from celery_dlq.flower.resources.arrivals import RANGES, read_range

NOW = datetime(2026, 11, 26, 9, 4, 30, tzinfo=timezone.utc)


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
    edges = RANGES[name].edges(NOW)
    assert [edges[0].isoformat()[:16], edges[-1].isoformat()[:16]] == [first, last]
    assert len(edges) == RANGES[name].columns + 1
    assert {later - edge for edge, later in pairwise(edges)} == {RANGES[name].step}


def test_now_at_the_beginning_of_a_column_is_in_the_last_one():
    edges = RANGES["24h"].edges(NOW.replace(minute=0, second=0))
    assert edges[-1] - NOW.replace(minute=0, second=0) == timedelta(hours=1)


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

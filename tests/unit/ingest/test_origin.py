from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.ingest.origin import Origin, origin_of

AT = datetime(2026, 11, 21, 12, 0, 5)  # noqa: DTZ001 - as py-amqp hands it over


def death(**changes):
    values = {
        "count": 1, "reason": "expired", "queue": "orders", "time": AT,
        "exchange": "shop", "routing-keys": ["order.eu", "cc"],
    }  # fmt: skip
    return {**values, **changes}


def test_the_first_entry_is_the_latest_death():
    headers = {"x-death": [death(reason="rejected", count=3), death(queue="older")]}
    assert origin_of(headers) == Origin(
        queue="orders", exchange="shop", routing_key="order.eu", reason="rejected", count=3,
        died_at=AT.replace(tzinfo=timezone.utc),
    )  # fmt: skip


def test_the_hops_of_a_delayed_task_are_not_deaths():
    hop = death(queue="celery_delayed_3")
    assert origin_of({"x-death": [hop, death()]}).queue == "orders"
    assert origin_of({"x-death": [hop], "x-first-death-queue": "celery_delayed_3"}) is None


def test_a_time_that_names_its_zone_is_kept():
    at = AT.replace(tzinfo=timezone(timedelta(hours=1)))
    assert origin_of({"x-death": [death(time=at)]}).died_at == at


def test_without_the_table_the_short_marks_tell():
    headers = {
        "x-first-death-queue": "first", "x-first-death-reason": "maxlen",
        "x-first-death-exchange": "",
    }  # fmt: skip
    assert origin_of(headers) == Origin(
        queue="first", exchange="", routing_key="first", reason="maxlen"
    )
    last = {"x-last-death-queue": "last", "x-last-death-reason": "rejected"}
    assert origin_of({**headers, **last}).queue == "last"


@pytest.mark.parametrize(
    "deaths",
    ["old", None, 7, [], ["text"], [{}], [death(queue="")], [death(queue=7)], {"queue": 1}],
)
def test_headers_that_no_broker_wrote_are_ignored(deaths):
    assert origin_of({"x-death": deaths}) is None


def test_missing_parts_are_unknown():
    assert origin_of({"x-death": [{"queue": "orders"}]}) == Origin(
        queue="orders", exchange="", routing_key="orders", reason="dead_letter"
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
fields = ("queue", "exchange", "routing-keys", "reason", "count", "time")


@given(st.lists(st.dictionaries(st.sampled_from(fields), anything)) | anything)
def test_no_header_breaks_it(deaths):
    found = origin_of({"x-death": deaths, "x-first-death-queue": deaths})
    assert found is None or (isinstance(found.queue, str) and found.queue)

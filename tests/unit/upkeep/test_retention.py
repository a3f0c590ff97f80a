from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.errors import SettingsError
from celery_dlq.model.states import State
from celery_dlq.store.base import Expiry, Filter, HistoryBounds
from celery_dlq.upkeep.retention import Keep, Retention

MONTH = timedelta(days=30)


def test_the_defaults_keep_letters_for_ever_and_the_rest_for_a_year():
    retention = Retention()
    a_year_ago = T0 - timedelta(days=365)
    assert not retention.expires
    assert retention.expiries(T0) == ()
    assert retention.history_bounds(T0) == HistoryBounds(
        history=a_year_ago, arrivals=a_year_ago, audit=a_year_ago
    )


def test_the_bounds_are_computed_from_the_moment_of_the_round():
    billing = Filter(route="billing")
    retention = Retention(letters=[Keep(None, where=billing), Keep(MONTH)], audit=None)
    assert retention.expires
    assert retention.expiries(T0) == (
        Expiry(where=billing, before=None),
        Expiry(where=Filter(), before=T0 - MONTH),
    )
    assert retention.history_bounds(T0).audit is None


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (lambda: Keep(30), "age must be a timedelta, such as timedelta(days=30), or None, not 30."),
        (lambda: Keep(timedelta(hours=1)), "age must be between 1 and 36500 days, not 1:00:00."),
        (lambda: Keep(timedelta(days=40_000)), "age must be between 1 and 36500 days"),
        (lambda: Keep(MONTH, where="billing"), "where must be a celery_dlq.Filter, not 'billing'."),
        (
            lambda: Keep(MONTH, where=Filter(states=frozenset({State.DEAD, State.RESOLVED}))),
            "where names the state dead, and only closed letters expire: resolved or discarded ones.",
        ),
        (lambda: Keep(MONTH, where=Filter(held=True)), "where.held is about open letters"),
    ],
)  # fmt: skip
def test_an_entry_that_makes_no_sense_is_refused_with_the_reason(keep, said):
    with pytest.raises(SettingsError) as raised:
        keep()
    assert said in str(raised.value)
    assert "celery dlq help retention" in str(raised.value)


def test_an_unknown_argument_is_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match="'filter' is not one of its arguments; there are age"):
        Keep(MONTH, filter=Filter())


@pytest.mark.parametrize(
    ("retention", "said"),
    [
        (lambda: Retention(letters=Keep(MONTH)), "letters must be a list of celery_dlq.Keep objects"),
        (lambda: Retention(letters=[MONTH]), "letters must be a list of celery_dlq.Keep objects"),
        (lambda: Retention(history=timedelta(hours=2)), "history must be between 1 and 36500 days"),
        (lambda: Retention(audit="1y"), "audit must be a timedelta"),
        (
            lambda: Retention(letters=[Keep(MONTH), Keep(None, where=Filter(task="charge"))]),
            "Entry 1 of letters matches every closed letter, so the entries after it never match",
        ),
    ],
)  # fmt: skip
def test_a_retention_that_makes_no_sense_is_refused_with_the_reason(retention, said):
    with pytest.raises(SettingsError) as raised:
        retention()
    assert str(raised.value).startswith("dlq_retention is not valid.")
    assert said in str(raised.value)

"""From which server screens read, in words."""

from datetime import timedelta

import pytest

from celery_dlq.store.database.transactions import Following
from celery_dlq.view.stats import replica_record, replica_text


@pytest.mark.parametrize(
    ("found", "text", "record"),
    [
        (None, "", None),
        (
            Following(address="pg://b", lag=timedelta(seconds=7)),
            "Read from the replica pg://b, 7s behind.",
            {"address": "pg://b", "lag_s": 7.0, "trouble": ""},
        ),
        (
            Following(address="pg://b"),
            "Read from the replica pg://b, which does not say how far it is behind.",
            {"address": "pg://b", "lag_s": None, "trouble": ""},
        ),
        (
            Following(address="pg://b", lag=timedelta(0), trouble="It is away."),
            "Read from the primary, because the read replica fails: It is away.",
            {"address": "pg://b", "lag_s": 0.0, "trouble": "It is away."},
        ),
    ],
)
def test_the_state_of_a_replica(found, text, record):
    assert replica_text(found) == text
    assert replica_record(found) == record

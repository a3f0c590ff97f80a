"""Acts of the audit as sentences."""

import pytest
from support.factories import T0

from celery_dlq.store.base import ACTS, AuditRow
from celery_dlq.view.acts import sentence
from celery_dlq.view.times import utc


def said(act, letters=1, **detail):
    row = AuditRow(
        id=1, at=T0, who="ann", host="here", act=act, why="", count=letters, detail=detail
    )
    return sentence(row, utc)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("discard", 3), "discarded 3 letters"),
        (("redrive", 1), "began a redrive of 1 letter"),
        (("ingest", 2, {"queue": "dead"}), "brought in 2 letters from dead"),
        (("pause", 1, {"operation": "1234"}), "paused the redrive"),
        (("pause", 0, {"auto": "nightly"}), "paused the automatic redrive nightly"),
        (("resume", 0), "resumed automatic redrives"),
        (("assign", 0, {"owner": "bob"}), "gave the group to bob"),
        (("assign", 0, {"owner": ""}), "removed the owner of the group"),
        (("resolve", 0, {"release": "1.4"}), "resolved the group in release 1.4"),
        (("note", 0, {"note": "x"}), "wrote the note"),
        (("ignore", 0), "ignored the group until it is reopened"),
        (
            ("ignore", 0, {"until": "2026-11-23T08:00:00+00:00", "rate": 100, "count": 1}),
            "ignored the group until 2026-11-23 08:00:00 UTC, or until 100 failures within an hour, "
            "or for 1 more failure",
        ),
    ],
)
def test_a_sentence(given, text):
    act, count, *detail = given
    assert said(act, count, **(detail[0] if detail else {})) == text


@pytest.mark.parametrize("act", ACTS)
def test_every_act_has_one(act):
    assert " " in said(act)


def test_an_act_of_a_newer_release_is_named():
    assert said("levitate") == "levitate"

import json

import pytest
from support.factories import letter

from celery_dlq.hooks import EventKind
from celery_dlq.hooks.words import DATA_LIMIT, LINE_LIMIT, data, line
from celery_dlq.view.records import letter_record, operation_record

HOSTILE = "a\nb\x00\x1b[31m\u202e\ud800<script>" + "x" * 5_000


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_has_a_headline(event, kind):
    assert ": shop.charge[0d3f] terminal, ValueError: bad currency" in line(event(kind))


def test_a_group_and_an_operation_in_words(event, group, aborted):
    assert line(event(EventKind.NEW_GROUP, group)) == (
        "new group of dead letters: 9c1e0000deadbeef, shop.charge, "
        "ValueError: bad <currency> & more (3 open)"
    )
    assert line(event(EventKind.OPERATION_ABORTED, aborted)) == (
        "redrive aborted: 0a1b2c3d4e5f, 0 of 3 sent: 3 in a row came back"
    )


def test_a_line_is_one_line_that_can_be_seen(event):
    text = line(event(value=letter(message=HOSTILE)))
    assert text.isprintable()
    assert len(text) < LINE_LIMIT + 200


def test_data_is_bounded_and_json(event):
    told = data(letter(message=HOSTILE, tags=("a", "b"), closed_at=None))
    assert len(told["message"]) <= DATA_LIMIT
    assert json.loads(json.dumps(told, allow_nan=False).encode()) == told


def test_no_arguments_and_no_traceback_leave_the_house():
    told = data(letter(args=["s3cret"], kwargs={"a": "s3cret"}, traceback="s3cret"))
    assert "s3cret" not in json.dumps(told)


def test_the_names_are_those_of_the_command_line(aborted):
    assert set(data(letter())) - {
        "root_id", "parent_id", "group_id", "correlation_id", "canvas",
        "closed_at", "closed_by", "closed_reason",
    } <= set(letter_record(letter()))  # fmt: skip
    assert set(data(aborted)) <= set(operation_record(aborted))


def test_an_event_has_the_same_id_each_time_and_another_one_another(event, group, aborted):
    first = event(value=letter(message="a"))
    assert first.id == event(value=letter(message="b")).id
    others = [
        event(EventKind.RESOLVED),
        event(value=letter("other")),
        event(value=letter(redrive_count=1)),
        event(EventKind.NEW_GROUP, group),
        event(EventKind.REGRESSION, group),
        event(EventKind.OPERATION_ABORTED, aborted),
    ]
    assert len({first.id, *(item.id for item in others)}) == 7

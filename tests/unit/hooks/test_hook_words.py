import json
from dataclasses import replace

import pytest
from support.factories import T0, letter

from celery_dlq.hooks import EventKind
from celery_dlq.hooks.words import DATA_LIMIT, LINE_LIMIT, data, line
from celery_dlq.model.audit import AuditHead
from celery_dlq.view.records import group_record, letter_record, operation_record

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


def test_a_stall_in_words_and_as_data(event, stall):
    told = event(EventKind.WORKER_STALLED, stall)
    assert line(told) == (
        "worker stalled: w@host has received nothing for 300 s, although it has free slots and messages "
        "wait (a, b: 1017)"
    )
    assert data(told) == {
        "worker": "w@host", "since": "2026-11-21T11:55:00+00:00", "noticed_at": T0.isoformat(),
        "queues": ["a", "b"], "messages": 1_017,
    }  # fmt: skip
    assert (told.route, told.owner, told.shown) == ("", "", stall)
    again = replace(told, value=replace(stall, since=T0))
    assert told.id != again.id


def test_a_line_is_one_line_that_can_be_seen(event):
    text = line(event(value=letter(message=HOSTILE)))
    assert text.isprintable()
    assert len(text) < LINE_LIMIT + 200


def test_data_is_bounded_and_json(event):
    told = data(event(value=letter(message=HOSTILE, tags=("a", "b"), closed_at=None)))
    assert len(told["message"]) <= DATA_LIMIT
    assert json.loads(json.dumps(told, allow_nan=False).encode()) == told


def test_no_arguments_and_no_traceback_leave_the_house(event):
    made = letter(args=["s3cret"], kwargs={"a": "s3cret"}, traceback="s3cret")
    told = data(event(value=made))
    assert "s3cret" not in json.dumps(told)


def test_the_names_are_those_of_the_command_line(event, group, aborted):
    assert set(data(event())) - {
        "root_id", "parent_id", "group_id", "correlation_id", "canvas",
        "closed_at", "closed_by", "closed_reason",
    } <= set(letter_record(letter(), owner=""))  # fmt: skip
    told = data(event(EventKind.OPERATION_ABORTED, aborted))
    assert set(told) <= set(operation_record(aborted))
    told = data(event(EventKind.NEW_GROUP, group))
    assert set(told) <= set(group_record(group, (), T0, route_owner=""))


def test_a_letter_and_a_group_tell_their_route_and_its_owner(event, group):
    died = replace(event(value=letter(route="payments")), route_owner="team-payments")
    assert line(died).endswith("(group 9c1e0000deadbeef), route payments of team-payments")
    assert (data(died)["route"], data(died)["owner"]) == ("payments", "team-payments")
    new = event(EventKind.NEW_GROUP, replace(group, route="payments"))
    new = replace(new, route_owner="team-payments")
    assert line(new).endswith("(3 open), route payments of team-payments")
    told = data(new)
    assert (told["route"], told["owner"], told["route_owner"]) == (
        "payments", "ann", "team-payments",
    )  # fmt: skip


def test_the_owner_of_a_group_is_the_one_that_it_is_assigned_to(event, group):
    assigned = replace(event(EventKind.NEW_GROUP, group), route_owner="team-payments")
    assert assigned.owner == "ann"
    left = replace(assigned, value=replace(group, owner=""))
    assert left.owner == "team-payments"
    assert replace(event(), route_owner="team-payments").owner == "team-payments"


def test_a_route_that_the_settings_no_longer_have_is_told_by_its_name(event):
    died = event(value=letter(route="old"))
    assert line(died).endswith(", route old")
    assert data(died)["owner"] == ""


def test_the_head_of_the_audit(event):
    head = AuditHead(n=3, hash="ab" * 32, act="delete", who="ann", at=T0)
    told = event(EventKind.AUDIT, head)
    assert line(told) == f"audit: delete by ann, head 3:{head.hash}"
    assert data(told) == {
        "n": 3, "hash": head.hash, "act": "delete", "who": "ann", "at": T0.isoformat()
    }  # fmt: skip
    assert told.id != event(EventKind.AUDIT, replace(head, n=4)).id
    pruned = event(EventKind.AUDIT, AuditHead(n=4, hash="cd" * 32))
    assert line(pruned) == f"audit: head {pruned.value}"


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

"""One list of facts for records and screens."""

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

import pytest

from celery_dlq.view import automations, letters, operations
from celery_dlq.view.fields import Field, as_record, facts_in, record_of

AT = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


class Kind(Enum):
    ODD = "odd"


@dataclass(frozen=True)
class Thing:
    kind: Kind
    at: datetime
    tags: tuple[str, ...]


THING = Thing(Kind.ODD, AT, ("a", "b"))

FACTS = (
    Field("kind", "Kind", "one"),
    Field("at", "At", "one"),
    Field("tags", "Tags", "two"),
    Field("count", "Tagged", "two", lambda one: len(one.tags), lambda one: f"{len(one.tags)} times"),
    Field("", "For people", "two", lambda _one: "yes"),
    Field("owner", read=lambda _one: "unknown"),
)  # fmt: skip


def test_programs_get_plain_values_by_name():
    assert record_of(FACTS, THING, owner="ann") == {
        "kind": "odd", "at": "2026-11-21T12:00:00+00:00", "tags": ["a", "b"], "count": 2, "owner": "ann",
    }  # fmt: skip


def test_people_get_the_facts_of_a_part_by_title():
    assert facts_in(FACTS, THING, ("one",)) == [("Kind", "odd"), ("At", AT)]
    two = [("Tags", "a, b"), ("Tagged", "2 times"), ("For people", "yes")]
    assert facts_in(FACTS, THING, ("two",)) == two
    assert len(facts_in(FACTS, THING, ())) == 5


def test_a_value_that_is_given_takes_the_place_of_a_field_or_follows_the_fields():
    record = as_record(THING, ("kind", "at"), kind="even", more=1)
    assert [*record.items()] == [
        ("kind", "even"), ("at", "2026-11-21T12:00:00+00:00"), ("more", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        (letters.LETTER, {letters.ERROR, letters.WHY, letters.MESSAGE, letters.ORIGIN, letters.ROUTE,
                          letters.HISTORY, letters.TRACE}),
        (operations.OPERATION, {operations.REDRIVE, operations.LETTERS}),
        (automations.AUTOMATION, {automations.STATE}),
    ],
    ids=["letter", "operation", "automation"],
)  # fmt: skip
def test_each_title_is_in_a_part_that_screens_show_and_no_name_is_there_twice(listed, parts):
    assert {field.part for field in listed if field.title} == parts
    names = [field.name for field in listed if field.name]
    assert len(names) == len({*names})

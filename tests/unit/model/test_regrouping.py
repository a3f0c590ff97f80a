from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.model.group import Annotate, Assign, Group, GroupStatus, Ignore, Resolve
from celery_dlq.model.regrouping import (
    Becomes,
    Decided,
    Fate,
    fates_of,
    heirs_of,
    offered_by,
    tickets_to_take,
)


def group(name, *, decided=None, **changes):
    values = {
        "fingerprint": name, "task": "t", "exception_type": "E", "message": "", "open_count": 1,
        "total_count": 1, "first_seen_at": T0, "last_seen_at": T0,
        "status_at": None if decided is None else T0 + timedelta(minutes=decided), **changes,
    }  # fmt: skip
    return Group(**values)


@pytest.mark.parametrize(
    ("to", "letters", "expected"),
    [
        ({"a": {"x": 2}}, {"x": 2}, {"a": Becomes.RENAMED}),
        ({"a": {"x": 2}}, {"x": 3}, {"a": Becomes.MERGED}),
        ({"a": {"x": 2}, "b": {"x": 1}}, {"x": 3}, dict.fromkeys("ab", Becomes.MERGED)),
        ({"a": {"x": 2, "y": 1}}, {"x": 2, "y": 1}, {"a": Becomes.SPLIT}),
        ({"a": {"x": 2}}, {"x": 2, "a": 1}, {"a": Becomes.SPLIT}),
        (
            {"a": {"x": 1, "y": 1}, "b": {"x": 1}}, {"x": 2, "y": 1},
            {"a": Becomes.SPLIT, "b": Becomes.MERGED},
        ),
    ],
)  # fmt: skip
def test_the_fates_of_groups(to, letters, expected):
    assert {name: fate.becomes for name, fate in fates_of(to, letters).items()} == expected


def test_the_newest_status_wins_and_what_the_target_has_stays():
    target = group("x", owner="cem", decided=20, status=GroupStatus.IGNORED)
    one = group("a", owner="ann", note="of a", decided=10, status=GroupStatus.IGNORED)
    other = group("b", note="of b", decided=30, status=GroupStatus.RESOLVED)
    heirs = heirs_of(target, [one, other])
    assert heirs == {Decided.STATUS: "b", Decided.NOTE: "b"}
    assert heirs_of(None, [one]) == dict.fromkeys(
        (Decided.STATUS, Decided.OWNER, Decided.NOTE), "a"
    )
    assert heirs_of(None, [group("a")]) == {}


@pytest.mark.parametrize(("failed", "follows"), [(29, True), (31, False)])
def test_a_resolution_does_not_follow_if_others_failed_after_it(failed, follows):
    cured = group("a", decided=30, status=GroupStatus.RESOLVED)
    other = group("b", last_seen_at=T0 + timedelta(minutes=failed))
    assert (Decided.STATUS in heirs_of(None, [cured, other])) is follows


def test_the_newest_ticket_of_each_kind_is_taken():
    newest_first = [
        ("a", "ticket"),
        ("b", "ticket"),
        ("b", "escalation"),
        ("x", "other"),
        ("a", "other"),
    ]
    assert tickets_to_take("x", newest_first) == (("a", "ticket"), ("b", "escalation"))


def test_what_does_not_follow_is_offered():
    fate = Fate(fingerprint="a", to={"x": 1, "y": 1}, left=0, becomes=Becomes.SPLIT)
    ignored = group(
        "a", status=GroupStatus.IGNORED, ignored_total=9, total_count=4, owner="ann", note="n"
    )
    acts = (Ignore(count=5), Assign(owner="ann"), Annotate(note="n"))
    assert offered_by(ignored, fate, []) == acts
    have = [group("x", owner="ann", note="n"), group("y", owner="ann")]
    assert offered_by(ignored, fate, have) == (acts[0], acts[2])
    cured = group("a", status=GroupStatus.RESOLVED, resolved_in="2")
    assert offered_by(cured, fate, []) == (Resolve(release="2"),)
    followed = Fate(
        fingerprint="a", to={"x": 1}, left=0, becomes=Becomes.RENAMED, follows=frozenset(Decided)
    )
    assert offered_by(ignored, followed, []) == ()

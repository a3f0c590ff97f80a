"""Letters get new fingerprints step by step; counts and decisions follow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import insert, select
from support.factories import T0, attempt, letter
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.model.group import Annotate, Assign, GroupStatus, Ignore, Resolve
from celery_dlq.model.letter import Outcome
from celery_dlq.model.regrouping import Batch, Becomes, Kept, Move
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")

A, B, C, D = (f"{name}{'0' * 15}" for name in "abcd")


def at(task_id: str, group: str, minutes: float = 0, **changes):
    return letter(task_id, attempt(minutes=minutes), fingerprint=group, **changes)


def batch_of(letters, to) -> Batch:
    """The moves of letters to the groups that ``to`` has for their task ids."""
    moves = tuple(
        Move(
            task_id=one.task_id, failed_at=one.last_failed_at, before=one.fingerprint,
            after=to[one.task_id], message=one.message,
        )
        for one in letters
        if to.get(one.task_id, one.fingerprint) != one.fingerprint
    )  # fmt: skip
    return Batch(last=letters[-1].id, looked=len(letters), moves=moves)


def begin(store, recipe="shop.by_task", *, who="ann", why="", detached=False):
    return store.regroupings.begin(recipe=recipe, who=who, why=why, detached=detached)


def move_all(store, to, *, size=2):
    """Begin or continue a regrouping, and move all letters; the counts hold after each step."""
    progress = begin(store)
    while found := store.regroupings.letters(
        above=progress.above, until=progress.until, limit=size
    ):
        progress = store.regroupings.move(progress, batch_of(found, to))
        assert_counts_hold(store)
    return progress


def settle_all(store, progress):
    while not progress.is_over:
        progress = store.regroupings.settle(progress, groups=1)
        assert_counts_hold(store)
    return {fate.fingerprint: fate for fate in store.regroupings.fates()}


def regroup(store, to, **options):
    return settle_all(store, move_all(store, to, **options))


def group(store, name):
    return store.groups.get(name, now=T0)


def trends_of(store, *names):
    return store.groups.trends(names, now=T0 + timedelta(hours=1), hours=2)


def decide(store, name, *acts, minutes=30):
    for act in acts:
        store.groups.triage(name, act, who="bob", now=T0 + timedelta(minutes=minutes))


def test_a_group_whose_letters_all_go_to_one_is_renamed(store):
    store.letters.save([at("1", A), at("2", A, 5), at("3", B)])
    store.letters.save([at("1", A, 70), at("gone", A, 3)])
    gone = Filter(ids=("gone",))
    store.closing.discard(gone, who="ann", why="", now=T0)
    store.deleting.delete(gone, who="ann", why="", now=T0)
    decide(store, A, Ignore(count=10, rate=100), Assign(owner="ann"), Annotate(note="known"))
    before, arrived = group(store, A), trends_of(store, A)
    fates = regroup(store, {"1": C, "2": C})
    assert set(fates) == {A}
    assert fates[A].becomes is Becomes.RENAMED
    assert (fates[A].to, fates[A].left) == ({C: 2}, 0)
    after = group(store, C)
    same = ("open_count", "total_count", "first_seen_at", "last_seen_at", "status", "status_at",
            "status_by", "ignored_rate", "ignored_total", "owner", "note", "message")  # fmt: skip
    assert {name: getattr(after, name) for name in same} == {
        name: getattr(before, name) for name in same
    }
    assert trends_of(store, A, C) == {A: (0, 0), C: arrived[A]}
    left = group(store, A)
    assert (left.total_count, left.status, left.owner, left.note) == (0, GroupStatus.OPEN, "", "")
    assert left.message == "", "it may be personal, and goes with the letters"
    assert group(store, B).open_count == 1


def test_the_newest_decision_follows_several_groups(store):
    store.letters.save([at("1", A), at("2", B, 1), at("3", B, 2)])
    decide(store, A, Ignore(count=5), Assign(owner="ann"), Annotate(note="of a"), minutes=50)
    decide(store, B, Ignore(rate=7), Assign(owner="bob"), minutes=40)
    fates = regroup(store, {"1": C, "2": C, "3": C})
    assert [fates[one].becomes for one in (A, B)] == [Becomes.MERGED] * 2
    found = group(store, C)
    assert (found.status, found.ignored_rate, found.ignored_total) == (
        GroupStatus.IGNORED, None, 3 + 5,
    )  # fmt: skip
    assert (found.owner, found.note, found.open_count) == ("ann", "of a", 3)
    other = group(store, B)
    assert (other.status, other.ignored_rate, other.owner) == (GroupStatus.IGNORED, 7, "bob")


def test_a_group_that_has_letters_already_keeps_its_owner(store):
    store.letters.save([at("1", A), at("2", C, 1)])
    decide(store, A, Assign(owner="ann"), Annotate(note="of a"))
    decide(store, C, Assign(owner="cem"))
    fates = regroup(store, {"1": C})
    assert fates[A].becomes is Becomes.MERGED
    assert (group(store, C).owner, group(store, C).note) == ("cem", "of a")
    assert group(store, A).owner == "ann"


@pytest.mark.parametrize("to", [{"1": C, "2": D}, {"1": C}])
def test_nothing_follows_where_a_group_is_split(store, to):
    store.letters.save([at("1", A), at("2", A, 5)])
    decide(store, A, Resolve(release="2"), Assign(owner="ann"), Annotate(note="known"))
    fates = regroup(store, to)
    assert fates[A].becomes is Becomes.SPLIT
    assert fates[A].left == 2 - len(to)
    found, old = group(store, C), group(store, A)
    assert (found.status, found.owner, found.note) == (GroupStatus.OPEN, "", "")
    assert (old.status, old.owner, old.note) == (GroupStatus.RESOLVED, "ann", "known")
    trends = store.groups.trends([A, C], now=T0, hours=1)
    assert (sum(trends[A]), sum(trends[C])) == (2 - len(to), 1)


def test_a_group_is_not_resolved_by_a_decision_before_a_failure_of_others(store):
    store.letters.save([at("1", A), at("2", B, 60)])
    decide(store, A, Resolve(), minutes=30)
    regroup(store, {"1": C, "2": C})
    assert group(store, C).status is GroupStatus.OPEN
    assert group(store, A).status is GroupStatus.RESOLVED


def test_a_letter_that_fails_again_is_left_to_its_worker(store):
    store.letters.save([at("1", A), at("2", A, 5)])
    progress = begin(store)
    found = store.regroupings.letters(above=0, until=progress.until, limit=10)
    store.letters.save([at("1", D, 70), at("new", D, 71)])
    progress = store.regroupings.move(progress, batch_of(found, {"1": C, "2": C}))
    assert (progress.looked, progress.moved) == (2, 1)
    fates = settle_all(store, progress)
    assert fates[A].to == {C: 1}
    assert [store.letters.get(one).fingerprint for one in ("1", "2", "new")] == [D, C, D]
    assert group(store, C).status is GroupStatus.OPEN


def test_letters_in_every_state_are_moved(store):
    store.letters.save([at(f"{number}", A, number) for number in range(3)])
    store.closing.discard(Filter(ids=("1",)), who="ann", why="", now=T0)
    ran = Outcome(
        task_id="2", redrive=0, succeeded_at=T0 + timedelta(hours=1), worker="celery@host"
    )
    store.letters.record_outcomes([ran])
    fates = regroup(store, dict.fromkeys("012", C))
    assert fates[A].to == {C: 3}
    states = [store.letters.get(one).state for one in "012"]
    assert states == [State.DEAD, State.DISCARDED, State.RESOLVED]


def test_history_and_tickets_follow(store):
    store.letters.save([at("1", A), at("2", B)])

    def write(connection):
        same = {"url": "", "recipient": "", "why": "", "handler": "h", "at": T0}
        connection.execute(
            insert(tables.ticket),
            [
                {**same, "fingerprint": A, "kind": "ticket", "url": "https://old"},
                {**same, "fingerprint": B, "kind": "ticket", "url": "https://new",
                 "at": T0 + timedelta(hours=1)},
                {**same, "fingerprint": A, "kind": "escalation", "recipient": "ann"},
            ],
        )  # fmt: skip
        connection.execute(
            insert(tables.auto_letter), [{"run": "r", "task_id": "1", "fingerprint": A}]
        )

    store.transactions.write(write)
    regroup(store, {"1": C, "2": C})
    tickets = store.tickets.of_groups([A, B, C])
    assert [one.url or one.to for one in tickets[C]] == ["https://new", "ann"]
    assert [one.url for one in tickets[A]] == ["https://old"]
    history = select(tables.auto_letter.c.fingerprint)
    assert store.transactions.read(lambda it: it.execute(history).scalar_one()) == C


def test_a_regrouping_that_was_killed_continues_where_it_was(store):
    store.letters.save([at(f"{number}", A, number) for number in range(5)])
    to = dict.fromkeys("01234", C)
    progress = begin(store)
    first = store.regroupings.letters(above=0, until=progress.until, limit=2)
    progress = store.regroupings.move(progress, batch_of(first, to))
    store.letters.save([at("later", A, 9)])
    again = begin(store, detached=True)
    assert (again.above, again.moved, again.until) == (progress.above, 2, progress.until)
    assert again.is_detached
    progress = move_all(store, to)
    assert progress.moved == 5
    fates = settle_all(store, progress)
    assert (fates[A].becomes, fates[A].left) == (Becomes.SPLIT, 1), "a later letter is still in it"
    assert store.regroupings.last().is_over
    (act,) = store.audit.find(act="regroup").rows
    assert (act.who, act.count) == ("ann", 5)


def test_another_person_or_reason_that_continues_it_is_audited(store):
    store.letters.save([at("1", A)])
    begin(store)
    begin(store)
    assert begin(store, who="bob").who == "ann"
    begin(store, why="it was interrupted")
    rows = [(row.who, row.why, row.detail) for row in store.audit.find(act="regroup").rows]
    begun, continued = {"recipe": "shop.by_task"}, {"recipe": "shop.by_task", "continued": "ann"}
    assert rows == [
        ("ann", "it was interrupted", continued), ("bob", "", continued), ("ann", "", begun),
    ]  # fmt: skip


def test_a_step_that_another_process_has_done_changes_nothing(store):
    store.letters.save([at("1", A), at("2", B)])
    progress = begin(store)
    found = store.regroupings.letters(above=0, until=progress.until, limit=1)
    done = store.regroupings.move(progress, batch_of(found, {"1": C}))
    late = store.regroupings.move(progress, batch_of(found, {"1": D}))
    assert (late.above, late.moved) == (done.above, 1)
    assert store.letters.get("1").fingerprint == C


def test_a_new_regrouping_forgets_the_groups_of_the_last_one(store):
    store.letters.save([at("1", A)])
    assert set(regroup(store, {"1": C})) == {A}
    assert set(regroup(store, {"1": D})) == {C}
    assert not regroup(store, {})


def test_kept_letters_are_counted(store):
    store.letters.save([at("1", A), at("2", A)])
    progress = begin(store)
    for number in (1, 2):
        (one,) = store.regroupings.letters(above=progress.above, until=progress.until, limit=1)
        step = Batch(last=one.id, looked=1, moves=(), kept={Kept.FRAMES: 1, Kept.RECIPE: number})
        progress = store.regroupings.move(progress, step)
    assert progress.kept == {Kept.FRAMES: 2, Kept.RECIPE: 3}
    assert store.regroupings.last().kept == progress.kept


def test_several_processes_and_workers_at_once(store):
    """Two processes do the same regrouping, while letters of the same groups fail and are closed."""
    store.letters.save([at(f"{number:02}", (A, B)[number % 2], number) for number in range(40)])
    url = str(store.database.url.render_as_string(hide_password=False))
    to = {f"{number:02}": (C, D)[number % 4 // 2] for number in range(40)}

    def move() -> None:
        other = SQLStore(url, timeout=60)
        try:
            progress = begin(other)
            while found := other.regroupings.letters(
                above=progress.above, until=progress.until, limit=3
            ):
                progress = other.regroupings.move(progress, batch_of(found, to))
            while not progress.is_over:
                progress = other.regroupings.settle(progress, groups=1)
        finally:
            other.close()

    def fail() -> None:
        other = SQLStore(url, timeout=60)
        try:
            for number in range(0, 40, 3):
                other.letters.save([at(f"{number:02}", C, 100 + number), at(f"n{number}", D, 200)])
                other.closing.discard(Filter(ids=(f"n{number}",)), who="ann", why="", now=T0)
        finally:
            other.close()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(one) for one in (move, move, fail)]:
            done.result()
    assert not store.letters.find(Filter(group=A), limit=1).letters
    assert not store.letters.find(Filter(group=B), limit=1).letters
    assert store.regroupings.last().is_over

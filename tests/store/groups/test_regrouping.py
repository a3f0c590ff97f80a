"""Groups and fingerprints are two things: groups are merged, split, folded, and keep their names when a
recipe changes. After each step, all counts are those of the letters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.base.redact import Redactor
from celery_dlq.errors import AmbiguousId, TriageError, UnknownGroup
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.group import (
    GROUPS_OF_PLACE,
    AliasReason,
    Annotate,
    Assign,
    GroupStatus,
    Ignore,
    Merge,
    Resolve,
    Split,
)
from celery_dlq.store.base import Filter
from celery_dlq.upkeep import regroup
from celery_dlq.upkeep.regroup import Regrouper
from celery_dlq.worker.grouping import Grouping

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")

A, B, C = (f"{name}{'0' * 15}" for name in "abc")


def at(task_id, group=A, minutes=0.0, **changes):
    return letter(task_id, attempt(minutes=minutes), fingerprint=group, **changes)


def decide(store, group, *acts, minutes=30):
    for act in acts:
        store.groups.triage(group, act, who="bob", now=T0 + timedelta(minutes=minutes))


def regrouper(store, recipe=None):
    return Regrouper(store, Grouping(Redactor(), recipe))


def work_off(store, recipe=None):
    """Do all steps; the counts hold after each."""
    assert regrouper(store, recipe).run(lambda looked, moved: assert_counts_hold(store))


def group(store, name):
    return store.groups.get(name, now=T0)


def open_counts(store):
    return {one.fingerprint: one.open_count for one in store.groups.find(Filter(), now=T0)}


def trends(store, *names):
    return store.groups.trends(names, now=T0 + timedelta(hours=1), hours=2)


class TestMerging:
    @pytest.mark.on_servers
    def test_letters_and_later_failures_are_counted_in_the_other_group(self, store):
        store.letters.save([at("1"), at("2", B), at("3", B, 70)])
        decide(store, B, Merge(into=A))
        work_off(store)
        assert open_counts(store) == {A: 3}
        assert trends(store, A, B) == {A: (2, 1), B: (0, 0)}
        saved = store.letters.save([at("4", B, 80)])
        assert (saved.new_groups, saved.letters[0].fingerprint) == ((), A)
        assert store.letters.get("4").raw_fingerprint == B
        assert open_counts(store) == {A: 4}

    def test_it_is_found_by_either_name(self, store):
        store.letters.save([at("1"), at("2", B)])
        decide(store, B, Merge(into="a"))
        assert (store.groups.match("b"), group(store, B).fingerprint) == ([A], A)

    def test_each_keeps_its_decisions(self, store):
        store.letters.save([at("1"), at("2", B)])
        decide(store, A, Assign(owner="ann"))
        decide(store, B, Ignore(count=5), Annotate(note="known"), Merge(into=A))
        work_off(store)
        assert (group(store, A).owner, group(store, A).status) == ("ann", GroupStatus.OPEN)
        decide(store, A, Split())
        work_off(store)
        found = group(store, B)
        assert (found.status, found.note) == (GroupStatus.IGNORED, "known")
        assert found.ignored_total == found.total_count + 5

    def test_it_is_undone_for_stored_and_for_later_letters(self, store):
        store.letters.save([at("1"), at("2", B), at("3", C)])
        decide(store, B, Merge(into=A))
        decide(store, C, Merge(into=A))
        work_off(store)
        store.letters.save([at("4", B, 5)])
        decide(store, A, Split(member="b"))
        work_off(store)
        assert open_counts(store) == {A: 2, B: 2}
        assert store.letters.get("2").raw_fingerprint == ""
        decide(store, A, Split())
        work_off(store)
        assert open_counts(store) == {A: 1, B: 2, C: 1}

    @pytest.mark.on_servers
    def test_merges_lead_on(self, store):
        store.letters.save([at("1"), at("2", B), at("3", C)])
        decide(store, B, Merge(into=A))
        decide(store, A, Merge(into=C))
        work_off(store)
        store.letters.save([at("4", B, 5)])
        assert open_counts(store) == {C: 4}
        decide(store, C, Split(member=A))
        work_off(store)
        assert open_counts(store) == {A: 3, C: 1}

    def test_the_ignoring_of_a_group_ends_after_as_many_further_letters(self, store):
        store.letters.save([at("1"), *(at(f"b{n}", B) for n in range(9))])
        decide(store, A, Ignore(count=5))
        decide(store, B, Merge(into=A))
        work_off(store)
        store.letters.save([at("2", A, 40)])
        assert (group(store, A).status, group(store, A).ignored_total) == (GroupStatus.IGNORED, 15)

    @pytest.mark.on_servers
    def test_closed_letters_and_their_redrives_move_too(self, store):
        store.letters.save([at("1"), at("2", B)])
        store.closing.discard(Filter(ids=("2",)), who="ann", why="", now=T0)
        decide(store, B, Merge(into=A))
        work_off(store)
        assert store.letters.get("2").fingerprint == A

    def test_a_letter_that_fails_again_with_another_cause_leaves(self, store):
        store.letters.save([at("1"), at("2", B)])
        decide(store, B, Merge(into=A))
        work_off(store)
        store.letters.save([at("2", C, 9)])
        assert open_counts(store) == {A: 1, C: 1}
        assert store.letters.get("2").raw_fingerprint == ""

    @pytest.mark.on_servers
    def test_letters_of_several_tasks_are_counted_together(self, store):
        store.letters.save([at("1"), at("2", B, task="shop.ship"), at("3", B, task="shop.ship")])
        decide(store, B, Merge(into=A))
        work_off(store)
        found = group(store, A)
        assert (found.task, found.open_count, found.letter_count, found.total_count) == (
            "shop.ship", 3, 3, 3
        )  # fmt: skip

    def test_acts_that_change_nothing(self, store):
        store.letters.save([at("1"), at("2", B), at("3", f"{B[:-1]}1")])
        for act, error in (
            (Merge(into=A), TriageError), (Merge(into="f"), UnknownGroup), (Merge(into=""), UnknownGroup),
            (Merge(into="b"), AmbiguousId), (Split(), TriageError), (Split(member=B), TriageError),
        ):  # fmt: skip
            with pytest.raises(error):
                decide(store, A, act)
        assert store.regroupings.waiting() == {}
        assert store.audit.find().rows == ()

    def test_a_merge_that_would_lead_to_itself_is_refused(self, store):
        store.letters.save([at("1"), at("2", B)])
        decide(store, B, Merge(into=A))
        with pytest.raises(TriageError, match="into itself"):
            decide(store, A, Merge(into=B))

    def test_each_is_audited(self, store):
        store.letters.save([at("1"), at("2", B)])
        decide(store, B, Merge(into="a"))
        decide(store, A, Split(member=B))
        assert [(row.act, row.detail) for row in store.audit.find().rows] == [
            ("split", {"group": A, "member": B}), ("merge", {"group": B, "into": A}),
        ]  # fmt: skip

    def test_what_was_merged_is_known(self, store):
        store.letters.save([at("1"), at("2", B)])
        decide(store, B, Merge(into=A))
        (one,) = store.groups.merged(A)
        assert (one.name, one.why, one.who) == (B, AliasReason.MERGED, "bob")
        assert one.in_words() == f"{B}, by bob"

    @pytest.mark.on_servers
    def test_saves_and_moves_at_the_same_time_lose_no_count(self, store):
        store.letters.save([at(f"b{n}", B) for n in range(60)])
        store.letters.save([at("1")])

        def save(number):
            for n in range(10):
                store.letters.save([at(f"{number}.{n}", B, 5)])

        with ThreadPoolExecutor(4) as pool:
            saving = [pool.submit(save, number) for number in range(3)]
            decide(store, B, Merge(into=A))
            moving = pool.submit(regrouper(store).run)
            for one in (*saving, moving):
                one.result()
        work_off(store)
        assert open_counts(store) == {A: 91}


GROUNDS = Grounds(frames=("shop:pay",), needs_message=True)


def flood(number, first=0, **changes):
    """Failures of one place, each of which is a group of its own."""
    return [
        at(f"{first + n}", f"{first + n:016x}", grounds=GROUNDS, **changes) for n in range(number)
    ]


class TestFolding:
    def test_a_place_that_makes_too_many_groups_is_folded(self, store, caplog):
        store.letters.save([at("other", A, grounds=Grounds(frames=("shop:ship",)))])
        store.letters.save(flood(GROUPS_OF_PLACE))
        assert store.regroupings.waiting() == {}
        store.letters.save(flood(5, first=100))
        work_off(store)
        (folded,) = store.regroupings.folded()
        assert open_counts(store) == {A: 1, folded: GROUPS_OF_PLACE + 5}
        assert f"become one group, {folded}" in caplog.text
        saved = store.letters.save(flood(5, first=200))
        assert saved.new_groups == ()
        assert open_counts(store)[folded] == GROUPS_OF_PLACE + 10
        (why,) = store.groups.merged(folded)
        assert why.in_words() == "its place in the code made more than 20 groups within a day"

    @pytest.mark.on_servers
    def test_a_place_that_was_split_is_not_folded_again(self, store):
        store.letters.save(flood(GROUPS_OF_PLACE + 1))
        work_off(store)
        (folded,) = store.regroupings.folded()
        decide(store, folded, Split())
        work_off(store)
        assert len(open_counts(store)) == GROUPS_OF_PLACE + 1
        store.letters.save(flood(5, first=100))
        work_off(store)
        assert store.regroupings.folded() == []
        assert len(open_counts(store)) == GROUPS_OF_PLACE + 6

    def test_a_folded_group_may_be_merged(self, store):
        store.letters.save([at("1"), *flood(GROUPS_OF_PLACE + 1, first=10)])
        work_off(store)
        (folded,) = store.regroupings.folded()
        decide(store, folded, Merge(into=A))
        work_off(store)
        store.letters.save(flood(1, first=100))
        assert open_counts(store) == {A: GROUPS_OF_PLACE + 3}

    def test_groups_of_earlier_days_do_not_count(self, store):
        early = -60 * 24 * 3_650
        store.letters.save(flood(GROUPS_OF_PLACE, minutes=early))
        store.letters.save(flood(1, first=100))
        assert store.regroupings.waiting() == {}

    def test_groups_by_a_recipe_of_the_user_are_never_folded(self, store):
        grounds = Grounds(recipe="shop.by_tenant")
        many = [one.with_(grounds=grounds) for one in flood(GROUPS_OF_PLACE + 9)]
        store.letters.save(many)
        assert len(open_counts(store)) == GROUPS_OF_PLACE + 9
        assert store.regroupings.waiting() == {}


def by_task(failure):
    return failure.task


def by_number(failure):
    return failure.message[-1]


def by_no_rule(failure):
    raise LookupError(failure.task)


def noise(number=5, **changes):
    """Letters of one cause, each in a group of its own."""
    return [at(f"n{n}", f"{n:016x}", n, grounds=Grounds(), **changes) for n in range(number)]


class TestRecipes:
    @pytest.mark.on_servers
    def test_groups_of_one_cause_become_the_one_that_was_decided_about(self, store):
        store.letters.save([*noise(), at("m", "3".zfill(16), 1, grounds=Grounds())])
        decide(store, "1".zfill(16), Ignore(count=3), Assign(owner="ann"))
        assert regrouper(store).begin(who="ann", why="noise") == 6
        work_off(store)
        assert open_counts(store) == {"1".zfill(16): 6}
        found = group(store, "1".zfill(16))
        assert (found.owner, found.ignored_total) == ("ann", 6 + 3)
        assert [(row.act, row.count, row.why) for row in store.audit.find(act="regroup").rows] == [
            ("regroup", 6, "noise")
        ]

    def test_later_failures_follow(self, store):
        store.letters.save(noise())
        regrouper(store).begin(who="ann", why="")
        work_off(store)
        (home,) = open_counts(store)
        later = Grouping(Redactor()).grouped(at("later", minutes=90, grounds=Grounds()))
        assert later.fingerprint != home
        assert store.letters.save([later]).new_groups == ()
        assert open_counts(store) == {home: 6}

    def test_a_group_of_several_causes_keeps_the_most_frequent(self, store):
        letters = [
            at(str(n), A, n, grounds=Grounds(evidence=(f"status={404 if n else 500}",)))
            for n in range(4)
        ]
        store.letters.save(letters)
        regrouper(store).begin(who="ann", why="")
        work_off(store)
        counts = open_counts(store)
        assert (counts.pop(A), list(counts.values())) == (3, [1])

    def test_failures_that_came_before_the_regrouping_join_it(self, store):
        store.letters.save(noise())
        early = Grouping(Redactor()).grouped(at("early", minutes=90, grounds=Grounds()))
        store.letters.save([early])
        regrouper(store).begin(who="ann", why="")
        work_off(store)
        assert list(open_counts(store).values()) == [6]

    def test_a_recipe_of_the_user_and_the_built_in_one_again(self, store):
        store.letters.save([*noise(), at("other", A, task="shop.ship", grounds=Grounds())])
        for recipe in (by_task, None, by_task):
            regrouper(store, recipe).begin(who="ann", why="")
            work_off(store, recipe)
            assert sorted(open_counts(store).values()) == [1, 5]
            name = "" if recipe is None else f"{__name__}.by_task"
            assert store.letters.get("n1").grounds.recipe == name

    def test_a_recipe_may_split_what_it_has_joined(self, store):
        store.letters.save(
            [at(str(n), A, n, message=f"order {n}", grounds=Grounds()) for n in range(4)]
        )
        for recipe, counts in ((by_number, [1] * 4), (by_task, [4]), (by_number, [1] * 4)):
            regrouper(store, recipe).begin(who="ann", why="")
            work_off(store, recipe)
            assert sorted(open_counts(store).values()) == counts

    def test_the_plan_is_what_happens(self, store):
        store.letters.save([*noise(), at("other", A, task="shop.ship", grounds=Grounds())])
        decide(store, "2".zfill(16), Resolve())
        fates = list(regrouper(store).plan(lambda looked, moved: None))
        planned = {}
        for fate in fates:
            for name, number in fate.to.items():
                planned[name] = planned.get(name, 0) + number
        assert store.regroupings.waiting() == {}
        regrouper(store).begin(who="ann", why="")
        work_off(store)
        found = {one: group(store, one).open_count for one in planned}
        assert found == planned == {"2".zfill(16): 5, A: 1}

    def test_letters_without_grounds_stay(self, store):
        store.letters.save([at("1"), at("2", B)])
        one = regrouper(store)
        one.begin(who="ann", why="")
        assert one.run()
        assert (one.unknown, open_counts(store)) == (2, {A: 1, B: 1})

    def test_letters_for_which_the_recipe_fails_stay(self, store):
        store.letters.save(noise(2))
        one = regrouper(store, by_no_rule)
        one.begin(who="ann", why="")
        assert one.run()
        assert (one.failed, one.problem) == (2, "raised LookupError: shop.charge")
        assert len(open_counts(store)) == 2

    @pytest.mark.on_servers
    def test_a_process_with_another_recipe_leaves_it_alone(self, store):
        store.letters.save(noise(2))
        regrouper(store, by_task).begin(who="ann", why="")
        assert regrouper(store).run()
        assert store.regroupings.waiting() == {f"{__name__}.by_task": 2}
        work_off(store, by_task)
        assert store.regroupings.waiting() == {}

    def test_it_continues_where_it_was_cut_off(self, store):
        store.letters.save(noise(9))
        regrouper(store).begin(who="ann", why="")
        steps = iter([False, False, False, True])
        assert not regrouper(store).run(should_stop=lambda: next(steps))
        assert sum(store.regroupings.waiting().values()) > 0
        assert_counts_hold(store)
        work_off(store)
        assert list(open_counts(store).values()) == [9]

    def test_a_group_of_several_tasks_is_looked_at_once(self, store):
        store.letters.save([at("1"), at("2", task="shop.ship"), at("3", task="shop.ship")])
        (fate,) = regrouper(store).plan(lambda *_: None)
        assert (fate.group.letters, fate.to) == (3, {A: 3})
        looked = []
        one = regrouper(store)
        one.begin(who="ann", why="")
        assert one.run(lambda letters, moved: looked.append(letters))
        assert looked == [3]

    @pytest.mark.on_servers
    def test_large_groups_are_read_in_parts(self, store, monkeypatch):
        monkeypatch.setattr(regroup, "IDS_AT_ONCE", 4)
        monkeypatch.setattr(regroup, "LETTERS_AT_ONCE", 3)
        store.letters.save([at(str(n), A, n, grounds=Grounds()) for n in range(8)])
        store.letters.save([at("other", B, grounds=Grounds())])
        assert sum(sum(one.to.values()) for one in regrouper(store).plan(lambda *_: None)) == 9
        regrouper(store).begin(who="ann", why="")
        work_off(store)
        assert open_counts(store) == {A: 9}

    @pytest.mark.on_servers
    def test_two_processes_do_it_together(self, store):
        store.letters.save(noise(40))
        regrouper(store).begin(who="ann", why="")
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(regrouper(store).run) for _ in "12"]
        assert all(one.result() for one in running)
        assert list(open_counts(store).values()) == [40]

    @pytest.mark.on_servers
    def test_a_letter_that_fails_again_meanwhile_is_left_to_its_worker(self, store):
        store.letters.save([at("1", A, grounds=Grounds())])
        regrouper(store).begin(who="ann", why="")
        (seen,) = store.regroupings.next(regrouper(store).recipe, limit=9)
        ids = store.regroupings.ids(A, above=0, limit=9)
        judged = store.regroupings.letters(A, ids)
        store.letters.save([at("1", B, 5)])
        assert store.regroupings.move(seen, judged, last=ids[-1], is_last=True) == 0
        assert open_counts(store) == {B: 1}

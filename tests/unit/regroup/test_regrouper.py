"""The fingerprints of stored letters by another recipe, on a store in a file."""

import pytest
from support.factories import attempt, letter

from celery_dlq.errors import OtherRecipe
from celery_dlq.model.fingerprint import FingerprintInput, fingerprint, own_fingerprint
from celery_dlq.model.regrouping import Becomes, Kept
from celery_dlq.regroup.engine import Regrouper
from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore
from celery_dlq.worker.writing.grouping import Grouping

TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/shop/tasks.py", line 3, in {function}
    int(text)
ValueError: {message}
"""


@pytest.fixture
def store(tmp_path):
    found = SQLStore(f"sqlite:///{tmp_path / 'dlq.sqlite3'}")
    schema.upgrade(found.database)
    yield found
    found.close()


def failed(task_id, *, function="charge", message="order 17", grouping=None, **changes):
    """A letter as a worker makes it, which imports from /srv/app."""
    failure = FingerprintInput(
        task="shop.charge", exception_type="ValueError", frames=(f"shop.tasks:{function}",),
        message=message,
    )  # fmt: skip
    text = TRACEBACK.format(function=function, message=message)
    name = (grouping or Grouping()).fingerprint(failure)
    return letter(task_id, attempt(), fingerprint=name, traceback=text, message=message, **changes)


def without_frames(failure):
    return failure.task, failure.exception_type, failure.normalised_message


def by_function(failure):
    return [frame.partition(":")[2] for frame in failure.frames]


def raises(failure):
    raise ValueError(failure.message)


def careless(failure):
    try:
        return failure.frames[0]
    except Exception:
        return "no frames"


def groups_of(store, *names):
    return [store.letters.get(name).fingerprint for name in names]


def regroup(store, recipe=None):
    regrouper = Regrouper(store, Grouping(recipe))
    planned = regrouper.plan(lambda *_: None)
    assert store.regroupings.last() is None or store.regroupings.last().is_over
    done = regrouper.run(regrouper.begin(who="ann", why="tried"))
    assert done.is_over
    assert (planned.looked, planned.moved, dict(planned.kept)) == (
        done.looked, done.moved, done.kept,
    )  # fmt: skip
    assert sorted(planned.fates.values(), key=lambda one: one.fingerprint) == [
        *store.regroupings.fates()
    ]
    return regrouper, done


def test_groups_merge_by_a_recipe_without_frames(store):
    store.letters.save([failed("1"), failed("2", function="refund"), failed("3", message="late")])
    before = groups_of(store, "1", "2", "3")
    assert len(set(before)) == 3
    _, done = regroup(store, without_frames)
    merged = own_fingerprint(["shop.charge", "ValueError", "order <n>"])
    assert groups_of(store, "1", "2") == [merged, merged]
    assert done.moved == 3
    fates = {one.fingerprint: one.becomes for one in store.regroupings.fates()}
    assert [fates[one] for one in before] == [Becomes.MERGED, Becomes.MERGED, Becomes.RENAMED]


def test_without_the_recipe_the_built_in_groups_come_back(store):
    store.letters.save([failed("1"), failed("2", function="refund")])
    before = groups_of(store, "1", "2")
    regroup(store, without_frames)
    store.letters.save([failed("3", grouping=Grouping(without_frames))])
    _, done = regroup(store)
    assert groups_of(store, "1", "2", "3") == [*before, before[0]]
    assert not done.kept


def test_a_recipe_gets_the_frames_of_the_capture(store):
    store.letters.save([failed("1"), failed("2", function="refund")])
    regroup(store, by_function)
    assert groups_of(store, "1", "2") == [own_fingerprint(["charge"]), own_fingerprint(["refund"])]
    _, done = regroup(store, by_function)
    assert (done.moved, done.kept) == (0, {})


@pytest.mark.parametrize("recipe", [None, by_function, careless])
def test_letters_whose_frames_are_unknown_keep_their_group_if_they_are_needed(store, recipe):
    store.letters.save([letter("1", fingerprint="f" * 16), failed("2", grouping=Grouping(raises))])
    _, done = regroup(store, recipe)
    assert groups_of(store, "1") == ["f" * 16]
    assert done.kept == {Kept.FRAMES: 1}
    _, done = regroup(store, without_frames)
    assert done.moved == 2
    assert done.kept == {}


def test_letters_on_which_the_recipe_fails_keep_their_group(store):
    store.letters.save([failed("1"), failed("2")])
    before = groups_of(store, "1", "2")
    regrouper, done = regroup(store, raises)
    assert groups_of(store, "1", "2") == before
    assert done.kept == {Kept.RECIPE: 2}
    assert regrouper.problem == "raised ValueError: order 17"


def test_a_letter_without_frames_says_nothing_about_one_with_frames(store):
    bare = FingerprintInput(
        task="shop.charge", exception_type="ValueError", frames=(), message="order 17"
    )
    lost = letter("1", fingerprint=fingerprint(bare), traceback="", message="order 17")
    store.letters.save([lost, failed("2", grouping=Grouping(without_frames))])
    _, done = regroup(store)
    assert done.kept == {Kept.FRAMES: 1}


def test_it_stops_when_asked_and_only_the_same_recipe_continues(store, monkeypatch):
    monkeypatch.setattr("celery_dlq.regroup.engine.LETTERS_AT_ONCE", 2)
    store.letters.save([failed(f"{number}") for number in range(5)])
    first = Regrouper(store, Grouping(without_frames))
    steps = iter([False, False, True])
    seen = []
    left = first.run(
        first.begin(who="ann", why=""), lambda *step: seen.append(step), lambda: next(steps)
    )
    assert (left.looked, left.is_over) == (4, False)
    assert seen == [(2, 5, 2), (4, 5, 4)]
    other = Regrouper(store, Grouping(by_function))
    with pytest.raises(OtherRecipe):
        other.run(left)
    again = Regrouper(store, Grouping(without_frames))
    assert again.run(again.begin(who="cem", why="")).moved == 5
    assert len({*groups_of(store, *"01234")}) == 1


def test_a_regrouping_by_another_recipe_ends_the_one_before(store, monkeypatch):
    monkeypatch.setattr("celery_dlq.regroup.engine.LETTERS_AT_ONCE", 1)
    store.letters.save([failed("1"), failed("2", function="refund")])
    before = groups_of(store, "1", "2")
    first = Regrouper(store, Grouping(without_frames))
    first.step(first.begin(who="ann", why=""))
    other = Regrouper(store, Grouping(by_function))
    done = other.run(other.begin(who="cem", why=""))
    assert (done.who, done.moved) == ("cem", 2)
    assert groups_of(store, "1", "2") == [own_fingerprint(["charge"]), own_fingerprint(["refund"])]
    back = Regrouper(store, Grouping())
    back.run(back.begin(who="ann", why=""))
    assert groups_of(store, "1", "2") == before

"""A worker continues a regrouping that was left to it, or whose process was killed."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.factories import attempt, letter

from celery_dlq.errors import SettingsError
from celery_dlq.model.fingerprint import own_fingerprint
from celery_dlq.regroup.engine import Regrouper
from celery_dlq.store.database import schema
from celery_dlq.store.sql import SQLStore
from celery_dlq.upkeep import regrouping
from celery_dlq.upkeep.regrouping import BackgroundRegrouping
from celery_dlq.worker.writing.grouping import Grouping


def by_task(failure):
    return failure.task


def by_message(failure):
    return failure.message


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr("celery_dlq.regroup.engine.LETTERS_AT_ONCE", 1)
    found = SQLStore(f"sqlite:///{tmp_path / 'dlq.sqlite3'}")
    schema.upgrade(found.database)
    found.letters.save([letter(f"{number}", attempt()) for number in range(3)])
    yield found
    found.close()


class Dlq(SimpleNamespace):
    recipe = staticmethod(by_task)

    def regrouper(self):
        if isinstance(self.recipe, Exception):
            raise self.recipe
        return Regrouper(self.store, Grouping(self.recipe))


class Clock:
    """Stands still, or advances by some seconds each time that it is read."""

    now_s = each_s = 0.0

    def __call__(self):
        self.now_s += self.each_s
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def background(store, clock, **changes):
    return BackgroundRegrouping(Dlq(store=store, **changes), monotonic=clock)


def begin(store, *, detached):
    return Regrouper(store, Grouping(by_task)).begin(who="ann", why="", detached=detached)


def moved(store):
    return store.regroupings.last().moved


def never():
    return False


def test_one_that_was_left_to_workers_is_done(store, clock, caplog):
    caplog.set_level("INFO")
    begin(store, detached=True)
    background(store, clock).run(never)
    assert store.regroupings.last().is_over
    assert store.letters.get("0").fingerprint == own_fingerprint(["shop.charge"])
    assert "regrouped 3 dead letters; 3 were moved" in caplog.text


def test_one_that_another_process_works_on_is_left_to_it(store, clock, monkeypatch):
    begin(store, detached=False)
    background(store, clock).run(never)
    assert moved(store) == 0
    monkeypatch.setattr(regrouping, "KILLED_AFTER", timedelta())
    background(store, clock).run(never)
    assert moved(store) == 3


def test_it_takes_a_part_of_the_time_and_continues_in_the_next_round(store, clock):
    begin(store, detached=True)
    clock.each_s = regrouping.WORK_S * 0.6
    work = background(store, clock)
    work.run(never)
    assert moved(store) == 1
    work.run(never)
    assert moved(store) == 2
    work.run(lambda: True)
    assert moved(store) == 2


def test_it_looks_seldom(store, clock):
    work = background(store, clock)
    work.run(never)
    begin(store, detached=True)
    clock.now_s = regrouping.LOOK_S * 0.9
    work.run(never)
    assert moved(store) == 0
    clock.now_s = regrouping.LOOK_S
    work.run(never)
    assert moved(store) == 3


@pytest.mark.parametrize("recipe", [by_message, SettingsError("dlq_fingerprint: no such module")])
def test_a_worker_with_another_recipe_leaves_it_and_says_so_once(store, clock, caplog, recipe):
    begin(store, detached=True)
    work = background(store, clock, recipe=recipe)
    for _ in range(2):
        work.run(never)
        clock.now_s += regrouping.LOOK_S
    assert moved(store) == 0
    assert caplog.text.count("the regrouping that ann began waits: ") == 1

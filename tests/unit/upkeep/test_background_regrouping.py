from types import SimpleNamespace

from celery_dlq.errors import SettingsError
from celery_dlq.upkeep.chores import REGROUPING_LOOK_S, REGROUPING_S, BackgroundRegrouping


class Queue:
    """Has this many steps of a regrouping to do, each of which takes half a round."""

    def __init__(self, steps=0):
        self.steps, self.looks, self.now = steps, 0, 100.0
        self.groups = self

    def regrouper(self):
        self.looks += 1
        return SimpleNamespace(run=self.run)

    def run(self, *, should_stop):
        while self.steps and not should_stop():
            self.steps -= 1
            self.now += REGROUPING_S / 2
        return not self.steps

    def monotonic(self):
        return self.now


def test_without_work_it_looks_seldom():
    queue = Queue()
    work = BackgroundRegrouping(queue, monotonic=queue.monotonic)
    for _ in range(3):
        work.run(lambda: False)
    assert queue.looks == 1
    queue.now += REGROUPING_LOOK_S
    work.run(lambda: False)
    assert queue.looks == 2


def test_it_works_for_a_part_of_the_time_until_all_is_done():
    queue = Queue(steps=7)
    work = BackgroundRegrouping(queue, monotonic=queue.monotonic)
    left = []
    while queue.steps:
        work.run(lambda: False)
        left.append(queue.steps)
    assert left == [5, 3, 1, 0]


def test_it_stops_with_its_thread():
    queue = Queue(steps=7)
    BackgroundRegrouping(queue, monotonic=queue.monotonic).run(lambda: True)
    assert queue.steps == 7


def test_a_recipe_that_cannot_be_imported_is_reported_once(caplog, monkeypatch):
    queue = Queue(steps=7)

    def refuse():
        raise SettingsError("dlq_fingerprint: no.such.recipe cannot be imported")

    monkeypatch.setattr(queue.groups, "regrouper", refuse)
    work = BackgroundRegrouping(queue, monotonic=queue.monotonic)
    for _ in range(3):
        work.run(lambda: False)
        queue.now += REGROUPING_LOOK_S
    assert caplog.text.count("no.such.recipe cannot be imported") == 1

"""The order of the guards, and the way of a request that one of them held."""

from types import SimpleNamespace

import pytest

from celery_dlq.worker.admission import Admission, Guard


class Holding(Guard):
    """Holds what it is told to; notes each request that it is asked about."""

    def __init__(self, name, log, *, is_needed=True):
        self.name, self._log, self._is_needed = name, log, is_needed
        self.holds = False

    def join(self, consumer, onward):
        self.onward = onward
        return self._is_needed

    def admits(self, request):
        self._log.append((self.name, request))
        return not self.holds

    def start(self):
        self._log.append((self.name, "start"))

    def stop(self):
        self._log.append((self.name, "stop"))


@pytest.fixture
def log():
    return []


@pytest.fixture
def pool(log):
    return lambda request: log.append(("pool", request))


@pytest.fixture
def consumer():
    return SimpleNamespace(on_task_request="Celery's own")


@pytest.fixture
def guards(log):
    return [Holding(name, log) for name in "abc"]


@pytest.fixture
def admission(guards, consumer, pool):
    admission = Admission(guards)
    admission.join(consumer, pool)
    return admission


def test_a_request_passes_all_guards_in_order(admission, consumer, log):
    consumer.on_task_request(1)
    assert log == [("a", 1), ("b", 1), ("c", 1), ("pool", 1)]


def test_a_guard_that_does_not_admit_a_request_stops_it(admission, guards, consumer, log):
    guards[1].holds = True
    consumer.on_task_request(1)
    assert log == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("place", "rest"), [(0, ["b", "c", "pool"]), (1, ["c", "pool"]), (2, ["pool"])]
)
def test_a_request_that_is_let_go_passes_the_guards_after_its_holder(
    admission, guards, log, place, rest
):
    guards[place].onward(1)
    assert [name for name, _ in log] == rest


def test_a_request_that_is_let_go_may_be_held_by_a_later_guard(admission, guards, log):
    guards[2].holds = True
    guards[0].onward(1)
    assert log == [("b", 1), ("c", 1)]


def test_a_guard_that_is_not_needed_is_not_asked(consumer, pool, log):
    guards = [Holding("a", log), Holding("b", log, is_needed=False), Holding("c", log)]
    Admission(guards).join(consumer, pool)
    consumer.on_task_request(1)
    guards[0].onward(2)
    assert [name for name, _ in log] == ["a", "c", "pool", "c", "pool"]


def test_without_guards_a_request_goes_straight_to_the_pool(consumer, pool):
    Admission([]).join(consumer, pool)
    assert consumer.on_task_request is pool


def test_the_consumer_gets_its_own_function_back(admission, consumer):
    assert consumer.on_task_request != "Celery's own"
    admission.leave()
    assert consumer.on_task_request == "Celery's own"


def test_a_pipeline_that_never_joined_a_consumer_may_leave(guards, consumer):
    before = consumer.on_task_request
    Admission(guards).leave()
    assert consumer.on_task_request is before


def test_a_connection_starts_and_stops_all_guards(admission, log):
    admission.start()
    admission.stop()
    assert log == [(name, event) for event in ("start", "stop") for name in "abc"]

import threading
import time

import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.store import tenure as module
from celery_dlq.store.base import Lease
from celery_dlq.store.tenure import Tenure, kept

PATIENCE_S = 60
MINE = Lease(name="operation.op", token=1)


class Store:
    """Answers each request for the lease in turn; then it is refused no more."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), threading.Event()
        self.leases = self

    def take(self, name, *, holder, seconds):
        answer = self.answers.pop(0) if self.answers else MINE
        if not self.answers:
            self.asked.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setattr(module, "TRY_S", 0.001)


def held(store):
    return kept(Tenure(lambda: store, MINE.name, "me"), MINE)


def test_it_is_prolonged_beside_the_work():
    store = Store(MINE, MINE, MINE)
    with held(store) as is_kept:
        assert store.asked.wait(PATIENCE_S)
        assert is_kept()
    assert not [one for one in threading.enumerate() if one.name == "dlq-lease"]


def test_a_failed_try_does_not_lose_the_lease():
    store = Store(StoreUnavailable(), StoreUnavailable(), MINE)
    with held(store) as is_kept:
        assert store.asked.wait(PATIENCE_S)
        assert is_kept()


@pytest.mark.parametrize("answer", [None, Lease(name=MINE.name, token=3)])
def test_a_lease_that_another_process_has_had_is_lost(answer):
    store = Store(MINE, answer)
    with held(store) as is_kept:
        deadline = time.monotonic() + PATIENCE_S
        while is_kept():
            assert time.monotonic() < deadline
            time.sleep(0.001)

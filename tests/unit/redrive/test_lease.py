import threading

import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.redrive import lease as module
from celery_dlq.redrive.lease import Tenure, kept
from celery_dlq.store.base import Lease

PATIENCE_S = 60
MINE = Lease(name="operation.op", token=1)


class Store:
    """Answers each request for the lease in turn; then it is refused no more."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), threading.Event()

    def take_lease(self, name, *, holder, seconds):
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


def test_a_store_that_is_away_for_a_try_does_not_lose_it():
    store = Store(StoreUnavailable(), StoreUnavailable(), MINE)
    with held(store) as is_kept:
        assert store.asked.wait(PATIENCE_S)
        assert is_kept()


@pytest.mark.parametrize("answer", [None, Lease(name=MINE.name, token=3)])
def test_one_that_somebody_has_had_meanwhile_is_lost(answer):
    store = Store(MINE, answer)
    with held(store) as is_kept:
        [thread] = [one for one in threading.enumerate() if one.name == "dlq-lease"]
        thread.join(PATIENCE_S)
        assert not is_kept()

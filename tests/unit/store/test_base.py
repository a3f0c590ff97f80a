"""A transaction that takes too long is tried again with fewer letters."""

from __future__ import annotations

import pytest

from celery_dlq.errors import RecordRefused, StoreUnavailable
from celery_dlq.store.base import Portion


class Slow:
    """A transaction that takes too long for more than ``most`` letters."""

    def __init__(self, most):
        self.most, self.sizes = most, []

    def __call__(self, size):
        self.sizes.append(size)
        if size > self.most:
            raise StoreUnavailable("the statement took too long")
        return "done"


def test_the_next_transactions_stay_small():
    portion, transaction = Portion(1_000), Slow(100)
    assert [portion.attempt(transaction), portion.attempt(transaction)] == ["done", "done"]
    assert transaction.sizes == [1_000, 250, 62, 62]
    assert portion.size == 62


@pytest.mark.parametrize(("size", "tried"), [(1_000, [1_000, 250, 62, 25]), (10, [10])])
def test_a_store_that_does_not_answer_for_the_fewest_letters_has_failed(size, tried):
    transaction = Slow(0)
    with pytest.raises(StoreUnavailable):
        Portion(size).attempt(transaction)
    assert transaction.sizes == tried


def test_other_errors_are_not_tried_again():
    def refused(_size):
        raise RecordRefused("no")

    with pytest.raises(RecordRefused):
        Portion(1_000).attempt(refused)

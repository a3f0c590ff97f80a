from datetime import datetime

import pytest

from celery_dlq.errors import OrdersError
from celery_dlq.model.operation import Checking, Guard, Orders, Pacing, Repair
from celery_dlq.redrive.orders import check_orders


def test_the_defaults_make_sense():
    check_orders(Orders())


@pytest.mark.parametrize(
    ("orders", "says"),
    [
        (Orders(pacing=Pacing(rate=0.0)), "rate must be above zero, not 0.0"),
        (Orders(pacing=Pacing(rate=float("nan"))), "rate must be above zero"),
        (Orders(pacing=Pacing(rate=float("inf"))), "rate must be above zero"),
        (Orders(pacing=Pacing(canary=-1)), "canary must be a number of letters"),
        (Orders(pacing=Pacing(limit=0)), "limit must be 1 or more"),
        (Orders(pacing=Pacing(batch=0)), "batch must be 1 or more"),
        (Orders(pacing=Pacing(max_in_flight=0)), "max_in_flight must be 1 or more"),
        (Orders(pacing=Pacing(max_queue_depth=-5)), "max_queue_depth must be 1 or more"),
        (Orders(guard=Guard(ratio=0.0)), "ratio must be above 0"),
        (Orders(guard=Guard(ratio=20)), "ratio must be above 0"),
        (Orders(guard=Guard(window=0)), "guard's window must be 1 or more"),
        (Orders(guard=Guard(in_a_row=0)), "guard's in_a_row must be 1 or more"),
        (Orders(checking=Checking(max_redrives=0)), "max_redrives must be 1 or more"),
        (Orders(checking=Checking(max_age_s=0)), "max_age_s must be above zero"),
        (Orders(repair=Repair(countdown_s=-1.0)), "countdown must be a time"),
        (Orders(repair=Repair(eta=datetime(2026, 11, 21))), "eta needs a time zone"),  # noqa: DTZ001
    ],
)
def test_wrong_orders_are_refused(orders, says):
    with pytest.raises(OrdersError, match=says):
        check_orders(orders)


def test_all_problems_are_named_at_once():
    with pytest.raises(OrdersError) as caught:
        check_orders(Orders(pacing=Pacing(rate=-1.0), guard=Guard(least=0)))
    assert "rate" in str(caught.value)
    assert "least" in str(caught.value)

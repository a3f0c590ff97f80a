"""Where the shop's messages end when something goes wrong."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from email.message import Message
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from celery_dlq import Filter
from celery_dlq.testing import DeadLetters
from example_project import orders, tax
from example_project.money import UnknownCurrency
from example_project.orders import ship
from example_project.payments import charge

ORDER = {"id": 1, "sku": "chair", "net": "10.00", "currency": "EUR", "country": "DE"}


def answer(status: int) -> HTTPError:
    return HTTPError("http://tax.example", status, "", Message(), None)


@pytest.fixture
def tax_office(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the tax office answer with these rates and errors, one for each call; the last one stays."""

    def answers(*given: Decimal | Exception) -> None:
        coming = iter(given)
        monkeypatch.setattr(tax, "rate", lambda country: next_of(coming, given[-1]))

    return answers


def next_of(coming: Iterator[Decimal | Exception], last: Decimal | Exception) -> Decimal:
    given = next(coming, last)
    if isinstance(given, Exception):
        raise given
    return given


def test_a_currency_that_the_shop_does_not_know_needs_a_person(dlq: DeadLetters) -> None:
    charge.delay({**ORDER, "currency": "GOLD"}, "tok_1")
    letter = dlq.assert_dead(charge, reason="terminal", exception=UnknownCurrency)
    assert letter.tags == ("money",)
    dlq.assert_retried(charge, times=0)


def test_the_tax_office_may_be_away_for_a_while(
    dlq: DeadLetters, tax_office: Callable[..., None]
) -> None:
    tax_office(answer(503), answer(503), Decimal("0.19"))
    receipt: Any = charge.delay(ORDER, "tok_1")
    dlq.assert_retried(charge, times=2)
    assert not dlq.letters()
    assert receipt.get(timeout=5)["total"] == "11.90"


def test_the_tax_office_may_not_be_away_for_ever(
    dlq: DeadLetters, tax_office: Callable[..., None]
) -> None:
    tax_office(URLError(ConnectionRefusedError()))
    charge.delay(ORDER, "tok_1")
    assert len(dlq.assert_dead(charge, reason="exhausted").attempts) == 9


def test_an_order_that_the_tax_office_refuses_is_not_sent_again(dlq: DeadLetters) -> None:
    dlq.assert_verdict(answer(400), "terminal", rule="http.status", task=charge)


def test_a_redrive_ships_what_has_its_shelf_by_then(
    dlq: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = dlq.run(ship, {**ORDER, "sku": "lamp"})
    assert letter is not None
    monkeypatch.setitem(orders.SHELVES, "lamp", "B7")
    dlq.queue.redrives.start(Filter(ids=(letter.task_id,)), who="test")
    assert not dlq.letters()

"""One day at the shop: the orders, how each ends with release 1, and the right result of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from celery import chain, chord
from celery.canvas import Signature
from celery.result import AsyncResult

from celery_dlq import Reason
from example_project.orders import ship
from example_project.payments import charge, close_the_books


@dataclass(frozen=True)
class Placed:
    """Something that was sent to the worker."""

    name: str
    #: Task id of the last step, whose result is the order's.
    task_id: str
    #: The right result.
    comes_to: Any
    #: Task id of the step that release 1 dead-letters, and why; None when all goes well.
    dies_at: str | None = None
    dies_of: Reason | None = None
    #: Whether only release 2 gets it right. The others succeed at night, without a person.
    needs_fix: bool = False


def place_orders() -> list[Placed]:
    """Send the day's orders to the broker."""
    numbers = count(1001)
    return [
        *_charges(numbers),
        *(_shipment(next(numbers), sku) for sku in ("chair", "table", "lamp", "lamp")),
        _prepaid(next(numbers)),
        _books([next(numbers) for _ in range(3)]),
    ]


def _charges(numbers: Iterator[int]) -> Iterator[Placed]:
    for country, total in [("DE", "119.00")] * 6 + [("FR", "120.00")] * 2 + [("IT", "122.00")]:
        yield _charge(next(numbers), country, total)
    for _ in range(3):
        yield _charge(next(numbers), "DE", "119.00", currency="EURO", dies_of=Reason.TERMINAL)
    for _ in range(3):
        yield _charge(next(numbers), "GR", "124.00", dies_of=Reason.EXHAUSTED)


def _charge(
    number: int, country: str, total: str, *, currency: str = "EUR", dies_of: Reason | None = None
) -> Placed:
    order = _order(number, country=country, currency=currency)
    sent = _charging(order).delay()
    return Placed(
        name=f"charge {number}",
        task_id=sent.id,
        comes_to={**order, "currency": "EUR", "total": total},
        dies_at=sent.id if dies_of else None,
        dies_of=dies_of,
    )


def _shipment(number: int, sku: str) -> Placed:
    order = _order(number, sku=sku)
    sent = ship.delay(order)
    missing = sku == "lamp"
    return Placed(
        name=f"ship {number}",
        task_id=sent.id,
        comes_to={**order, "shelf": {"chair": "A1", "table": "A2", "lamp": "B7"}[sku]},
        dies_at=sent.id if missing else None,
        dies_of=Reason.TERMINAL if missing else None,
        needs_fix=missing,
    )


def _prepaid(number: int) -> Placed:
    """A chain that dies at its first step; its second runs after the redrive."""
    order = _order(number, currency="EURO")
    shipped: AsyncResult = chain(_charging(order), ship.s()).delay()
    return Placed(
        name=f"charge and ship {number}",
        task_id=shipped.id,
        comes_to={**order, "currency": "EUR", "total": "119.00", "shelf": "A1"},
        dies_at=shipped.parent.id,
        dies_of=Reason.TERMINAL,
    )


def _books(numbers: list[int]) -> Placed:
    """A chord that dies at its body, which a redrive completes on every result backend."""
    header = [_charging(_order(number)) for number in numbers]
    closed: AsyncResult = chord(header, close_the_books.s()).delay()
    return Placed(
        name=f"books of {numbers[0]} to {numbers[-1]}",
        task_id=closed.id,
        comes_to="357.00",
        dies_at=closed.id,
        dies_of=Reason.TERMINAL,
        needs_fix=True,
    )


def _order(
    number: int, *, country: str = "DE", currency: str = "EUR", sku: str = "chair"
) -> dict[str, Any]:
    return {
        "number": number, "country": country, "currency": currency, "sku": sku, "net": "100.00",
    }  # fmt: skip


def _charging(order: dict[str, Any]) -> Signature:
    # Letters show the token as redacted; the redriven message has it.
    return charge.s(order, card_token=f"tok_{order['number']}")


if __name__ == "__main__":
    print(f"Placed {len(place_orders())} orders.")

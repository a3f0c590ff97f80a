"""Charging orders, and closing the books on what was charged."""

from decimal import Decimal
from typing import Any

from celery_dlq import DLQTask
from example_project import money, tax
from example_project.celery_app import app
from example_project.release import FIXED

#: Release 1 assumed that every total is in whole euros.
_read_total = Decimal if FIXED else int


@app.task(base=DLQTask, dlq_tags=("money",))
def charge(order: dict[str, Any], card_token: str) -> dict[str, Any]:
    """Charge the card for ``order``; returns the receipt: the order with currency and total."""
    currency = money.currency(order["currency"])
    total = money.cents(Decimal(order["net"]) * (1 + tax.rate(order["country"])))
    return {**order, "currency": currency, "total": str(total)}


@app.task(base=DLQTask, dlq_tags=("money",))
def close_the_books(receipts: list[dict[str, Any]]) -> str:
    """The sum of the day's receipts."""
    return str(sum(_read_total(receipt["total"]) for receipt in receipts))

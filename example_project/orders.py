"""Shipping what was ordered."""

from typing import Any

from celery_dlq import DLQTask
from example_project.celery_app import app
from example_project.release import FIXED

#: Release 1 was deployed before the new lamp had its place in the warehouse.
SHELVES = {"chair": "A1", "table": "A2", **({"lamp": "B7"} if FIXED else {})}


@app.task(base=DLQTask)
def ship(order: dict[str, Any]) -> dict[str, Any]:
    """Send ``order`` on its way; returns it with the shelf that it was taken from."""
    return {**order, "shelf": SHELVES[order["sku"]]}

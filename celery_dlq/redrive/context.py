"""The dependencies of a redrive, and the app and broker that an operation belongs to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.addresses import broker_of
from celery_dlq.redact import Redactor
from celery_dlq.settings import Settings
from celery_dlq.store.base import AppAndBroker, Operation

if TYPE_CHECKING:
    from celery_dlq.store import Store


#: Characters of a name that the store keeps.
_WIDTH = 255

#: Names that do not identify an app: the name of a script differs from the name under which its module is
#: imported, and Celery gives the last one to its fallback app, as in a Flower without the project's code.
_NAMELESS = frozenset({None, "__main__", "default"})


@dataclass(frozen=True)
class Clock:
    """The time, and how to wait."""

    #: The time by the store's clock, which redrives and workers on all machines share.
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep


@dataclass(frozen=True, kw_only=True)
class RedriveContext:
    """An app, its store, and the other dependencies of a redrive."""

    app: Any
    store: Store
    settings: Settings
    redactor: Redactor
    #: Whether workers report the outcomes of a task's messages.
    reports: Callable[[str], bool]
    clock: Clock


def app_and_broker_of(app: Any) -> AppAndBroker:
    """The name and broker of ``app``. Does not connect."""
    with app.connection_for_write() as connection:
        broker = broker_of(connection)
    name = "" if app.main in _NAMELESS else str(app.main)
    return AppAndBroker(app=name[:_WIDTH], broker=broker[:_WIDTH])


def why_not_here(operation: Operation, here: AppAndBroker) -> str | None:
    """Why ``operation`` must not run in this app and on this broker; None if it may. An unknown name
    matches any name."""
    for kind, made_for, this in (
        ("app", operation.home.app, here.app),
        ("broker", operation.home.broker, here.broker),
    ):
        if made_for and this and made_for != this:
            return (
                f"Operation {operation.id} was made for {kind} {made_for}, and this is {this}; resume it "
                "there, or cancel it and make another one here."
            )
    return None

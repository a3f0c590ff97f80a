"""Which app and broker an operation is for: elsewhere its letters would go to the wrong workers."""

from __future__ import annotations

from typing import Any

from celery_dlq.store.base import Home, Operation

#: Characters of a name that the store keeps.
_WIDTH = 255


#: A module that is run as a script has another name than where it is imported; and what Celery puts in the
#: place of an app that was not named, as in a Flower without the project's code, has this one.
_NAMELESS = frozenset({None, "__main__", "default"})


def home_of(app: Any) -> Home:
    """The home of what is made in ``app``. Nothing is connected to find out."""
    with app.connection_for_write() as connection:
        broker = str(connection.as_uri())
    name = "" if app.main in _NAMELESS else str(app.main)
    return Home(app=name[:_WIDTH], broker=broker[:_WIDTH])


def why_not_here(operation: Operation, here: Home) -> str | None:
    """Why ``operation`` must not be carried out here; None when it may. What is not known of its home does
    not count."""
    for kind, made_for, this in (
        ("app", operation.home.app, here.app),
        ("broker", operation.home.broker, here.broker),
    ):
        if made_for and this and made_for != this:
            return (
                f"Operation {operation.id} was made for {kind} {made_for}, and this is {this}; go on with it "
                "there, or cancel it and make another one here."
            )
    return None

"""Automatic redrives of a SQLite store."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from celery import Celery
from support.auto_world import World

from celery_dlq.redrive import run


def _work(*args, **kwargs): ...


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.task(_work, name="shop.charge", shared=False)
    app.task(_work, name="shop.mail", shared=False)
    app.finalize()
    return app


@pytest.fixture
def world(app, own_store, monkeypatch):
    """Makes a world with the given automatic redrives."""
    made = []

    def begin(letters):
        sent = made[0].publish(letters)
        return lambda: sent

    @contextmanager
    def opened(_app):
        yield SimpleNamespace(confirms_later=False, begin=begin)

    monkeypatch.setattr(run, "open_publisher", opened)

    def make(*autos, **settings):
        made[:] = [World(app, own_store, *autos, **settings)]
        return made[0]

    return make

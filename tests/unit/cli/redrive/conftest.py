"""Letters to redrive, and a redrive that only notes what it was asked."""

import pytest
from support.factories import letter

from celery_dlq.redrive.operation import Operations


@pytest.fixture
def orders(store):
    """Three dead letters of the one registered task; returns their ids."""
    store.letters.save([letter("a1"), letter("b1"), letter("b2", fingerprint="aaaa000000000000")])
    return ["a1", "b1", "b2"]


class FakeRedrive:
    """Stands in for ``DeadLetterQueue.redrives.start``: records its arguments and returns a given answer."""

    def __init__(self, answer):
        self.asked = []
        self.answer = answer
        self.during = lambda on_progress, should_stop: None

    def __call__(self, wanted, **options):
        self.asked.append((wanted, options))
        if not options.get("detach"):
            self.during(options["on_progress"], options["should_stop"])
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def fake(monkeypatch, operation):
    fake = FakeRedrive(operation(sent=3))
    monkeypatch.setattr(Operations, "start", staticmethod(fake))
    return fake

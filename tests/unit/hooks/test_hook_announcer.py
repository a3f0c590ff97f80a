import logging
from dataclasses import replace

import pytest
from support.factories import T0, letter, operation

from celery_dlq.hooks import EventKind
from celery_dlq.hooks.announcer import Announcer
from celery_dlq.hooks.registry import Hooks
from celery_dlq.model.audit import AuditHead
from celery_dlq.model.operation import OperationState
from celery_dlq.model.route import Route
from celery_dlq.store.base import Saved


class Side:
    """An announcer with hooks that keep what they are told."""

    def __init__(self):
        self.told, self.stored, self.routes = [], {}, []
        self.hooks = Hooks(dict, routes=lambda: self.routes)
        self.announcer = Announcer(self.hooks, self.stored.get, lambda: T0)

    def route(self, name):
        """A route with a hook that keeps the events that it gets."""

        def hook(event):
            self.told.append((name, event.kind, event.value))

        self.routes.append(Route(name, task="*", owner=f"team-{name}", hooks=(hook,)))

    def listen(self, *kinds):
        for kind in kinds:
            self.hooks.register(kind, lambda value, kind=kind: self.told.append((kind, value)))

    def done(self):
        self.hooks.finish()
        return self.told


@pytest.fixture
def side():
    return Side()


def test_letters_that_arrived_are_told(side):
    side.listen(EventKind.DEAD_LETTER, EventKind.RESOLVED)
    arrived = (letter("a"), letter("b"))
    side.announcer.saved(Saved(arrived=2, known=1, letters=arrived))
    assert side.done() == [(EventKind.DEAD_LETTER, item) for item in arrived]


def test_groups_that_are_new_or_back_are_told(side, group):
    side.listen(EventKind.NEW_GROUP, EventKind.REGRESSION)
    back = replace(group, fingerprint="back")
    side.announcer.saved(Saved(arrived=2, known=0, new_groups=(group,), regressed_groups=(back,)))
    assert sorted(side.done(), key=lambda told: told[0].value) == [
        (EventKind.NEW_GROUP, group),
        (EventKind.REGRESSION, back),
    ]


@pytest.mark.parametrize(
    ("method", "kind"), [("resolved", EventKind.RESOLVED), ("redriven", EventKind.REDRIVEN)]
)
def test_letters_that_are_known_by_their_id_are_read_whole(side, method, kind):
    side.listen(kind)
    side.stored["a"] = letter("a")
    getattr(side.announcer, method)(["a", "gone"])
    assert side.done() == [(kind, letter("a"))]


def test_only_the_abort_of_an_operation_is_announced(side):
    side.listen(EventKind.OPERATION_ABORTED)
    for state in OperationState:
        side.announcer.moved(operation(state=state))
    [(_, told)] = side.done()
    assert told.state is OperationState.ABORTED


def test_a_stall_is_announced(side, stall):
    side.listen(EventKind.WORKER_STALLED)
    side.announcer.stalled(stall)
    assert side.done() == [(EventKind.WORKER_STALLED, stall)]


def test_the_head_of_the_audit_is_announced(side):
    side.listen(EventKind.AUDIT)
    head = AuditHead(n=3, hash="ab" * 32, act="delete", who="ann", at=T0)
    side.announcer.audited(head)
    assert side.done() == [(EventKind.AUDIT, head)]


def test_nothing_is_read_without_a_hook(side):
    side.announcer.resolved(["a"])
    side.announcer.redriven(["a"])
    side.announcer.saved(Saved(arrived=1, known=0, letters=(letter(),)))
    assert side.done() == []
    assert side.hooks.status() == {}


def test_a_store_never_hears_of_trouble(side, caplog):
    def broken():
        raise RuntimeError("settings are broken")

    announcer = Announcer(Hooks(broken), side.stored.get, lambda: T0)
    announcer.saved(Saved(arrived=1, known=0, letters=(letter(),)))
    announcer.resolved(["a"])
    announcer.redriven(["a"])
    announcer.moved(operation(state=OperationState.ABORTED))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 4


def test_the_hooks_of_a_route_are_told_of_its_letters_and_groups_only(side, group):
    side.route("payments")
    mine, other = letter("a", route="payments"), letter("b", route="mail")
    new, back = replace(group, route="payments"), replace(group, fingerprint="back")
    side.announcer.saved(
        Saved(
            arrived=2, known=0, letters=(mine, other), new_groups=(new,), regressed_groups=(back,)
        )
    )
    assert side.done() == [
        ("payments", EventKind.NEW_GROUP, new),
        ("payments", EventKind.DEAD_LETTER, mine),
    ]


def test_the_hooks_of_a_route_are_not_told_what_becomes_of_its_letters(side):
    side.route("payments")
    side.listen(EventKind.RESOLVED)
    side.stored["a"] = letter("a", route="payments")
    side.announcer.resolved(["a"])
    side.announcer.redriven(["a"])
    assert side.done() == [(EventKind.RESOLVED, side.stored["a"])]

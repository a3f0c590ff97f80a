"""A message of which its sender does not know whether the broker has taken it runs once, in each order of the
two copies: the original, and the copy that a worker sends from the letter."""

from __future__ import annotations

import contextlib

import kombu
import pytest
from kombu.exceptions import ChannelError
from project import wait_for

from celery_dlq.store.rows import rows

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: Seconds that a message in doubt waits: the workers of this module ask several times in this time.
DOUBT_S = 4.0
#: A worker that takes none of the project's tasks.
IDLE = ("-c", "1", "-Q", "dlq-test-idle")


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(rows, "DOUBT_S", DOUBT_S)


@pytest.fixture
def proxied(project, make_proxy, make_sender):
    """The proxy before the broker, and a sender with an open connection through it. Message 0 was sent."""
    proxy, url = make_proxy(project.broker)
    sender = make_sender(project, url)
    sender.send(0)
    return proxy, sender


def messages(project):
    with kombu.Connection(project.broker) as connection:
        try:
            return connection.default_channel.queue_declare(project.queue, passive=True)[1]
        except ChannelError:  # on Redis there is no empty queue
            return 0


def lose_the_answer(proxied, number):
    """The broker takes the message, but its sender does not learn it."""
    proxy, sender = proxied
    proxy.mute()
    sender.send(number)
    assert sender.doubts == 1


def is_settled(project):
    """Whether no copy waits, or will be sent."""
    return project.parked() == 0 and messages(project) == 0


def dropped(project):
    return project.logged().count("this copy is dropped")


@pytest.mark.parametrize(
    "workers", ["one worker", pytest.param("two workers", marks=pytest.mark.nightly)]
)
def test_an_original_that_was_taken_before_its_letter_exists(project, proxied, runs, workers):
    with contextlib.ExitStack() as stack:
        if workers == "two workers":  # the first one sends what is due
            stack.enter_context(project.worker(*IDLE))
        stack.enter_context(project.worker("-c", "1"))
        runs(0)
        lose_the_answer(proxied, 1)
        wait_for("the letter to be settled", lambda: is_settled(project))
        runs(0, 1)
    assert dropped(project) == 0, "no copy was sent"


@pytest.mark.nightly
def test_an_original_that_waits_until_its_letter_is_known(project, proxied, runs):
    lose_the_answer(proxied, 1)
    with project.worker("-c", "1"):
        runs(0, 1)
        wait_for("the letter to be settled", lambda: is_settled(project))
    runs(0, 1)


def test_an_original_that_is_late(project, proxied, runs):
    proxy, sender = proxied
    proxy.hold()
    sender.send(1)
    assert (sender.doubts, messages(project)) == (1, 1)
    with project.worker("-c", "1"):
        runs(0, 1)  # this is the copy
        proxy.flow()
        wait_for("the original to be dropped", lambda: dropped(project) == 1)
        runs(0, 1)
    assert is_settled(project)


@pytest.mark.nightly
def test_both_copies_wait_for_the_first_worker(project, proxied, runs):
    lose_the_answer(proxied, 1)
    with project.worker(*IDLE):
        wait_for("the copy to be sent", lambda: messages(project) == 3)
    with project.worker("-c", "2"):
        wait_for(
            "a copy to be dropped", lambda: dropped(project) == 1 or len(project.lines("runs")) > 2
        )
        runs(0, 1)
    assert is_settled(project)


@pytest.mark.nightly
def test_an_original_that_never_came(project, proxied, runs):
    proxy, sender = proxied
    proxy.hold()
    sender.send(1)
    proxy.cut()
    with project.worker("-c", "1"):
        runs(0, 1)
        wait_for("the letter to be settled", lambda: is_settled(project))

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from support.clock import Clock

from celery_dlq.errors import BrokerError
from celery_dlq.upkeep.stall import StallWatch

BEGAN = datetime(2026, 11, 25, 12, 0, tzinfo=timezone.utc)


class World:
    """A consumer, its broker and the watch over it, under a clock that the test moves. The watch looks when
    it wants to."""

    def __init__(self, stall_after_s=300.0, *, pays=False):
        self.clock = Clock()
        #: What the consumer says.
        self.received, self.stall, self.names, self.is_free = 0, None, ["celery"], True
        self.keeps = set()
        #: What the broker says: messages by queue; an error if there is no answer.
        self.depths, self.questions = {}, 0
        #: What happens while the broker is asked.
        self.meanwhile = lambda: None
        self.seen = []
        self.watch = StallWatch(
            "w@host", self, self.ask, stall_after_s=stall_after_s, pays=pays,
            monotonic=self.clock, now=lambda: BEGAN + timedelta(seconds=self.clock()),
        )  # fmt: skip

    def queues(self):
        return self.names

    def kept(self):
        return self.keeps

    def could_receive(self):
        return self.is_free

    def ask(self, names):
        self.questions += 1
        self.meanwhile()
        if self.depths is None:
            raise BrokerError
        return {name: self.depths[name] for name in names if self.depths.get(name)}

    def look(self):
        """Wait for the next look; what it has seen."""
        self.clock.now += self.watch.wait_s
        try:
            seen = self.watch.look()
        except BrokerError:
            seen = None
        if seen is not None:
            self.seen.append(seen)
        return seen

    def run(self, seconds, before_look=lambda: None):
        """Look for this long."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            before_look()
            self.look()


@pytest.fixture
def world():
    return World()


@pytest.fixture
def make_world():
    return World

"""A store for tests of the writer, and what a test does with a writer."""

import threading
import time

from support.factories import letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.spool.directory import Spool


class FakeStore:
    """Takes what it is told to take; counts its transactions."""

    def __init__(self):
        self.saved, self.outcomes, self.batches = [], [], []
        self.down = False
        self.poison = set()
        self.gate = None
        self.entered = threading.Event()
        self.calls = self.checks = 0
        #: The role whose methods a writer calls.
        self.letters = self

    def check_schema(self):
        self.checks += 1
        if self.down:
            raise StoreUnavailable

    def save(self, letters):
        self.calls += 1
        self.entered.set()
        if self.gate:
            assert self.gate.wait(60)
        if self.down:
            raise StoreUnavailable
        if self.poison & {made.task_id for made in letters}:
            raise ValueError("the database chokes on this")
        self.batches.append(len(letters))
        self.saved += [made.task_id for made in letters]

    def record_outcomes(self, outcomes):
        self.outcomes += [outcome.task_id for outcome in outcomes]


def submit(writer, *records):
    safe = []
    for record in records:
        writer.write(record, lambda record=record: safe.append(record.task_id))
    writer.flush()
    return safe


def spooled(writer):
    writer.stop()
    return [record.task_id for record in drained(writer._spool)]


def drained(spool):
    found = []
    for _step in spool.drain(found.extend):
        pass
    return found


def wait_until(ready):
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def spooled_by_an_earlier_worker(directory, count):
    spool = Spool(directory)
    spool.append([letter(f"old{n}") for n in range(count)])
    spool.close()

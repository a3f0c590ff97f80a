"""What a master of Redis loses when it is killed, and which of its settings keep it from that."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from chaos.broker_clusters import MASTER, RedisSentinel
from chaos.clusters import until
from chaos.workers import TESTS, Worker
from kombu import Connection, Producer
from support.servers.clusters import running

pytestmark = [pytest.mark.nightly, pytest.mark.service, pytest.mark.timeout(600)]


class Publisher(threading.Thread):
    """Sends messages, and notes those that the broker has accepted."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.accepted, self.refused, self.halt = [], [], threading.Event()
        self._url = url

    def run(self):
        options = {"master_name": MASTER}
        with (
            Connection(self._url, transport_options=options) as connection,
            contextlib.suppress(*connection.connection_errors),
        ):
            producer = Producer(connection.channel(), auto_declare=False)
            while not self.halt.is_set():
                task_id = str(len(self.accepted) + len(self.refused))
                try:
                    producer.publish({}, routing_key="q", headers={"id": task_id})
                except connection.channel_errors as error:
                    self.refused.append((task_id, str(error)))
                else:
                    self.accepted.append(task_id)


def lost(*options):
    """The messages that a killed master had accepted, and its successor does not have; the refusals; and what
    the account finds in the files."""
    with running(lambda directory: RedisSentinel(directory, *options)) as broker:
        publisher = Publisher(broker.url)
        publisher.start()
        while len(publisher.accepted) < 100:
            publisher.join(0.05)
            assert publisher.is_alive()
        broker.kill()
        publisher.join()
        broker.start()
        left = broker.messages("q")
        return len(publisher.accepted) - left, publisher.refused, broker.undone("q")


def test_a_master_that_is_killed_loses_what_it_had_not_copied():
    missing, refused, undone = lost()
    assert missing > 0
    assert len(undone.accepted) == missing
    assert refused == []


def test_a_master_without_a_replica_refuses_messages_if_it_must_have_one():
    missing, refused, undone = lost("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
    assert missing == len(undone.accepted)
    assert missing <= 1  # the one that was on its way when the replicas were cut off
    assert {why.split()[0] for _, why in refused} == {"NOREPLICAS"}


def celery(environment, *words):
    command = [sys.executable, "-m", "celery", "-A", "chaos.workload", *words]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def test_a_worker_whose_master_hangs_comes_back(tmp_path):
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    with running(RedisSentinel) as broker:
        environment = {
            **os.environ,
            "CHAOS_BROKER": broker.url,
            "CHAOS_BACKEND": broker.url,
            "CHAOS_STORE": f"sqlite:///{tmp_path / 'letters.sqlite3'}",
            "CHAOS_SPOOL": str(tmp_path / "spool"),
            "CHAOS_LEDGER": str(ledger),
            "PYTHONPATH": os.pathsep.join(map(str, (TESTS, Path(TESTS).parent))),
        }
        celery(environment, "dlq", "db", "upgrade")
        worker = Worker(1, tmp_path, environment)
        worker.start()
        try:
            until("the worker", lambda: worker.is_ready)
            hangs = broker.master
            broker.freeze()
            until("another master", lambda: broker.master is not hangs)
            # Its connection is open, and a message waits on the other master.
            celery(environment, "call", "quick", "--args", "[1]")
            until("the task", lambda: b'"finished"' in _rows(ledger))
            assert _rows(ledger).count(b'"finished"') == 1
        finally:
            broker.thaw()
            worker.kill()


def _rows(ledger):
    return b"".join(path.read_bytes() for path in ledger.glob("*.jsonl"))

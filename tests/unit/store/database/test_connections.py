import threading
import time

import pytest
from sqlalchemy import create_engine, event, exc
from sqlalchemy.pool import QueuePool

from celery_dlq.store.database.connections import Connections

PATIENCE_S = 60


class Server:
    """Counts the connections that are open."""

    def __init__(self, tmp_path, most=2, idle_s=0.05, patience_s=0.1):
        engine = create_engine(
            f"sqlite:///{tmp_path}/server", poolclass=QueuePool, pool_size=9, max_overflow=0,
            pool_use_lifo=True, connect_args={"check_same_thread": False},
        )  # fmt: skip
        self.open = self.opened = 0
        event.listen(engine, "connect", self._on_connect)
        event.listen(engine, "close", self._on_close)
        self.connections = Connections(engine, most, patience_s=patience_s, idle_s=idle_s)

    def _on_connect(self, *_):
        self.open += 1
        self.opened += 1

    def _on_close(self, *_):
        self.open -= 1

    def use(self, at_once=1):
        """Have so many connections at the same time."""
        with self.connections.used() as engine, engine.connect():
            if at_once > 1:
                self.use(at_once - 1)

    def wait_until_open(self, number):
        deadline = time.monotonic() + PATIENCE_S
        while self.open != number:
            assert time.monotonic() < deadline, self.open
            time.sleep(0.005)


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.connections.close()
    assert server.open == 0


def test_one_connection_is_used_again_and_again(tmp_path):
    server = Server(tmp_path, idle_s=PATIENCE_S)
    for _ in range(5):
        server.use()
    assert (server.opened, server.open) == (1, 1)
    server.connections.close()
    assert server.open == 0


def test_connections_that_nothing_uses_are_closed_and_opened_again_when_needed(server):
    server.use(2)
    server.wait_until_open(0)
    server.use()
    assert server.opened == 3
    server.wait_until_open(0)


def test_of_more_connections_than_are_needed_the_others_are_closed(server):
    """Also when one of them is never idle for long."""
    server.use(2)
    assert server.opened == 2
    deadline = time.monotonic() + PATIENCE_S
    while server.open != 1:
        assert time.monotonic() < deadline
        server.use()
        time.sleep(0.005)


def test_no_more_threads_than_agreed_use_it_at_a_time(server):
    with pytest.raises(exc.TimeoutError):
        server.use(3)
    assert server.opened == 2


def test_one_that_waits_goes_on_when_another_is_done(tmp_path):
    server = Server(tmp_path, most=1, patience_s=PATIENCE_S)
    waiting = threading.Thread(target=server.use)
    with server.connections.used() as engine, engine.connect():
        waiting.start()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert server.opened == 1
    server.connections.close()


def test_there_may_be_more_for_a_while(server):
    with server.connections.extended(2):
        server.use(4)
    assert server.opened == 4
    with pytest.raises(exc.TimeoutError):
        server.use(3)
    server.wait_until_open(0)


def watchers():
    """Threads that close connections. Those of other tests may be among them, and end at any time."""
    return {thread for thread in threading.enumerate() if thread.name == "dlq-connections"}


def test_its_thread_ends_with_the_last_connection(server):
    before = watchers()
    server.use()
    server.wait_until_open(0)
    deadline = time.monotonic() + PATIENCE_S
    while watchers() - before:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_without_a_bound_nothing_is_watched(tmp_path):
    server = Server(tmp_path, most=None)
    before = watchers()
    server.use(5)
    assert watchers() <= before
    server.connections.close()


def test_a_pause_waits_for_those_that_are_used_and_closes_all(server):
    paused = threading.Event()

    def pause():
        server.connections.pause(PATIENCE_S)
        paused.set()

    with server.connections.used() as engine, engine.connect():
        thread = threading.Thread(target=pause)
        thread.start()
        assert not paused.wait(0.05)
        assert server.open == 1
    thread.join()
    assert server.open == 0


def test_during_a_pause_no_connection_is_opened(server):
    server.connections.pause(PATIENCE_S)
    with pytest.raises(exc.TimeoutError):
        server.use()
    server.connections.resume()
    server.use()


def test_a_pause_does_not_wait_for_ever(server):
    with server.connections.used() as engine, engine.connect():
        server.connections.pause(0.01)
        assert server.open == 1
    server.connections.resume()
    server.use()


def test_two_pauses_both_have_to_end(server):
    server.connections.pause(PATIENCE_S)
    server.connections.pause(PATIENCE_S)
    server.connections.resume()
    with pytest.raises(exc.TimeoutError):
        server.use()
    server.connections.resume()
    server.use()


def test_without_a_thread_to_spare_no_connection_counts_as_used(server, no_thread):
    with no_thread(), pytest.raises(RuntimeError, match="can't start new thread"):
        server.use()
    server.use()
    server.wait_until_open(0)

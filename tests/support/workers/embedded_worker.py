"""A worker in a thread of this process, which leaves nothing behind in it for other tests."""

from __future__ import annotations

import contextlib

from celery import _state, signals
from celery.contrib.testing.worker import start_worker
from kombu.transport.memory import Transport

#: Seconds after which a test gives up.
PATIENCE_S = 60

#: Of the broker in memory, which looks for messages once a second.
QUICK = {"polling_interval": 0.02}


@contextlib.contextmanager
def working(app, **options):
    """A worker of ``app``, on a broker in memory; it has ended when this ends."""
    with _own_logging(), _own_apps(), _quick_to_stop():
        app.conf.worker_redirect_stdouts = False
        with start_worker(
            app, perform_ping_check=False, shutdown_timeout=PATIENCE_S, **options
        ) as worker:
            yield worker


@contextlib.contextmanager
def _own_logging():
    """Celery's would take the handlers of the root logger away."""

    def leave_alone(**_):
        return None

    signals.setup_logging.connect(leave_alone, weak=False)
    try:
        yield
    finally:
        signals.setup_logging.disconnect(leave_alone)


@contextlib.contextmanager
def _own_apps():
    """The app of an embedded worker becomes the default one."""
    default, current = _state.default_app, _state._tls.current_app
    try:
        yield
    finally:
        _state.default_app, _state._tls.current_app = default, current


@contextlib.contextmanager
def _quick_to_stop():
    """Celery looks every two seconds whether a worker without an event loop is to end."""
    drain = Transport.drain_events
    Transport.drain_events = lambda self, connection, timeout: drain(self, connection, 0.05)
    try:
        yield
    finally:
        Transport.drain_events = drain

"""NATS and JetStream."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import Row, network, probed, terminal, transient, within

ROWS: tuple[Row, ...] = (
    # nats/errors.py, nats/js/errors.py; JetStream answers with codes like those of HTTP.
    transient(
        "nats.network",
        *within(
            "nats.errors",
            "TimeoutError ConnectionClosedError ConnectionReconnectingError ConnectionDrainingError "
            "StaleConnectionError OutboundBufferLimitError SlowConsumerError NoRespondersError",
        ),
        "nats.js.errors.NoStreamResponseError",
        "nats.js.errors.TooManyStalledMsgsError",
    ),
    network("nats.network", "nats.errors.NoServersError"),
    probed("http.status", http_status(("code",)), "code", "nats.js.errors.APIError"),
    terminal("nats.error", "nats.errors.Error"),
)

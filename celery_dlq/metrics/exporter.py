"""A separate server for the metrics, if no other process is scraped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server

from celery_dlq.errors import ExporterError
from celery_dlq.metrics.collector import SERVER_WAIT_S, register
from celery_dlq.metrics.snapshot import Reading, Snapshots


@contextlib.contextmanager
def exporting(snapshots: Snapshots[Reading], *, address: str, port: int) -> Iterator[str]:
    """Serve the metrics on a registry of their own; returns their URL.

    :param port: 0 for any free port.
    :raises ExporterError: it cannot listen there.
    """
    registry = CollectorRegistry()
    register(snapshots, registry, wait_s=SERVER_WAIT_S)
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise ExporterError(
            f"Cannot listen on {address} port {port} ({error.strerror or error}); "
            "choose others with --address and --port."
        ) from error
    host = f"[{address}]" if ":" in address else address
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

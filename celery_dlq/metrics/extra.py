"""The optional package for metrics."""

from __future__ import annotations

from importlib.util import find_spec

from celery_dlq.errors import MissingExtra


def need_prometheus() -> None:
    """Check that metrics can be made here.

    :raises MissingExtra: ``prometheus_client`` is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise MissingExtra(
            "Metrics need the package prometheus-client; run: pip install 'celery-dlq[prometheus]'"
        )

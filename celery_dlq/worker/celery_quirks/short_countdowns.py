"""Waits of less than a second on RabbitMQ's quorum queues: Celery refuses them, and the message is lost.

On quorum queues a message waits in the broker, for whole seconds. ``Celery.send_task`` cuts a wait to whole
seconds (celery 5.7.0, app/base.py, line 1138; the same since 5.5), and ``calculate_routing_key`` raises for 0
(kombu 5.7.0, transport/native_delayed_delivery.py, line 156). ``retry()`` turns that error into a Reject, and
the message that was to be retried is dropped. No issue upstream names this, as of November 2026.

It can be deleted when Celery sends such a message. ``retry-subsecond`` of the matrix, in
``tests/integration/test_matrix_on_rabbitmq.py``, fails without it on quorum queues.
"""

from __future__ import annotations

from typing import Any

from celery.utils.quorum_queues import detect_quorum_queues


def sendable(app: Any, countdown: Any) -> Any:
    """``countdown``, or a wait near it that the broker of ``app`` can carry: on quorum queues, a part of a
    second is rounded."""
    if not isinstance(countdown, (int, float)) or not 0.0 < countdown < 1.0:
        return countdown
    driver = app.connection_for_write().transport.driver_type
    if not detect_quorum_queues(app, driver)[0]:
        return countdown
    return float(round(countdown))

"""STOMP and MQTT: stomp.py and paho-mqtt."""

from __future__ import annotations

from celery_dlq.classify.table import Row, terminal, transient, within

ROWS: tuple[Row, ...] = (
    # stomp/exception.py.
    transient(
        "stomp.network",
        *within(
            "stomp.exception",
            "ConnectFailedException ConnectionClosedException NotConnectedException InterruptedException",
        ),
    ),
    terminal("stomp.error", "stomp.exception.StompException"),
    terminal("mqtt.error", "paho.mqtt.exception.MQTTException"),
)

from __future__ import annotations

import socket
from socketserver import BaseServer
from urllib.request import urlopen

import pytest

from celery_dlq.errors import ExporterError, StoreUnavailable
from celery_dlq.metrics.collector import exporting
from celery_dlq.metrics.snapshot import Snapshots


def gone():
    raise StoreUnavailable


@pytest.fixture(autouse=True)
def quick_to_stop(monkeypatch):
    """The server looks every half a second whether it is to end."""
    monkeypatch.setattr(BaseServer.serve_forever, "__defaults__", (0.01,))


@pytest.fixture
def snapshots():
    return Snapshots(gone, patience_s=5)


def test_it_serves_metrics_of_its_own_and_no_others(snapshots):
    with exporting(snapshots, address="127.0.0.1", port=0) as url:
        assert url.startswith("http://127.0.0.1:")
        with urlopen(url, timeout=60) as response:
            text = response.read().decode()
    assert "celery_dlq_up 0.0" in text
    assert "python_info" not in text


def test_its_port_is_free_again_when_it_ends(snapshots):
    with exporting(snapshots, address="127.0.0.1", port=0) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
    with exporting(snapshots, address="127.0.0.1", port=port) as again:
        assert again == url


def test_a_port_that_is_taken_is_named(snapshots):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(
                ExporterError, match=rf"127.0.0.1 port {port} \(Address already in use\)"
            ),
            exporting(snapshots, address="127.0.0.1", port=port),
        ):
            pass


def test_an_invalid_address_is_named(snapshots):
    with (
        pytest.raises(ExporterError, match=r"Cannot listen on no\.such\.invalid.*--address"),
        exporting(snapshots, address="no.such.invalid", port=0),
    ):
        pass

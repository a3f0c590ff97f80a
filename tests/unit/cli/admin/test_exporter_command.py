from __future__ import annotations

import os
import re
import signal
import threading
from urllib.request import urlopen

import pytest
from support.factories import letter

from celery_dlq.cli.admin import monitoring
from celery_dlq.metrics import collector, families


@pytest.fixture
def scraped(monkeypatch):
    """Scrapes the exporter once it waits, then sends it a signal; keeps the metrics."""
    texts: list[str] = []
    urls: list[str] = []
    say = monitoring.Session.say

    def note(session, text):
        urls.extend(re.findall(r"http://\S+", text))
        say(session, text)

    class Stop(threading.Event):
        def wait(self, timeout=None):
            with urlopen(urls[-1], timeout=60) as response:
                texts.append(response.read().decode())
            os.kill(os.getpid(), signal.SIGTERM)
            return super().wait(60)

    monkeypatch.setattr(monitoring.Session, "say", note)
    monkeypatch.setattr(monitoring, "Event", Stop)
    monkeypatch.setattr(collector, "SERVER_WAIT_S", 60.0)
    return texts


def test_it_serves_until_a_signal(run, store, scraped):
    store.letters.save([letter()])
    before = signal.getsignal(signal.SIGTERM)
    result = run("exporter", "--port", 0)
    assert result.exit_code == 0
    assert re.search(r"Serving http://127\.0\.0\.1:\d+/metrics\nStopped\.", result.stderr)
    assert 'celery_dlq_depth{queue="celery",reason="terminal",task="shop.charge"} 1.0' in scraped[0]
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_unreachable_store_is_reported_and_awaited(run, app, scraped):
    app.conf.dlq_store_url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    app.conf.dlq_store_timeout = 0.5
    result = run("exporter", "--port", 0)
    assert result.exit_code == 0
    assert "cannot be used" in result.stderr
    assert "Until this is fixed, celery_dlq_up is 0." in result.stderr
    assert "celery_dlq_up 0.0" in scraped[0]


def test_a_store_that_does_not_exist_is_reported_and_not_made(run, app, scraped, tmp_path):
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/absent.sqlite3"
    result = run("exporter", "--port", 0)
    assert result.exit_code == 0
    assert f"{tmp_path}/absent.sqlite3 does not exist; set CELERY" in result.stderr
    assert "celery_dlq_up 0.0" in scraped[0]
    assert not (tmp_path / "absent.sqlite3").exists()


def test_without_the_extra_it_says_what_to_install(run, monkeypatch):
    monkeypatch.setattr(families, "find_spec", lambda name: None)
    result = run("exporter")
    assert result.exit_code == 1
    assert "pip install 'celery-dlq[prometheus]'" in result.stderr


def test_a_permanent_store_error_ends_it(run, app):
    app.conf.dlq_store_url = "oracle://somewhere"
    result = run("exporter", "--port", 0)
    assert result.exit_code == 1
    assert "oracle" in result.stderr


def test_an_invalid_port_is_refused(run):
    assert run("exporter", "--port", 70_000).exit_code == 2

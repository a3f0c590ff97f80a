"""Our metrics beside Flower's own."""

from __future__ import annotations

import threading

from celery_dlq.metrics import collector

SOON_S = 60


def metrics_of(visitor) -> list[str]:
    answer = visitor.get("/metrics")
    assert answer.status == 200
    assert "flower_events" in answer.body
    return [line for line in answer.body.splitlines() if line.startswith("celery_dlq_")]


def test_the_metrics_are_on_flowers_page(ann):
    collector._registered[collector.REGISTRY]._snapshots.look(SOON_S)
    found = metrics_of(ann)
    assert "celery_dlq_up 1.0" in found
    assert 'celery_dlq_depth{queue="mail",reason="terminal",task="shop.mail"} 1.0' in found


def test_a_hanging_store_does_not_block_flower(ann, site_of, monkeypatch):
    let = threading.Event()
    try:
        monkeypatch.setattr(site_of(ann), "queue", lambda: let.wait(SOON_S))
        assert metrics_of(ann) == []
        assert ann.get("/healthcheck").status == 200
    finally:
        let.set()


def test_an_unreachable_store_is_down_in_the_metrics(visit, app, tmp_path):
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/no/such/directory/store.sqlite3"
    visitor = visit()
    collector._registered[collector.REGISTRY]._snapshots.look(SOON_S)
    assert metrics_of(visitor) == ["celery_dlq_up 0.0"]
